//! Makes a release: the image of each platform under one OCI index, the Helm chart that names the digest of this index, plain
//! manifests, provenance, and checksums. The same commit always gives the same digests, so a release that broke off can be repeated.
//!
//! Reading order:
//!
//! - [`plan`]: what a release consists of, and where it goes.
//! - [`checks`]: whether the checkout is ready for it, and stays the same during the builds.
//! - [`compatible`]: whether the kinds still accept what those of the last release accepted.
//! - [`artifacts`]: puts everything together on this machine. [`package`] makes the chart, [`plugin`] the archives with the plugin of
//!   kubectl, [`oci`] has the formats of registries, [`statement`] says where everything comes from.
//! - [`publish`]: asks the registry before the builds, and sends the release to it after them, the tags last. [`cosign`] signs it.
//! - [`layout`]: writes the release into a folder instead, which `publish.sh` publishes where no crate may be compiled.
//! - [`documented`]: verifies a release with the commands that the chart's README gives to users.
//! - [`checkout`]: a small repository from which tests make releases.
//!
//! `cargo xtask release` builds the images and calls these in turn.

pub mod artifacts;
pub mod checkout;
pub mod checks;
pub mod cosign;
pub mod documented;
mod git;
mod hub;
pub mod layout;
pub mod oci;
pub mod package;
pub mod plan;
pub mod plugin;
pub mod publish;
mod schemas;
pub mod statement;

pub use artifacts::{Artifacts, Image};
pub use checks::{Ready, check, unchanged_during};
pub use layout::{check_unused, export};
pub use plan::Plan;
pub use plugin::Plugin;
pub use publish::{preflight, publish};
pub use schemas::compatible;

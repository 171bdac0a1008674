//! Makes OCI images without a daemon and serves them to a node.
//!
//! Reading order: [`layer`] packs files, [`image`] wraps a layer into a configuration and a manifest, [`store`] keeps
//! images in a folder, [`registry`] serves that folder. [`fixtures`] lists the images that samples and tests use,
//! built from Go sources of ours and from Debian's packages ([`debian`], [`closure`]); [`operator`] packs the product, and
//! [`sbom`] lists what is in it.

mod cargo;
pub mod closure;
pub mod debian;
pub mod digest;
mod export;
pub mod fixtures;
mod go;
pub mod image;
pub mod layer;
pub mod operator;
pub mod reference;
pub mod registry;
pub mod sbom;
pub mod store;

pub use cargo::cargo;
pub use digest::Digest;
pub use fixtures::ensure_fixtures;
pub use image::{Compression, Image, ImageSpec};
pub use layer::Layer;
pub use reference::Reference;
pub use registry::serve;
pub use store::{Store, default_store};

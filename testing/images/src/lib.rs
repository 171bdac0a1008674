//! Builds OCI images without a container daemon and serves them to a node.
//!
//! Reading order: [`layer`] packs files; [`image`] adds a configuration and a manifest to a layer; [`store`] keeps images in a
//! folder; [`registry`] serves that folder. [`fixtures`] lists the images of samples and tests, and builds them from this
//! repository's Go sources and from Debian's packages ([`debian`], [`closure`]). [`operator`] builds the image of the product,
//! `folders` and [`settings`] make its programs the same in each folder and for each user, `elf` checks that they need no libraries,
//! [`sbom`] lists what is linked into them, and [`tools`] what has compiled them.
#![deny(missing_docs)]

mod cargo;
pub mod closure;
pub mod debian;
pub mod digest;
mod elf;
mod export;
pub mod fixtures;
mod folders;
mod go;
pub mod image;
pub mod layer;
pub mod operator;
mod platform;
pub mod reference;
pub mod registry;
pub mod sbom;
pub mod settings;
pub mod store;
pub mod tools;

pub use cargo::{cargo, hide_the_caller};
pub use digest::Digest;
pub use fixtures::{ensure_fixture, ensure_fixtures};
pub use image::{Compression, Image, ImageSpec};
pub use layer::Layer;
pub use platform::Platform;
pub use reference::Reference;
pub use registry::serve;
pub use store::{Store, default_store};

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

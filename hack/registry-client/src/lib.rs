//! A client of image registries: pushes images, charts and what belongs to them, and pulls them again.
//!
//! The protocol itself, the exchange of tokens and the check of digests come from the crate `oci-client`; the credentials come from
//! `docker_credential`. This crate adds what a release needs: a push that can be repeated and uploads nothing twice, retries, and
//! encryption for every registry that is not on this machine.
//!
//! Reading order: [`client`] has the operations, [`image`] uses them for an image of the store, [`retry`] decides what the client
//! tries again, [`credentials`] finds the user's password.

pub mod client;
pub mod credentials;
pub mod image;
pub mod retry;

pub use client::{Client, Manifest, Name, Options, PlainHttp, Pushed};
pub use credentials::Credentials;
pub use retry::Retry;

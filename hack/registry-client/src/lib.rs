//! A client of image registries: pushes images, charts and what belongs to them, and pulls them again.
//!
//! The protocol itself and the check of digests come from the crate `oci-client`; the credentials come from `docker_credential`. This
//! crate adds what a release needs: a push that can be repeated and uploads nothing twice, retries, the question whether a push is
//! allowed, and encryption for every registry and every token server that is not on this machine.
//!
//! It does not mount blobs from other repositories. The image and the chart of a release share only the empty configuration of what is
//! attached to them, which has two bytes, and a provenance without signatures. What the registry has in the repository itself, the
//! client does not send again.
//!
//! Reading order: [`client`] has the operations, [`image`] uses them for an image of the store, [`retry`] decides what the client
//! tries again, [`credentials`] finds the user's password, and `token` exchanges it for tokens.

pub mod client;
pub mod credentials;
mod error;
pub mod image;
pub mod retry;
mod token;

pub use client::{Client, Manifest, Name, Options, PlainHttp, Pushed};
pub use credentials::Credentials;
pub use retry::Retry;

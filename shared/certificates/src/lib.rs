//! Serving certificates of our own, and the authorities that clients trust.
//!
//! [`Pair`] makes certificates, and [`Certificate`] is what one says: pure code for callers that decide themselves when to renew.
//!
//! Replicas share the certificates in one Secret, without a lock. [`plan`] decides when to issue which certificate, as pure code.
//! [`CertificateManager`] carries that out in rounds: it reads the Secret, brings the bundle of authorities to those who have to
//! trust it ([`Distribution`]), and stores what has changed. [`InSecret`] is for clients that read the bundle from the Secret.
#![deny(missing_docs)]

mod certificate;
mod keeper;
mod pki;
mod request;

pub use certificate::{Certificate, CertificateError, Pair, Validity};
pub use keeper::{CertificateManager, CertificateStore, Distribution, InSecret, Round, TrustState};
pub use pki::{CertificateBundle, Policy, has_expired};
pub use request::{Error, ask};

use pki::{Propagation, plan};

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

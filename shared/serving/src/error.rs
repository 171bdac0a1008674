//! Why a certificate, a key or a bundle is refused.

use std::{io, path::PathBuf};

use rustls::pki_types::pem;

/// Why a certificate, a key or a bundle is refused.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file is missing, or the process may not read it.
    #[error("could not read {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The PEM text is broken, perhaps half-written.
    #[error("the {what} is not PEM text that can be used: {source}")]
    Pem {
        /// Which part.
        what: &'static str,
        /// Why.
        source: pem::Error,
    },
    /// The text has no certificate.
    #[error("there is no certificate in the {0}")]
    Empty(&'static str),
    /// The certificate cannot be read, or the key does not belong to it.
    #[error("the certificate and the key cannot be used together")]
    Pair(#[source] rustls::Error),
    /// The certificate is not valid X.509.
    #[error("the certificate is not valid X.509")]
    Certificate,
    /// The bundle cannot be used to check client certificates.
    #[error("clients cannot be checked with the bundle: {0}")]
    Bundle(String),
}

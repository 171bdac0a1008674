//! Requests to the API server with a time-out, and their errors.

use std::{future::Future, time::Duration};

use api_errors::{Class, chain, classify};

use crate::CertificateError;

/// Why the certificate or the trust in it could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be made or read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The API server refused a request, or did not answer.
    #[error("{what}: {}", chain(.source))]
    Api {
        /// What failed, such as "cannot read Secret a".
        what: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("{what}: no answer within {}s", DEADLINE.as_secs())]
    Deadline {
        /// What failed.
        what: String,
    },
    /// Each try lost against another client.
    #[error("other clients keep changing Secret {0}")]
    Contended(String),
}

/// The time-out of one request.
const DEADLINE: Duration = Duration::from_secs(15);

/// Sends a request with a time-out of 15 s. `what` begins the message of an error, such as "cannot read Secret a".
///
/// # Errors
///
/// The API server refuses the request, or does not answer in time.
pub async fn ask<T>(what: &str, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Error> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(Error::Api { what: what.to_owned(), source: Box::new(source) }),
        Err(_) => Err(Error::Deadline { what: what.to_owned() }),
    }
}

impl Error {
    /// What the error means for the caller.
    pub fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => classify(source),
            _ => Class::Transient,
        }
    }
}

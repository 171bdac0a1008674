//! Requests to the API server with a time-out, and their errors.

use std::{future::Future, time::Duration};

use super::pki;
use api_errors::{Class, chain, classify};

/// Why the certificate or the trust in it could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Certificate(#[from] pki::Error),
    #[error("{what}: {}", chain(.source))]
    Api { what: String, source: Box<kube::Error> },
    #[error("{what}: no answer within {}s", DEADLINE.as_secs())]
    Deadline { what: String },
    #[error("other clients keep changing Secret {0}")]
    Contended(String),
}

/// The time-out of one request.
const DEADLINE: Duration = Duration::from_secs(15);
/// Sends a request with a time-out. `what` begins the message of an error, such as "cannot read Secret a".
pub(super) async fn ask<T>(what: &str, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Error> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(Error::Api { what: what.to_owned(), source: Box::new(source) }),
        Err(_) => Err(Error::Deadline { what: what.to_owned() }),
    }
}

impl Error {
    pub(super) fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => classify(source),
            _ => Class::Transient,
        }
    }
}

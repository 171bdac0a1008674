//! The errors of a reconcile, and how the queue retries them.

use std::{error::Error as StdError, fmt, time::Duration};

use api_errors::{Class, chain, classify, is_unauthorized, retry_after};
use webhooks::FieldError;

/// The time after which the client has read its token again, and uses a new one.
const TOKEN_IS_READ: Duration = Duration::from_mins(1);

/// Why a reconcile could not finish. The queue retries it with back-off, or after the time that the API server has named; after
/// [`Invalid`](Self::Invalid), and in a namespace that is being deleted, only when the object changes. A refused write that a user
/// has to fix (a rejected child, a name conflict) is recorded on the [`Context`](crate::Context) instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed.
    #[error("could not {request}")]
    Api {
        /// The request that failed.
        request: Request,
        /// The answer, or why there was none.
        #[source]
        source: Box<kube::Error>,
    },
    /// A request of [`Context::client`](crate::Context::client) failed.
    #[error("a request failed")]
    Client {
        /// The answer, or why there was none.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("could not {request}: no answer within {}s", after.as_secs())]
    Deadline {
        /// The request without an answer.
        request: Request,
        /// The deadline of the request.
        after: Duration,
    },
    /// An object could not be encoded as JSON, or an answer could not be decoded.
    #[error("could not {request}: the object does not decode")]
    Decode {
        /// The request that the object belongs to.
        request: Request,
        /// The place in the JSON, and what is wrong there.
        #[source]
        source: serde_json::Error,
    },
    /// This process is not the leader any more, so it did not send the request.
    #[error("did not {request}: this process is not the leader")]
    NotLeading {
        /// The request that was not sent.
        request: Request,
    },
    /// The operator's own validation refuses the object. There is no retry until the object changes.
    #[error("{field}: {why}")]
    Invalid {
        /// The path of the field, as the user writes it.
        field: String,
        /// What is wrong, and what is allowed.
        why: String,
    },
    /// An operator's own failure, which is retried with back-off.
    #[error(transparent)]
    Other(Box<dyn StdError + Send + Sync>),
}

/// A validation of the operator's own refuses the object.
impl From<FieldError> for Error {
    fn from(FieldError { field, why }: FieldError) -> Self {
        Self::Invalid { field, why }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Client { source: Box::new(error) }
    }
}

/// How the queue retries a failed key. An enum, so that two answers can never contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// With the key's exponential back-off.
    Backoff,
    /// After the time that the API server requested (`Retry-After`).
    After(Duration),
    /// Not before the object changes (controller-runtime's terminal error).
    WhenChanged,
}

/// A request to the API server as it appears in errors: `create Deployment "cache" in namespace "default"`.
#[derive(Debug, Clone)]
pub struct Request {
    /// `get`, `create`, `apply`, `patch`, `delete`.
    pub verb: &'static str,
    /// The kind, in `CamelCase`.
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Error {
    /// Returns how the queue retries.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Invalid { .. } => Retry::WhenChanged,
            Self::Api { source, .. } | Self::Client { source } => match classify(source) {
                Class::NamespaceTerminating => Retry::WhenChanged,
                _ => retry_after(source).map_or(Retry::Backoff, Retry::After),
            },
            Self::Deadline { .. } | Self::Decode { .. } | Self::NotLeading { .. } | Self::Other(_) => Retry::Backoff,
        }
    }

    /// Returns the time until the next try at the latest, however long the back-off has grown. Only for an error that has
    /// nothing to do with the object and ends by itself within this time: an expired token.
    pub(crate) fn no_later_than(&self) -> Option<Duration> {
        match self {
            Self::Api { source, .. } | Self::Client { source } if is_unauthorized(source) => Some(TOKEN_IS_READ),
            _ => None,
        }
    }

    /// Returns a `CamelCase` word for events, conditions and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "InvalidSpec",
            Self::Api { source, .. } | Self::Client { source } if classify(source) == Class::Forbidden => "Forbidden",
            _ => "ReconcileError",
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } | Self::Client { source } => classify(source),
            _ => Class::Transient,
        }
    }

    /// Whether the API server may have carried out a write although it failed in this way.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self, Self::NotLeading { .. }) && self.class() == Class::Transient
    }

    /// Returns the error with its causes on one line, as it goes into logs and events.
    pub fn chain(&self) -> String {
        chain(self)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} \"{}\"", self.verb, self.kind, self.name)?;
        if !self.namespace.is_empty() {
            write!(f, " in namespace \"{}\"", self.namespace)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cannot_forge_a_log_line() {
        let error = Error::Other("first\n{\"level\":\"info\"}".into());
        assert_eq!(error.chain(), "first {\"level\":\"info\"}");
    }
}

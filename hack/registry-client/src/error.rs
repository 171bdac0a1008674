//! Why a request failed.

use http::StatusCode;
use oci_client::errors::OciDistributionError;

use crate::retry::{self, Verdict};

/// Why a request to a registry or to its token server failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The registry refused the request or did not answer, or the token server refused the password.
    #[error(transparent)]
    Registry(#[from] OciDistributionError),
    /// The token server answered neither with a token nor with a refusal, which says nothing about the password.
    #[error("the token server {server} answers {status}: {text}")]
    TokenServer { server: String, status: StatusCode, text: String },
    /// There was no answer, or an incomplete one.
    #[error("the token server {server} does not answer")]
    NoTokenServer { server: String, source: reqwest::Error },
    /// The registry names a token server to which no password may go.
    #[error(
        "the registry wants the password at the token server {server}, which has no encryption: the password would cross the \
         network readable"
    )]
    Unencrypted { server: String },
}

impl Error {
    /// What to do about it.
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Registry(error) => retry::verdict(error),
            Self::TokenServer { status, .. } if retry::is_temporary(*status) => Verdict::Later,
            Self::NoTokenServer { source, .. } if !source.is_builder() => Verdict::Later,
            Self::TokenServer { .. } | Self::NoTokenServer { .. } | Self::Unencrypted { .. } => Verdict::Never,
        }
    }

    /// The error with its causes, which the texts of the libraries omit for broken connections.
    pub(crate) fn explained(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(inner) = cause {
            let inner_text = inner.to_string();
            if !text.contains(&inner_text) {
                text.push_str(": ");
                text.push_str(&inner_text);
            }
            cause = inner.source();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_counts_as_wrong_credentials() {
        let refused = Error::Registry(OciDistributionError::AuthenticationFailure("no".to_owned()));
        assert_eq!(refused.verdict(), Verdict::Unauthorized);
        let of_status = |status| {
            let (server, status) = ("https://example.com/token".to_owned(), StatusCode::from_u16(status).unwrap());
            Error::TokenServer { server, status, text: String::new() }.verdict()
        };
        for status in [408, 429, 500, 502, 503, 504] {
            assert_eq!(of_status(status), Verdict::Later, "{status}");
        }
        for status in [400, 404, 501] {
            assert_eq!(of_status(status), Verdict::Never, "{status}");
        }
        assert_eq!(Error::Unencrypted { server: String::new() }.verdict(), Verdict::Never);
    }
}

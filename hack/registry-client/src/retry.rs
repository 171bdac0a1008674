//! What is tried again, and when.

use std::time::Duration;

use http::StatusCode;
use oci_client::errors::{DigestError, OciDistributionError, OciErrorCode};

/// How often and how patiently to retry.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// The number of attempts, at least 1.
    pub attempts: u32,
    /// The pause after the first failed attempt. Each further pause is twice as long, up to `longest`, and half of it is random.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Retry {
    /// About half a minute in all.
    fn default() -> Self {
        Self { attempts: 6, first: Duration::from_secs(1), longest: Duration::from_secs(15) }
    }
}

impl Retry {
    /// The pause after this failed attempt, which counts from 1.
    pub(crate) fn pause(&self, attempt: u32) -> Duration {
        let pause = self.first.saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX)).min(self.longest);
        // Half of it at random, so that several clients do not return at the same moment.
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The registry or the network is in trouble: the same request may succeed later.
    Later,
    /// The token may have expired: one attempt with a new one is worth it, but not more, because servers lock accounts.
    Unauthorized,
    /// The same request will always fail.
    Never,
}

/// Judges an error of a registry.
pub(crate) fn verdict(error: &OciDistributionError) -> Verdict {
    use OciDistributionError as E;
    match error {
        E::UnauthorizedError { .. } | E::AuthenticationFailure(_) => Verdict::Unauthorized,
        E::RegistryError { envelope, .. } => {
            // An upload that the registry no longer knows starts anew.
            let temporary = [OciErrorCode::Toomanyrequests, OciErrorCode::BlobUploadUnknown];
            let is_temporary = envelope.errors.iter().any(|error| temporary.contains(&error.code));
            if is_temporary { Verdict::Later } else { Verdict::Never }
        }
        E::RequestError(error) if error.is_builder() => Verdict::Never,
        // A cut body of an error message is a network problem too.
        E::IoError(error) if tampered(error) => Verdict::Never,
        E::IoError(_) => Verdict::Later,
        _ => match status(error) {
            Some(StatusCode::UNAUTHORIZED) => Verdict::Unauthorized,
            Some(status) if is_temporary(status) => Verdict::Later,
            // No answer, or an incomplete one.
            None if matches!(error, E::RequestError(_)) => Verdict::Later,
            Some(_) | None => Verdict::Never,
        },
    }
}

/// Whether a server that answers with this status may answer with another one later.
pub(crate) fn is_temporary(status: StatusCode) -> bool {
    match status {
        StatusCode::NOT_IMPLEMENTED => false,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => true,
        status => status.is_server_error(),
    }
}

/// The status of the answer, if the error is one with a status.
pub(crate) fn status(error: &OciDistributionError) -> Option<StatusCode> {
    match error {
        OciDistributionError::ServerError { code, .. } => StatusCode::from_u16(*code).ok(),
        OciDistributionError::RequestError(error) => error.status(),
        _ => None,
    }
}

/// Whether the content has another digest than its name says.
fn tampered(error: &std::io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<DigestError>)
}

#[cfg(test)]
mod tests {
    use oci_client::errors::{OciEnvelope, OciError};

    use super::*;

    #[test]
    fn only_temporary_errors_are_retried() {
        let of_status =
            |code| verdict(&OciDistributionError::ServerError { code, url: String::new(), message: String::new() });
        for code in [408, 429, 500, 502, 503, 504] {
            assert_eq!(of_status(code), Verdict::Later, "{code}");
        }
        for code in [400, 403, 404, 405, 413, 501] {
            assert_eq!(of_status(code), Verdict::Never, "{code}");
        }
        assert_eq!(of_status(401), Verdict::Unauthorized);

        let of_code = |code| {
            let error = OciError { code, message: String::new(), detail: String::new().into() };
            verdict(&OciDistributionError::RegistryError {
                envelope: OciEnvelope { errors: vec![error] },
                url: String::new(),
            })
        };
        assert_eq!(of_code(OciErrorCode::Toomanyrequests), Verdict::Later);
        assert_eq!(of_code(OciErrorCode::BlobUploadUnknown), Verdict::Later);
        assert_eq!(of_code(OciErrorCode::ManifestInvalid), Verdict::Never);
    }

    #[test]
    fn tampered_content_is_not_fetched_again() {
        let digest = DigestError::VerificationError { expected: "a".to_owned(), actual: "b".to_owned() };
        assert_eq!(verdict(&std::io::Error::other(digest).into()), Verdict::Never);
        assert_eq!(verdict(&std::io::Error::other("cut").into()), Verdict::Later);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let retry = Retry { attempts: 99, first: Duration::from_secs(1), longest: Duration::from_secs(15) };
        for (attempt, longest) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 15), (40, 15)] {
            let (pause, longest) = (retry.pause(attempt), Duration::from_secs(longest));
            assert!(pause <= longest && pause >= longest / 2, "{attempt}: {pause:?}");
        }
    }
}

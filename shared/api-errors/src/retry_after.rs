//! The time that the API server asks its client to wait.

use std::time::Duration;

use http::{HeaderMap, header::RETRY_AFTER};

/// The longest `Retry-After` that is honoured, in seconds.
const LONGEST_WAIT: u32 = 300;

/// Returns the time that the answer asks its client to wait.
pub fn retry_after(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// Returns the seconds of a `Retry-After`, at most [`LONGEST_WAIT`]. Ignores a date: API servers do not send one, and the
/// clocks may differ.
pub fn retry_after_seconds(headers: &HeaderMap) -> Option<u32> {
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(seconds.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn retry_after_is_parsed_as_seconds_and_capped() {
        let wait = |value: &'static str| {
            retry_after_seconds(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]))
        };
        assert_eq!(retry_after_seconds(&HeaderMap::new()), None);
        for (value, seconds) in [
            ("1", Some(1)),
            ("86400", Some(LONGEST_WAIT)),
            ("soon", None),
            ("-1", None),
            ("Wed, 21 Oct 2099 07:28:00 GMT", None),
        ] {
            assert_eq!(wait(value), seconds, "{value}");
        }
    }
}

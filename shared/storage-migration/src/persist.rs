//! Repeats requests that fail for a moment.

use std::time::Duration;

use api_errors::{Class, classify, is_unauthorized, retry_after};
use tokio::time::{sleep, timeout};

/// How often a request is sent at most. With the pauses between, an outage of a few seconds does no harm.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long the API server may take for one request.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// Sends a request until the API server accepts or refuses it.
pub(crate) async fn persist<T>(mut request: impl AsyncFnMut() -> Result<T, kube::Error>) -> Result<T, kube::Error> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        let wait = match timeout(TIME_LIMIT, request()).await {
            Ok(Err(error)) if passes(&error) => retry_after(&error),
            Ok(result) => return result,
            Err(_) => None,
        };
        sleep(wait.unwrap_or(pause)).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
    request().await
}

fn passes(error: &kube::Error) -> bool {
    classify(error) == Class::Transient && !is_unauthorized(error) && !is_expired(error)
}

/// Whether a continue token has expired.
pub(crate) fn is_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}

//! The time of day. Tests can stop it.

use std::sync::Arc;

use jiff::Timestamp;

/// The source of the time of day. Tests replace it.
pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The environment variable with the path of a file that holds an instant. The clock stands still at this instant; without the
/// file it runs. This is for tests of what takes days, and only works in development builds.
const STOPPED: &str = "OPERATOR_TEST_CLOCK";

pub(crate) fn clock() -> Clock {
    let stopped = std::env::var_os(STOPPED).filter(|_| cfg!(debug_assertions));
    Arc::new(move || {
        let instant = stopped.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        instant.and_then(|text| text.trim().parse().ok()).unwrap_or_else(Timestamp::now)
    })
}

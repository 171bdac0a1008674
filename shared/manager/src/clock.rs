//! The time of day. Tests can stop it.

use jiff::Timestamp;

use crate::context::Clock;

/// The environment variable with the path of a file that holds an instant. The clock stands still at this instant; without the
/// file it runs. This is for tests of what takes days, and only works in development builds.
const STOPPED: &str = "OPERATOR_TEST_CLOCK";

pub(crate) fn clock() -> Clock {
    let stopped = std::env::var_os(STOPPED).filter(|_| cfg!(debug_assertions));
    std::sync::Arc::new(move || {
        let told = stopped.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        told.and_then(|told| told.trim().parse().ok()).unwrap_or_else(Timestamp::now)
    })
}

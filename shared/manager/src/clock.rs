//! The time of day. Tests can stop it.

use jiff::Timestamp;

use crate::context::Clock;

/// Names a file with an instant, at which the clock then stands still; as long as there is no such file, it goes. For tests
/// of what takes days, and only in builds for development: a released program does not look.
const STOPPED: &str = "OPERATOR_TEST_CLOCK";

pub(crate) fn clock() -> Clock {
    let stopped = std::env::var_os(STOPPED).filter(|_| cfg!(debug_assertions));
    std::sync::Arc::new(move || {
        let told = stopped.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        told.and_then(|told| told.trim().parse().ok()).unwrap_or_else(Timestamp::now)
    })
}

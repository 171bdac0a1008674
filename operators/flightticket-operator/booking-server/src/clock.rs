//! The current time in the resolution of the database, so that an answer has the same times as a later read.

use jiff::Timestamp;

/// The current time, in whole milliseconds.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

//! The time of day, no finer than the database keeps it: what is told is what will be read again.

use jiff::Timestamp;

/// Now, in whole milliseconds.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

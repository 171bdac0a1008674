//! The core's time: nanoseconds since the queue was made.
//!
//! It has half the size of an `Instant`, saturates instead of panicking ("retry after `Duration::MAX`"), and tests can make any
//! value of it.

use std::time::Duration;

/// A point in time after the queue was made; enough for 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before everything that happens in the queue.
    pub(crate) const START: Self = Self(0);

    pub(crate) fn at(since_start: Duration) -> Self {
        Self(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn plus(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(Self::at(delay).0))
    }

    /// Zero if `earlier` is not earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

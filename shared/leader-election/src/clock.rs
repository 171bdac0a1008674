//! The clocks of the election.

use std::time::Duration;

use jiff::Timestamp;

/// A point in time on a [`Clock`], as the duration since the clock's zero.
pub(crate) type Moment = Duration;

/// The two clocks of a machine. All decisions use [`now`](Self::now) only.
pub trait Clock: Send + Sync + 'static {
    /// The time since a fixed moment. It never steps, and also runs while the machine sleeps.
    fn now(&self) -> Duration;

    /// The time of day. It is written into the lease, only as information.
    fn wall(&self) -> Timestamp;
}

/// The machine's own clocks: `CLOCK_BOOTTIME` where there is one.
///
/// `CLOCK_MONOTONIC` stands still while a machine is suspended: a leader that wakes up would assume that it still leads.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(time).unwrap_or_default() // never negative: it counts from the machine's start
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn now(&self) -> Duration {
        use std::{sync::LazyLock, time::Instant};
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

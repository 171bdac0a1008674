//! Where time comes from.

use std::time::Duration;

use jiff::Timestamp;

/// A point in time on a [`Clock`]: how long after the clock's zero it is.
pub(crate) type Moment = Duration;

/// The two clocks of a machine. Only the first decides anything.
pub trait Clock: Send + Sync + 'static {
    /// The time since some fixed moment. It never steps, and goes on while the machine sleeps.
    fn now(&self) -> Duration;

    /// The time of day, to be written into the lease for people to read.
    fn wall(&self) -> Timestamp;
}

/// The machine's own clocks: `CLOCK_BOOTTIME` where there is one.
///
/// A monotonic clock stands still while a machine is suspended, and who wakes up would believe that it still leads.
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

//! The time of day. Tests can stop it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

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

/// A correction of the clock by no more than this is not a jump.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// Notices jumps of the time of day, by a clock that does not jump. Each look compares with the last jump, not with the last look. So
/// small corrections add up, and a change right after a look counts too.
pub(crate) struct Jumps {
    time: Timestamp,
    at: Instant,
}

impl Jumps {
    /// Notices jumps after the moment `at`, when the time of day was `time`.
    pub(crate) fn after(time: Timestamp, at: Instant) -> Self {
        Self { time, at }
    }

    /// Returns by how much the time of day has jumped since the last jump; `None` if it has not.
    pub(crate) fn look(&mut self, time: Timestamp, at: Instant) -> Option<SignedDuration> {
        let passed = SignedDuration::try_from(at - self.at).unwrap_or(SignedDuration::MAX);
        let ahead = time.duration_since(self.time) - passed;
        if ahead.abs() <= TOLERANCE {
            return None;
        }
        *self = Self { time, at };
        Some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn small_corrections_of_the_clock_add_up_to_a_jump() {
        let (time, at) = (Timestamp::UNIX_EPOCH, Instant::now());
        let mut jumps = Jumps::after(time, at);
        for (second, ahead, jump) in [
            (10, 0, None),
            (20, 400, None),
            (30, 800, None),
            (40, 1_200, Some(1_200)),
            (50, 1_600, None),
            (60, 100, Some(-1_100)),
            (70, 3_600_000, Some(3_599_900)),
            (80, 3_600_000, None),
        ] {
            let passed = Duration::from_secs(second);
            let shown = time + passed + SignedDuration::from_millis(ahead);
            let seen = jumps.look(shown, at + passed);
            assert_eq!(seen, jump.map(SignedDuration::from_millis), "second {second}");
        }
    }
}

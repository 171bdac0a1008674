//! When a value that another client changes again and again may be restored.

use std::time::Duration;

use tokio::time::Instant;

/// The longest wait between two reverts.
const LONGEST: Duration = Duration::from_mins(1);
/// How long after the end of its wait a value counts as contested.
pub(crate) const CALM: Duration = Duration::from_mins(2);
/// From this number of reverts on, users get to know.
pub(crate) const REPORTED: u32 = 3;

/// The reverts of one value, of which the last one is not long ago.
///
/// Two controllers that want different values would otherwise write as fast as the API server lets them. The first two reverts
/// are immediate. Each further one waits twice as long, up to a minute.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reverts {
    count: u32,
    /// `None` before the first.
    last: Option<Instant>,
}

impl Reverts {
    /// Records a revert. Returns their number.
    pub(crate) fn record(&mut self, now: Instant) -> u32 {
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
        self.count
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// When the next revert may be sent; `None` before the first.
    pub(crate) fn due(&self) -> Option<Instant> {
        let doublings = self.count.saturating_sub(2);
        let wait = if self.count < 2 { Duration::ZERO } else { Duration::from_secs(1 << doublings.min(6)) };
        Some(self.last? + wait.min(LONGEST))
    }

    /// Whether other clients have left the value alone for long enough.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.end().is_none_or(|end| end <= now)
    }

    /// When the contest ends if nothing happens; `None` before the first revert.
    pub(crate) fn end(&self) -> Option<Instant> {
        Some(self.due()? + CALM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn third_and_later_reverts_wait_up_to_a_minute() {
        let (mut reverts, mut now) = (Reverts::default(), Instant::now());
        assert_eq!((reverts.due(), reverts.is_over(now)), (None, true));
        let mut waits = Vec::new();
        for number in 1..=10 {
            assert_eq!(reverts.record(now), number);
            let due = reverts.due().expect("there was a revert");
            waits.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(!reverts.is_over(now + CALM - Duration::from_secs(1)));
        assert!(reverts.is_over(now + CALM));
    }
}

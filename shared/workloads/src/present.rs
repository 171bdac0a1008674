//! The current time, on machines whose clocks differ and may be put back.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The clocks of two machines differ by less than this.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(60);

/// The current time according to the local clock and to the status of an object.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// The time of this machine's clock.
    now: Timestamp,
    /// The newest time in the status of the object. It was already that late when the status was written.
    newest: Option<Timestamp>,
}

impl ClockReading {
    /// Takes the time of this machine's clock and the stored conditions.
    pub fn new(now: Timestamp, stored: &[Condition]) -> Self {
        Self { now, newest: stored.iter().map(|condition| condition.last_transition_time.0).max() }
    }

    /// Returns this machine's time, or the newest time in the status if that is later, in whole seconds as the API stores times.
    pub(crate) fn time(self) -> Timestamp {
        let present = self.newest.map_or(self.now, |newest| newest.max(self.now));
        Timestamp::from_second(present.as_second()).unwrap_or(present)
    }

    /// Returns when a span ends that began at `began` and has this length; `None` if it has ended.
    ///
    /// After clocks were put back, stored times lie in the future. A state that has lasted for long must not count as new until
    /// the clocks have caught up. So a span has also ended if the status holds a time that is not before its end. It has ended
    /// too if it began further in the future than clocks differ, because how long ago that was is then unknown.
    pub fn end_of(self, began: Timestamp, length: SignedDuration) -> Option<Timestamp> {
        let is_known = began.duration_since(self.now) <= CLOCKS_DIFFER;
        let present = self.newest.map_or(self.now, |newest| newest.max(self.now));
        began.checked_add(length).ok().filter(|end| is_known && present < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_ends_after_its_length_or_a_clock_set_back() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        let end = |began, now, newest: Option<i64>| {
            ClockReading { now: at(now), newest: newest.map(at) }.end_of(at(began), SignedDuration::from_secs(30))
        };
        let running = Some(at(30));
        assert_eq!(
            [end(0, 0, None), end(0, 29, None), end(0, 30, None), end(0, 99, None)],
            [running, running, None, None]
        );
        assert_eq!([end(60, 0, None), end(61, 0, None)], [Some(at(90)), None]);
        // The status shows that it was already 30.
        assert_eq!([end(0, -60, Some(29)), end(0, -60, Some(30)), end(0, 20, Some(30))], [running, None, None]);
        let last = ClockReading { now: Timestamp::MAX, newest: None };
        assert_eq!(last.end_of(Timestamp::MAX, SignedDuration::MAX), None);
    }
}

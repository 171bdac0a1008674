//! The present, on machines whose clocks differ and may be put back.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Clocks of machines differ by less.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(60);

/// What is known of the present.
#[derive(Debug, Clone, Copy)]
pub struct Present {
    /// By the clock of this machine.
    now: Timestamp,
    /// The newest time in the status of the object: it has been that late already.
    newest: Option<Timestamp>,
}

impl Present {
    /// By the clock of this machine, and by the conditions that are stored.
    pub fn new(now: Timestamp, stored: &[Condition]) -> Self {
        Self { now, newest: stored.iter().map(|condition| condition.last_transition_time.0).max() }
    }

    /// When a span of this length ends that began then; `None` when it has ended.
    ///
    /// After clocks were put back, a stored time lies ahead. What has lasted long by then must not be taken for new until the
    /// clocks have caught up: a span has also ended when the status holds a later time than its end, or when it began further
    /// ahead than clocks differ, because nothing says how long ago that was.
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
    fn a_span_ends_after_its_length_or_when_clocks_were_put_back() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        let end = |began, now, newest: Option<i64>| {
            Present { now: at(now), newest: newest.map(at) }.end_of(at(began), SignedDuration::from_secs(30))
        };
        let running = Some(at(30));
        assert_eq!(
            [end(0, 0, None), end(0, 29, None), end(0, 30, None), end(0, 99, None)],
            [running, running, None, None]
        );
        assert_eq!([end(60, 0, None), end(61, 0, None)], [Some(at(90)), None]);
        // It was 30 already.
        assert_eq!([end(0, -60, Some(29)), end(0, -60, Some(30)), end(0, 20, Some(30))], [running, None, None]);
        let last = Present { now: Timestamp::MAX, newest: None };
        assert_eq!(last.end_of(Timestamp::MAX, SignedDuration::MAX), None);
    }
}

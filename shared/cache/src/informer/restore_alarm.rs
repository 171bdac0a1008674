//! Makes all informers relist when one of them notices that the cluster was restored to an earlier state.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::observed::Observed;

/// The alarm that an informer raises when it notices that the cluster was restored to an earlier state: a version went back, or
/// came back with other content. Other informers may not notice it, because versions of the restored cluster soon overtake those
/// that they know, and their watches simply continue. So one alarm makes all informers relist.
///
/// An alarm that comes within a window after another one is put off to the end of the window, where one counts for all that came
/// meanwhile. None is dropped: the earlier one may have been false, and the lists that it caused may be from before the restore.
#[derive(Debug, Default)]
pub struct RestoreAlarm(Observed<Pace>);

/// The window after the first alarm. A CRD that changes its defaults changes the content of each of its objects without a new
/// version, and each of them raises the alarm.
const FIRST_WINDOW: Duration = Duration::from_secs(30);
/// The window doubles with each alarm, up to this. An API server whose answers differ each time raises alarms for ever.
const LONGEST_WINDOW: Duration = Duration::from_mins(10);
/// After this time without an alarm, the next one counts as the first. It is longer than any window.
const QUIET: Duration = Duration::from_mins(20);

impl RestoreAlarm {
    /// Makes all informers relist. Returns in how long they do, or `None` if an alarm that is put off already tells them.
    pub fn raise(&self) -> Option<Duration> {
        let mut wait = None;
        self.0.modify(|pace| {
            wait = pace.raise(Instant::now());
            wait.is_some()
        });
        wait
    }

    /// How often the alarm has made all informers relist.
    pub fn count(&self) -> u64 {
        self.0.get().count
    }

    /// Returns when the alarm has made all informers relist more than `count` times.
    pub async fn raised_after(&self, count: u64) {
        tokio::select! {
            biased;
            () = self.0.until(|pace| pace.count > count) => {}
            () = self.count_late() => {}
        }
    }

    /// Lets each alarm that was put off count when it is due, and never returns. The alarm has no task of its own: each watch that
    /// waits for it does this, and the first one whose timer fires wakes the others.
    async fn count_late(&self) {
        loop {
            let mut next = None;
            let is_put_off = |pace: &Pace| {
                next = pace.due;
                next.is_some()
            };
            self.0.until(is_put_off).await;
            if let Some(due) = next {
                sleep_until(due).await;
            }
            self.0.modify(|pace| pace.count_due(Instant::now()));
        }
    }
}

/// Which alarms count, and when.
#[derive(Debug, Default)]
struct Pace {
    /// How many have counted.
    count: u64,
    /// When the last one counted.
    last: Option<Instant>,
    /// For how long after the last one no other one counts.
    window: Duration,
    /// When the one that is put off counts, if there is one.
    due: Option<Instant>,
}

impl Pace {
    /// Takes an alarm. Returns in how long it counts, or `None` if it joins one that is put off already.
    fn raise(&mut self, now: Instant) -> Option<Duration> {
        if self.due.is_some() {
            return None;
        }
        let end = self.last.map(|last| last + self.window).filter(|end| now < *end);
        if let Some(end) = end {
            self.due = Some(end);
            return Some(end - now);
        }
        self.tell(now);
        Some(Duration::ZERO)
    }

    /// Counts the alarm that was put off, if it is due. Returns whether it was.
    fn count_due(&mut self, now: Instant) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.tell(now);
        }
        is_due
    }

    fn tell(&mut self, now: Instant) {
        let is_first = self.last.is_none_or(|last| now >= last + QUIET);
        self.window = if is_first { FIRST_WINDOW } else { LONGEST_WINDOW.min(2 * self.window) };
        (self.last, self.due) = (Some(now), None);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which an alarm counts, if it is raised in each of these seconds.
    fn counted(raised: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let (mut pace, start, mut counted) = (Pace::default(), Instant::now(), Vec::new());
        let mut raised = raised.into_iter().peekable();
        for second in 0..20_000 {
            let (before, now) = (pace.count, start + Duration::from_secs(second));
            pace.count_due(now);
            while raised.next_if_eq(&second).is_some() {
                pace.raise(now);
            }
            counted.extend((before..pace.count).map(|_| second));
        }
        counted
    }

    #[test]
    fn alarm_within_the_window_is_put_off_to_its_end() {
        let cases: [(&[u64], &[u64]); 7] = [
            (&[0], &[0]),
            (&[0, 0, 1], &[0, 30]),
            (&[0, 10, 20, 29], &[0, 30]),
            (&[0, 30], &[0, 30]),
            (&[0, 29, 31], &[0, 30, 90]),
            (&[0, 31, 90], &[0, 31, 91]),
            (&[7, 500, 501], &[7, 500, 560]),
        ];
        for (raised, expected) in cases {
            assert_eq!(counted(raised.iter().copied()), expected, "{raised:?}");
        }
    }

    #[test]
    fn window_doubles_up_to_ten_minutes_while_alarms_keep_coming() {
        let expected = [0, 30, 90, 210, 450, 930, 1_530, 2_130, 2_730, 3_330];
        assert_eq!(counted(0..3_300), expected);
        assert_eq!(counted((0..3_300).step_by(7)), expected);
    }

    #[test]
    fn window_is_short_again_after_a_quiet_time() {
        let storm = [0, 1, 31, 91]; // the last one counts at 210
        assert_eq!(counted(storm.into_iter().chain([1_409, 1_410])), [0, 30, 90, 210, 1_409, 1_889]);
        assert_eq!(counted(storm.into_iter().chain([1_410, 1_411])), [0, 30, 90, 210, 1_410, 1_440]);
    }

    #[test]
    fn alarm_says_in_how_long_it_counts() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut raise = |second| pace.raise(start + Duration::from_secs(second)).map(|wait| wait.as_secs());
        assert_eq!([raise(0), raise(10), raise(11)], [Some(0), Some(20), None]);
    }
}

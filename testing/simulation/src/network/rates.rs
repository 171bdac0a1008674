//! How many requests the operator sends, and when they are a loop.

use std::time::Duration;

/// Time windows with the most requests that the operator may send in one. More mean a loop: no world has that much to do.
const LOOPS: [(Duration, u32); 2] = [(Duration::from_secs(1), 1_000), (Duration::from_mins(1), 3_000)];

/// When the current time window of each of [`LOOPS`] began, and how many requests the operator has sent in it.
#[derive(Debug, Default)]
pub(super) struct Rates([(Duration, u32); LOOPS.len()]);

impl Rates {
    /// Counts a request. Returns the limit that it exceeds, if any.
    pub(super) fn count(&mut self, now: Duration) -> Option<(Duration, u32)> {
        let mut exceeded = None;
        for ((since, count), (time, most)) in self.0.iter_mut().zip(LOOPS) {
            if now >= *since + time {
                (*since, *count) = (now, 0);
            }
            *count += 1;
            if *count > most {
                exceeded = Some((time, most));
            }
        }
        exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this many requests a second count as a loop before this many seconds have passed.
    fn is_loop(a_second: u32, seconds: u64) -> bool {
        let mut rates = Rates::default();
        let mut times = (0..seconds).flat_map(|second| (0..a_second).map(move |_| Duration::from_secs(second)));
        times.any(|time| rates.count(time).is_some())
    }

    #[test]
    fn fast_and_slow_request_loops_are_detected() {
        assert!(is_loop(1_001, 1) && !is_loop(1_000, 1));
        assert!(is_loop(51, 60) && !is_loop(50, 600));
    }
}

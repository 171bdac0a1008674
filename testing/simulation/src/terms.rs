//! The terms of the leaders: which process may write, and until when.

use std::{collections::BTreeMap, time::Duration};

/// How long a process leads after it has sent its last successful request for the lease.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// The terms of all processes so far, by the name of the process.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// When each process sent its last successful request for the lease.
    since: BTreeMap<String, Duration>,
    /// When the term of a process was over at the latest: it has released the lease, or another process has it.
    over: BTreeMap<String, Duration>,
}

impl Terms {
    /// Takes in that a process holds the lease by the request that it sent at this time.
    pub(crate) fn begin(&mut self, process: &str, sent: Duration, now: Duration) {
        for other in self.since.keys().filter(|other| *other != process) {
            self.over.entry(other.clone()).or_insert(now);
        }
        self.over.remove(process);
        self.since.insert(process.to_owned(), sent);
    }

    /// Takes in that a process has released the lease.
    pub(crate) fn end(&mut self, process: &str, now: Duration) {
        self.over.entry(process.to_owned()).or_insert(now);
    }

    /// Takes in that a process starts: it does not lead, even if the process before it did.
    pub(crate) fn start(&mut self, process: &str) {
        self.since.remove(process);
        self.over.remove(process);
    }

    /// Starts over after a restore, which may bring an old lease back.
    pub(crate) fn restored(&mut self) {
        self.over.clear();
    }

    /// Checks that a process may write at this time.
    pub(crate) fn check(&self, process: &str, sent: Duration) -> Result<(), String> {
        let since = self.since.get(process);
        if since.is_none_or(|since| sent > *since + RENEW_DEADLINE) {
            return Err(format!(
                "{process} writes at {sent:?}; its last successful request for the lease was at {since:?}"
            ));
        }
        match self.over.get(process) {
            Some(over) if sent > *over => Err(format!("{process} writes at {sent:?}; its term was over at {over:?}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn led_by(process: &str) -> Terms {
        let mut terms = Terms::default();
        terms.begin(process, at(1), at(2));
        terms
    }

    #[test]
    fn term_ends_ten_seconds_after_the_last_request_for_the_lease() {
        let terms = led_by("a");
        assert!(terms.check("a", at(11)).is_ok() && terms.check("a", at(12)).is_err());
        assert!(terms.check("b", at(2)).is_err(), "b has never led");
    }

    #[test]
    fn term_ends_when_the_lease_is_released_or_another_process_has_it() {
        let mut released = led_by("a");
        released.end("a", at(4));
        let mut lost = led_by("a");
        lost.begin("b", at(3), at(4));
        for terms in [released, lost] {
            assert!(terms.check("a", at(4)).is_ok() && terms.check("a", at(5)).is_err(), "{terms:?}");
        }
    }

    #[test]
    fn process_that_has_the_lease_again_may_write() {
        let mut terms = led_by("a");
        terms.begin("b", at(3), at(4));
        terms.begin("a", at(5), at(6));
        assert!(terms.check("a", at(7)).is_ok() && terms.check("b", at(7)).is_err(), "{terms:?}");
    }

    #[test]
    fn restarted_process_does_not_lead() {
        let mut terms = led_by("a");
        terms.start("a");
        assert!(terms.check("a", at(3)).is_err());
    }
}

//! The circuit breaker for the requests of one namespace. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row that open the circuit.
const FAILURES: u32 = 10;
/// How long an open circuit lets no request through. Then it lets one trial request through.
pub(crate) const PAUSE: Duration = Duration::from_secs(30);
/// After this time without a result, the trial request counts as lost, for example because its reconcile was cancelled.
const TRIAL: Duration = Duration::from_mins(2);
/// A trial request that is late by this time is long overdue. It is longer than the longest back-off of a ticket, which is that of
/// the queue: five minutes, plus a fifth. It is also longer than a tenth of the longest time that a provider can name.
const OVERDUE: Duration = Duration::from_mins(10);

/// Opens after failures in a row, counted over the tickets of one namespace. While open, it lets one trial request at a time
/// through.
#[derive(Debug, Default)]
pub(crate) struct Circuit {
    failures: u32,
    /// While the circuit is open: when the next trial request may be sent.
    next_trial: Option<Instant>,
    /// Until when the provider has asked the ticket of the last failure to wait.
    named: Option<Instant>,
    /// The last failure.
    last: String,
}

/// The error while the circuit is open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// How long until the next trial request.
    pub(crate) wait: Duration,
    /// The last failure.
    pub(crate) last: String,
}

impl Circuit {
    /// Lets a request through.
    ///
    /// # Errors
    ///
    /// If the circuit is open.
    pub(crate) fn enter(&mut self, now: Instant) -> Result<(), Open> {
        if let Some(next_trial) = self.next_trial {
            if now < next_trial {
                return Err(Open { wait: next_trial - now, last: self.last.clone() });
            }
            self.next_trial = Some(now + TRIAL); // this is the trial request; all others wait for its result
        }
        Ok(())
    }

    /// Records that the provider answered.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        (self.next_trial, self.named) = (None, None);
    }

    /// Records that the provider did not answer, or answered 429 or 5xx, perhaps with a time to wait.
    pub(crate) fn failed(&mut self, why: &str, retry_after: Option<Duration>, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.named = retry_after.map(|wait| now + wait);
        why.clone_into(&mut self.last);
        if self.failures >= FAILURES {
            self.next_trial = Some(now + PAUSE);
        }
    }

    /// Whether the circuit is open, and a trial request has been sent or will be. If it is long overdue, the tickets send no
    /// requests any more, for example because they are paused.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.next_trial.is_some_and(|next_trial| now < self.named.unwrap_or(next_trial).max(next_trial) + OVERDUE)
    }

    /// Whether the last request failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(now: Instant) -> Circuit {
        let mut circuit = Circuit::default();
        for _ in 0..FAILURES {
            assert!(circuit.enter(now).is_ok());
            circuit.failed("down", None, now);
        }
        circuit
    }

    #[test]
    fn ten_consecutive_failures_open_the_circuit() {
        let now = Instant::now();
        let mut circuit = open(now);
        assert!(circuit.is_open(now));
        assert_eq!(circuit.enter(now), Err(Open { wait: PAUSE, last: "down".to_owned() }));

        let mut circuit = Circuit::default();
        for number in 0..100 {
            if number % FAILURES == 0 { circuit.succeeded() } else { circuit.failed("down", None, now) }
        }
        assert!(!circuit.is_open(now), "never ten in a row");
    }

    #[test]
    fn half_open_circuit_lets_one_trial_decide() {
        let now = Instant::now();
        let mut circuit = open(now);
        let later = now + PAUSE;
        assert!(circuit.enter(later).is_ok());
        assert!(circuit.enter(later).is_err(), "one at a time");
        circuit.failed("still down", None, later);
        assert_eq!(circuit.enter(later), Err(Open { wait: PAUSE, last: "still down".to_owned() }));

        let later = later + PAUSE;
        assert!(circuit.enter(later).is_ok());
        circuit.succeeded();
        assert!(circuit.enter(later).is_ok() && circuit.enter(later).is_ok());
    }

    #[test]
    fn lost_trial_request_expires() {
        let now = Instant::now();
        let mut circuit = open(now);
        assert!(circuit.enter(now + PAUSE).is_ok());
        assert!(circuit.enter(now + PAUSE + TRIAL).is_ok());
    }

    #[test]
    fn circuit_without_further_requests_does_not_count_as_open() {
        let now = Instant::now();
        let mut circuit = open(now);
        let overdue = now + PAUSE + OVERDUE;
        assert!(circuit.is_open(overdue - Duration::from_millis(1)));
        assert!(!circuit.is_open(overdue));
        assert!(circuit.enter(overdue).is_ok());
        assert!(circuit.is_open(overdue), "a trial request is under way");
        let named = Duration::from_hours(1);
        circuit.failed("down", Some(named), overdue);
        assert!(circuit.is_open(overdue + named), "the provider has named a later time than that of the next trial");
        assert!(!circuit.is_open(overdue + named + OVERDUE));
    }
}

//! When a ticket is polled next, and what its earlier polls have counted. The counts are only in memory: a new process begins
//! anew.

use std::{collections::HashMap, time::Duration};

use manager::{Action, ObjectKey};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    FlightTicket,
    course::{SoFar, Wait},
};

/// Wait when too few seats are free: others may become free.
const SEATS: Duration = Duration::from_mins(5);
/// Wait after refused credentials: then the client reads the token again. It does not send the same token again so soon.
const CREDENTIALS: Duration = Duration::from_secs(15);
/// Wait after the provider has forbidden a request.
const FORBIDDEN: Duration = Duration::from_mins(5);
/// Wait when the provider does not find a booking.
const MISSING: Duration = Duration::from_secs(5);
/// First wait of the back-off when the outcome of a request is unknown.
const TROUBLE: Duration = Duration::from_secs(1);
/// First and longest wait while the provider has not confirmed a booking.
const CONFIRMATION: [Duration; 2] = [Duration::from_secs(2), Duration::from_mins(1)];
/// Interval of the events about a deletion that makes no progress.
const REMINDER: Duration = Duration::from_mins(10);

/// The poll interval, and the counts of each ticket that has any. A booked ticket has none, and takes no memory here.
#[derive(Debug)]
pub(crate) struct Polling {
    interval: Duration,
    tickets: Mutex<HashMap<ObjectKey, Counted>>,
}

/// The counts of the ticket with this uid.
#[derive(Debug)]
struct Counted {
    uid: Option<String>,
    counts: Counts,
}

/// What the polls of one ticket have counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    /// Requests in a row with an unknown outcome.
    failures: u32,
    /// Since when the provider has not confirmed the booking.
    unconfirmed: Option<Instant>,
    /// Since when the provider has not found the booking.
    missing: Option<Instant>,
    /// The time of the last event about a deletion without progress.
    reminded: Option<Instant>,
    /// The provider has named this time: the ticket sends no request before it.
    pause: Option<Instant>,
}

impl Polling {
    pub(crate) fn every(interval: Duration) -> Self {
        Self { interval, tickets: Mutex::default() }
    }

    pub(crate) fn so_far(&self, ticket: &FlightTicket) -> SoFar {
        self.counts(ticket, |counts| SoFar {
            failures: counts.failures,
            missing: counts.missing.map(|since| since.elapsed()),
        })
    }

    /// Counts the end of a poll, and returns when the next one is due. `random` is in `0.0..1.0`.
    pub(crate) fn rest(&self, ticket: &FlightTicket, wait: Wait, random: f64) -> Action {
        // Spreads a time by this fraction in both directions.
        let spread = |time: Duration, part: f64| time.mul_f64(1.0 + part * (2.0 * random - 1.0));
        let unconfirmed = self.counts(ticket, |counts| counts.add(wait));
        match wait {
            Wait::Change => Action::Done,
            Wait::Poll => Action::After(spread(self.interval, 0.1)),
            Wait::Seats => Action::After(spread(SEATS, 0.1)),
            Wait::Forbidden => Action::After(spread(FORBIDDEN, 0.1)),
            Wait::Credentials => Action::After(CREDENTIALS),
            Wait::Missing => Action::After(MISSING),
            // As long as it has lasted: each wait is twice the one before.
            Wait::Unconfirmed => Action::After((unconfirmed + CONFIRMATION[0]).min(CONFIRMATION[1])),
            Wait::PollNotBefore(named) => {
                Action::After(spread(self.interval, 0.1).max(self.pause_for(ticket, named, random)))
            }
            Wait::Trouble(Some(named)) => Action::After(self.pause_for(ticket, named, random)),
            Wait::Trouble(None) => Action::Retry(TROUBLE),
        }
    }

    /// Lets the ticket send no request before the time that the provider has named, and returns for how long. Spread only to later,
    /// so that not all tickets send one at the same time.
    fn pause_for(&self, ticket: &FlightTicket, named: Duration, random: f64) -> Duration {
        let pause = named.mul_f64(1.0 + 0.1 * random);
        self.counts(ticket, |counts| counts.pause = Some(Instant::now() + pause));
        pause
    }

    /// Returns how long the ticket must not send a request yet, because the provider has named a time.
    pub(crate) fn pause(&self, ticket: &FlightTicket) -> Option<Duration> {
        let pause = self.counts(ticket, |counts| counts.pause)?;
        Some(pause.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Whether the next event about a deletion without progress is due. Records that it is emitted.
    pub(crate) fn remind(&self, ticket: &FlightTicket) -> bool {
        self.counts(ticket, |counts| {
            let is_due = counts.reminded.is_none_or(|reminded| reminded.elapsed() >= REMINDER);
            if is_due {
                counts.reminded = Some(Instant::now());
            }
            is_due
        })
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.tickets.lock().remove(key);
    }

    /// Passes the counts of this ticket to `change`, not those of an earlier ticket of the same name. Keeps only counts that
    /// differ from those of a new ticket.
    fn counts<R>(&self, ticket: &FlightTicket, change: impl FnOnce(&mut Counts) -> R) -> R {
        let key = ticket.key();
        let uid = &ticket.metadata.uid;
        let mut tickets = self.tickets.lock();
        let known = tickets.get(&key).filter(|counted| counted.uid == *uid);
        let mut counts = known.map(|counted| counted.counts).unwrap_or_default();
        let returned = change(&mut counts);
        if counts == Counts::default() {
            tickets.remove(&key);
        } else {
            tickets.insert(key, Counted { uid: uid.clone(), counts });
        }
        returned
    }
}

impl Counts {
    /// Counts the end of a poll. Returns for how long the provider has not confirmed the booking.
    fn add(&mut self, wait: Wait) -> Duration {
        let now = Instant::now();
        let since = |start: Option<Instant>| Some(start.unwrap_or(now));
        self.pause = self.pause.filter(|until| *until > now);
        (self.failures, self.unconfirmed, self.missing) = match wait {
            Wait::Trouble(_) => (self.failures.saturating_add(1), self.unconfirmed, self.missing),
            Wait::Unconfirmed => (0, since(self.unconfirmed), None),
            Wait::Missing => (0, None, since(self.missing)),
            Wait::Poll | Wait::PollNotBefore(_) | Wait::Seats | Wait::Credentials | Wait::Forbidden | Wait::Change => {
                (0, None, None)
            }
        };
        self.unconfirmed.map(|since| now - since).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;

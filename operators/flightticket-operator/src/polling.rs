//! When each ticket is polled next, and what its earlier polls have counted. Only in memory: after a start, the process polls all
//! tickets once.

use std::{collections::HashMap, time::Duration};

use manager::{Action, ObjectKey};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::{
    FlightTicket,
    course::{SoFar, Wait},
};

/// Wait when too few seats are free: others may become free.
const SEATS: Duration = Duration::from_mins(5);
/// Wait after refused credentials: then the client reads the token again. It does not send the same token again so soon.
const CREDENTIALS: Duration = Duration::from_secs(15);
/// Wait when the provider does not find a booking.
const MISSING: Duration = Duration::from_secs(5);
const LONGEST_BACKOFF: Duration = Duration::from_mins(5);
const LONGEST_CONFIRMATION: Duration = Duration::from_mins(1);
/// Interval of the events about a deletion that makes no progress.
const REMINDER: Duration = Duration::from_mins(10);

/// The last poll of each ticket.
#[derive(Debug)]
pub(crate) struct Polling {
    poll: Duration,
    tickets: Mutex<HashMap<ObjectKey, LastPoll>>,
}

/// The last poll of one ticket.
#[derive(Debug, Default)]
struct LastPoll {
    uid: Option<String>,
    /// [`FlightTicket::intent`] at this poll; a change of it ends the wait.
    intent: String,
    until: Option<Instant>,
    /// Whether the provider itself has named the time: then a change of the object does not end the wait.
    is_firm: bool,
    failures: u32,
    unconfirmed: u32,
    missing: Option<Instant>,
    reminded: Option<Instant>,
}

impl Polling {
    pub(crate) fn every(poll: Duration) -> Self {
        Self { poll, tickets: Mutex::default() }
    }

    /// Returns how long until the next poll of this ticket is due; `None` if it is due now.
    pub(crate) fn wait(&self, ticket: &FlightTicket) -> Option<Duration> {
        let tickets = self.lock();
        let last = tickets.get(&ticket.key()).filter(|last| last.uid == ticket.metadata.uid)?;
        let wait = last.until?.saturating_duration_since(Instant::now());
        (!wait.is_zero() && (last.is_firm || last.intent == ticket.intent())).then_some(wait)
    }

    pub(crate) fn so_far(&self, ticket: &FlightTicket) -> SoFar {
        let tickets = self.lock();
        let last = tickets.get(&ticket.key()).filter(|last| last.uid == ticket.metadata.uid);
        last.map_or_else(SoFar::default, |last| SoFar {
            failures: last.failures,
            missing: last.missing.map(|since| since.elapsed()),
        })
    }

    /// Records the end of a poll, and returns when the next one is due. `random` is in `0.0..1.0`.
    pub(crate) fn rest(&self, ticket: &FlightTicket, wait: Wait, random: f64) -> Action {
        let mut tickets = self.lock();
        let last = last_poll_of(&mut tickets, ticket);
        let now = Instant::now();
        let LastPoll { failures, unconfirmed, missing, .. } = last;
        (*failures, *unconfirmed, *missing) = match wait {
            Wait::Trouble(_) => (failures.saturating_add(1), *unconfirmed, *missing),
            Wait::Unconfirmed => (0, unconfirmed.saturating_add(1), None),
            Wait::Missing => (0, 0, Some(missing.unwrap_or(now))),
            Wait::Poll | Wait::Seats | Wait::Credentials | Wait::Change => (0, 0, None),
        };
        // Spreads a time by this fraction in both directions.
        let spread = |time: Duration, part: f64| time.mul_f64(1.0 + part * (2.0 * random - 1.0));
        let after = match wait {
            Wait::Change => None,
            Wait::Poll => Some(spread(self.poll, 0.1)),
            Wait::Seats => Some(spread(SEATS, 0.1)),
            Wait::Credentials => Some(CREDENTIALS),
            Wait::Missing => Some(MISSING),
            Wait::Unconfirmed => Some(doubled(Duration::from_secs(2), *unconfirmed, LONGEST_CONFIRMATION)),
            // Spread only to later: never before the time that the provider has named, and not all tickets at the same time.
            Wait::Trouble(Some(named)) => Some(named.mul_f64(1.0 + 0.1 * random)),
            Wait::Trouble(None) => Some(spread(doubled(Duration::from_secs(1), *failures, LONGEST_BACKOFF), 0.2)),
        };
        last.until = after.map(|after| now + after);
        last.is_firm = matches!(wait, Wait::Trouble(Some(_)));
        last.intent = ticket.intent();
        after.map_or(Action::Done, Action::After)
    }

    /// Whether the next event about a deletion without progress is due. Records that it is emitted.
    pub(crate) fn remind(&self, ticket: &FlightTicket) -> bool {
        let mut tickets = self.lock();
        let last = last_poll_of(&mut tickets, ticket);
        let is_due = last.reminded.is_none_or(|reminded| reminded.elapsed() >= REMINDER);
        if is_due {
            last.reminded = Some(Instant::now());
        }
        is_due
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, LastPoll>> {
        self.tickets.lock()
    }
}

/// Returns the last poll of this ticket, not of an earlier ticket of the same name.
fn last_poll_of<'a>(tickets: &'a mut HashMap<ObjectKey, LastPoll>, ticket: &FlightTicket) -> &'a mut LastPoll {
    let last = tickets.entry(ticket.key()).or_default();
    if last.uid != ticket.metadata.uid {
        *last = LastPoll { uid: ticket.metadata.uid.clone(), ..LastPoll::default() };
    }
    last
}

/// Returns the `count`-th wait of an exponential back-off from `first` to `longest`.
fn doubled(first: Duration, count: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << count.saturating_sub(1).min(16)).min(longest)
}

#[cfg(test)]
mod tests;

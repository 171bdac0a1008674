//! The whole behaviour of the queue as a state machine: no clock, no locks, no waiting.
//!
//! A key *waits* (not at all, for a time, or in line) and, independently of that, is *running* or not. One that does neither
//! has no entry. A key that is running and ready is *held*: it counts as ready and has its place in line, but is stepped over until
//! the run has ended.

mod agenda;
mod entry;
mod keys;
mod line;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use keys::Slot;

use crate::backoff::Random;
use crate::moment::Moment;
use crate::{Backoff, Config, Metrics, Outcome, Priority, Shutdown, Unfinished};
use agenda::{Agenda, Appointment};
use entry::Waiting;
use keys::Keys;
use line::{Line, Place};

pub(crate) struct Core<K> {
    keys: Keys<K>,
    line: Line,
    agenda: Agenda,
    running: BTreeMap<Slot, Run>,
    /// How many keys are ready but running.
    held: usize,
    /// `None` while open.
    shutdown: Option<Shutdown>,
    backoff: Backoff,
    random: Random,
    metrics: Arc<dyn Metrics>,
}

struct Run {
    since: Moment,
    cut_short: bool,
}

/// The answer to "what should I work on?".
#[derive(Debug)]
pub(crate) enum Next<K> {
    Work(Handed<K>),
    /// Nothing is ready; something will be at that time.
    Wait(Option<Moment>),
    Closed,
}

/// A key that was handed out.
#[derive(Debug)]
pub(crate) struct Handed<K> {
    pub(crate) slot: Slot,
    pub(crate) key: K,
    pub(crate) priority: Priority,
    pub(crate) waited: Duration,
    pub(crate) failures: u32,
}

impl<K: Clone + Eq + Hash> Core<K> {
    pub(crate) fn new(config: Config) -> Self {
        let Config { backoff, patience, seed, metrics } = config;
        Self {
            keys: Keys::new(),
            line: Line::new(patience),
            agenda: Agenda::default(),
            running: BTreeMap::new(),
            held: 0,
            shutdown: None,
            backoff,
            random: Random::new(seed),
            metrics,
        }
    }

    pub(crate) fn add(&mut self, now: Moment, key: K, priority: Priority, delay: Duration) {
        if self.shutdown.is_some() {
            return;
        }
        self.promote(now);
        let slot = self.keys.find_or_insert(key);
        self.schedule(now, slot, priority, now.plus(delay));
    }

    pub(crate) fn take(&mut self, now: Moment) -> Next<K> {
        self.promote(now);
        let Some(slot) = self.line.choose(&self.keys) else {
            return if self.shutdown.is_some() { Next::Closed } else { Next::Wait(self.next_due()) };
        };
        let priority = self.keys[slot].priority;
        self.line.remove(&mut self.keys, slot, priority);
        let entry = &mut self.keys[slot];
        entry.waiting = Waiting::No;
        entry.running = true;
        self.running.insert(slot, Run { since: now, cut_short: now < entry.retry_at });
        let waited = now.since(entry.at);
        self.metrics.depth(priority, -1);
        self.metrics.waited(waited);
        Next::Work(Handed { slot, key: entry.key.clone(), priority, waited, failures: entry.failures })
    }

    /// Ends the run of a key that was handed out.
    pub(crate) fn done(&mut self, now: Moment, slot: Slot, priority: Priority, outcome: Outcome) {
        self.promote(now);
        let Some(run) = self.running.remove(&slot) else { return };
        self.metrics.worked(now.since(run.since));
        let entry = &mut self.keys[slot];
        self.held -= usize::from(entry.is_held());
        entry.running = false;
        let due = match outcome {
            Outcome::Success | Outcome::WaitForChange => {
                entry.forget();
                None
            }
            Outcome::RequeueAfter(delay) => {
                entry.forget();
                Some(now.plus(delay))
            }
            Outcome::RetryAfter(delay) => {
                entry.retry_at = now.plus(delay);
                Some(entry.retry_at)
            }
            Outcome::Failure | Outcome::FailureOrAfter(_) => {
                if !run.cut_short {
                    entry.failures = entry.failures.saturating_add(1);
                    entry.retry_at = now.plus(self.backoff.delay(entry.failures, self.random.next()));
                }
                match outcome {
                    Outcome::FailureOrAfter(delay) => Some(entry.retry_at.min(now.plus(delay))),
                    _ => Some(entry.retry_at),
                }
            }
        };
        if let Some(due) = due
            && self.shutdown.is_none()
        {
            self.schedule(now, slot, priority, due);
        }
        self.drop_if_idle(slot);
    }

    /// Resets the back-off of a key; when it is due does not change.
    pub(crate) fn forget(&mut self, key: &K) {
        if let Some(slot) = self.keys.find(key) {
            self.keys[slot].forget();
            if let Some(run) = self.running.get_mut(&slot) {
                run.cut_short = false;
            }
        }
    }

    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.keys.find(key).map_or(0, |slot| self.keys[slot].failures)
    }

    /// Drops what waits for a time and, unless it is to be drained, what is ready.
    pub(crate) fn shut_down(&mut self, now: Moment, how: Shutdown) {
        self.promote(now);
        if self.shutdown == Some(Shutdown::Drop) {
            return;
        }
        self.shutdown = Some(how);
        self.agenda.clear();
        for slot in self.keys.slots() {
            let entry = &self.keys[slot];
            match (entry.waiting, how) {
                (Waiting::No, _) | (Waiting::Ready(_), Shutdown::Drain) => continue,
                (Waiting::Delayed(_), _) => {}
                (Waiting::Ready(_), Shutdown::Drop) => {
                    let priority = entry.priority;
                    self.held -= usize::from(entry.is_held());
                    self.line.remove(&mut self.keys, slot, priority);
                    self.metrics.depth(priority, -1);
                }
            }
            self.keys[slot].waiting = Waiting::No;
            self.drop_if_idle(slot);
        }
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown.is_some()
    }

    /// Puts every key that is due in line.
    pub(crate) fn promote(&mut self, now: Moment) {
        while let Some(slot) = self.agenda.first()
            && self.keys[slot].at <= now
        {
            self.agenda.remove(&mut self.keys, slot);
            // Its time stays: it has been ready since it was due, not since somebody noticed.
            self.line_up(slot);
        }
    }

    /// Keys that are ready, held ones included.
    pub(crate) fn ready(&self) -> usize {
        self.line.len()
    }

    /// Keys that a worker could take now.
    pub(crate) fn available(&self) -> usize {
        self.line.len() - self.held
    }

    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.agenda.first().map(|slot| self.keys[slot].at)
    }

    pub(crate) fn unfinished(&self, now: Moment) -> Unfinished {
        let ages = self.running.values().map(|run| now.since(run.since));
        Unfinished { running: ages.len(), total: ages.clone().sum(), longest: ages.max().unwrap_or_default() }
    }

    /// Makes a key wait until `due`; if it waits already, the higher priority and the earlier time win.
    fn schedule(&mut self, now: Moment, slot: Slot, priority: Priority, due: Moment) {
        if due > now {
            self.metrics.retried();
        }
        let entry = &mut self.keys[slot];
        match entry.waiting {
            Waiting::Ready(_) => return self.raise(slot, priority),
            // Also while it is running: what it was handed out with does not count for the next time.
            Waiting::No => entry.priority = priority,
            Waiting::Delayed(_) => {
                entry.priority = entry.priority.max(priority);
                if due >= entry.at {
                    return;
                }
                self.agenda.remove(&mut self.keys, slot);
            }
        }
        let entry = &mut self.keys[slot];
        if due > now {
            entry.at = due;
            entry.waiting = Waiting::Delayed(Appointment::default());
            self.agenda.insert(&mut self.keys, slot);
        } else {
            entry.at = now;
            self.line_up(slot);
        }
    }

    /// Makes a key ready that was not.
    fn line_up(&mut self, slot: Slot) {
        let entry = &mut self.keys[slot];
        let priority = entry.priority;
        entry.waiting = Waiting::Ready(Place::default());
        self.held += usize::from(entry.running);
        self.line.push(&mut self.keys, slot, priority);
        self.metrics.added();
        self.metrics.depth(priority, 1);
    }

    /// Moves a ready key to the end of a higher priority.
    fn raise(&mut self, slot: Slot, to: Priority) {
        let entry = &mut self.keys[slot];
        let from = entry.priority;
        if from < to {
            entry.priority = to;
            self.line.raise(&mut self.keys, slot, from, to);
            self.metrics.depth(from, -1);
            self.metrics.depth(to, 1);
        }
    }

    fn drop_if_idle(&mut self, slot: Slot) {
        if self.keys[slot].is_idle() {
            self.keys.remove(slot);
        }
    }
}

//! The whole behaviour of the queue as a state machine: no clock, no locks, no waiting.
//!
//! A key *waits* (not at all, for a time, or in line) and, independently of that, is *running* or not. One that does neither
//! has no entry. A key that is running and ready is *held*: it counts as ready, and its place in line is fixed, but it is not
//! in line before the run has ended.

mod keys;
mod line;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use keys::Slot;

use crate::backoff::Random;
use crate::moment::Moment;
use crate::{Backoff, Config, Metrics, Outcome, Priority, Shutdown, Unfinished};
use keys::Keys;
use line::{Line, Place};

pub(crate) struct Core<K> {
    keys: Keys<K>,
    line: Line,
    /// Due time, then order of adding.
    delayed: BTreeSet<(Moment, u64, Slot)>,
    running: BTreeMap<Slot, Run>,
    /// How many keys are ready but running.
    held: usize,
    /// The last number given out; turns and arrivals share it.
    last_number: u64,
    /// `None` while open.
    shutdown: Option<Shutdown>,
    backoff: Backoff,
    random: Random,
    metrics: Arc<dyn Metrics>,
}

/// What is known about a key.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    pub(crate) key: K,
    waiting: Waiting,
    running: bool,
    /// Where it stands, or will stand once it is ready.
    place: Place,
    /// When it is due (delayed), or since when it has been ready.
    at: Moment,
    failures: u32,
    /// When the wait that the last failure imposed is over. A run that begins earlier has cut it short.
    retry_at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    No,
    Delayed,
    Ready,
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
            delayed: BTreeSet::new(),
            running: BTreeMap::new(),
            held: 0,
            last_number: 0,
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
        let Some(slot) = self.line.choose() else {
            return if self.shutdown.is_some() {
                Next::Closed
            } else {
                Next::Wait(self.next_due())
            };
        };
        let entry = &mut self.keys[slot];
        self.line.remove(entry.place);
        entry.waiting = Waiting::No;
        entry.running = true;
        self.running.insert(slot, Run { since: now, cut_short: now < entry.retry_at });
        let priority = entry.place.priority;
        let waited = now.since(entry.at);
        self.metrics.depth(priority, -1);
        self.metrics.waited(waited);
        Next::Work(Handed {
            slot,
            key: entry.key.clone(),
            priority,
            waited,
            failures: entry.failures,
        })
    }

    /// Ends the run of a key that was handed out.
    pub(crate) fn done(&mut self, now: Moment, slot: Slot, priority: Priority, outcome: Outcome) {
        self.promote(now);
        let Some(run) = self.running.remove(&slot) else { return };
        self.metrics.worked(now.since(run.since));
        let entry = &mut self.keys[slot];
        entry.running = false;
        if entry.waiting == Waiting::Ready {
            self.held -= 1;
            self.line.insert(entry.place, slot);
        }
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
            Outcome::Failure => {
                if !run.cut_short {
                    entry.failures = entry.failures.saturating_add(1);
                    entry.retry_at =
                        now.plus(self.backoff.delay(entry.failures, self.random.next()));
                }
                Some(entry.retry_at)
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
        self.delayed.clear();
        for slot in self.keys.slots() {
            let entry = &mut self.keys[slot];
            match (entry.waiting, how) {
                (Waiting::No, _) | (Waiting::Ready, Shutdown::Drain) => continue,
                (Waiting::Delayed, _) => {}
                (Waiting::Ready, Shutdown::Drop) => {
                    self.metrics.depth(entry.place.priority, -1);
                    if entry.running {
                        self.held -= 1;
                    } else {
                        self.line.remove(entry.place);
                    }
                }
            }
            entry.waiting = Waiting::No;
            self.drop_if_idle(slot);
        }
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown.is_some()
    }

    /// Puts every key that is due in line.
    pub(crate) fn promote(&mut self, now: Moment) {
        while let Some(&(due, _, slot)) = self.delayed.first()
            && due <= now
        {
            self.delayed.pop_first();
            // It has been ready since it was due, not since somebody noticed.
            self.line_up(slot, due);
        }
    }

    /// Keys that are ready, held ones included.
    pub(crate) fn ready(&self) -> usize {
        self.line.len() + self.held
    }

    /// Keys that a worker could take now.
    pub(crate) fn available(&self) -> usize {
        self.line.len()
    }

    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.delayed.first().map(|&(due, ..)| due)
    }

    pub(crate) fn unfinished(&self, now: Moment) -> Unfinished {
        let ages = self.running.values().map(|run| now.since(run.since));
        Unfinished {
            running: ages.len(),
            total: ages.clone().sum(),
            longest: ages.max().unwrap_or_default(),
        }
    }

    /// Makes a key wait until `due`; if it waits already, the higher priority and the earlier time win.
    fn schedule(&mut self, now: Moment, slot: Slot, priority: Priority, due: Moment) {
        if due > now {
            self.metrics.retried();
        }
        let number = self.next_number();
        let entry = &mut self.keys[slot];
        match entry.waiting {
            Waiting::Ready => return self.raise(slot, priority),
            // Also while it is running: what it was handed out with does not count for the next time.
            Waiting::No => entry.place.priority = priority,
            Waiting::Delayed => {
                entry.place.priority = entry.place.priority.max(priority);
                if due >= entry.at {
                    return;
                }
                self.delayed.remove(&(entry.at, entry.place.turn, slot));
            }
        }
        if due > now {
            entry.waiting = Waiting::Delayed;
            entry.at = due;
            entry.place.turn = number;
            self.delayed.insert((due, number, slot));
        } else {
            self.line_up(slot, now);
        }
    }

    /// Makes a key ready that was not.
    fn line_up(&mut self, slot: Slot, since: Moment) {
        let number = self.next_number();
        let entry = &mut self.keys[slot];
        entry.waiting = Waiting::Ready;
        entry.at = since;
        entry.place = Place { priority: entry.place.priority, turn: number, arrival: number };
        self.metrics.added();
        self.metrics.depth(entry.place.priority, 1);
        if entry.running {
            self.held += 1;
        } else {
            self.line.insert(entry.place, slot);
        }
    }

    /// Moves a ready key to the end of a higher priority.
    fn raise(&mut self, slot: Slot, priority: Priority) {
        let number = self.next_number();
        let entry = &mut self.keys[slot];
        if priority <= entry.place.priority {
            return;
        }
        let raised = Place { priority, turn: number, arrival: entry.place.arrival };
        self.metrics.depth(entry.place.priority, -1);
        self.metrics.depth(priority, 1);
        if !entry.running {
            self.line.remove(entry.place);
            self.line.insert(raised, slot);
        }
        entry.place = raised;
    }

    fn drop_if_idle(&mut self, slot: Slot) {
        let entry = &self.keys[slot];
        if entry.waiting == Waiting::No && !entry.running {
            self.keys.remove(slot);
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

impl<K> Entry<K> {
    fn new(key: K) -> Self {
        Self {
            key,
            waiting: Waiting::No,
            running: false,
            place: Place::default(),
            at: Moment::START,
            failures: 0,
            retry_at: Moment::START,
        }
    }

    fn forget(&mut self) {
        self.failures = 0;
        self.retry_at = Moment::START;
    }
}

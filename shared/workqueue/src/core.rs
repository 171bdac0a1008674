//! The whole behaviour of the queue as a state machine: no clock, no locks, no waiting.
//!
//! A key *waits* (not at all, until a time, or in the ready queue) and, independently of that, is *running* or not. A key that
//! neither waits nor runs has no entry. A key that is both running and ready is *held*: it counts as ready and keeps its place,
//! but is skipped until the run has ended.

mod delay_heap;
mod entry;
mod keys;
mod ready_queue;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use slot::Slot;

use crate::backoff::{Backoff, Random};
use crate::config::Config;
use crate::metrics::{Metrics, Unfinished};
use crate::moment::Moment;
use crate::outcome::Outcome;
use crate::priority::Priority;
use crate::shutdown::Shutdown;
use delay_heap::DelayHeap;
use entry::{HeapPosition, Neighbours, Waiting};
use keys::Keys;
use ready_queue::ReadyQueue;

pub(crate) struct Core<K> {
    keys: Keys<K>,
    ready: ReadyQueue<K>,
    delayed: DelayHeap,
    running: BTreeMap<Slot, Run>,
    /// The number of keys that are ready and running.
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

/// The answer to a worker that looks for work.
#[derive(Debug)]
pub(crate) enum Next<K> {
    Work(TakenItem<K>),
    /// No key is available. Holds the time of the next due key.
    Wait(Option<Moment>),
    Closed,
}

/// A key that was handed out.
#[derive(Debug)]
pub(crate) struct TakenItem<K> {
    pub(crate) slot: Slot,
    pub(crate) key: K,
    pub(crate) priority: Priority,
    pub(crate) waited: Duration,
    pub(crate) failures: u32,
}

impl<K: Clone + Eq + Hash> Core<K> {
    /// The keys of one flow take turns with those of others, inside a priority.
    pub(crate) fn new(config: Config, flow_of: fn(&K) -> u64) -> Self {
        let Config { backoff, patience, seed, metrics } = config;
        Self {
            keys: Keys::new(),
            ready: ReadyQueue::new(patience, flow_of),
            delayed: DelayHeap::default(),
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

    /// Makes a key ready, unless it becomes ready within this time anyway.
    pub(crate) fn add_unless_due(&mut self, now: Moment, key: K, priority: Priority, within: Duration) {
        self.promote(now);
        let due = self
            .keys
            .find(&key)
            .map(|slot| &self.keys[slot])
            .filter(|entry| matches!(entry.waiting, Waiting::Delayed(_)));
        if due.is_none_or(|entry| entry.at > now.plus(within)) {
            self.add(now, key, priority, Duration::ZERO);
        }
    }

    pub(crate) fn take(&mut self, now: Moment) -> Next<K> {
        self.promote(now);
        let Some(slot) = self.ready.take(&mut self.keys) else {
            return if self.shutdown.is_some() { Next::Closed } else { Next::Wait(self.next_due()) };
        };
        Next::Work(self.hand_out(now, slot))
    }

    /// Takes this key out of turn, if a worker could take it now.
    pub(crate) fn take_key(&mut self, now: Moment, key: &K) -> Option<TakenItem<K>> {
        self.promote(now);
        let slot = self.keys.find(key).filter(|slot| self.keys[*slot].is_available())?;
        let priority = self.keys[slot].priority;
        self.ready.remove(&mut self.keys, slot, priority);
        Some(self.hand_out(now, slot))
    }

    /// Hands out a key that has left the ready queue.
    fn hand_out(&mut self, now: Moment, slot: Slot) -> TakenItem<K> {
        let entry = &mut self.keys[slot];
        let priority = entry.priority;
        entry.waiting = Waiting::No;
        entry.running = true;
        self.running.insert(slot, Run { since: now, cut_short: now < entry.retry_at });
        let waited = now.since(entry.at);
        self.metrics.depth(priority, -1);
        self.metrics.waited(waited);
        TakenItem { slot, key: entry.key.clone(), priority, waited, failures: entry.failures }
    }

    /// Ends the run of a key that was handed out.
    pub(crate) fn done(&mut self, now: Moment, slot: Slot, mut priority: Priority, outcome: Outcome) {
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
            Outcome::NotBefore(delay) => {
                entry.retry_at = now.plus(delay);
                entry.is_blocked = true;
                let due = entry.retry_at;
                if self.shutdown.is_none()
                    && let Some(added) = self.unschedule(slot)
                {
                    priority = priority.max(added);
                }
                Some(due)
            }
            Outcome::Failure { base, latest } => {
                if !run.cut_short {
                    let backoff = Backoff { base: base.unwrap_or(self.backoff.base), ..self.backoff };
                    entry.failures = entry.failures.saturating_add(1);
                    entry.retry_at = now.plus(backoff.delay(entry.failures, self.random.next()));
                    entry.is_blocked = false;
                }
                Some(latest.map_or(entry.retry_at, |latest| entry.retry_at.min(now.plus(latest))))
            }
        };
        if let Some(due) = due
            && self.shutdown.is_none()
        {
            self.schedule(now, slot, priority, due);
        }
        self.drop_if_idle(slot);
    }

    /// Resets the back-off of a key, without changing when it is due.
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

    /// Drops the delayed keys and, for `Shutdown::Drop`, the ready ones.
    pub(crate) fn shut_down(&mut self, now: Moment, how: Shutdown) {
        self.promote(now);
        if self.shutdown == Some(Shutdown::Drop) {
            return;
        }
        self.shutdown = Some(how);
        for slot in self.keys.slots() {
            let is_ready = matches!(self.keys[slot].waiting, Waiting::Ready(_));
            if !(is_ready && how == Shutdown::Drain) && self.unschedule(slot).is_some() {
                self.drop_if_idle(slot);
            }
        }
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown.is_some()
    }

    /// Makes every key ready that is due.
    pub(crate) fn promote(&mut self, now: Moment) {
        while let Some(slot) = self.delayed.first()
            && self.keys[slot].at <= now
        {
            self.delayed.remove(&mut self.keys, slot);
            // `at` stays: the key has been ready since its due time, not since this call.
            self.make_ready(slot);
        }
    }

    /// Keys that are ready, held ones included.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Keys that a worker could take now.
    pub(crate) fn available(&self) -> usize {
        self.ready.len() - self.held
    }

    /// The same keys, in no order.
    pub(crate) fn available_keys(&self) -> Vec<K> {
        let entries = self.keys.slots().into_iter().map(|slot| &self.keys[slot]);
        entries.filter(|entry| entry.is_available()).map(|entry| entry.key.clone()).collect()
    }

    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.delayed.first().map(|slot| self.keys[slot].at)
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
        let due = if entry.is_blocked { due.max(entry.retry_at) } else { due };
        match entry.waiting {
            Waiting::Ready(_) => return self.raise(slot, priority),
            // Also while it is running: the priority of the current run does not count for the next one.
            Waiting::No => entry.priority = priority,
            Waiting::Delayed(_) => {
                entry.priority = entry.priority.max(priority);
                if due >= entry.at {
                    return;
                }
                self.delayed.remove(&mut self.keys, slot);
            }
        }
        let entry = &mut self.keys[slot];
        if due > now {
            entry.at = due;
            entry.waiting = Waiting::Delayed(HeapPosition::default());
            self.delayed.insert(&mut self.keys, slot);
        } else {
            entry.at = now;
            self.make_ready(slot);
        }
    }

    /// Makes a key ready that was not ready.
    fn make_ready(&mut self, slot: Slot) {
        let entry = &mut self.keys[slot];
        let priority = entry.priority;
        entry.waiting = Waiting::Ready(Neighbours::default());
        self.held += usize::from(entry.running);
        self.ready.push(&mut self.keys, slot, priority);
        self.metrics.added();
        self.metrics.depth(priority, 1);
    }

    /// Moves a ready key to the end of a higher priority.
    fn raise(&mut self, slot: Slot, to: Priority) {
        let entry = &mut self.keys[slot];
        let from = entry.priority;
        if from < to {
            entry.priority = to;
            self.ready.raise(&mut self.keys, slot, from, to);
            self.metrics.depth(from, -1);
            self.metrics.depth(to, 1);
        }
    }

    /// Takes back that a key waits; returns the priority with which it waited.
    fn unschedule(&mut self, slot: Slot) -> Option<Priority> {
        let entry = &mut self.keys[slot];
        let priority = entry.priority;
        match entry.waiting {
            Waiting::No => return None,
            Waiting::Delayed(_) => self.delayed.remove(&mut self.keys, slot),
            Waiting::Ready(_) => {
                self.held -= usize::from(entry.is_held());
                self.ready.remove(&mut self.keys, slot, priority);
                self.metrics.depth(priority, -1);
            }
        }
        self.keys[slot].waiting = Waiting::No;
        Some(priority)
    }

    fn drop_if_idle(&mut self, slot: Slot) {
        if self.keys[slot].is_idle() {
            self.keys.remove(slot);
        }
    }
}

//! A key that a worker has taken, and the ways to give it back.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::core::TakenItem;
use crate::outcome::Outcome;
use crate::priority::Priority;
use crate::shared::Shared;

/// A key that a worker has taken. No other worker gets it until this one gives it back with [`Item::done`].
///
/// Dropping it instead (a panic, a cancelled task) counts as [`Outcome::FAILURE`]. So no key is lost, and a key that makes its
/// worker panic is retried with back-off.
#[must_use = "dropping an item counts as a failure; call `done`"]
pub struct Item<K: Clone + Eq + Hash + Send + Sync + 'static> {
    handed: TakenItem<K>,
    queue: Arc<Shared<K>>,
    finished: bool,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Item<K> {
    pub(crate) fn new(handed: TakenItem<K>, queue: Arc<Shared<K>>) -> Self {
        Self { handed, queue, finished: false }
    }

    /// The key to work on.
    pub fn key(&self) -> &K {
        &self.handed.key
    }

    /// The priority with which it was handed out. It comes back with the same unless [`Item::with_requeue_priority`] sets another.
    pub fn priority(&self) -> Priority {
        self.handed.priority
    }

    /// The time between becoming ready and the hand-out; a delay before that does not count.
    pub fn waited(&self) -> Duration {
        self.handed.waited
    }

    /// The number of failures in a row before this run.
    pub fn failures(&self) -> u32 {
        self.handed.failures
    }

    /// Sets the priority with which the key comes back.
    pub fn with_requeue_priority(mut self, priority: Priority) -> Self {
        self.handed.priority = priority;
        self
    }

    /// Gives the key back.
    pub fn done(mut self, outcome: Outcome) {
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.finished, true) {
            let (slot, priority) = (self.handed.slot, self.handed.priority);
            self.queue.change(|core, now| core.done(now, slot, priority, outcome));
        }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Drop for Item<K> {
    fn drop(&mut self) {
        self.finish(Outcome::FAILURE);
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + fmt::Debug + 'static> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handed.fmt(f)
    }
}

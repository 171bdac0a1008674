//! A key that a worker has taken, and the ways to give it back.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use crate::core::TakenItem;
use crate::{Priority, WorkQueue};

/// How the work on a key ended.
///
/// | Outcome | comes back | failures in a row |
/// |---|---|---|
/// | `Success` | when it is added | 0 |
/// | `RequeueAfter(d)` | after `d` | 0 |
/// | `Failure` | after its back-off | one more, unless this run cut a wait short |
/// | `FailureWith { base, latest }` | after its back-off, which begins with `base`, or after `latest` if that is earlier | as `Failure` |
/// | `NotBefore(d)` | after `d`, whatever adds it | as before |
/// | `WaitForChange` | when it is added | 0 |
///
/// A key that was added during the work also comes back for that reason; the earlier time wins, except after `NotBefore`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Success,
    /// Done, and comes back after this time. Zero means at once, behind the others of its priority.
    RequeueAfter(Duration),
    /// Failed, and comes back after the key's back-off.
    ///
    /// A run that began before the back-off was over, because the key was added meanwhile, does not increase the back-off, and
    /// the due time of the next try does not change. Otherwise a burst of unrelated changes to a failing key would raise its
    /// back-off to the maximum within a second.
    Failure,
    /// Failed, and comes back after a back-off of its own kind.
    FailureWith {
        /// The first wait of the back-off, instead of the queue's. For an outside system that needs longer waits.
        base: Option<Duration>,
        /// The key comes back after this time if that is earlier than its back-off. For work that failed in part, while another
        /// part has a fixed time. Such a run does not increase the back-off either.
        latest: Option<Duration>,
    },
    /// Failed, and comes back after this time, because the refusal named it (`Retry-After`). Adding the key, before the work
    /// ended or after, does not bring it back earlier.
    NotBefore(Duration),
    /// Failed in a way that a retry cannot fix; comes back when it is added.
    WaitForChange,
}

/// A key that a worker has taken. No other worker gets it until this one gives it back with [`Item::done`].
///
/// Dropping it instead (a panic, a cancelled task) counts as [`Outcome::Failure`]. So no key is lost, and a key that makes its
/// worker panic is retried with back-off.
#[must_use = "dropping an item counts as a failure; call `done`"]
pub struct Item<K: Clone + Eq + Hash + Send + Sync + 'static> {
    handed: TakenItem<K>,
    queue: WorkQueue<K>,
    finished: bool,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Item<K> {
    pub(crate) fn new(handed: TakenItem<K>, queue: WorkQueue<K>) -> Self {
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
            self.queue.finish(self.handed.slot, self.handed.priority, outcome);
        }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Drop for Item<K> {
    fn drop(&mut self) {
        self.finish(Outcome::Failure);
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + fmt::Debug + 'static> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handed.fmt(f)
    }
}

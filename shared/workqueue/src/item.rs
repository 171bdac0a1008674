//! A key in the hands of a worker, and the ways to give it back.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use crate::core::Handed;
use crate::{Priority, WorkQueue};

/// How the work on a key ended.
///
/// | Outcome | comes back | failures in a row |
/// |---|---|---|
/// | `Success` | when it is added | 0 |
/// | `RequeueAfter(d)` | after `d` | 0 |
/// | `Failure` | after its back-off | one more, unless this run cut a wait short |
/// | `FailureOrAfter(d)` | after its back-off or after `d`, whichever is earlier | as `Failure` |
/// | `RetryAfter(d)` | after `d` | as before |
/// | `WaitForChange` | when it is added | 0 |
///
/// A key that was added while it was being worked on comes back for that reason too; the earlier time wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Success,
    /// Done, and to be looked at again. Zero means at once, behind the others of its priority.
    RequeueAfter(Duration),
    /// Failed, to be tried again after the key's back-off.
    ///
    /// A run that began before the key's back-off was over (because the key was added meanwhile) takes no further step on the
    /// ladder: the next try stays due when it was. Otherwise a burst of unrelated changes to a failing key would push its
    /// back-off to the maximum within a second.
    Failure,
    /// Failed, to be tried again after the key's back-off, and to be looked at after this time at the latest: for work that
    /// failed in part, while another part has an appointment.
    ///
    /// The back-off is that of [`Outcome::Failure`]. A run that the time brings back before the back-off is over cuts it
    /// short, and takes no further step on the ladder.
    FailureOrAfter(Duration),
    /// Failed, and whoever refused said when to come back.
    RetryAfter(Duration),
    /// Failed in a way that trying again cannot mend.
    WaitForChange,
}

/// A key being worked on; nobody else gets it until this is given back with [`Item::done`].
///
/// Dropping it instead (a panic, a cancelled task) counts as [`Outcome::Failure`], so a key is never lost and a key that
/// makes its worker panic is backed off.
#[must_use = "dropping an item counts as a failure; call `done`"]
pub struct Item<K: Clone + Eq + Hash + Send + Sync + 'static> {
    handed: Handed<K>,
    queue: WorkQueue<K>,
    finished: bool,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Item<K> {
    pub(crate) fn new(handed: Handed<K>, queue: WorkQueue<K>) -> Self {
        Self { handed, queue, finished: false }
    }

    /// The key to work on.
    pub fn key(&self) -> &K {
        &self.handed.key
    }

    /// The priority it was handed out with, and comes back with unless [`Item::requeue_at`] says otherwise.
    pub fn priority(&self) -> Priority {
        self.handed.priority
    }

    /// How long it was ready before it was handed out; a delay before that does not count.
    pub fn waited(&self) -> Duration {
        self.handed.waited
    }

    /// How many times in a row it has failed before this run.
    pub fn failures(&self) -> u32 {
        self.handed.failures
    }

    /// Sets the priority with which the outcome brings it back.
    pub fn requeue_at(mut self, priority: Priority) -> Self {
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

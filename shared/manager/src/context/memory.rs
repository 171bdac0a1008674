//! What a controller remembers of single objects, beside the cache.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cache::ObjectKey;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::apply::Contest;

/// What a controller remembers of each object. An object without anything to remember takes no memory.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<ObjectKey, Box<Remembered>>>);

/// What a controller remembers of one object. The process can do without all of it: a restart loses it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// The rollout that this process started and that has not finished.
    pub(super) rollout: Option<Rollout>,
    /// The time of the first status change that is not written yet.
    pub(super) held_status: Option<Instant>,
    /// The kinds of children that are not installed and for which an event was emitted.
    pub(super) reported_missing: BTreeSet<String>,
    /// Children whose create request was sent but not answered, by kind and key: they may exist.
    pub(super) unanswered: BTreeSet<(String, ObjectKey)>,
    /// What the last reconcile acted on, for controllers that filter what wakes them.
    last_reconciled: LastReconciled,
    /// Children that may have lost our label, by kind and key, in the order of their loss; see
    /// [`lost_children`](super::lost_children).
    pub(super) lost_children: Vec<(String, ObjectKey)>,
    /// The children whose fields another client has changed recently, by kind and key.
    pub(super) contests: BTreeMap<(String, ObjectKey), Contest>,
}

/// What the last reconcile of an object acted on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LastReconciled {
    /// There was none in this process, or it did not end.
    #[default]
    Unknown,
    /// It still runs.
    Running,
    /// The hash of the part of the object whose changes wake it.
    Hash(u64),
}

/// The rollout of a pod template to all pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rollout {
    pub(super) since: Instant,
    /// The number of desired replicas. `None` for the initial rollout, which emits no event.
    pub(super) replicas: Option<i64>,
}

/// A map that has had room for more objects than this frees its memory when it is empty.
const SMALL: usize = 64;

impl Memory {
    /// A number that no other controller of the process has: each has one memory, which does not move.
    pub(crate) fn controller(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Changes what is remembered of the object. `change` must not block.
    pub(super) fn modify<R>(&self, key: &ObjectKey, change: impl FnOnce(&mut Remembered) -> R) -> R {
        let mut all = self.0.lock();
        let Some(remembered) = all.get_mut(key) else {
            let mut remembered = Remembered::default();
            let result = change(&mut remembered);
            if remembered != Remembered::default() {
                all.insert(key.clone(), Box::new(remembered));
            }
            return result;
        };
        let result = change(remembered);
        if **remembered == Remembered::default() {
            remove(&mut all, key);
        }
        result
    }

    /// Reads what is remembered of the object; the default where there is nothing.
    pub(super) fn read<R: Default>(&self, key: &ObjectKey, read: impl FnOnce(&Remembered) -> R) -> R {
        self.0.lock().get(key).map(|remembered| read(remembered)).unwrap_or_default()
    }

    pub(crate) fn last_reconciled(&self, key: &ObjectKey) -> LastReconciled {
        self.read(key, |it| it.last_reconciled)
    }

    pub(crate) fn record_reconciled(&self, key: &ObjectKey, reconciled: LastReconciled) {
        self.modify(key, |it| it.last_reconciled = reconciled);
    }

    /// Drops everything about an object that is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        remove(&mut self.0.lock(), key);
    }
}

fn remove(all: &mut HashMap<ObjectKey, Box<Remembered>>, key: &ObjectKey) {
    all.remove(key);
    if all.is_empty() && all.capacity() > SMALL {
        *all = HashMap::new(); // frees what a burst has allocated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_with_nothing_left_to_remember_takes_no_memory() {
        let (memory, key) = (Memory::default(), ObjectKey::new("n", "a"));
        memory.modify(&key, |_| ());
        assert!(memory.0.lock().is_empty(), "a change that changes nothing makes no entry");
        memory.modify(&key, |it| it.reported_missing.insert("Deployment".to_owned()));
        assert!(memory.read(&key, |it| it.reported_missing.contains("Deployment")));
        memory.modify(&key, |it| it.reported_missing.clear());
        assert!(memory.0.lock().is_empty());
        for number in 0..1_000 {
            memory.modify(&ObjectKey::new("n", number.to_string()), |it| {
                it.reported_missing.insert("Deployment".to_owned())
            });
        }
        for number in 0..1_000 {
            memory.forget(&ObjectKey::new("n", number.to_string()));
        }
        assert!(memory.0.lock().capacity() <= SMALL, "a burst leaves no room behind");
    }
}

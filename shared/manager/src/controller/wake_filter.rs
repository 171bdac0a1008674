//! Which changes of an object wake it: all of them, or those of the part that the operator names with `wakes_on`.
//!
//! A change is compared with what the last reconcile acted on, not with the version before it. So two changes that cancel each
//! other cause no reconcile, and neither do the reconcile's own writes.

use std::{
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use cache::{Full, ObjectKey, Store};
use kube::ResourceExt;
use xxhash_rust::xxh3::Xxh3Default;

use crate::{
    context::{LastReconciled, Memory, is_paused, reconcile_request},
    status::Primary,
};

/// Computes the hash of the part of an object whose changes wake it.
pub(super) type Part<K> = Box<dyn Fn(&K) -> u64 + Send + Sync>;

/// Decides whether a change of an object wakes it.
pub(super) struct WakeFilter<K: Primary> {
    /// `None` if every change does.
    part: Option<Part<K>>,
    store: Arc<Store<Full<K>>>,
    memory: Arc<Memory>,
}

/// A running reconcile. Changes of its object wait for its end. If it is dropped before, any change wakes the object.
pub(super) struct ReconcileGuard<'a, K: Primary> {
    filter: &'a WakeFilter<K>,
    key: &'a ObjectKey,
}

impl<K: Primary> WakeFilter<K> {
    pub(super) fn new(part: Option<Part<K>>, store: Arc<Store<Full<K>>>, memory: Arc<Memory>) -> Self {
        Self { part, store, memory }
    }

    /// Whether the object in the cache differs from what the last reconcile acted on. False while a reconcile runs:
    /// [`ReconcileGuard::end`] answers for it.
    pub(super) fn passes(&self, key: &ObjectKey) -> bool {
        let Some(part) = &self.part else { return true };
        match self.memory.last_reconciled(key) {
            LastReconciled::Unknown => true,
            LastReconciled::Running => false,
            LastReconciled::Hash(hash) => self.store.get(key).is_none_or(|object| hash_of(part, &object) != hash),
        }
    }

    /// Begins a reconcile.
    pub(super) fn begin<'a>(&'a self, key: &'a ObjectKey) -> ReconcileGuard<'a, K> {
        self.record(key, LastReconciled::Running);
        ReconcileGuard { filter: self, key }
    }

    fn record(&self, key: &ObjectKey, reconciled: LastReconciled) {
        if self.part.is_some() {
            self.memory.record_reconciled(key, reconciled);
        }
    }
}

impl<K: Primary> ReconcileGuard<'_, K> {
    /// Ends the reconcile, which acted on `object`. Returns whether a change that it did not act on has arrived meanwhile.
    pub(super) fn end(self, object: &K) -> bool {
        let Some(part) = &self.filter.part else { return false };
        self.filter.record(self.key, LastReconciled::Hash(hash_of(part, object)));
        let has_changed = self.filter.passes(self.key);
        std::mem::forget(self);
        has_changed
    }
}

impl<K: Primary> Drop for ReconcileGuard<'_, K> {
    fn drop(&mut self) {
        self.filter.record(self.key, LastReconciled::Unknown);
    }
}

/// Returns the hash of what wakes an object: the operator's part, and what the runtime itself acts on. If the operator's code
/// panics, every change counts.
fn hash_of<K: Primary>(part: &Part<K>, object: &K) -> u64 {
    let meta = object.meta();
    let part = catch_unwind(AssertUnwindSafe(|| part(object))).ok();
    let version = if part.is_none() { meta.resource_version.as_deref() } else { None };
    let (is_deleted, request) = (meta.deletion_timestamp.is_some(), reconcile_request(object));
    hash(&(&meta.uid, meta.generation, is_deleted, object.finalizers(), is_paused(object), request, part, version))
}

/// Returns the hash of a value. It is the same in every process.
pub(super) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = Xxh3Default::new();
    value.hash(&mut hasher);
    hasher.finish()
}

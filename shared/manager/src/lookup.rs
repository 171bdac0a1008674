//! Reads the cache of a controller from outside of its reconciles, for instance in a webhook.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use cache::{Coverage, Full, Informer};

use crate::status::Primary;

/// A handle of the cache of a controller's kind. Clones share it. It is empty until a controller that was declared with
/// [`lookup`](crate::ControllerBuilder::lookup) runs.
pub struct Lookup<K: Primary>(Arc<OnceLock<Arc<Informer<Full<K>>>>>);

/// The cache is not filled yet, or has not listed a namespace that has just joined, or it is out of step because the kind is not
/// installed or the API server does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cache is not in sync; try again in a moment")]
pub struct NotSynced;

impl<K: Primary> Lookup<K> {
    pub(crate) fn connect(&self, informer: &Arc<Informer<Full<K>>>) {
        drop(self.0.set(informer.clone()));
    }

    /// Returns the objects in this namespace that have `value` in the index, sorted by name. There are none in a namespace that the
    /// process does not watch.
    ///
    /// # Errors
    ///
    /// The cache is not in sync.
    ///
    /// # Panics
    ///
    /// When the controller has no such [`index`](crate::ControllerBuilder::index).
    pub fn indexed(&self, index: &str, namespace: &str, value: &str) -> Result<Vec<Arc<K>>, NotSynced> {
        Ok(self.informer(namespace)?.store.indexed(index, namespace, value))
    }

    /// Returns the cache if it is in sync in this namespace.
    fn informer(&self, namespace: &str) -> Result<&Informer<Full<K>>, NotSynced> {
        // A namespace that has just joined is not listed, although the watch is in sync.
        let has_all = |it: &&Informer<Full<K>>| it.is_synced(namespace) && it.coverage(namespace) == Coverage::Complete;
        self.0.get().map(|informer| &**informer).filter(has_all).ok_or(NotSynced)
    }
}

impl<K: Primary> Default for Lookup<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Primary> Clone for Lookup<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Primary> fmt::Debug for Lookup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lookup").field(&K::kind(&())).finish()
    }
}

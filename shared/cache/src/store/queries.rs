//! What readers ask the store. Nothing here changes it.

use std::sync::Arc;

use super::{Known, Progress, Representation, Scope, Slot, Store};
use crate::{AppKey, CachedMeta, ObjectKey, Uid};

impl<R: Representation> Store<R> {
    /// The object of that name.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<R::Item>> {
        Self::item(self.read().objects.get(key)?)
    }

    /// Whether an object has this name.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.read().objects.get(key).is_some()
    }

    /// The uid of the object that has this name now.
    pub fn uid(&self, key: &ObjectKey) -> Option<Uid> {
        self.read().objects.get(key).map(|slot| slot.meta.uid)
    }

    /// Whether the object of that name is being deleted. Decodes nothing.
    pub fn is_deleting(&self, key: &ObjectKey) -> bool {
        self.read().objects.get(key).is_some_and(|slot| slot.meta.is_deleting)
    }

    /// The object of that name, with what a writer needs.
    pub fn known(&self, key: &ObjectKey) -> Option<Known<R::Item>> {
        let state = self.read();
        let slot = state.objects.get(key)?;
        Some(Known {
            item: Self::item(slot)?,
            uid: slot.meta.uid,
            owner: slot.meta.owner.clone(),
            fingerprint: slot.meta.fingerprint,
            verified: slot.verified,
        })
    }

    /// The JSON that the cache keeps of the object; `None` for views of objects in which nothing is ours.
    pub fn text(&self, key: &ObjectKey) -> Option<String> {
        self.read().objects.get(key)?.text()
    }

    /// The keys of all objects, in no order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.read().objects.iter().map(|slot| slot.key.clone()).collect()
    }

    /// Each object with its key, one at a time and in no order. Neither copies all keys nor holds the lock between two objects: an object
    /// that is there all the while is returned once, in its form of that moment. One that is deleted and created again in the meantime
    /// may be returned twice.
    pub fn each(&self) -> impl Iterator<Item = (ObjectKey, Arc<R::Item>)> {
        // An object keeps its position as long as it is there.
        let mut next = 0;
        std::iter::from_fn(move || {
            loop {
                let state = self.read();
                let (position, slot) = state.objects.first_from(next)?;
                next = position + 1;
                if let Some(item) = Self::item(slot) {
                    return Some((slot.key.clone(), item));
                }
            }
        })
    }

    /// The keys of the objects that `owner` controls, sorted.
    pub fn owned(&self, owner: Uid) -> Vec<ObjectKey> {
        let mut keys: Vec<ObjectKey> = self.read().objects.owned(owner).map(|slot| slot.key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// The objects that carry the selector labels of `app`, sorted by name.
    pub fn labelled(&self, app: &AppKey) -> Vec<Arc<R::Item>> {
        let state = self.read();
        let mut slots: Vec<&Slot<R::Item>> = state.objects.labelled(app).collect();
        slots.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        slots.into_iter().filter_map(Self::item).collect()
    }

    /// The objects in this namespace that have `value` under the [`index`](Self::index), sorted by name.
    ///
    /// # Panics
    ///
    /// When no index has this name.
    pub fn indexed(&self, name: &str, namespace: &str, value: &str) -> Vec<Arc<R::Item>> {
        self.find(name, Scope::Namespace(namespace), value)
    }

    /// The objects in all namespaces that have `value` under the [`index_cluster`](Self::index_cluster), sorted by namespace and
    /// name.
    ///
    /// # Panics
    ///
    /// When no index has this name.
    pub fn indexed_cluster(&self, name: &str, value: &str) -> Vec<Arc<R::Item>> {
        self.find(name, Scope::Cluster, value)
    }

    fn find(&self, name: &str, scope: Scope<'_>, value: &str) -> Vec<Arc<R::Item>> {
        let state = self.read();
        let candidates = state.indices.candidates(name, scope, value);
        let mut slots: Vec<&Slot<R::Item>> =
            candidates.into_iter().filter_map(|position| state.objects.slot(position)).collect();
        slots.retain(|slot| scope == Scope::Cluster || scope == Scope::Namespace(&slot.key.namespace));
        slots.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        slots.into_iter().filter_map(Self::item).filter(|item| state.indices.has_value(name, value, item)).collect()
    }

    /// The keys of the objects in this namespace that may have `value` under the index, in no order. A few may not have it.
    ///
    /// # Panics
    ///
    /// When no index has this name.
    pub fn indexed_keys(&self, name: &str, namespace: &str, value: &str) -> Vec<ObjectKey> {
        let state = self.read();
        let candidates = state.indices.candidates(name, Scope::Namespace(namespace), value);
        let slots = candidates.into_iter().filter_map(|position| state.objects.slot(position));
        slots.filter(|slot| *slot.key.namespace == *namespace).map(|slot| slot.key.clone()).collect()
    }

    /// The number of cached objects, and of those that do not decode.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.read();
        (state.objects.len(), state.undecodable.len())
    }

    /// Whether the watches are sure to deliver the changes of an object with this metadata, provided that its namespace is watched. With
    /// a selector of the user, they never are.
    pub fn selects(&self, meta: &CachedMeta) -> bool {
        self.read().selection.selects(meta)
    }

    /// If no object has this name according to the cache, returns the version up to which the cache knows that.
    pub fn absent_at(&self, key: &ObjectKey) -> Option<u64> {
        let state = self.read();
        let is_known = state.objects.get(key).is_some() || state.undecodable.contains_key(key);
        state.watch_of(key).map(Progress::delivered).filter(|_| !is_known)
    }

    /// Whether we deleted the object with this uid, and the watch has not delivered that.
    pub fn is_gone(&self, uid: Uid) -> bool {
        self.read().gone.contains_key(&uid)
    }
}

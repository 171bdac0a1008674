//! The cache of one kind: objects by name, with indices by owner and by application label.
//!
//! Only the informer writes it. A write's answer goes through the same door ([`Store::observe`]), so that a reconcile
//! reads its own writes: an answer is kept if it is newer than everything the watch has delivered, and the watch's
//! echo of it is then recognised by its resource version and wakes nobody.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use crate::{
    object::{ObjectKey, Uid},
    owned::Fingerprint,
    wire::{AppKey, Decoded, Owner, Representation, Undecodable},
};

mod index;
mod packed;
mod slots;

pub(crate) use index::Values;

use index::Indices;
use packed::Packer;
use slots::{Slot, Slots};

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Store<R: Representation> {
    state: RwLock<State<R::Item>>,
}

#[derive(Debug)]
struct State<I> {
    objects: Slots<I>,
    /// What operators declare beside owners and labels.
    indices: Indices<I>,
    packer: Packer,
    undecodable: HashMap<ObjectKey, Undecodable>,
    /// Objects that we deleted and whose last events may still arrive, by uid.
    gone: HashSet<Uid>,
    /// The newest version that the watch has delivered.
    delivered: u64,
    /// The lists that are under way, one at most for each scope.
    listings: Vec<Listing>,
}

/// A list that is under way: what it does not contain will be gone.
#[derive(Debug)]
struct Listing {
    /// The namespace that is listed; empty for all of them.
    scope: Box<str>,
    seen: HashSet<ObjectKey>,
}

impl Listing {
    fn covers(&self, key: &ObjectKey) -> bool {
        self.scope.is_empty() || *self.scope == *key.namespace
    }
}

/// A live state and a desired one that were found to agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verified {
    /// Hash of what is ours in the live object.
    pub(crate) live: u64,
    /// Hash of the desired object.
    pub(crate) desired: u64,
}

/// What the store says about an object's write state.
#[derive(Debug, Clone)]
pub(crate) struct Known<I> {
    pub(crate) item: Arc<I>,
    pub(crate) uid: Uid,
    pub(crate) owner: Option<Owner>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) verified: Option<Verified>,
}

/// A change of the store that somebody may want to reconcile.
#[derive(Debug)]
pub(crate) struct Delta {
    pub(crate) key: ObjectKey,
    /// Owners before and after, so that a child that changes hands wakes both.
    pub(crate) owners: [Option<Owner>; 2],
    pub(crate) apps: [Option<AppKey>; 2],
    /// The first failure to decode this object's current form.
    pub(crate) undecodable: Option<Undecodable>,
}

impl<R: Representation> Default for Store<R> {
    fn default() -> Self {
        let state = State {
            objects: Slots::default(),
            indices: Indices::default(),
            packer: Packer::default(),
            undecodable: HashMap::new(),
            gone: HashSet::new(),
            delivered: 0,
            listings: Vec::new(),
        };
        Self { state: RwLock::new(state) }
    }
}

impl<R: Representation> Store<R> {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<R::Item>> {
        Self::item(self.read().objects.get(key)?)
    }

    /// The uid of the object that has this name now.
    pub(crate) fn uid(&self, key: &ObjectKey) -> Option<Uid> {
        self.read().objects.get(key).map(|slot| slot.facts.uid)
    }

    pub(crate) fn known(&self, key: &ObjectKey) -> Option<Known<R::Item>> {
        let state = self.read();
        let slot = state.objects.get(key)?;
        Some(Known {
            item: Self::item(slot)?,
            uid: slot.facts.uid,
            owner: slot.facts.owner.clone(),
            fingerprint: slot.facts.fingerprint,
            verified: slot.verified,
        })
    }

    /// The object's JSON as far as writers read it; only of objects that we made.
    pub(crate) fn text(&self, key: &ObjectKey) -> Option<String> {
        self.read().objects.get(key)?.text.as_ref()?.text()
    }

    /// The names of all objects, in no order.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.read().objects.iter().map(|slot| slot.key.clone()).collect()
    }

    /// The names of the objects that `owner` controls, sorted.
    pub(crate) fn owned(&self, owner: Uid) -> Vec<ObjectKey> {
        let mut keys: Vec<ObjectKey> = self.read().objects.owned(owner).map(|slot| slot.key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// The objects that carry the selector labels of `app`, sorted by name.
    pub(crate) fn labelled(&self, app: &AppKey) -> Vec<Arc<R::Item>> {
        let state = self.read();
        let mut slots: Vec<&Slot<R::Item>> = state.objects.labelled(app).collect();
        slots.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        slots.into_iter().filter_map(Self::item).collect()
    }

    /// Adds an index, before the first object.
    pub(crate) fn index(&self, name: &'static str, values: Values<R::Item>) {
        self.write().indices.declare(name, values);
    }

    /// The objects in this namespace that say `value` under the index, sorted by name. Panics when there is no such index.
    pub(crate) fn indexed(&self, name: &str, namespace: &str, value: &str) -> Vec<Arc<R::Item>> {
        let state = self.read();
        let candidates = state.indices.candidates(name, namespace, value);
        let mut slots: Vec<&Slot<R::Item>> =
            candidates.into_iter().filter_map(|position| state.objects.slot(position)).collect();
        slots.retain(|slot| *slot.key.namespace == *namespace);
        slots.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        slots.into_iter().filter_map(Self::item).filter(|item| state.indices.says(name, value, item)).collect()
    }

    /// Number of objects, and of those that do not decode.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.read();
        (state.objects.len(), state.undecodable.len())
    }

    /// Remembers that what is ours in the live object agrees with the desired object.
    pub(crate) fn verify(&self, key: &ObjectKey, uid: Uid, verified: Verified) {
        if let Some(slot) = self.write().objects.get_mut(key).filter(|slot| slot.facts.uid == uid) {
            slot.verified = Some(verified);
        }
    }

    /// Takes in one object from the watch.
    pub(crate) fn deliver(&self, decoded: &Decoded<R::Item>) -> Option<Delta> {
        let mut state = self.write();
        state.delivered = state.delivered.max(decoded.facts.version);
        state.saw(&decoded.key);
        state.upsert::<R>(decoded)
    }

    /// Takes in the answer of a write, unless the watch is already past it.
    pub(crate) fn observe(&self, decoded: &Decoded<R::Item>) {
        let mut state = self.write();
        if decoded.facts.version <= state.delivered && state.objects.get(&decoded.key).is_none() {
            return; // deleted since, and the watch has said so
        }
        state.saw(&decoded.key); // a list that is under way may have been taken before this write
        state.upsert::<R>(decoded);
    }

    /// An object is gone, says the watch.
    pub(crate) fn deliver_gone(&self, decoded: &Decoded<R::Item>) -> Option<Delta> {
        let mut state = self.write();
        state.delivered = state.delivered.max(decoded.facts.version);
        state.gone.remove(&decoded.facts.uid);
        let newer =
            |slot: &Slot<R::Item>| slot.facts.uid != decoded.facts.uid && slot.facts.version > decoded.facts.version;
        if state.objects.get(&decoded.key).is_some_and(newer) {
            return None; // created again meanwhile, and we know it from our own write
        }
        state.remove(&decoded.key)
    }

    /// We deleted this object: it is not there any more for us, whatever late events say.
    pub(crate) fn observe_gone(&self, key: &ObjectKey, uid: Uid) {
        let mut state = self.write();
        if state.objects.get(key).is_some_and(|slot| slot.facts.uid == uid) {
            state.gone.insert(uid);
            state.remove(key);
        }
    }

    /// A list of one namespace begins, or of all with an empty `scope`. One that was not finished is forgotten.
    pub(crate) fn begin_list(&self, scope: &str) {
        let mut state = self.write();
        state.listings.retain(|listing| *listing.scope != *scope);
        state.listings.push(Listing { scope: scope.into(), seen: HashSet::new() });
    }

    /// The list is complete. Returns what has gone since.
    pub(crate) fn end_list(&self, scope: &str) -> Vec<Delta> {
        let mut state = self.write();
        let Some(index) = state.listings.iter().position(|listing| *listing.scope == *scope) else { return Vec::new() };
        let listing = state.listings.swap_remove(index);
        if scope.is_empty() {
            state.gone.clear(); // of what was gone before this list, no late event can come
        }
        let is_missing = |key: &ObjectKey| listing.covers(key) && !listing.seen.contains(key);
        state.undecodable.retain(|key, _| !is_missing(key));
        let missing: Vec<ObjectKey> =
            state.objects.iter().map(|slot| &slot.key).filter(|key| is_missing(key)).cloned().collect();
        missing.iter().filter_map(|key| state.remove(key)).collect()
    }

    fn item(slot: &Slot<R::Item>) -> Option<Arc<R::Item>> {
        slot.item.clone().or_else(|| R::revive(&slot.text.as_ref()?.text()?).map(Arc::new))
    }

    fn read(&self) -> RwLockReadGuard<'_, State<R::Item>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<R::Item>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<I> State<I> {
    fn saw(&mut self, key: &ObjectKey) {
        for listing in self.listings.iter_mut().filter(|listing| listing.covers(key)) {
            listing.seen.insert(key.clone());
        }
    }

    fn upsert<R: Representation<Item = I>>(&mut self, decoded: &Decoded<I>) -> Option<Delta> {
        let key = &decoded.key;
        if self.gone.contains(&decoded.facts.uid) {
            return None;
        }
        let item = match &decoded.item {
            Ok(item) => item.clone(),
            Err(error) => return self.set_aside(key, error),
        };
        self.undecodable.remove(key);
        let old = self.objects.get(key);
        if old.is_some_and(|old| old.facts.version >= decoded.facts.version) {
            return None; // the echo of our own write, or older than it
        }
        let verified = old.filter(|old| old.facts.uid == decoded.facts.uid).and_then(|old| old.verified);
        let delta = Delta {
            key: key.clone(),
            owners: [old.and_then(|old| old.facts.owner.clone()), decoded.facts.owner.clone()],
            apps: [old.and_then(|old| old.facts.app.clone()), decoded.facts.app.clone()],
            undecodable: None,
        };
        let changed = old.is_none_or(|old| {
            old.facts.uid != decoded.facts.uid
                || old.facts.fingerprint != decoded.facts.fingerprint
                || old.facts.owner != decoded.facts.owner
                || old.facts.app != decoded.facts.app
                || old.item.as_ref().is_none_or(|old| !R::same(old, &item))
        });
        let position = self.objects.put(Slot {
            key: key.clone(),
            facts: decoded.facts.clone(),
            verified,
            item: (!R::IS_REVIVED).then(|| item.clone()),
            text: decoded.text.as_ref().map(|text| self.packer.pack(text)),
        });
        self.indices.put(position, key, &item);
        changed.then_some(delta)
    }

    /// An object that does not decode is not in the cache; its last good form would be a lie.
    fn set_aside(&mut self, key: &ObjectKey, error: &Undecodable) -> Option<Delta> {
        let known = self.undecodable.insert(key.clone(), error.clone());
        let removed = self.remove(key);
        if removed.is_none() && known.is_some_and(|known| known == *error) {
            return None;
        }
        Some(Delta { key: key.clone(), owners: [None, None], apps: [None, None], undecodable: Some(error.clone()) })
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Delta> {
        self.indices.remove(self.objects.position(key)?);
        let slot = self.objects.remove(key)?;
        Some(Delta {
            key: key.clone(),
            owners: [slot.facts.owner, None],
            apps: [slot.facts.app, None],
            undecodable: None,
        })
    }
}

#[cfg(test)]
mod tests;

//! The cache of one kind: objects by name, with indices by owner and by application label.
//!
//! Only the informer writes it. A write's answer goes through the same door ([`Store::observe`]), so that a reconcile
//! reads its own writes: an answer is kept if it is newer than everything the watch has delivered, and the watch's
//! echo of it is then recognised by its resource version and wakes nobody.
//!
//! Versions order what happened only within one history of the cluster. A list is the present state, whatever versions
//! the cache holds: after etcd is restored from a backup, older versions come back ([`Store::listed`]).

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use crate::{
    object::{ObjectKey, Uid},
    owned::Fingerprint,
    wire::{AppKey, Decoded, Owner, Representation, Undecodable},
};

mod index;
mod packed;
mod progress;
mod slots;

pub(crate) use index::Values;
pub(crate) use progress::WentBack;

use index::Indices;
use packed::{Packed, Packer};
use progress::Progress;
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
    /// Objects that we deleted and whose last events may still arrive, with their namespaces.
    gone: HashMap<Uid, Arc<str>>,
    /// How far each watch has come; one for each watched namespace, or one for all.
    watches: Vec<Progress>,
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
            gone: HashMap::new(),
            watches: vec![Progress::of("")],
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

    /// From now on each of these namespaces is watched by itself; an empty name is all of them.
    pub(crate) fn watch(&self, scopes: &[String]) {
        self.write().watches = scopes.iter().map(|scope| Progress::of(scope)).collect();
    }

    /// Takes in one object from a watch.
    pub(crate) fn deliver(&self, watch: usize, decoded: &Decoded<R::Item>) -> Result<Option<Delta>, WentBack> {
        let mut state = self.write();
        state.watches[watch].advance(decoded.facts.version)?;
        if state.gone.contains_key(&decoded.facts.uid) {
            return Ok(None);
        }
        Ok(state.upsert::<R>(decoded))
    }

    /// An object is gone, says a watch.
    pub(crate) fn deliver_gone(&self, watch: usize, decoded: &Decoded<R::Item>) -> Result<Option<Delta>, WentBack> {
        let mut state = self.write();
        state.watches[watch].advance(decoded.facts.version)?;
        state.gone.remove(&decoded.facts.uid);
        state.undecodable.remove(&decoded.key);
        // Created or labelled again meanwhile, as the answer of our own write has told.
        let is_newer = |slot: &Slot<R::Item>| slot.facts.version > decoded.facts.version;
        if state.objects.get(&decoded.key).is_some_and(is_newer) {
            return Ok(None);
        }
        Ok(state.remove(&decoded.key))
    }

    /// Nothing has changed up to this version, says a watch.
    pub(crate) fn deliver_bookmark(&self, watch: usize, version: u64) -> Result<(), WentBack> {
        self.write().watches[watch].advance(version)
    }

    /// Takes in the answer of a request of ours, unless the watch is already past it. Whether it contains more than our own
    /// write is for the caller to find out: the watch will not report it again.
    ///
    /// An object that does not decode is left to the watch, which reports it.
    pub(crate) fn observe(&self, decoded: &Decoded<R::Item>) -> Observation {
        let mut state = self.write();
        let delivered = state.watch_of(&decoded.key).map_or(0, Progress::delivered);
        let is_deleted = decoded.facts.version <= delivered && state.objects.get(&decoded.key).is_none();
        if is_deleted || decoded.item.is_err() || state.gone.contains_key(&decoded.facts.uid) {
            return Observation { is_known: false, contradicts: false };
        }
        let had_version = |slot: &Slot<R::Item>| slot.facts.version == decoded.facts.version;
        let contradicts =
            state.objects.get(&decoded.key).is_some_and(|old| had_version(old) && !same::<R>(old, decoded));
        state.upsert::<R>(decoded);
        Observation { is_known: state.objects.get(&decoded.key).is_some_and(had_version), contradicts }
    }

    /// We deleted this object: it is not there any more for us, whatever late events say.
    pub(crate) fn observe_gone(&self, key: &ObjectKey, uid: Uid) {
        let mut state = self.write();
        if state.objects.get(key).is_some_and(|slot| slot.facts.uid == uid) {
            state.gone.insert(uid, key.namespace.clone());
            state.remove(key);
        }
    }

    /// A list of what this watch covers is about to be requested. One that was not finished is forgotten.
    pub(crate) fn begin_list(&self, watch: usize) {
        let state = &mut *self.write();
        let progress = &mut state.watches[watch];
        // The list will be newer than these deletions: what it contains is there.
        let deleted = state.gone.iter().filter(|(_, namespace)| progress.covers(namespace)).map(|(uid, _)| *uid);
        progress.begin_list(deleted.collect());
    }

    /// The list shows the state at this version. Returns the version that was known, if that is later: then the cluster went
    /// back in time, and versions of its former history mean nothing any more.
    pub(crate) fn listed_at(&self, watch: usize, version: u64) -> Result<(), WentBack> {
        let state = &mut *self.write();
        let progress = &mut state.watches[watch];
        for uid in progress.listed_at(version) {
            state.gone.remove(&uid);
        }
        let back = progress.restart(version);
        if back.is_err() {
            for slot in state.objects.iter_mut().filter(|slot| progress.covers(&slot.key.namespace)) {
                slot.facts.version = 0;
            }
        }
        back
    }

    /// Takes in one object from the list. Its version may be older than the known one: the list is right, unless the known
    /// one stems from an answer that is newer than the list.
    pub(crate) fn list(&self, watch: usize, decoded: &Decoded<R::Item>) -> Option<Delta> {
        let state = &mut *self.write();
        let progress = &mut state.watches[watch];
        progress.saw(&decoded.key);
        if state.gone.contains_key(&decoded.facts.uid) {
            return None; // deleted since the list was requested
        }
        let version = progress.listing_version();
        if let Some(slot) = state.objects.get_mut(&decoded.key) {
            if slot.facts.version > version {
                return None;
            }
            if slot.facts.version > decoded.facts.version {
                progress.rewritten();
                slot.facts.version = 0;
            }
        }
        state.upsert::<R>(decoded)
    }

    /// The list is complete. Returns what has gone since, and whether the list showed older versions of objects than the
    /// cache had: then the cluster went back in time, even if its newest version is beyond the known one.
    pub(crate) fn end_list(&self, watch: usize) -> (Vec<Delta>, bool) {
        let state = &mut *self.write();
        let Some((progress, listing)) = state.watches[watch].end_list() else { return (Vec::new(), false) };
        let is_missing = |key: &ObjectKey| progress.covers(&key.namespace) && !listing.seen.contains(key);
        state.undecodable.retain(|key, _| !is_missing(key));
        let is_gone = |slot: &&Slot<R::Item>| slot.facts.version <= listing.version && is_missing(&slot.key);
        let missing: Vec<ObjectKey> = state.objects.iter().filter(is_gone).map(|slot| slot.key.clone()).collect();
        let rewritten = listing.rewritten;
        (missing.iter().filter_map(|key| state.remove(key)).collect(), rewritten)
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

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observation {
    /// The cache holds now what was answered.
    pub(crate) is_known: bool,
    /// The cache held another object under this very version.
    pub(crate) contradicts: bool,
}

/// Whether both say the same, whatever their versions.
fn same<R: Representation>(old: &Slot<R::Item>, new: &Decoded<R::Item>) -> bool {
    let is_same_item = || match (&old.item, &new.item) {
        (Some(old), Ok(new)) => R::same(old, new),
        // Kept as text.
        (None, Ok(_)) => {
            let old = old.text.as_ref().and_then(Packed::text);
            old == new.text || json_of(old.as_deref()) == json_of(new.text.as_deref())
        }
        (_, Err(_)) => false,
    };
    old.facts.uid == new.facts.uid
        && old.facts.fingerprint == new.facts.fingerprint
        && old.facts.owner == new.facts.owner
        && old.facts.app == new.facts.app
        && is_same_item()
}

/// An object of a list may lack what the list says for all of them.
fn json_of(text: Option<&str>) -> Option<serde_json::Value> {
    let mut object: serde_json::Value = serde_json::from_str(text?).ok()?;
    for of_the_list in ["apiVersion", "kind"] {
        object.as_object_mut()?.remove(of_the_list);
    }
    Some(object)
}

impl<I> State<I> {
    fn watch_of(&self, key: &ObjectKey) -> Option<&Progress> {
        self.watches.iter().find(|watch| watch.covers(&key.namespace))
    }

    fn upsert<R: Representation<Item = I>>(&mut self, decoded: &Decoded<I>) -> Option<Delta> {
        let key = &decoded.key;
        let item = match &decoded.item {
            Ok(item) => item.clone(),
            Err(error) => return self.set_aside(key, error),
        };
        self.undecodable.remove(key);
        let old = self.objects.get(key);
        // The echo of our own write, or older than it. But the history of a restored cluster has the versions of the former one
        // once more, and a definition that changes its defaults changes objects without a new version.
        let is_older = |old: &Slot<I>| old.facts.version > decoded.facts.version;
        let is_echo = |old: &Slot<I>| old.facts.version == decoded.facts.version && same::<R>(old, decoded);
        if old.is_some_and(|old| is_older(old) || is_echo(old)) {
            return None;
        }
        let verified = old.filter(|old| old.facts.uid == decoded.facts.uid).and_then(|old| old.verified);
        let delta = Delta {
            key: key.clone(),
            owners: [old.and_then(|old| old.facts.owner.clone()), decoded.facts.owner.clone()],
            apps: [old.and_then(|old| old.facts.app.clone()), decoded.facts.app.clone()],
            undecodable: None,
        };
        // A text differs at least in its version.
        let changed = R::IS_REVIVED || old.is_none_or(|old| !same::<R>(old, decoded));
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

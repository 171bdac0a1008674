//! The cache of one kind: objects by name, with indices by owner and by application label.
//!
//! Objects come from two sources: the lists and watch events of the informer, and the API server's answers to requests of ours
//! ([`Store::observe`]), so that a reconcile reads its own writes. The store keeps an answer that is newer than everything
//! the watch has delivered. The watch's echo of it then has a known resource version and causes no reconcile.
//!
//! Resource versions give the order of changes only within one history of the cluster. After a restore of etcd from a backup,
//! older versions come back. So a list is the present state, whatever versions the cache holds ([`Store::list`]).

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::Instant;

use crate::{
    decode::{AppKey, CachedMeta, Content, Decoded, Owner, Representation, Undecodable},
    object::{ObjectKey, Uid},
    owned::Fingerprint,
    selection::Selection,
};

mod index;
mod packed;
mod progress;
mod queries;
mod sameness;
mod seen;
mod slots;

pub use index::Values;
pub(crate) use progress::WentBack;

use index::{Indices, Scope};
use packed::Packer;
use progress::Progress;
use sameness::{same, same_but_version, same_for_readers};
use slots::{Slot, Slots};

/// The objects of one kind.
#[derive(Debug)]
pub struct Store<R: Representation> {
    state: RwLock<State<R::Item>>,
}

#[derive(Debug)]
struct State<I> {
    objects: Slots<I>,
    /// The indices that operators declare, in addition to those by owner and label.
    indices: Indices<I>,
    packer: Packer,
    undecodable: HashMap<ObjectKey, Undecodable>,
    /// Objects that we deleted. The watch may still deliver older events of them.
    gone: HashMap<Uid, Gone>,
    /// The progress of each watch: one for each watched namespace, or one for all namespaces.
    watches: Vec<Progress>,
    /// Which objects the watches deliver.
    selection: Selection,
}

/// An object that we deleted.
#[derive(Debug)]
struct Gone {
    namespace: Arc<str>,
    /// When an answer said that the object does not exist any more. `None` if it may be there for a while, because of a
    /// finalizer for instance.
    ended: Option<Instant>,
}

/// A deletion that a watch has not delivered for this long, while it has sent a bookmark, was undone by a restore of the
/// cluster, or the watch is far behind. The answer to a deletion that is complete has no version, so only time tells.
const OVERDUE: Duration = Duration::from_mins(1);

/// A live and a desired object that a comparison found to be in sync, as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Hash of our part of the live object, see [`Fingerprint`].
    pub live: u64,
    /// Hash of the desired object.
    pub desired: u64,
}

/// A cached object with what a writer needs to decide whether it is in sync.
#[derive(Debug, Clone)]
pub struct Known<I> {
    /// The object, as the cache keeps it.
    pub item: Arc<I>,
    /// Its uid.
    pub uid: Uid,
    /// Its owner.
    pub owner: Option<Owner>,
    /// Which of its fields are ours.
    pub fingerprint: Fingerprint,
    /// The pair that a comparison last found to be in sync.
    pub verified: Option<Verified>,
}

impl<I> Known<I> {
    /// Whether the fields that are ours have changed since a comparison last found them to be in sync.
    pub fn is_changed(&self) -> bool {
        self.verified.is_some_and(|verified| verified.live != self.fingerprint.hash)
    }
}

/// A reconcile that writes objects. It knows its own changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// A number that no other controller of the process has.
    pub controller: usize,
    /// The object that is reconciled.
    pub key: ObjectKey,
}

/// A change of the store, passed to subscribers, which decide whether to reconcile.
#[derive(Debug)]
pub struct Delta<I> {
    /// The changed object.
    pub key: ObjectKey,
    /// The object before and after. Objects that are cached as JSON have none before: decoding it would cost time.
    pub items: [Option<Arc<I>>; 2],
    /// The owner before and after. When a child changes its owner, both are reconciled.
    pub owners: [Option<Owner>; 2],
    /// The primary that the labels name, before and after.
    pub apps: [Option<AppKey>; 2],
    /// The decode error, if this object does not decode. A repeated error makes no delta.
    pub undecodable: Option<Undecodable>,
    /// The reconcile that made the change, if the cache learnt of it from the answer to a request of that reconcile.
    pub writer: Option<Writer>,
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
            selection: Selection::All,
        };
        Self { state: RwLock::new(state) }
    }
}

impl<R: Representation> Store<R> {
    /// Adds an index of the objects in each namespace. To be called before the first object arrives.
    pub fn index(&self, name: &'static str, values: Values<R::Item>) {
        self.write().indices.declare(name, false, values);
    }

    /// Adds an index of the objects in all namespaces. To be called before the first object arrives.
    pub fn index_cluster(&self, name: &'static str, values: Values<R::Item>) {
        self.write().indices.declare(name, true, values);
    }

    /// Remembers that our part of the live object agrees with the desired object.
    pub fn verify(&self, key: &ObjectKey, uid: Uid, verified: Verified) {
        if let Some(slot) = self.write().objects.get_mut(key).filter(|slot| slot.meta.uid == uid) {
            slot.verified = Some(verified);
        }
    }

    /// Sets the watched scopes: one watch for each namespace. An empty name means all namespaces. `selection` says which objects
    /// the watches deliver.
    pub fn watch(&self, scopes: &[String], selection: Selection) {
        let mut state = self.write();
        state.watches = scopes.iter().map(|scope| Progress::of(scope)).collect();
        state.selection = selection;
    }

    /// Stores an object from a watch event.
    pub fn deliver(&self, watch: usize, decoded: &Decoded<R::Item>) -> Result<Option<Delta<R::Item>>, WentBack> {
        let mut state = self.write();
        state.watches[watch].advance(decoded.meta.version, Some(&decoded.key))?;
        if state.gone.contains_key(&decoded.meta.uid) {
            return Ok(None);
        }
        Ok(state.upsert::<R>(decoded, same_for_readers::<R>))
    }

    /// Removes an object after a watch event of its deletion.
    pub fn deliver_gone(&self, watch: usize, decoded: &Decoded<R::Item>) -> Result<Option<Delta<R::Item>>, WentBack> {
        let mut state = self.write();
        state.watches[watch].advance(decoded.meta.version, Some(&decoded.key))?;
        state.gone.remove(&decoded.meta.uid);
        state.undecodable.remove(&decoded.key);
        // The answer to a later write of ours is in the cache: the object was created or labelled again since this event.
        let is_newer = |slot: &Slot<R::Item>| slot.meta.version > decoded.meta.version;
        if state.objects.get(&decoded.key).is_some_and(is_newer) {
            return Ok(None);
        }
        Ok(state.remove(&decoded.key))
    }

    /// Advances a watch to the version of an event about an object that the cache does not keep.
    pub fn pass(&self, watch: usize, decoded: &Decoded<R::Item>) -> Result<(), WentBack> {
        self.write().watches[watch].advance(decoded.meta.version, Some(&decoded.key))
    }

    /// Advances a watch to the version of a bookmark. Returns whether a deletion of ours is overdue: then a list has to show
    /// whether the object exists.
    pub fn deliver_bookmark(&self, watch: usize, version: u64, now: Instant) -> Result<bool, WentBack> {
        let state = &mut *self.write();
        let progress = &mut state.watches[watch];
        progress.advance(version, None)?;
        let is_overdue = |gone: &Gone| gone.ended.is_some_and(|ended| now >= ended + OVERDUE);
        Ok(state.gone.values().any(|gone| progress.covers(&gone.namespace) && is_overdue(gone)))
    }

    /// Stores the answer to a request of ours, unless the watch is already past it. The caller has to find out whether the answer
    /// contains more than our own write: the watch will not report that again.
    ///
    /// Returns the change too, if there is one: for other readers than the caller, it is news.
    ///
    /// Ignores an object that does not decode: the watch reports it.
    pub fn observe(&self, decoded: &Decoded<R::Item>) -> (Observation, Option<Delta<R::Item>>) {
        let mut state = self.write();
        let delivered = state.watch_of(&decoded.key).map_or(0, Progress::delivered);
        let is_deleted = decoded.meta.version <= delivered && state.objects.get(&decoded.key).is_none();
        if decoded.item.is_err() || is_deleted || state.gone.contains_key(&decoded.meta.uid) {
            return (Observation { is_known: false, contradicts: false }, None);
        }
        let had_version = |slot: &Slot<R::Item>| slot.meta.version == decoded.meta.version;
        let contradicts =
            state.objects.get(&decoded.key).is_some_and(|old| had_version(old) && !same::<R>(old, decoded));
        // Nearly all answers are to writes of what reconcilers read, so a closer look at the change would be in vain.
        let delta = state.upsert::<R>(decoded, same_but_version);
        // The watch will not deliver an object that it does not select: one of ours whose label a policy has changed.
        if state.selection.selects(&decoded.meta)
            && let Some(progress) = state.watch_of_mut(&decoded.key)
        {
            progress.expect(decoded.meta.version, &decoded.key);
        }
        (Observation { is_known: state.objects.get(&decoded.key).is_some_and(had_version), contradicts }, delta)
    }

    /// Removes an object that we deleted. Late events about it do not bring it back. Returns the change, if there is one.
    ///
    /// `kept` is the metadata in the answer if the object exists for a while, with the time of its deletion. `None` if the object
    /// does not exist any more.
    pub fn observe_gone(
        &self,
        key: &ObjectKey,
        uid: Uid,
        kept: Option<&CachedMeta>,
        now: Instant,
    ) -> Option<Delta<R::Item>> {
        let mut state = self.write();
        let slot = state.objects.get(key).filter(|slot| slot.meta.uid == uid)?;
        // Of an object that it does not select, the watch will deliver neither the deletion nor its time.
        let is_selected = state.selection.selects(kept.unwrap_or(&slot.meta));
        if let Some(kept) = kept.filter(|_| is_selected)
            && let Some(progress) = state.watch_of_mut(key)
        {
            progress.expect(kept.version, key);
        }
        let ended = (is_selected && kept.is_none()).then_some(now);
        state.gone.insert(uid, Gone { namespace: key.namespace.clone(), ended });
        state.remove(key)
    }

    /// Begins a list of this watch's scope, before its first request. Discards an unfinished one.
    pub fn begin_list(&self, watch: usize) {
        let state = &mut *self.write();
        let progress = &mut state.watches[watch];
        // The list will be newer than these deletions: an object that it contains exists.
        let deleted = state.gone.iter().filter(|(_, gone)| progress.covers(&gone.namespace)).map(|(uid, _)| *uid);
        progress.begin_list(deleted.collect());
    }

    /// Records the version that the list shows.
    ///
    /// # Errors
    ///
    /// The version is lower than one that the watch has delivered, or the watch has shown before that a write of ours is lost:
    /// the cluster went back in time. Known versions, which belong to its former history, are reset.
    pub fn listed_at(&self, watch: usize, version: u64) -> Result<(), WentBack> {
        let state = &mut *self.write();
        let progress = &mut state.watches[watch];
        for uid in progress.listed_at(version) {
            state.gone.remove(&uid);
        }
        let back = progress.restart(version);
        if back.is_err() {
            for slot in state.objects.iter_mut().filter(|slot| progress.covers(&slot.key.namespace)) {
                slot.meta.version = 0;
            }
        }
        back
    }

    /// Stores an object from the list, even if its version is older than the known one. Only a version that is newer than the
    /// list itself wins over the list: it comes from an answer to our own write.
    pub fn list(&self, watch: usize, decoded: &Decoded<R::Item>) -> Option<Delta<R::Item>> {
        let state = &mut *self.write();
        let delta = state.list::<R>(watch, decoded);
        // Afterwards: the object is marked by its position, which a new one has only now.
        let position = state.objects.position(&decoded.key);
        state.watches[watch].saw(&decoded.key, position);
        delta
    }

    /// Completes the list. Returns the objects that it no longer contains, and whether it had older versions of objects than
    /// the cache. In that case the cluster went back in time, even if the list's own version is higher than the known one.
    pub fn end_list(&self, watch: usize) -> (Vec<Delta<R::Item>>, bool) {
        let state = &mut *self.write();
        let Some((progress, listing)) = state.watches[watch].end_list() else { return (Vec::new(), false) };
        let is_missing = |key: &ObjectKey, position: Option<u32>| {
            progress.covers(&key.namespace) && !listing.seen.contains(key, position)
        };
        state.undecodable.retain(|key, _| !is_missing(key, state.objects.position(key)));
        // Only what is missing is cloned: mostly nothing.
        let old = state.objects.placed().filter(|(_, slot)| slot.meta.version <= listing.version);
        let gone = old.filter(|(position, slot)| is_missing(&slot.key, Some(*position)));
        let missing: Vec<ObjectKey> = gone.map(|(_, slot)| slot.key.clone()).collect();
        let rewritten = listing.rewritten;
        (missing.iter().filter_map(|key| state.remove(key)).collect(), rewritten)
    }

    fn item(slot: &Slot<R::Item>) -> Option<Arc<R::Item>> {
        match &slot.content {
            Content::Item(item, _) => Some(item.clone()),
            Content::Text(text) => R::revive(&text.text()?).map(Arc::new),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State<R::Item>> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<R::Item>> {
        self.state.write()
    }
}

/// What [`Store::observe`] made of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// The cache now holds the answer.
    pub is_known: bool,
    /// The cache held other content under the same resource version: the cluster was restored.
    pub contradicts: bool,
}

/// Whether two texts of an object are the same for reconcilers.
type SameJson = fn(Option<&str>, Option<&str>) -> bool;

/// The item of a slot that keeps it.
fn kept_item<I>(slot: &Slot<I>) -> Option<Arc<I>> {
    match &slot.content {
        Content::Item(item, _) => Some(item.clone()),
        Content::Text(_) => None,
    }
}

impl<I> State<I> {
    fn watch_of(&self, key: &ObjectKey) -> Option<&Progress> {
        self.watches.iter().find(|watch| watch.covers(&key.namespace))
    }

    fn watch_of_mut(&mut self, key: &ObjectKey) -> Option<&mut Progress> {
        self.watches.iter_mut().find(|watch| watch.covers(&key.namespace))
    }

    /// Stores an object from a list, see [`Store::list`].
    fn list<R: Representation<Item = I>>(&mut self, watch: usize, decoded: &Decoded<I>) -> Option<Delta<I>> {
        if self.gone.contains_key(&decoded.meta.uid) {
            return None; // we deleted it after the list was requested
        }
        let progress = &mut self.watches[watch];
        let version = progress.listing_version();
        if let Some(slot) = self.objects.get_mut(&decoded.key) {
            if slot.meta.version > version {
                return None;
            }
            if slot.meta.version > decoded.meta.version {
                progress.rewritten();
                slot.meta.version = 0;
            }
        }
        self.upsert::<R>(decoded, same_for_readers::<R>)
    }

    /// Stores the object if it is news. Returns the change if it is of interest to reconcilers; for objects that are kept as JSON,
    /// `same_json` decides that.
    fn upsert<R: Representation<Item = I>>(&mut self, decoded: &Decoded<I>, same_json: SameJson) -> Option<Delta<I>> {
        let key = &decoded.key;
        let item = match &decoded.item {
            Ok(item) => item,
            Err(error) => return self.record_undecodable(key, error, &decoded.meta),
        };
        if !self.is_news::<R>(decoded) {
            self.undecodable.remove(key);
            return None;
        }
        let old = self.objects.get(key);
        let changed = old.is_none_or(|old| match &old.content {
            Content::Text(text) => {
                old.meta.uid != decoded.meta.uid || !same_json(text.text().as_deref(), decoded.text.as_deref())
            }
            Content::Item(..) => !same::<R>(old, decoded),
        });
        let delta = Delta {
            key: key.clone(),
            items: [old.and_then(kept_item), Some(item.clone())],
            owners: [old.and_then(|old| old.meta.owner.clone()), decoded.meta.owner.clone()],
            apps: [old.and_then(|old| old.meta.app.clone()), decoded.meta.app.clone()],
            undecodable: None,
            writer: None,
        };
        self.put::<R>(decoded, item);
        changed.then_some(delta)
    }

    /// Whether the object is neither the echo of our own write nor older than the known one. Equal versions alone do not make an
    /// echo: a restored cluster uses versions again, and a CRD that changes its defaults changes objects without a new version.
    fn is_news<R: Representation<Item = I>>(&self, decoded: &Decoded<I>) -> bool {
        let is_older = |old: &Slot<I>| old.meta.version > decoded.meta.version;
        let is_echo = |old: &Slot<I>| old.meta.version == decoded.meta.version && same::<R>(old, decoded);
        self.objects.get(&decoded.key).is_none_or(|old| !is_older(old) && !is_echo(old))
    }

    fn put<R: Representation<Item = I>>(&mut self, decoded: &Decoded<I>, item: &Arc<I>) {
        let key = &decoded.key;
        self.undecodable.remove(key);
        let old = self.objects.get(key);
        let verified = old.filter(|old| old.meta.uid == decoded.meta.uid).and_then(|old| old.verified);
        let position = self.objects.put(Slot {
            key: key.clone(),
            meta: decoded.meta.clone(),
            verified,
            content: R::content(item, decoded.text.as_ref().map(|text| self.packer.pack(text))),
        });
        self.indices.put(position, key, item);
    }

    /// Records an object that does not decode, and removes its last good form from the cache, which is stale.
    fn record_undecodable(&mut self, key: &ObjectKey, error: &Undecodable, meta: &CachedMeta) -> Option<Delta<I>> {
        let known = self.undecodable.insert(key.clone(), error.clone());
        let removed = self.remove(key);
        if removed.is_none() && known.is_some_and(|known| known == *error) {
            return None;
        }
        let (mut items, mut owners, mut apps) = ([None, None], [None, None], [None, None]);
        if let Some(removed) = removed {
            (items, owners, apps) = (removed.items, removed.owners, removed.apps);
        }
        (owners[1], apps[1]) = (meta.owner.clone(), meta.app.clone());
        Some(Delta { key: key.clone(), items, owners, apps, undecodable: Some(error.clone()), writer: None })
    }

    /// Removes an object, which frees its position. Nothing else does.
    fn remove(&mut self, key: &ObjectKey) -> Option<Delta<I>> {
        let position = self.objects.position(key)?;
        self.indices.remove(position);
        self.watches.iter_mut().for_each(|watch| watch.left(key, position));
        let slot = self.objects.remove(key)?;
        Some(Delta {
            key: key.clone(),
            items: [kept_item(&slot), None],
            owners: [slot.meta.owner, None],
            apps: [slot.meta.app, None],
            undecodable: None,
            writer: None,
        })
    }
}

#[cfg(test)]
mod tests;

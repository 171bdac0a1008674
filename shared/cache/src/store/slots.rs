//! Slab storage of the cached objects, with indices by name, owner and application label. Index entries are u32 positions,
//! four bytes each.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::{Verified, packed::Packed};
use crate::{
    decode::{AppKey, CachedMeta, Content},
    object::{ObjectKey, Uid},
};

/// One cached object.
#[derive(Debug)]
pub(super) struct Slot<I> {
    pub(super) key: ObjectKey,
    pub(super) meta: CachedMeta,
    pub(super) verified: Option<Verified>,
    pub(super) content: Content<I, Packed>,
}

impl<I> Slot<I> {
    pub(super) fn text(&self) -> Option<String> {
        match &self.content {
            Content::Text(text) => text.text(),
            Content::Item(_, text) => text.as_ref()?.text(),
        }
    }
}

/// All objects, with indices by name, by owner and by application label.
#[derive(Debug)]
pub(super) struct Slots<I> {
    places: Vec<Option<Box<Slot<I>>>>,
    /// The empty positions in `places`.
    free: Vec<u32>,
    by_name: HashTable<u32>,
    by_owner: HashTable<u32>,
    by_app: HashTable<u32>,
    hasher: RandomState,
}

impl<I> Default for Slots<I> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            by_name: HashTable::new(),
            by_owner: HashTable::new(),
            by_app: HashTable::new(),
            hasher: RandomState::new(),
        }
    }
}

impl<I> Slots<I> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Slot<I>> {
        self.slot(self.position(key)?)
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Slot<I>> {
        let position = self.position(key)?;
        self.places.get_mut(position as usize)?.as_deref_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot<I>> {
        self.places.iter().flatten().map(|slot| &**slot)
    }

    /// The objects with their positions. An object keeps its position until it is removed; a new one may get it then.
    pub(super) fn placed(&self) -> impl Iterator<Item = (u32, &Slot<I>)> {
        (0..).zip(&self.places).filter_map(|(position, place)| Some((position, place.as_deref()?)))
    }

    /// The first object at this position or a later one, and where it is.
    pub(super) fn first_from(&self, position: u32) -> Option<(u32, &Slot<I>)> {
        let places = self.places.get(position as usize..)?;
        (position..).zip(places).find_map(|(position, place)| Some((position, place.as_deref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot<I>> {
        self.places.iter_mut().flatten().map(|slot| &mut **slot)
    }

    /// The objects that `owner` controls, in no order.
    pub(super) fn owned(&self, owner: Uid) -> impl Iterator<Item = &Slot<I>> {
        let owns = move |slot: &&Slot<I>| slot.meta.owner.as_ref().is_some_and(|it| it.uid == owner);
        self.by_owner.iter_hash(self.hasher.hash_one(owner)).filter_map(|at| self.slot(*at)).filter(owns)
    }

    /// The objects that carry the labels of `app`, in no order.
    pub(super) fn labelled(&self, app: &AppKey) -> impl Iterator<Item = &Slot<I>> {
        let belongs = move |slot: &&Slot<I>| slot.meta.app.as_ref() == Some(app);
        self.by_app.iter_hash(self.hasher.hash_one(app)).filter_map(|at| self.slot(*at)).filter(belongs)
    }

    /// Stores an object, in place of its earlier form if there is one. Returns its position.
    pub(super) fn put(&mut self, slot: Slot<I>) -> u32 {
        let Some(position) = self.position(&slot.key) else {
            let position = self.free.pop().unwrap_or_else(|| {
                self.places.push(None);
                u32::try_from(self.places.len() - 1).unwrap_or_else(|_| unreachable!("four billion objects"))
            });
            self.places[position as usize] = Some(Box::new(slot));
            self.index(position, true, true, true);
            return position;
        };
        let Some(old) = self.slot(position) else { return position };
        let (owner, app) = (old.meta.owner != slot.meta.owner, old.meta.app != slot.meta.app);
        self.unindex(position, false, owner, app);
        if let Some(place) = self.places[position as usize].as_deref_mut() {
            *place = slot;
        }
        self.index(position, false, owner, app);
        position
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Slot<I>> {
        let position = self.position(key)?;
        self.unindex(position, true, true, true);
        self.free.push(position);
        self.places[position as usize].take().map(|slot| *slot)
    }

    pub(super) fn position(&self, key: &ObjectKey) -> Option<u32> {
        let is_it = |at: &u32| self.slot(*at).is_some_and(|slot| slot.key == *key);
        self.by_name.find(self.hasher.hash_one(key), is_it).copied()
    }

    pub(super) fn slot(&self, position: u32) -> Option<&Slot<I>> {
        self.places.get(position as usize)?.as_deref()
    }

    fn index(&mut self, position: u32, name: bool, owner: bool, app: bool) {
        let Self { places, by_name, by_owner, by_app, hasher, .. } = self;
        let hashes = |at: &u32| places[*at as usize].as_deref().map_or([None; 3], |slot| slot.hashes(hasher));
        let own = hashes(&position);
        for (index, (table, wanted)) in [(by_name, name), (by_owner, owner), (by_app, app)].into_iter().enumerate() {
            if let Some(hash) = own[index].filter(|_| wanted) {
                table.insert_unique(hash, position, |at| hashes(at)[index].unwrap_or_default());
            }
        }
    }

    fn unindex(&mut self, position: u32, name: bool, owner: bool, app: bool) {
        let Self { places, by_name, by_owner, by_app, hasher, .. } = self;
        let own = places[position as usize].as_deref().map_or([None; 3], |slot| slot.hashes(hasher));
        for (hash, (table, wanted)) in own.into_iter().zip([(by_name, name), (by_owner, owner), (by_app, app)]) {
            if let Some(hash) = hash.filter(|_| wanted)
                && let Ok(entry) = table.find_entry(hash, |at| *at == position)
            {
                entry.remove();
            }
        }
    }
}

impl<I> Slot<I> {
    /// The hashes of the object in the three indices: name, owner, application label.
    fn hashes(&self, hasher: &RandomState) -> [Option<u64>; 3] {
        [
            Some(hasher.hash_one(&self.key)),
            self.meta.owner.as_ref().map(|owner| hasher.hash_one(owner.uid)),
            self.meta.app.as_ref().map(|app| hasher.hash_one(app)),
        ]
    }
}

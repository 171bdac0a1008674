//! Everything known about each key: a slab, and an index into it that does not store the key again.

use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;
use slab::Slab;

use super::Entry;

/// Names an entry as long as it exists. Four bytes, because three indices hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

/// An empty map keeps no more than this; a burst of keys gives its memory back when the last of them is gone.
const KEPT: usize = 64;

#[derive(Debug)]
pub(crate) struct Keys<K> {
    entries: Slab<Entry<K>>,
    index: HashTable<Slot>,
    // Names come from the cluster's users: the standard library's hasher cannot be flooded with collisions.
    hasher: RandomState,
}

impl<K: Eq + Hash> Keys<K> {
    pub(crate) fn new() -> Self {
        Self { entries: Slab::new(), index: HashTable::new(), hasher: RandomState::new() }
    }

    pub(crate) fn find(&self, key: &K) -> Option<Slot> {
        self.index.find(self.hasher.hash_one(key), |&slot| self[slot].key == *key).copied()
    }

    pub(crate) fn find_or_insert(&mut self, key: K) -> Slot {
        let hash = self.hasher.hash_one(&key);
        let Self { entries, index, hasher } = self;
        if let Some(&slot) = index.find(hash, |&slot| entries[slot.index()].key == key) {
            return slot;
        }
        let slot = Slot::new(entries.insert(Entry::new(key)));
        index.insert_unique(hash, slot, |&slot| hasher.hash_one(&entries[slot.index()].key));
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        let hash = self.hasher.hash_one(&self[slot].key);
        if let Ok(found) = self.index.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        self.entries.remove(slot.index());
        if self.entries.is_empty() && self.entries.capacity() > KEPT {
            (self.entries, self.index) = (Slab::new(), HashTable::new());
        }
    }

    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.entries.iter().map(|(index, _)| Slot::new(index)).collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.entries.len(), self.index.len());
        self.entries.len()
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity() + self.index.capacity()
    }
}

impl<K> Index<Slot> for Keys<K> {
    type Output = Entry<K>;

    fn index(&self, slot: Slot) -> &Entry<K> {
        &self.entries[slot.index()]
    }
}

impl<K> IndexMut<Slot> for Keys<K> {
    fn index_mut(&mut self, slot: Slot) -> &mut Entry<K> {
        &mut self.entries[slot.index()]
    }
}

impl Slot {
    fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("four thousand million keys do not fit into memory"))
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

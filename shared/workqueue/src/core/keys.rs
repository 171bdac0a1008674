//! The entries of all keys, and an index by key that does not store the key again.
//!
//! Entries are in chunks, so growing neither copies them nor reserves twice the memory.

use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

use super::entry::Entry;
use super::slot::{CHUNK, Slot};

#[derive(Debug)]
pub(crate) struct Keys<K> {
    chunks: Vec<Vec<Option<Entry<K>>>>,
    free: Vec<Slot>,
    index: HashTable<Slot>,
    // Users of the cluster choose the keys. The standard library's hasher is safe from deliberate collisions.
    hasher: RandomState,
}

impl<K: Eq + Hash> Keys<K> {
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), index: HashTable::new(), hasher: RandomState::new() }
    }

    pub(crate) fn find(&self, key: &K) -> Option<Slot> {
        self.index.find(self.hasher.hash_one(key), |&slot| self[slot].key == *key).copied()
    }

    pub(crate) fn find_or_insert(&mut self, key: K) -> Slot {
        self.find(&key).unwrap_or_else(|| self.insert(key))
    }

    /// Removes a key. Removing the last one frees all memory but one chunk.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let hash = self.hasher.hash_one(&self[slot].key);
        if let Ok(found) = self.index.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        if self.index.is_empty() && self.chunks.len() > 1 {
            (self.chunks, self.free, self.index) = (Vec::new(), Vec::new(), HashTable::new());
        } else {
            self.chunks[slot.chunk()][slot.offset()] = None;
            self.free.push(slot);
        }
    }

    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.index.iter().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    fn insert(&mut self, key: K) -> Slot {
        let hash = self.hasher.hash_one(&key);
        let entry = Some(Entry::new(key));
        let slot = if let Some(slot) = self.free.pop() {
            self.chunks[slot.chunk()][slot.offset()] = entry;
            slot
        } else {
            let slot = Slot::new(self.len());
            if slot.offset() == 0 {
                self.chunks.push(Vec::with_capacity(CHUNK));
            }
            self.chunks[slot.chunk()].push(entry);
            slot
        };
        let Self { chunks, index, hasher, .. } = self;
        index.insert_unique(hash, slot, |&slot| hasher.hash_one(&entry_at(chunks, slot).key));
        slot
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK + self.index.capacity()
    }
}

impl<K> Index<Slot> for Keys<K> {
    type Output = Entry<K>;

    fn index(&self, slot: Slot) -> &Entry<K> {
        entry_at(&self.chunks, slot)
    }
}

impl<K> IndexMut<Slot> for Keys<K> {
    fn index_mut(&mut self, slot: Slot) -> &mut Entry<K> {
        self.chunks[slot.chunk()][slot.offset()].as_mut().expect(GONE)
    }
}

fn entry_at<K>(chunks: &[Vec<Option<Entry<K>>>], slot: Slot) -> &Entry<K> {
    chunks[slot.chunk()][slot.offset()].as_ref().expect(GONE)
}

const GONE: &str = "a slot is not used after its entry was removed";

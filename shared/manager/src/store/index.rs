//! Indices that an operator declares: the objects that say something, found without looking at all of them.
//!
//! A value is kept as its hash, and the object as its position: with the room that tables keep free, an object with one value
//! takes about 75 bytes, and each further value about 45. Hashes may meet, so what is found is asked again what it says: a
//! lookup is exact.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind},
};

use hashbrown::HashTable;

use crate::object::ObjectKey;

/// What an object says under one index: none, one or many values.
pub(crate) type Values<I> = Box<dyn Fn(&I) -> Vec<String> + Send + Sync>;

/// All indices of one store.
pub(super) struct Indices<I> {
    declared: Vec<(&'static str, Values<I>)>,
    entries: HashTable<Entry>,
    /// The hashes of the object at each position.
    hashes: Vec<Box<[u64]>>,
    hasher: RandomState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    hash: u64,
    position: u32,
}

impl<I> Default for Indices<I> {
    fn default() -> Self {
        Self { declared: Vec::new(), entries: HashTable::new(), hashes: Vec::new(), hasher: RandomState::new() }
    }
}

impl<I> Indices<I> {
    /// Adds an index, while there are no objects yet.
    pub(super) fn declare(&mut self, name: &'static str, values: Values<I>) {
        assert!(self.number(name).is_none(), "there already is an index \"{name}\"");
        self.declared.push((name, values));
    }

    /// The object at this position says what `item` says, whatever it said before.
    pub(super) fn put(&mut self, position: u32, key: &ObjectKey, item: &I) {
        if self.declared.is_empty() {
            return;
        }
        self.remove(position);
        let mut hashes = Vec::new();
        for (number, (name, values)) in self.declared.iter().enumerate() {
            hashes.extend(said(name, values, item).iter().map(|value| self.hash(number, &key.namespace, value)));
        }
        hashes.sort_unstable();
        hashes.dedup();
        for hash in &hashes {
            self.entries.insert_unique(*hash, Entry { hash: *hash, position }, |entry| entry.hash);
        }
        let position = position as usize;
        self.hashes.resize_with(self.hashes.len().max(position + 1), Box::default);
        self.hashes[position] = hashes.into();
    }

    /// The object at this position says nothing any more.
    pub(super) fn remove(&mut self, position: u32) {
        for hash in self.hashes.get_mut(position as usize).map(std::mem::take).into_iter().flatten() {
            if let Ok(entry) = self.entries.find_entry(hash, |entry| *entry == Entry { hash, position }) {
                entry.remove();
            }
        }
    }

    /// Positions of the objects in a namespace that may say this.
    pub(super) fn candidates(&self, name: &str, namespace: &str, value: &str) -> Vec<u32> {
        let Some(number) = self.number(name) else {
            panic!("there is no index \"{name}\": declare it with .index(…)")
        };
        let hash = self.hash(number, namespace, value);
        self.entries.iter_hash(hash).filter(|entry| entry.hash == hash).map(|entry| entry.position).collect()
    }

    /// Whether the object really does.
    pub(super) fn says(&self, name: &str, value: &str, item: &I) -> bool {
        let index = self.declared.iter().find(|(declared, _)| *declared == name);
        index.is_some_and(|(name, values)| said(name, values, item).iter().any(|said| said == value))
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.declared.iter().position(|(declared, _)| *declared == name)
    }

    fn hash(&self, number: usize, namespace: &str, value: &str) -> u64 {
        self.hasher.hash_one((number, namespace, value))
    }
}

/// An operator's function that panics at one object must not end the informer of all.
fn said<I>(name: &str, values: &Values<I>, item: &I) -> Vec<String> {
    catch_unwind(AssertUnwindSafe(|| values(item))).unwrap_or_else(|_| {
        tracing::error!(index = name, "An index panicked at an object, which is left out of it");
        Vec::new()
    })
}

impl<I> fmt::Debug for Indices<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.declared.iter().map(|(name, _)| name)).finish()
    }
}

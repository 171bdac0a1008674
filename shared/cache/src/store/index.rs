//! The indices that an operator declares with `.index(name, values)`, like controller-runtime's field indexer.
//!
//! An entry holds the hash of a value and the position of the object. With the free room of the tables, an object with one
//! value takes about 75 bytes, and each further value about 45. Hashes may collide, so a lookup computes the values of each
//! hit again: lookups are exact.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind},
};

use hashbrown::HashTable;

use crate::object::ObjectKey;

/// Computes the values of an object under one index: none, one or many.
pub type Values<I> = Box<dyn Fn(&I) -> Vec<String> + Send + Sync>;

/// In which objects a lookup searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    /// Those of this namespace.
    Namespace(&'a str),
    /// Those of all namespaces.
    Cluster,
}

/// An index that an operator has declared.
struct Declared<I> {
    name: &'static str,
    values: Values<I>,
    is_of_the_cluster: bool,
}

/// All indices of one store.
pub(super) struct Indices<I> {
    declared: Vec<Declared<I>>,
    entries: HashTable<Entry>,
    /// For each position, the hashes of the object there.
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
    /// Adds an index, whose lookups search one namespace or, if `is_of_the_cluster`, all. To be called before the first object
    /// arrives.
    ///
    /// # Panics
    ///
    /// When an index has this name already.
    pub(super) fn declare(&mut self, name: &'static str, is_of_the_cluster: bool, values: Values<I>) {
        assert!(self.number(name).is_none(), "the index \"{name}\" exists already");
        self.declared.push(Declared { name, values, is_of_the_cluster });
    }

    /// Replaces the values of the object at this position by those of `item`.
    pub(super) fn put(&mut self, position: u32, key: &ObjectKey, item: &I) {
        if self.declared.is_empty() {
            return;
        }
        self.remove(position);
        let mut hashes = Vec::new();
        for (number, index) in self.declared.iter().enumerate() {
            let scope = if index.is_of_the_cluster { Scope::Cluster } else { Scope::Namespace(&key.namespace) };
            hashes.extend(index.values_of(item).iter().map(|value| self.hash(number, scope, value)));
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

    /// Removes the values of the object at this position.
    pub(super) fn remove(&mut self, position: u32) {
        for hash in self.hashes.get_mut(position as usize).map(std::mem::take).into_iter().flatten() {
            if let Ok(entry) = self.entries.find_entry(hash, |entry| *entry == Entry { hash, position }) {
                entry.remove();
            }
        }
    }

    /// The positions of the objects that may have this value. The scope must be that of the index.
    ///
    /// # Panics
    ///
    /// When no index has this name.
    pub(super) fn candidates(&self, name: &str, scope: Scope<'_>, value: &str) -> Vec<u32> {
        let Some(number) = self.number(name) else {
            panic!("there is no index \"{name}\": declare it with .index(…)")
        };
        let hash = self.hash(number, scope, value);
        self.entries.iter_hash(hash).filter(|entry| entry.hash == hash).map(|entry| entry.position).collect()
    }

    /// Whether the object has this value under the index.
    pub(super) fn has_value(&self, name: &str, value: &str, item: &I) -> bool {
        let index = self.declared.iter().find(|index| index.name == name);
        index.is_some_and(|index| index.values_of(item).iter().any(|found| found == value))
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.declared.iter().position(|index| index.name == name)
    }

    fn hash(&self, number: usize, scope: Scope<'_>, value: &str) -> u64 {
        let namespace = match scope {
            Scope::Namespace(namespace) => namespace,
            Scope::Cluster => "",
        };
        self.hasher.hash_one((number, namespace, value))
    }
}

impl<I> Declared<I> {
    /// The values of `item`; none if the operator's function panics: one object must not stop the informer of all.
    fn values_of(&self, item: &I) -> Vec<String> {
        catch_unwind(AssertUnwindSafe(|| (self.values)(item))).unwrap_or_else(|_| {
            tracing::error!(index = self.name, "An index function panicked; the object is left out of the index");
            Vec::new()
        })
    }
}

impl<I> fmt::Debug for Indices<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.declared.iter().map(|index| index.name)).finish()
    }
}

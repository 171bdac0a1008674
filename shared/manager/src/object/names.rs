//! One copy of each name. A Memcached, its children and its pods carry the same few names again and again.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use hashbrown::HashTable;

/// Below this many names nobody looks for unused ones.
const FEW: usize = 1_024;

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

/// The one copy of `text` in this process.
pub(crate) fn shared(text: &str) -> Arc<str> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).get(text)
}

#[derive(Default)]
struct Names {
    table: HashTable<Arc<str>>,
    hasher: RandomState,
    /// With so many names, those that nobody holds any more are thrown away.
    sweep_at: usize,
}

impl Names {
    fn get(&mut self, text: &str) -> Arc<str> {
        let hash = self.hasher.hash_one(text);
        if let Some(known) = self.table.find(hash, |known| **known == *text) {
            return known.clone();
        }
        if self.table.len() >= self.sweep_at {
            self.table.retain(|name| Arc::strong_count(name) > 1);
            self.sweep_at = FEW.max(2 * self.table.len());
            self.table.shrink_to(self.table.len() + 1, |name| self.hasher.hash_one(&**name));
        }
        let name: Arc<str> = text.into();
        self.table.insert_unique(hash, name.clone(), |name| self.hasher.hash_one(&**name));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_kept_once_and_an_unused_one_goes() {
        let mut names = Names::default();
        let held = names.get("held");
        assert!(Arc::ptr_eq(&held, &names.get("held")));
        for number in 0..10 * FEW {
            names.get(&number.to_string());
        }
        assert!(names.table.len() <= 2 * FEW, "{}", names.table.len());
        assert!(Arc::ptr_eq(&held, &names.get("held")), "what somebody holds stays the one copy");
    }
}

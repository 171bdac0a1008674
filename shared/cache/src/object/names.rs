//! Interned names: one copy of each in the process. A Memcached, its children and its pods repeat the same few names.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock},
};

use hashbrown::HashTable;
use parking_lot::Mutex;

/// With fewer names than this, unused ones are not removed.
const MIN_SWEEP: usize = 1_024;

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

/// The one copy of `text` in this process.
pub(crate) fn shared(text: &str) -> Arc<str> {
    NAMES.lock().get(text)
}

#[derive(Default)]
struct Names {
    table: HashTable<Arc<str>>,
    hasher: RandomState,
    /// The number of names at which the next insertion removes the unused ones.
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
            self.sweep_at = MIN_SWEEP.max(2 * self.table.len());
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
    fn names_are_interned_once_and_dropped_when_unused() {
        let mut names = Names::default();
        let held = names.get("held");
        assert!(Arc::ptr_eq(&held, &names.get("held")));
        for number in 0..10 * MIN_SWEEP {
            names.get(&number.to_string());
        }
        assert!(names.table.len() <= 2 * MIN_SWEEP, "{}", names.table.len());
        assert!(Arc::ptr_eq(&held, &names.get("held")), "a name in use stays interned");
    }
}

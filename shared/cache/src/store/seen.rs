//! Which objects a list has contained so far: one bit for each, by its position in the slots.
//!
//! A position stands for one object only while that object is in the cache. An object that leaves the cache during the list frees its
//! position, and the next new object gets it. So the mark does not stay with the position: when the object leaves, its name takes over
//! the mark ([`Seen::vacate`]), and the position is unmarked for the next one. Names also mark what a list contains and the cache does
//! not keep: objects that do not decode, and those that we have deleted meanwhile. They are few, or the cache keeps their names anyway.
//!
//! So at each moment of a list, the same objects count as contained as if the set had the names of all of them.

use std::collections::{HashMap, HashSet};

use crate::object::ObjectKey;

/// The objects that one list has contained so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The marks of 64 neighbouring positions in each word, if one of them was marked. Not all words: with many watched namespaces, each
    /// has a list of its own, of a few of the positions.
    words: HashMap<u32, u64>,
    /// The marks of objects without a position.
    names: HashSet<ObjectKey>,
}

impl Seen {
    /// Marks an object that the list contains. `position` is where the cache has it now, `None` if it has no object of this name.
    pub(super) fn mark(&mut self, key: &ObjectKey, position: Option<u32>) {
        match position {
            Some(position) => *self.words.entry(word(position)).or_default() |= bit(position),
            None => {
                self.names.insert(key.clone());
            }
        }
    }

    /// Whether the list has contained this object. `position` is where the cache has it now.
    pub(super) fn contains(&self, key: &ObjectKey, position: Option<u32>) -> bool {
        position.is_some_and(|position| self.is_marked(position)) || self.names.contains(key)
    }

    /// Unmarks the position of an object that leaves the cache: another object may get it. The name keeps the mark, in case that the
    /// same object comes back.
    pub(super) fn vacate(&mut self, key: &ObjectKey, position: u32) {
        let marks = self.words.get_mut(&word(position));
        if let Some(marks) = marks.filter(|marks| **marks & bit(position) != 0) {
            *marks &= !bit(position);
            self.names.insert(key.clone());
        }
    }

    fn is_marked(&self, position: u32) -> bool {
        self.words.get(&word(position)).is_some_and(|marks| marks & bit(position) != 0)
    }
}

fn word(position: u32) -> u32 {
    position / u64::BITS
}

fn bit(position: u32) -> u64 {
    1 << (position % u64::BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    #[test]
    fn each_position_has_its_own_mark() {
        let positions = [0, 1, 63, 64, 65, 127, 128, 4_095, u32::MAX];
        for marked in positions {
            let mut seen = Seen::default();
            seen.mark(&key("a"), Some(marked));
            for position in positions {
                assert_eq!(seen.contains(&key("a"), Some(position)), position == marked, "{position} after {marked}");
            }
        }
    }

    #[test]
    fn position_is_free_for_another_object_and_the_name_keeps_the_mark() {
        let mut seen = Seen::default();
        seen.mark(&key("a"), Some(7));
        seen.mark(&key("neighbour"), Some(8));
        seen.vacate(&key("a"), 7);
        seen.vacate(&key("unlisted"), 9);
        assert!(!seen.contains(&key("b"), Some(7)), "it got the position of another object");
        assert!(seen.contains(&key("a"), Some(9)), "it came back, in another place");
        assert!(seen.contains(&key("a"), None));
        assert!(seen.contains(&key("neighbour"), Some(8)));
        assert!(!seen.contains(&key("unlisted"), None));
        seen.mark(&key("b"), Some(7));
        assert!(seen.contains(&key("b"), Some(7)));
    }

    #[test]
    fn hundred_thousand_objects_take_one_bit_each() {
        let mut seen = Seen::default();
        for position in 0..100_000 {
            seen.mark(&key("a"), Some(position));
        }
        assert_eq!((seen.words.len(), seen.names.len()), (100_000_usize.div_ceil(64), 0));
    }
}

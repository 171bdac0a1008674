//! The ready keys, in the order of hand-out.
//!
//! **The rule.** The highest priority goes first, and inside a priority first come, first served. But urgent keys overtake the
//! oldest key at most `patience` times in a row; then it is its turn, whatever its priority.
//!
//! **What follows.** Of any `patience + 1` hand-outs at least one goes to the oldest key. So a key with m older keys before it is
//! served after at most `(m + 1) · (patience + 1)` hand-outs, however many urgent ones arrive. Urgent keys lose at most one
//! hand-out in `patience + 1`, and only while an older key waits.
//!
//! **Why not a maximum wait.** After a restart, ten thousand keys would exceed it at the same time, and live changes, which this
//! queue is made to prefer, would wait behind all of them. A share of the hand-outs has no such cliff and needs no clock.
//!
//! **Cost.** Two linked lists through the entries, so a ready key takes no extra memory. Every step is O(1), except finding
//! the list of a priority (two or three are in use) and skipping held keys, of which there are never more than workers.

use std::collections::BTreeMap;

use super::entry::Links;
use super::keys::Keys;
use super::slot::Slot;
use crate::priority::Priority;

#[derive(Debug)]
pub(crate) struct ReadyQueue {
    /// One list for each priority in use, in order of turn: a raised key goes to the end of its new list.
    by_priority: BTreeMap<Priority, List>,
    /// All keys, in order of arrival: a raised key keeps its age.
    by_age: List,
    len: usize,
    /// How many times in a row other keys have overtaken the oldest one.
    passed: u32,
    patience: u32,
}

impl ReadyQueue {
    pub(crate) fn new(patience: u32) -> Self {
        let by_age = List { chain: BY_AGE, first: None, last: None };
        Self { by_priority: BTreeMap::new(), by_age, len: 0, passed: 0, patience }
    }

    /// Chooses the next key among those that are not running. The caller removes it.
    pub(crate) fn choose<K>(&mut self, keys: &Keys<K>) -> Option<Slot> {
        let oldest = self.by_age.first_free(keys)?;
        let first = self.by_priority.values().rev().find_map(|list| list.first_free(keys))?;
        let chosen = if self.passed < self.patience { first } else { oldest };
        self.passed = if chosen == oldest { 0 } else { self.passed + 1 };
        Some(chosen)
    }

    pub(crate) fn push<K>(&mut self, keys: &mut Keys<K>, slot: Slot, priority: Priority) {
        self.by_priority.entry(priority).or_default().push(keys, slot);
        self.by_age.push(keys, slot);
        self.len += 1;
    }

    pub(crate) fn remove<K>(&mut self, keys: &mut Keys<K>, slot: Slot, priority: Priority) {
        self.leave_priority(keys, slot, priority);
        self.by_age.remove(keys, slot);
        self.len -= 1;
    }

    pub(crate) fn raise<K>(&mut self, keys: &mut Keys<K>, slot: Slot, from: Priority, to: Priority) {
        self.leave_priority(keys, slot, from);
        self.by_priority.entry(to).or_default().push(keys, slot);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn leave_priority<K>(&mut self, keys: &mut Keys<K>, slot: Slot, priority: Priority) {
        if let Some(list) = self.by_priority.get_mut(&priority) {
            list.remove(keys, slot);
            if list.first.is_none() {
                self.by_priority.remove(&priority);
            }
        }
    }
}

const BY_PRIORITY: usize = 0;
const BY_AGE: usize = 1;

/// A linked list whose links are in the entries.
#[derive(Debug)]
struct List {
    chain: usize,
    first: Option<Slot>,
    last: Option<Slot>,
}

impl Default for List {
    fn default() -> Self {
        Self { chain: BY_PRIORITY, first: None, last: None }
    }
}

impl List {
    fn first_free<K>(&self, keys: &Keys<K>) -> Option<Slot> {
        let mut slot = self.first?;
        while keys[slot].running {
            slot = keys[slot].place()[self.chain].next?;
        }
        Some(slot)
    }

    fn push<K>(&mut self, keys: &mut Keys<K>, slot: Slot) {
        keys[slot].place_mut()[self.chain] = Links { previous: self.last, next: None };
        match self.last.replace(slot) {
            Some(last) => keys[last].place_mut()[self.chain].next = Some(slot),
            None => self.first = Some(slot),
        }
    }

    fn remove<K>(&mut self, keys: &mut Keys<K>, slot: Slot) {
        let Links { previous, next } = keys[slot].place()[self.chain];
        match previous {
            Some(previous) => keys[previous].place_mut()[self.chain].next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => keys[next].place_mut()[self.chain].previous = previous,
            None => self.last = previous,
        }
    }
}

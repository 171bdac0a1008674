//! The delayed keys, earliest first; those with the same time are in the order of insertion.
//!
//! A binary heap of slots. Each entry holds its position in the heap, so a key that is added without delay can be removed at
//! once. A heap with lazy removal would grow with every change to a key that has a resync planned for tomorrow.

use super::keys::Keys;
use super::slot::Slot;
use crate::moment::Moment;

#[derive(Debug, Default)]
pub(crate) struct DelayHeap {
    heap: Vec<Slot>,
    last_serial: u32,
}

impl DelayHeap {
    pub(crate) fn first(&self) -> Option<Slot> {
        self.heap.first().copied()
    }

    /// Inserts a key. Its entry holds the due time.
    pub(crate) fn insert<K>(&mut self, keys: &mut Keys<K>, slot: Slot) {
        self.last_serial = self.last_serial.wrapping_add(1);
        keys[slot].heap_position_mut().serial = self.last_serial;
        self.heap.push(slot);
        self.sift_up(keys, self.heap.len() - 1);
    }

    pub(crate) fn remove<K>(&mut self, keys: &mut Keys<K>, slot: Slot) {
        let position = keys[slot].heap_position().position as usize;
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            let position = self.sift_up(keys, position);
            self.sift_down(keys, position);
        }
        if self.heap.is_empty() {
            self.heap = Vec::new();
        }
    }

    /// Moves the slot at `position` towards the front as far as it has to go.
    fn sift_up<K>(&mut self, keys: &mut Keys<K>, mut position: usize) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if !self.is_before(keys, position, parent) {
                break;
            }
            self.heap.swap(position, parent);
            self.note(keys, position);
            position = parent;
        }
        self.note(keys, position);
        position
    }

    /// Moves the slot at `position` towards the back as far as it has to go.
    fn sift_down<K>(&mut self, keys: &mut Keys<K>, mut position: usize) {
        loop {
            let (left, right) = (2 * position + 1, 2 * position + 2);
            let mut earliest = position;
            for child in [left, right] {
                if child < self.heap.len() && self.is_before(keys, child, earliest) {
                    earliest = child;
                }
            }
            if earliest == position {
                return self.note(keys, position);
            }
            self.heap.swap(position, earliest);
            self.note(keys, position);
            position = earliest;
        }
    }

    fn is_before<K>(&self, keys: &Keys<K>, a: usize, b: usize) -> bool {
        let order = |position: usize| -> (Moment, u32) {
            let entry = &keys[self.heap[position]];
            (entry.at, entry.heap_position().serial)
        };
        let (a, b) = (order(a), order(b));
        a.0 < b.0 || (a.0 == b.0 && a.1.wrapping_sub(b.1) > u32::MAX / 2)
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are no more positions than slots, which are 32 bits")]
    fn note<K>(&self, keys: &mut Keys<K>, position: usize) {
        keys[self.heap[position]].heap_position_mut().position = position as u32;
    }
}

//! The keys that can be handed out, in order.
//!
//! **The rule.** The highest priority first, and inside a priority first come, first served. But the key that has been in
//! line longest is passed over at most `patience` times in a row; then it is its turn, whatever its priority.
//!
//! **What follows.** Of any `patience + 1` hand-outs at least one goes to the oldest key, so a key with m older keys before it is
//! served after at most `(m + 1) · (patience + 1)` hand-outs, however many urgent ones keep coming. Urgent keys lose at most one
//! hand-out in `patience + 1`, and only while they keep somebody waiting.
//!
//! **Why not a maximum wait.** After a restart ten thousand keys pass the limit together, and the live changes this
//! queue exists to prefer would all stand behind them. A share of the hand-outs has no such cliff and needs no clock.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Slot;
use crate::Priority;

/// Where a key stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) priority: Priority,
    /// Its number among those of its priority; a new one when it is raised.
    pub(crate) turn: u64,
    /// Its number among all; kept when it is raised.
    pub(crate) arrival: u64,
}

#[derive(Debug)]
pub(crate) struct Line {
    by_priority: BTreeMap<(Reverse<Priority>, u64), Slot>,
    by_arrival: BTreeMap<u64, Slot>,
    /// How many times in a row the oldest was passed over.
    passed: u32,
    patience: u32,
}

impl Line {
    pub(crate) fn new(patience: u32) -> Self {
        Self { by_priority: BTreeMap::new(), by_arrival: BTreeMap::new(), passed: 0, patience }
    }

    pub(crate) fn insert(&mut self, place: Place, slot: Slot) {
        self.by_priority.insert((Reverse(place.priority), place.turn), slot);
        self.by_arrival.insert(place.arrival, slot);
    }

    pub(crate) fn remove(&mut self, place: Place) {
        self.by_priority.remove(&(Reverse(place.priority), place.turn));
        self.by_arrival.remove(&place.arrival);
    }

    /// Whose turn it is. The caller removes it.
    pub(crate) fn choose(&mut self) -> Option<Slot> {
        let (_, &first) = self.by_priority.first_key_value()?;
        let (_, &oldest) = self.by_arrival.first_key_value()?;
        let chosen = if self.passed < self.patience { first } else { oldest };
        self.passed = if chosen == oldest { 0 } else { self.passed + 1 };
        Some(chosen)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_arrival.len()
    }
}

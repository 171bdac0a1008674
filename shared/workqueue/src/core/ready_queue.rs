//! The ready keys, in the order of hand-out.
//!
//! **The rule.** The highest priority goes first. Inside a priority, *flows* take turns, one key at a time: a key belongs to one
//! flow, such as the namespace of an object. Inside a flow, first come, first served. But other keys overtake the oldest key at
//! most `patience` times in a row; then it is its turn, whatever its priority and its flow.
//!
//! **What follows.** Of any `patience + 1` hand-outs at least one goes to the oldest key. So a key with m older keys before it is
//! served after at most `(m + 1) · (patience + 1)` hand-outs, however many urgent ones arrive. Urgent keys lose at most one
//! hand-out in `patience + 1`, and only while an older key waits. And the first key of a flow waits for at most one key of each
//! other flow of its priority, however many keys those have, beside the hand-outs to oldest keys and to higher priorities. If the
//! oldest key is of its own flow, that was the turn of the flow.
//!
//! **Why not a maximum wait.** After a restart, ten thousand keys would exceed it at the same time, and live changes, which this
//! queue is made to prefer, would wait behind all of them. A share of the hand-outs has no such cliff and needs no clock.
//!
//! **Cost.** Linked lists through the entries, so a ready key takes no extra memory; a flow with ready keys takes two entries of
//! maps for each of its priorities. A step takes a time that grows with the logarithm of the number of flows, and skips the held
//! keys, of which there are never more than workers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::entry::Links;
use super::keys::Keys;
use super::slot::Slot;
use crate::priority::Priority;

#[derive(Debug)]
pub(crate) struct ReadyQueue<K> {
    /// The flow of a key.
    flow_of: fn(&K) -> u64,
    /// The flows that have ready keys. A raised key goes to the end of its flow in the higher priority.
    flows: BTreeMap<(Priority, u64), Flow>,
    /// The same flows in the order in which it is their turn: the highest priority first, and the one that has waited longest.
    turns: BTreeMap<(Reverse<Priority>, u64), u64>,
    /// The number of the last place in `turns` that was given.
    last_turn: u64,
    /// All keys, in order of arrival: a raised key keeps its age.
    by_age: List,
    len: usize,
    /// How many times in a row other keys have overtaken the oldest one.
    passed: u32,
    patience: u32,
}

/// The ready keys of one flow that have the same priority.
#[derive(Debug)]
struct Flow {
    turn: u64,
    keys: List,
}

impl<K> ReadyQueue<K> {
    pub(crate) fn new(patience: u32, flow_of: fn(&K) -> u64) -> Self {
        let (flows, turns) = (BTreeMap::new(), BTreeMap::new());
        Self { flow_of, flows, turns, last_turn: 0, by_age: List::of(BY_AGE), len: 0, passed: 0, patience }
    }

    /// Takes out the next key among those that are not running.
    pub(crate) fn take(&mut self, keys: &mut Keys<K>) -> Option<Slot> {
        let oldest = self.by_age.first_free(keys)?;
        let mut in_turn = self.turns.iter().map(|(&(Reverse(priority), _), &flow)| &self.flows[&(priority, flow)]);
        let first = in_turn.find_map(|flow| flow.keys.first_free(keys))?;
        let chosen = if self.passed < self.patience { first } else { oldest };
        self.passed = if chosen == oldest { 0 } else { self.passed + 1 };
        let priority = keys[chosen].priority;
        // Also a flow whose key was the oldest has had its turn.
        self.end_turn(priority, self.flow(keys, chosen));
        self.remove(keys, chosen, priority);
        Some(chosen)
    }

    pub(crate) fn push(&mut self, keys: &mut Keys<K>, slot: Slot, priority: Priority) {
        self.join_flow(keys, slot, priority);
        self.by_age.push(keys, slot);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, keys: &mut Keys<K>, slot: Slot, priority: Priority) {
        self.leave_flow(keys, slot, priority);
        self.by_age.remove(keys, slot);
        self.len -= 1;
    }

    pub(crate) fn raise(&mut self, keys: &mut Keys<K>, slot: Slot, from: Priority, to: Priority) {
        self.leave_flow(keys, slot, from);
        self.join_flow(keys, slot, to);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn flow(&self, keys: &Keys<K>, slot: Slot) -> u64 {
        (self.flow_of)(&keys[slot].key)
    }

    /// Adds a key to its flow. A flow that was empty is the last whose turn it is.
    fn join_flow(&mut self, keys: &mut Keys<K>, slot: Slot, priority: Priority) {
        let id = self.flow(keys, slot);
        let flow = self.flows.entry((priority, id)).or_insert_with(|| {
            self.last_turn += 1;
            self.turns.insert((Reverse(priority), self.last_turn), id);
            Flow { turn: self.last_turn, keys: List::of(BY_FLOW) }
        });
        flow.keys.push(keys, slot);
    }

    fn leave_flow(&mut self, keys: &mut Keys<K>, slot: Slot, priority: Priority) {
        let id = self.flow(keys, slot);
        if let Some(flow) = self.flows.get_mut(&(priority, id)) {
            flow.keys.remove(keys, slot);
            if flow.keys.first.is_none() {
                self.turns.remove(&(Reverse(priority), flow.turn));
                self.flows.remove(&(priority, id));
            }
        }
    }

    /// Makes a flow the last whose turn it is.
    fn end_turn(&mut self, priority: Priority, id: u64) {
        if let Some(flow) = self.flows.get_mut(&(priority, id)) {
            self.turns.remove(&(Reverse(priority), flow.turn));
            self.last_turn += 1;
            flow.turn = self.last_turn;
            self.turns.insert((Reverse(priority), flow.turn), id);
        }
    }
}

const BY_FLOW: usize = 0;
const BY_AGE: usize = 1;

/// A linked list whose links are in the entries.
#[derive(Debug)]
struct List {
    chain: usize,
    first: Option<Slot>,
    last: Option<Slot>,
}

impl List {
    fn of(chain: usize) -> Self {
        Self { chain, first: None, last: None }
    }

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

//! A naive model of the queue: plain lists, which every operation searches from end to end.

use std::time::Duration;

use crate::moment::Moment;
use crate::{Outcome, Priority, Shutdown};

/// The state of one key; the key is its index in the array.
#[derive(Clone, Copy, Debug, Default)]
struct Key {
    waiting: Option<Waiting>,
    /// `Some` while it is running: whether the run cut a back-off short.
    running: Option<bool>,
    failures: u32,
    retry_at: Moment,
    /// Whether no run may begin before `retry_at`.
    blocked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    priority: Priority,
    at: Moment,
    ready: bool,
}

pub(super) struct Model {
    keys: [Key; 8],
    /// Three lists: delayed keys in the order of scheduling, ready keys in the order inside their flow, and ready keys in the
    /// order of arrival.
    delayed: Vec<u8>,
    turns: Vec<u8>,
    arrivals: Vec<u8>,
    /// The flows with ready keys, each with a priority, in the order of turns.
    flows: Vec<(Priority, u8)>,
    passed: u32,
    patience: u32,
    shutdown: Option<Shutdown>,
    pub(super) adds: u64,
    pub(super) retries: u64,
}

/// The flow of a key: there are three.
pub(super) fn flow(key: u8) -> u8 {
    key % 3
}

impl Model {
    pub(super) fn new(patience: u32) -> Self {
        Self {
            keys: Default::default(),
            delayed: Vec::new(),
            turns: Vec::new(),
            arrivals: Vec::new(),
            flows: Vec::new(),
            passed: 0,
            patience,
            shutdown: None,
            adds: 0,
            retries: 0,
        }
    }

    pub(super) fn add(&mut self, now: Moment, key: u8, priority: Priority, delay: Duration) {
        self.promote(now);
        if self.shutdown.is_none() {
            self.schedule(now, key, priority, now.plus(delay));
        }
    }

    pub(super) fn add_unless_due(&mut self, now: Moment, key: u8, priority: Priority, within: Duration) {
        self.promote(now);
        let due = self.delayed.contains(&key).then(|| self.key(key).waiting.unwrap().at);
        if due.is_none_or(|due| due > now.plus(within)) {
            self.add(now, key, priority, Duration::ZERO);
        }
    }

    pub(super) fn take(&mut self, now: Moment) -> Option<(u8, Priority, Duration, u32)> {
        self.promote(now);
        let free = |key: &&u8| self.key(**key).running.is_none();
        let oldest = *self.arrivals.iter().find(free)?;
        let highest = self.turns.iter().filter(free).map(|&key| self.priority(key)).max()?;
        let mut of_highest = self.flows.iter().filter(|(priority, _)| *priority == highest);
        let first = *of_highest.find_map(|it| self.turns.iter().filter(free).find(|&&key| self.flow(key) == *it))?;
        let key = if self.passed == self.patience { oldest } else { first };
        self.passed = if key == oldest { 0 } else { self.passed + 1 };

        let flow = self.flow(key);
        self.flows.retain(|&other| other != flow);
        self.flows.push(flow);
        self.hand_out(now, key)
    }

    pub(super) fn take_key(&mut self, now: Moment, key: u8) -> Option<(u8, Priority, Duration, u32)> {
        self.promote(now);
        if self.is_available(key) { self.hand_out(now, key) } else { None }
    }

    pub(super) fn is_available(&self, key: u8) -> bool {
        self.turns.contains(&key) && self.key(key).running.is_none()
    }

    fn hand_out(&mut self, now: Moment, key: u8) -> Option<(u8, Priority, Duration, u32)> {
        self.unschedule(key);
        let entry = &mut self.keys[usize::from(key)];
        let waiting = entry.waiting.take()?;
        entry.running = Some(now < entry.retry_at);
        Some((key, waiting.priority, now.since(waiting.at), entry.failures))
    }

    pub(super) fn done(&mut self, now: Moment, key: u8, priority: Priority, outcome: Outcome) {
        self.promote(now);
        let entry = &mut self.keys[usize::from(key)];
        let cut_short = entry.running.take().unwrap();
        let (base, latest) = match outcome {
            Outcome::Failure { base, latest } => (base, latest),
            _ => (None, None),
        };
        let base = base.unwrap_or(Duration::from_millis(5));
        let backed_off = if cut_short { entry.retry_at } else { now.plus(base * 2_u32.pow(entry.failures)) };
        let mut before = None;
        let due = match outcome {
            Outcome::Success | Outcome::WaitForChange => None,
            Outcome::RequeueAfter(delay) | Outcome::NotBefore(delay) => Some(now.plus(delay)),
            Outcome::Failure { .. } => Some(latest.map_or(backed_off, |latest| backed_off.min(now.plus(latest)))),
        };
        match outcome {
            Outcome::Success | Outcome::WaitForChange | Outcome::RequeueAfter(_) => {
                self.forget(key);
            }
            Outcome::NotBefore(_) => {
                entry.retry_at = due.unwrap();
                entry.blocked = true;
                if self.shutdown.is_none()
                    && let Some(waiting) = entry.waiting.take()
                {
                    before = Some(waiting.priority);
                    self.unschedule(key);
                }
            }
            Outcome::Failure { .. } => {
                entry.failures += u32::from(!cut_short);
                entry.retry_at = backed_off;
                entry.blocked &= cut_short;
            }
        }
        if let Some(due) = due
            && self.shutdown.is_none()
        {
            self.schedule(now, key, before.map_or(priority, |before| before.max(priority)), due);
        }
        let entry = &mut self.keys[usize::from(key)];
        if entry.waiting.is_none() {
            *entry = Key::default();
        }
    }

    pub(super) fn forget(&mut self, key: u8) {
        let entry = &mut self.keys[usize::from(key)];
        entry.failures = 0;
        (entry.retry_at, entry.blocked) = (Moment::START, false);
        entry.running = entry.running.map(|_| false);
    }

    pub(super) fn shut_down(&mut self, now: Moment, how: Shutdown) {
        self.promote(now);
        if self.shutdown != Some(Shutdown::Drop) {
            self.shutdown = Some(how);
        }
        self.delayed.clear();
        if self.shutdown == Some(Shutdown::Drop) {
            self.turns.clear();
            self.arrivals.clear();
            self.flows.clear();
        }
        for key in 0..8 {
            let entry = &mut self.keys[usize::from(key)];
            if !self.turns.contains(&key) {
                entry.waiting = None;
                if entry.running.is_none() {
                    *entry = Key::default();
                }
            }
        }
    }

    pub(super) fn promote(&mut self, now: Moment) {
        while let Some(key) = self.earliest()
            && self.at(key) <= now
        {
            self.delayed.retain(|&other| other != key);
            self.make_ready(key);
        }
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.shutdown.is_some()
    }

    pub(super) fn ready(&self) -> usize {
        self.turns.len()
    }

    pub(super) fn depth(&self, priority: Priority) -> i64 {
        i64::try_from(self.turns.iter().filter(|&&key| self.priority(key) == priority).count()).unwrap()
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        self.earliest().map(|key| self.at(key))
    }

    pub(super) fn known(&self) -> usize {
        self.keys.iter().filter(|key| key.waiting.is_some() || key.running.is_some()).count()
    }

    fn schedule(&mut self, now: Moment, key: u8, priority: Priority, due: Moment) {
        self.retries += u64::from(due > now);
        let entry = self.key(key);
        let due = if entry.blocked { due.max(entry.retry_at) } else { due }.max(now);
        let before = self.key(key).waiting;
        let ready = before.is_some_and(|waiting| waiting.ready);
        let waiting = before.unwrap_or(Waiting { priority, at: due, ready: false });
        let raised = priority > waiting.priority;
        if ready && raised {
            self.leave_flow(key);
        }
        let waiting = Waiting { priority: waiting.priority.max(priority), at: waiting.at.min(due), ready };
        self.keys[usize::from(key)].waiting = Some(waiting);
        if ready {
            if raised {
                self.join_flow(key);
            }
        } else if before.is_none_or(|before| due < before.at) {
            self.delayed.retain(|&other| other != key);
            self.delayed.push(key);
            self.promote(now);
        }
    }

    fn unschedule(&mut self, key: u8) {
        for list in [&mut self.delayed, &mut self.arrivals] {
            list.retain(|&other| other != key);
        }
        self.leave_flow(key);
    }

    fn leave_flow(&mut self, key: u8) {
        self.turns.retain(|&other| other != key);
        let left: Vec<_> = self.turns.iter().map(|&key| self.flow(key)).collect();
        self.flows.retain(|flow| left.contains(flow));
    }

    fn join_flow(&mut self, key: u8) {
        self.turns.push(key);
        let flow = self.flow(key);
        if !self.flows.contains(&flow) {
            self.flows.push(flow);
        }
    }

    fn make_ready(&mut self, key: u8) {
        self.adds += 1;
        self.join_flow(key);
        self.arrivals.push(key);
        if let Some(waiting) = &mut self.keys[usize::from(key)].waiting {
            waiting.ready = true;
        }
    }

    fn earliest(&self) -> Option<u8> {
        self.delayed.iter().copied().min_by_key(|&key| self.at(key))
    }

    fn key(&self, key: u8) -> Key {
        self.keys[usize::from(key)]
    }

    fn at(&self, key: u8) -> Moment {
        self.key(key).waiting.unwrap().at
    }

    fn flow(&self, key: u8) -> (Priority, u8) {
        (self.priority(key), flow(key))
    }

    fn priority(&self, key: u8) -> Priority {
        self.key(key).waiting.unwrap().priority
    }
}

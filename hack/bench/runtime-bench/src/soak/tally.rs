//! Counts what happens during a run.

use std::{cell::RefCell, collections::BTreeMap};

use fault_proxy::Trace;

use super::{faults, fleet::Change};

/// The number of occurrences, by kind.
pub(crate) type Counts = BTreeMap<String, u64>;

/// The counts of a run. Only one task uses them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) changes: RefCell<Counts>,
    pub(crate) outages: RefCell<Counts>,
    pub(crate) faults: RefCell<Counts>,
    pub(crate) passed: RefCell<Passed>,
}

/// The traffic through the proxy.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Passed {
    pub(crate) requests: u64,
    pub(crate) events: u64,
}

impl Tally {
    pub(crate) fn change(&self, change: &Change) {
        count(&self.changes, change.what().to_owned());
    }

    pub(crate) fn outage(&self, what: String) {
        count(&self.outages, what);
    }

    pub(crate) fn trace(&self, trace: &Trace) {
        let mut passed = self.passed.borrow_mut();
        passed.requests += trace.exchanges.len() as u64;
        passed.events += trace.frames.len() as u64;
        for exchange in &trace.exchanges {
            let whose = if exchange.request.is_watch() { "watch: " } else { "" };
            exchange.faults.iter().for_each(|fault| count(&self.faults, format!("{whose}{}", faults::kind(fault))));
        }
        for frame in &trace.frames {
            frame.faults.iter().for_each(|fault| count(&self.faults, format!("event: {}", faults::kind(fault))));
        }
    }
}

/// The sum over all kinds.
pub(crate) fn total(counts: &RefCell<Counts>) -> u64 {
    counts.borrow().values().sum()
}

fn count(counts: &RefCell<Counts>, what: String) {
    *counts.borrow_mut().entry(what).or_default() += 1;
}

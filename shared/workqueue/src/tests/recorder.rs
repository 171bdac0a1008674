//! Metrics that record what the queue reports.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::{Metrics, Priority};

#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Seen>);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// The depth of each priority that has occurred, as a gauge would show it.
    pub(crate) depth: BTreeMap<i32, i64>,
    pub(crate) adds: u64,
    pub(crate) retries: u64,
    pub(crate) waited: Vec<Duration>,
    pub(crate) worked: Vec<Duration>,
}

impl Recorder {
    pub(crate) fn seen(&self) -> Seen {
        self.lock().clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_depth<const N: usize>(&self, depth: [(i32, i64); N]) {
        assert_eq!(self.seen().depth, BTreeMap::from(depth));
    }
}

impl Metrics for Recorder {
    fn depth(&self, priority: Priority, change: i64) {
        let mut seen = self.lock();
        let depth = seen.depth.entry(priority.0).or_default();
        *depth += change;
        assert!(*depth >= 0, "negative depth at {priority:?}");
    }

    fn added(&self) {
        self.lock().adds += 1;
    }

    fn retried(&self) {
        self.lock().retries += 1;
    }

    fn waited(&self, duration: Duration) {
        self.lock().waited.push(duration);
    }

    fn worked(&self, duration: Duration) {
        self.lock().worked.push(duration);
    }
}

//! What the queue tells an observer. The crate knows no metrics library.

use std::time::Duration;

use crate::Priority;

/// The events behind controller-runtime's `workqueue_*` metrics.
///
/// Called while the queue is locked, so that the sum of all depth changes is right at every moment: an implementation
/// must be quick and must not call the queue.
pub trait Metrics: Send + Sync + 'static {
    /// One key more (`1`) or fewer (`-1`) is ready at this priority. For `workqueue_depth`.
    ///
    /// A key whose delay has run out counts from the next call to the queue on; call [`WorkQueue::len`](crate::WorkQueue::len)
    /// before a scrape to be exact while all workers are busy.
    fn depth(&self, priority: Priority, change: i64) {
        let _ = (priority, change);
    }

    /// A key became ready, at once or when its delay ran out; duplicates do not count. For `workqueue_adds_total`.
    fn added(&self) {}

    /// A key was given a delay, by a failure or by intent: upstream counts both as retries. For `workqueue_retries_total`.
    fn retried(&self) {}

    /// A key was handed out after being ready for so long. For `workqueue_queue_duration_seconds`.
    fn waited(&self, duration: Duration) {
        let _ = duration;
    }

    /// A key was given back after being worked on for so long. For `workqueue_work_duration_seconds`.
    fn worked(&self, duration: Duration) {
        let _ = duration;
    }
}

/// Observes nothing.
impl Metrics for () {}

/// The keys being worked on right now, for the gauges that are computed when they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// How many keys are being worked on.
    pub running: usize,
    /// How long they have been worked on, added up. For `workqueue_unfinished_work_seconds`.
    pub total: Duration,
    /// The longest of them. For `workqueue_longest_running_processor_seconds`.
    pub longest: Duration,
}

//! The events that a queue reports to an observer. The crate depends on no metrics library.

use std::time::Duration;

use crate::priority::Priority;

/// The events behind controller-runtime's `workqueue_*` metrics.
///
/// The queue calls it under its lock, so that the sum of all depth changes is right at every moment. An implementation must be
/// quick and must not call the queue.
pub trait Metrics: Send + Sync + 'static {
    /// One key more (`1`) or fewer (`-1`) is ready at this priority. For `workqueue_depth`.
    ///
    /// A key whose delay has expired counts from the next call to the queue on. Call
    /// [`WorkQueue::update_depth`](crate::WorkQueue::update_depth) before a scrape, so that the depth is exact even while all
    /// workers are busy.
    fn depth(&self, priority: Priority, change: i64) {
        let _ = (priority, change);
    }

    /// A key became ready, at once or when its delay expired; duplicates do not count. For `workqueue_adds_total`.
    fn added(&self) {}

    /// A key got a delay, by a failure or on request: upstream counts both as retries. For `workqueue_retries_total`.
    fn retried(&self) {}

    /// A key was handed out after it was ready for this time. For `workqueue_queue_duration_seconds`.
    fn waited(&self, duration: Duration) {
        let _ = duration;
    }

    /// A worker gave a key back after working on it for this time. For `workqueue_work_duration_seconds`.
    fn worked(&self, duration: Duration) {
        let _ = duration;
    }
}

/// Observes nothing.
impl Metrics for () {}

/// The running work, for gauges that are computed when they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// The number of keys that workers have.
    pub running: usize,
    /// The sum of their running times. For `workqueue_unfinished_work_seconds`.
    pub total: Duration,
    /// The longest running time. For `workqueue_longest_running_processor_seconds`.
    pub longest: Duration,
}

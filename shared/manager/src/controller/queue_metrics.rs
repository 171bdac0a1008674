//! Exports the events of work queues as controller-runtime's `workqueue_*` metrics.

use std::{sync::Arc, time::Duration};

use workqueue::Priority;

use crate::metrics::Metrics;

/// The observer of one queue.
pub(super) struct QueueMetrics {
    metrics: Arc<Metrics>,
    name: Arc<str>,
}

impl QueueMetrics {
    pub(super) fn of(name: &Arc<str>, metrics: &Arc<Metrics>) -> Self {
        Self { metrics: metrics.clone(), name: name.clone() }
    }

    fn labels(&self) -> [&str; 2] {
        [&self.name, &self.name]
    }
}

impl workqueue::Metrics for QueueMetrics {
    fn depth(&self, priority: Priority, change: i64) {
        self.metrics.queue_depth.with_label_values(&[&*self.name, &*self.name, &priority.0.to_string()]).add(change);
    }

    fn added(&self) {
        self.metrics.queue_adds.with_label_values(&self.labels()).inc();
    }

    fn retried(&self) {
        self.metrics.queue_retries.with_label_values(&self.labels()).inc();
    }

    fn waited(&self, duration: Duration) {
        self.metrics.queue_seconds.with_label_values(&self.labels()).observe(duration.as_secs_f64());
    }

    fn worked(&self, duration: Duration) {
        self.metrics.work_seconds.with_label_values(&self.labels()).observe(duration.as_secs_f64());
    }
}

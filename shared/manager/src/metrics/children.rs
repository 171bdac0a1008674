//! Metrics of an operator's writes to children, the same for every operator: `<app>_operator_children_writes_total`,
//! `<app>_operator_drift_repairs_total`, `<app>_operator_drift_repairs_delayed_total`, and for children with rollouts
//! `<app>_operator_rollout_duration_seconds`.

use std::time::Duration;

use prometheus::{Histogram, IntCounterVec};

use super::MetricRegistry;

/// The child metrics of one controller.
#[derive(Debug, Clone)]
pub(crate) struct ChildMetrics {
    writes: IntCounterVec,
    drift: IntCounterVec,
    delayed: IntCounterVec,
    rollouts: Option<Histogram>,
}

/// Kinds that replace their pods step by step when their template changes.
const ROLLED_OUT: &[&str] = &["Deployment", "StatefulSet", "DaemonSet"];

/// Histogram buckets of a rollout, as upper bounds in seconds.
const SECONDS: [f64; 9] = [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 3600.0];

/// A kind of write to a child.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Written {
    Created,
    Updated,
    Deleted,
}

impl Written {
    const ALL: [Self; 3] = [Self::Created, Self::Updated, Self::Deleted];

    fn op(self) -> &'static str {
        match self {
            Self::Created => "create",
            Self::Updated => "update",
            Self::Deleted => "delete",
        }
    }
}

impl ChildMetrics {
    /// Creates all series with the value 0, so that rates work from the first scrape. `children` are kinds in `CamelCase`.
    pub(crate) fn new(registry: &MetricRegistry, app: &str, children: &[String]) -> Self {
        let rollouts = || {
            let name = format!("{app}_operator_rollout_duration_seconds");
            let help = "Seconds from a change of the pod template until all pods had it";
            registry.histograms(&name, help, &[], &SECONDS).with_label_values::<&str>(&[])
        };
        let metrics = Self {
            rollouts: children.iter().any(|child| Self::rolls_out(child)).then(rollouts),
            writes: registry.counters(
                &format!("{app}_operator_children_writes_total"),
                "Children that were created, updated and deleted",
                &["child", "op"],
            ),
            drift: registry.counters(
                &format!("{app}_operator_drift_repairs_total"),
                "Changes by other clients that the operator reverted",
                &["child"],
            ),
            delayed: registry.counters(
                &format!("{app}_operator_drift_repairs_delayed_total"),
                "Reverts that the operator delayed, because another client changes the same field again and again",
                &["child"],
            ),
        };
        for child in children {
            metrics.drift.with_label_values(&[child]);
            metrics.delayed.with_label_values(&[child]);
            for written in Written::ALL {
                metrics.writes.with_label_values(&[child.as_str(), written.op()]);
            }
        }
        metrics
    }

    pub(crate) fn wrote(&self, child: &str, written: Written) {
        self.writes.with_label_values(&[child, written.op()]).inc();
    }

    /// Whether a child of this kind replaces its pods step by step.
    pub(crate) fn rolls_out(child: &str) -> bool {
        ROLLED_OUT.contains(&child)
    }

    /// Records a finished rollout: a change has reached all pods after `took`.
    pub(crate) fn rolled_out(&self, took: Duration) {
        if let Some(rollouts) = &self.rollouts {
            rollouts.observe(took.as_secs_f64());
        }
    }

    pub(crate) fn repaired(&self, child: &str) {
        self.drift.with_label_values(&[child]).inc();
    }

    pub(crate) fn waited(&self, child: &str) {
        self.delayed.with_label_values(&[child]).inc();
    }
}

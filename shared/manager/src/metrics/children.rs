//! What an operator does to children, for every operator the same: `<app>_operator_children_writes_total`,
//! `<app>_operator_drift_repairs_total`, and where there are pods to replace `<app>_operator_rollout_duration_seconds`.

use std::time::Duration;

use prometheus::{Histogram, IntCounterVec};

use super::MetricRegistry;

/// The metrics of one controller.
#[derive(Debug, Clone)]
pub(crate) struct ChildMetrics {
    writes: IntCounterVec,
    drift: IntCounterVec,
    rollouts: Option<Histogram>,
}

/// Children whose pods are replaced step by step when their template changes.
const ROLLED_OUT: &[&str] = &["Deployment", "StatefulSet", "DaemonSet"];

/// Upper bounds of a roll-out in seconds: from a few to an hour.
const SECONDS: [f64; 9] = [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 3600.0];

/// What is done to a child.
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
    /// All series at 0, so that rates work from the first scrape. `children` are kinds in `CamelCase`.
    pub(crate) fn new(registry: &MetricRegistry, app: &str, children: &[String]) -> Self {
        let rollouts = || {
            let name = format!("{app}_operator_rollout_duration_seconds");
            let help = "How long it took from a change until all pods had it, in seconds";
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
                "Changes of somebody else that were put back",
                &["child"],
            ),
        };
        for child in children {
            metrics.drift.with_label_values(&[child]);
            for written in Written::ALL {
                metrics.writes.with_label_values(&[child.as_str(), written.op()]);
            }
        }
        metrics
    }

    pub(crate) fn wrote(&self, child: &str, written: Written) {
        self.writes.with_label_values(&[child, written.op()]).inc();
    }

    /// Whether the pods of such a child are replaced step by step.
    pub(crate) fn rolls_out(child: &str) -> bool {
        ROLLED_OUT.contains(&child)
    }

    /// A change of pods has reached all of them.
    pub(crate) fn rolled_out(&self, took: Duration) {
        if let Some(rollouts) = &self.rollouts {
            rollouts.observe(took.as_secs_f64());
        }
    }

    pub(crate) fn repaired(&self, child: &str) {
        self.drift.with_label_values(&[child]).inc();
    }
}

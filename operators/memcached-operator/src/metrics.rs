//! The operator's own metrics.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use manager::{Condition, MetricRegistry};
use prometheus::{Histogram, IntGaugeVec};

use crate::Memcached;

/// From some seconds to an hour.
const SECONDS: [f64; 9] = [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 3600.0];

/// Shows how many nodes every object wants and has.
pub(crate) fn nodes(registry: &MetricRegistry) -> impl Fn(&[Arc<Memcached>]) + Send + Sync + use<> {
    let gauges = registry.gauges(
        "memcached_operator_nodes",
        "Nodes of every Memcached, by state: desired, ready, updated.",
        &["namespace", "name", "state"],
    );
    move |caches| show(&gauges, caches)
}

fn show(gauges: &IntGaugeVec, caches: &[Arc<Memcached>]) {
    gauges.reset(); // those that have gone
    for memcached in caches {
        let (namespace, name) = (memcached.namespace().unwrap_or_default(), memcached.name_any());
        let (ready, updated) = memcached.status.as_ref().map_or((0, 0), |it| (it.ready_replicas, it.updated_replicas));
        for (state, count) in [("desired", memcached.spec.size), ("ready", ready), ("updated", updated)] {
            gauges.with_label_values(&[&namespace, &name, state]).set(count.into());
        }
    }
}

/// How long rollouts take.
#[derive(Debug, Clone)]
pub(crate) struct RolloutTimes(Histogram);

impl RolloutTimes {
    pub(crate) fn new(registry: &MetricRegistry) -> Self {
        let help = "How long it took from a change of a Memcached until all its nodes had it, in seconds.";
        let times = registry.histograms("memcached_operator_rollout_duration_seconds", help, &[], &SECONDS);
        Self(times.with_label_values::<&str>(&[]))
    }

    /// Counts the rollout that was still under way before this reconcile and is over after it.
    pub(crate) fn observe(&self, before: &Memcached, after: &Memcached, now: Timestamp) {
        if let Some(seconds) = finished(before, after, now) {
            self.0.observe(seconds);
        }
    }
}

fn finished(before: &Memcached, after: &Memcached, now: Timestamp) -> Option<f64> {
    let rolling = progressing(before).filter(|it| it.status == "True" && it.reason == "RollingOut")?;
    progressing(after).filter(|it| it.status == "False" && it.reason == "Stable")?;
    Some(now.duration_since(rolling.last_transition_time.0).as_secs_f64())
}

fn progressing(memcached: &Memcached) -> Option<&Condition> {
    memcached.status.as_ref()?.conditions.iter().find(|it| it.type_ == "Progressing")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn progressing(status: &str, reason: &str) -> Memcached {
        let since = "2026-11-21T10:00:00Z";
        let condition = json!({
            "type": "Progressing", "status": status, "reason": reason, "message": "", "lastTransitionTime": since,
        });
        samples::with_status(&json!({}), &json!({"conditions": [condition]}))
    }

    #[test]
    fn a_rollout_is_counted_once_when_it_is_over() {
        let (rolling, stable) = (progressing("True", "RollingOut"), progressing("False", "Stable"));
        let now = "2026-11-21T10:00:42Z".parse().expect("a time");
        assert_eq!(finished(&rolling, &stable, now), Some(42.0));
        assert_eq!(finished(&stable, &stable, now), None);
        assert_eq!(finished(&rolling, &rolling, now), None);
        assert_eq!(finished(&progressing("True", "Scaling"), &stable, now), None);
    }

    #[test]
    fn nodes_are_shown_as_long_as_the_object_is_there() {
        let shown = |caches: &[Arc<Memcached>], gauges: &IntGaugeVec| {
            show(gauges, caches);
            let families = prometheus::core::Collector::collect(gauges);
            let samples = families.iter().flat_map(prometheus::proto::MetricFamily::get_metric);
            let mut counts: Vec<_> = samples.map(|it| it.get_gauge().get_value()).collect();
            counts.sort_by(f64::total_cmp);
            counts
        };
        let labels = ["namespace", "name", "state"];
        let gauges = IntGaugeVec::new(prometheus::Opts::new("x", "x"), &labels).expect("a metric");
        let status: Value = json!({"readyReplicas": 2, "updatedReplicas": 3});
        let memcached = Arc::new(samples::with_status(&json!({"size": 4}), &status));
        assert_eq!(shown(&[memcached], &gauges), [2.0, 3.0, 4.0]);
        assert!(shown(&[], &gauges).is_empty());
    }
}

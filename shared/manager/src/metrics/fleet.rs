//! The metrics that every operator of replicated pods has beside the runtime's: how many pods each object wants and has,
//! and how long a change takes to reach all of them.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use prometheus::{Histogram, IntGaugeVec};

use super::MetricRegistry;
use crate::{context::Root, controller::Objects, status::Status};

/// Upper bounds in seconds: from a few to an hour.
const SECONDS: [f64; 9] = [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 3600.0];

/// `<operator>_<pods>{namespace,name,state}` and `<operator>_rollout_duration_seconds`. A clone is the same metrics.
#[derive(Debug, Clone)]
pub struct FleetMetrics {
    pods: IntGaugeVec,
    rollouts: Histogram,
}

/// How many pods one object wants and has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pods {
    /// As the spec says.
    pub desired: i32,
    /// That serve.
    pub ready: i32,
    /// That are as the spec says.
    pub updated: i32,
}

impl FleetMetrics {
    /// Adds the metrics of kind `K`; `operator` is `memcached_operator`, `pods` what its users call them: `nodes`.
    pub fn new<K: Root>(registry: &MetricRegistry, operator: &str, pods: &str) -> Self {
        let kind = K::kind(&());
        let help = format!("The {pods} of every {kind}, by state: desired, ready, updated.");
        let gauges = registry.gauges(&format!("{operator}_{pods}"), &help, &["namespace", "name", "state"]);
        let help = format!("How long it took from a change of a {kind} until all its {pods} had it, in seconds.");
        let rollouts = registry.histograms(&format!("{operator}_rollout_duration_seconds"), &help, &[], &SECONDS);
        Self { pods: gauges, rollouts: rollouts.with_label_values::<&str>(&[]) }
    }

    /// Shows the pods of all objects; for [`on_scrape`](crate::ControllerBuilder::on_scrape).
    pub fn show<K: Root>(&self, objects: Objects<'_, K>, pods: impl Fn(&K) -> Pods) {
        self.pods.reset(); // those that have gone
        for object in objects {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            let Pods { desired, ready, updated } = pods(&object);
            for (state, count) in [("desired", desired), ("ready", ready), ("updated", updated)] {
                self.pods.with_label_values(&[&namespace, &name, state]).set(count.into());
            }
        }
    }

    /// Counts the rollout that was still under way `before` a reconcile and is over `after` it.
    pub fn observe<K: Root>(&self, before: &Arc<K>, after: &Arc<K>, now: Timestamp) {
        if let Some(seconds) = finished(conditions(&**before), conditions(&**after), now) {
            self.rollouts.observe(seconds);
        }
    }
}

fn conditions<K: Root>(object: &K) -> &[Condition] {
    object.status().map_or(&[], Status::conditions)
}

fn finished(before: &[Condition], after: &[Condition], now: Timestamp) -> Option<f64> {
    let progressing = |conditions: &'_ [Condition], status: &str, reason: &str| {
        let is_it = |it: &&Condition| it.type_ == "Progressing" && it.status == status && it.reason == reason;
        conditions.iter().find(is_it).map(|it| it.last_transition_time.0)
    };
    let since = progressing(before, "True", "RollingOut")?;
    progressing(after, "False", "Stable")?;
    Some(now.duration_since(since).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn progressing(status: &str, reason: &str) -> Vec<Condition> {
        let since = "2026-11-21T10:00:00Z";
        let condition = json!({
            "type": "Progressing", "status": status, "reason": reason, "message": "", "lastTransitionTime": since,
        });
        vec![serde_json::from_value(condition).expect("a condition")]
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
}

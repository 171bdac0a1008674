//! Metrics for operators of replicated pods: how many pods each object wants and has.

use std::sync::Arc;

use kube::ResourceExt;
use prometheus::IntGaugeVec;

use super::MetricRegistry;
use crate::status::Primary;

/// The gauge `<operator>_<pods>{namespace,name,state}`.
#[derive(Debug)]
pub struct FleetMetrics {
    pods: IntGaugeVec,
}

/// How many pods one object wants and has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pods {
    /// Pods that the spec requests.
    pub desired: i32,
    /// Pods that serve.
    pub ready: i32,
    /// Pods of the current revision.
    pub updated: i32,
}

impl FleetMetrics {
    /// Registers the gauge of kind `K`. `operator` is for example `memcached_operator`, and `pods` the users' word for them,
    /// such as `nodes`.
    pub fn new<K: Primary>(registry: &MetricRegistry, operator: &str, pods: &str) -> Self {
        let kind = K::kind(&());
        let help = format!("The {pods} of every {kind}, by state: desired, ready, updated.");
        let gauges = registry.gauges(&format!("{operator}_{pods}"), &help, &["namespace", "name", "state"]);
        Self { pods: gauges }
    }

    /// Sets the gauge for all objects; to be called in [`on_scrape`](crate::ControllerBuilder::on_scrape).
    pub fn show<K: Primary>(&self, objects: impl Iterator<Item = Arc<K>>, pods: impl Fn(&K) -> Pods) {
        self.pods.reset(); // removes deleted objects
        for object in objects {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            let Pods { desired, ready, updated } = pods(&object);
            for (state, count) in [("desired", desired), ("ready", ready), ("updated", updated)] {
                self.pods.with_label_values(&[&namespace, &name, state]).set(count.into());
            }
        }
    }
}

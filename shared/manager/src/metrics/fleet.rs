//! The metrics that every operator of replicated pods has beside the runtime's: how many pods each object wants and has.

use kube::ResourceExt;
use prometheus::IntGaugeVec;

use super::MetricRegistry;
use crate::{context::Root, controller::Objects};

/// `<operator>_<pods>{namespace,name,state}`.
#[derive(Debug)]
pub struct FleetMetrics {
    pods: IntGaugeVec,
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
        Self { pods: gauges }
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
}

//! Metrics for operators of replicated pods: how many pods each object wants and has.

use std::sync::Arc;

use kube::ResourceExt;
use prometheus::IntGaugeVec;

use super::MetricRegistry;
use crate::status::Primary;

/// The gauge `<operator>_<pods>{namespace,name,state}`. With more objects than `--metrics-max-objects`, it has only the sums of all
/// objects, whose namespace and name are empty. So a sum over all series is the same below and above the limit.
#[derive(Debug)]
pub struct FleetMetrics {
    pods: IntGaugeVec,
    max_objects: usize,
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
        let labels = ["namespace", "name", "state"];
        let gauges = registry.gauges_of_objects(&format!("{operator}_{pods}"), &help, &labels);
        Self { pods: gauges, max_objects: registry.max_objects() }
    }

    /// Sets the gauge for all objects; to be called in [`on_scrape`](crate::ControllerBuilder::on_scrape). Its series last until the
    /// end of that scrape.
    pub fn show<K: Primary>(&self, objects: impl Iterator<Item = Arc<K>>, pods: impl Fn(&K) -> Pods) {
        self.pods.reset(); // removes deleted objects
        let (mut shown, mut sums) = (0, [0; 3]);
        for object in objects {
            let Pods { desired, ready, updated } = pods(&object);
            let counts = [desired, ready, updated].map(i64::from);
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
            shown += 1;
            if shown <= self.max_objects {
                self.set(&object.namespace().unwrap_or_default(), &object.name_any(), counts);
            }
        }
        if shown > self.max_objects {
            self.pods.reset(); // those that came before the limit was reached
            self.set("", "", sums);
        }
    }

    fn set(&self, namespace: &str, name: &str, counts: [i64; 3]) {
        for (state, count) in ["desired", "ready", "updated"].into_iter().zip(counts) {
            self.pods.with_label_values(&[namespace, name, state]).set(count);
        }
    }
}

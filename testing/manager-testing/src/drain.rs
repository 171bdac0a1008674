//! Evicts pods, as an administrator does to drain a worker node.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::{EvictParams, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::World;

impl World {
    /// Requests the eviction of a pod once. If a disruption budget does not allow it now, the API server answers 429.
    pub async fn evict(&self, pod: &str) -> Result<(), kube::Error> {
        let kubeconfig = Kubeconfig::read_from(self.cluster.kubeconfig()).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.expect("a configuration");
        config.default_retry = false; // the client would retry until the budget allows the eviction
        let pods: Api<Pod> = Api::namespaced(Client::try_from(config).expect("a client"), &self.namespace);
        pods.evict(pod, &EvictParams::default()).await.map(drop)
    }

    /// Drains the pods of `selector` from a worker, uncordons the worker, and returns the lowest number of ready pods meanwhile.
    pub async fn drain(&self, worker: &str, selector: &str) -> usize {
        let pods = format!("--pod-selector={selector}");
        let mut kubectl = self.cluster.kubectl(["drain", worker, "--delete-emptydir-data", "--timeout=3m", &pods]);
        let mut drain = tokio::task::spawn_blocking(move || kubectl.output().expect("kubectl runs"));
        let mut fewest = usize::MAX;
        loop {
            fewest = fewest.min(self.ready_pods(selector).await.len());
            tokio::select! {
                drained = &mut drain => {
                    let output = drained.expect("no panic");
                    let opened = self.cluster.kubectl(["uncordon", worker]).output().expect("kubectl runs");
                    let said = String::from_utf8_lossy(&output.stderr);
                    let last = said.lines().next_back().unwrap_or_default(); // earlier lines repeat for minutes
                    assert!(output.status.success(), "could not drain {worker}: {last}");
                    assert!(opened.status.success(), "could not uncordon {worker}");
                    return fewest.min(self.ready_pods(selector).await.len());
                }
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    }

    /// The pods of this selector that are ready and not being deleted.
    pub async fn ready_pods(&self, selector: &str) -> Vec<Pod> {
        let pods = self.api::<Pod>().list(&ListParams::default().labels(selector)).await;
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            pod.metadata.deletion_timestamp.is_none()
                && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        pods.expect("the API server answers").items.into_iter().filter(is_ready).collect()
    }
}

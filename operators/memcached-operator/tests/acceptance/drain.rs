//! Drains one of several workers. Scheduler, evictions and disruption budget are real; the workers are simulated nodes.

use cluster::{Cluster, Nodes};
use k8s_openapi::api::{core::v1::Node, core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use manager_testing::World;
use memcached_operator::{Memcached, MemcachedOperator};
use serde_json::json;

use crate::kit::memcached;

const OURS: &str = "app.kubernetes.io/instance=drained";

fn worker_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|it| it.node_name.as_deref()).expect("a worker")
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_evicts_one_pod_at_a_time() {
    let fresh = || Cluster::fresh(Nodes::Simulated);
    let Some(mut world) = World::prepare(&MemcachedOperator, env!("CARGO_BIN_EXE_memcached-operator"), fresh).await
    else {
        return;
    };
    world.run(&[]);
    // Schedule all pods of the cache on one worker.
    let workers: Api<Node> = Api::all(world.client.clone());
    let names: Vec<String> =
        workers.list(&ListParams::default()).await.expect("workers").iter().map(ResourceExt::name_any).collect();
    let (drained, others) = names.split_first().expect("workers");
    assert!(!others.is_empty());
    let cordon = async |closed: bool| {
        for worker in others {
            let patch = Patch::Merge(json!({"spec": {"unschedulable": closed}}));
            workers.patch(worker, &PatchParams::default(), &patch).await.expect("cordoned");
        }
    };
    cordon(true).await;
    world.apply(&memcached("drained", &json!({"size": 4}))).await;
    let all_on = async |there: bool| {
        let pods = world.ready_pods(OURS).await;
        (pods.len() == 4 && pods.iter().all(|pod| (worker_of(pod) == drained) == there)).then_some(())
    };
    world.until("all pods are on one worker", async || all_on(true).await).await;
    let allowed = async || {
        let budget: PodDisruptionBudget = world.get("drained").await?;
        budget.status.filter(|status| status.disruptions_allowed == Some(1)).map(drop)
    };
    world.until("the budget allows one eviction", allowed).await;
    let refused_then_opened = async {
        let three_are_left = async || {
            let left = world.ready_pods(OURS).await;
            (left.len() == 3).then_some(left)
        };
        let left = world.until("one pod is evicted, and no worker takes its replacement", three_are_left).await;
        let refused = world.evict(&left[0].name_any()).await.expect_err("the budget allows no other eviction");
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 429), "{refused}");
        cordon(false).await;
    };
    let (fewest, ()) = tokio::join!(world.drain(drained, OURS), refused_then_opened);
    assert_eq!(fewest, 3, "three of four are always ready");
    world.until("all pods are on other workers", async || all_on(false).await).await;
    world.until_condition::<Memcached>("drained", "Ready", "True", "Ready").await;
}

//! Tests of disturbances by the cluster: an outage of the API server, a definition that is deleted and recreated, a drained node,
//! an evicted or paused leader.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use cluster::Access;
use foo_operator::Foo;
use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod, policy::v1::PodDisruptionBudget},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams},
};
use manager_testing::World;
use memcached_operator::Memcached;

use crate::kit::{world, world_with};

const MEMCACHED: &str = include_str!("../../../operators/memcached-operator/samples/cache_v1_memcached.yaml");
const FOO: &str = include_str!("../../../operators/foo-operator/samples/example-foo.yaml");

async fn wait_for_ready_pods(world: &World, size: i32) {
    // After an outage, Kubernetes' own controllers take more than a minute to recover.
    world
        .within(Duration::from_mins(3), &format!("{size} nodes are ready"), async || {
            let status = world.get::<Memcached>("memcached-sample").await?.status?;
            (status.ready_replicas == size).then_some(())
        })
        .await;
}

/// The names of the operators' pods, with the restarts of their containers.
async fn managers(world: &World) -> Vec<(String, i32)> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE);
    let of_managers = ListParams::default().labels("app.kubernetes.io/component=controller-manager");
    let pods = pods.list(&of_managers).await.expect("pods").items;
    let restarts = |pod: &Pod| {
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        containers.map(|container| container.restart_count).sum()
    };
    pods.iter().map(|pod| (pod.name_any(), restarts(pod))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_survive_one_minute_api_server_outage() {
    let Some(world) = world_with(Access::Machine).await else { return };
    world.apply(MEMCACHED).await;
    wait_for_ready_pods(&world, 3).await;
    let before = managers(&world).await;
    assert_eq!(before.len(), 2);

    let part = |change: fn(&cluster::Cluster) -> anyhow::Result<()>| {
        let cluster = world.cluster.clone();
        async move {
            tokio::task::spawn_blocking(move || change(&cluster)).await.expect("no panic").expect("the part changes");
        }
    };
    part(|cluster| cluster.stop_part("kube-apiserver")).await;
    tokio::time::sleep(Duration::from_mins(1)).await; // longer than a lease, and than any time limit of a request
    part(|cluster| cluster.start_part("kube-apiserver")).await;
    part(|cluster| cluster.wait_until_ready(Duration::from_mins(1))).await;

    let grown = MEMCACHED.replace("size: 3", "size: 4");
    world.until("the API server accepts the size", async || world.try_apply(&grown).await.ok()).await; // webhooks may start late
    wait_for_ready_pods(&world, 4).await;
    assert_eq!(managers(&world).await, before, "the operators restarted");
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_crd_is_reconciled_and_other_kinds_unaffected() {
    let Some(world) = world().await else { return };
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = Foo::crd_name();
    let mut definition = definitions.get(name).await.expect("is installed");
    let before = managers(&world).await;
    definitions.delete(name, &DeleteParams::default()).await.expect("is deleted");
    world.until("the definition is gone", async || definitions.get_opt(name).await.ok()?.is_none().then_some(())).await;

    world.apply(MEMCACHED).await;
    wait_for_ready_pods(&world, 3).await;

    definition.metadata.resource_version = None;
    definition.metadata.uid = None;
    definition.status = None;
    definitions.create(&PostParams::default(), &definition).await.expect("the definition is created again");
    world.until("the API server serves the kind", async || world.try_apply(FOO).await.ok()).await;
    let has_deployment = async || world.get::<Deployment>("example-foo").await.map(drop);
    world.within(Duration::from_mins(3), "the operator reconciles Foos again", has_deployment).await;
    assert_eq!(managers(&world).await, before, "the operators restarted");
}

#[tokio::test(flavor = "multi_thread")]
async fn disruption_budget_allows_one_eviction_at_a_time() {
    let Some(world) = world().await else { return };
    world.apply(MEMCACHED).await;
    wait_for_ready_pods(&world, 3).await;
    let allowed = async || {
        let budget: PodDisruptionBudget = world.get("memcached-sample").await?;
        budget.status.filter(|status| status.disruptions_allowed == Some(1)).map(drop)
    };
    world.until("the disruption budget allows an eviction", allowed).await;
    let nodes = world.get::<Memcached>("memcached-sample").await.and_then(|it| it.status).expect("a status").nodes;
    world.evict(&nodes[0]).await.expect("the API server evicts the first");
    let refused = world.evict(&nodes[1]).await.expect_err("the second has to wait");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 429), "{refused}");
    world
        .until("the API server evicts the second after another is ready", async || world.evict(&nodes[1]).await.ok())
        .await;
    wait_for_ready_pods(&world, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_drain_evicts_one_pod_at_a_time() {
    let Some(world) = world_with(Access::Workers).await else { return };
    world.apply(MEMCACHED).await;
    wait_for_ready_pods(&world, 3).await;
    let ours = "app.kubernetes.io/instance=memcached-sample";
    let pods = world.ready_pods(ours).await;
    let worker = pods[0].spec.as_ref().and_then(|it| it.node_name.clone()).expect("a worker");
    let fewest = world.drain(&worker, ours).await;
    assert!(fewest >= 2, "{fewest} were ready while {worker} was drained");
    wait_for_ready_pods(&world, 3).await;
    wait_for_two_managers(&world).await;
}

/// The name of the pod that leads.
///
/// A pod that is being deleted may lead until it ends.
pub(crate) async fn leader(world: &World) -> String {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE);
    let identity =
        async || leases.get(installation::MANAGER).await.ok()?.spec?.holder_identity.filter(|it| !it.is_empty());
    let identity = world.until("a manager leads", identity).await;
    identity.split('_').next().expect("a name").to_owned()
}

pub(crate) async fn wait_for_two_managers(world: &World) {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE);
    let of_managers = ListParams::default().labels("app.kubernetes.io/component=controller-manager");
    let are_ready = async || {
        let pods = pods.list(&of_managers).await.ok()?.items;
        // A deleted pod is ready for some seconds more.
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            pod.metadata.deletion_timestamp.is_none()
                && conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
        };
        (pods.len() == 2 && pods.iter().all(is_ready)).then_some(())
    };
    world.within(Duration::from_mins(3), "two managers are ready", are_ready).await;
}

/// Requests another size. Returns the seconds until the Deployment has it.
async fn carried_out(world: &World, size: i32) -> f32 {
    let begun = Instant::now();
    let patch = Patch::Merge(serde_json::json!({"spec": {"size": size}}));
    let parameters = PatchParams::default();
    // The API server calls the webhooks of either manager, and for a while also of a paused one.
    let taken = async || world.api::<Memcached>().patch("memcached-sample", &parameters, &patch).await.ok().map(drop);
    world.until("the API server accepts the new size", taken).await;
    let is_so = async || {
        let spec = world.get::<Deployment>("memcached-sample").await?.spec?;
        (spec.replicas == Some(size)).then_some(())
    };
    world.until("the Deployment has the new size", is_so).await;
    begun.elapsed().as_secs_f32()
}

/// Waits for a Memcached of three nodes and for two managers, one of which leads. Returns the leader's name and its namespace.
async fn led(world: &World) -> (String, Api<Pod>) {
    world.apply(MEMCACHED).await;
    wait_for_ready_pods(world, 3).await;
    wait_for_two_managers(world).await;
    (leader(world).await, Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE))
}

#[tokio::test(flavor = "multi_thread")]
async fn evicted_leader_hands_over_to_standby() {
    let Some(world) = world().await else { return };
    let (first, pods) = led(&world).await;
    // The disruption controller counts the two pods some time after they are ready.
    let allowed = async || pods.evict(&first, &EvictParams::default()).await.ok().map(drop);
    world.until("the disruption budget allows to evict the leader", allowed).await;
    let begun = Instant::now();
    // The first manager leads until the kubelet ends it, and may still act on the new size.
    let another = async || (leader(&world).await != first).then_some(());
    world.until("another manager leads", another).await;
    let led_after = begun.elapsed().as_secs_f32();
    let seconds = carried_out(&world, 2).await;
    eprintln!("another manager leads {led_after:.2} s after the eviction, and carries out a change in {seconds:.2} s");
    wait_for_two_managers(&world).await;
}

/// The ids of the processes of a pod's manager on this machine.
fn processes_of(uid: &str) -> Vec<String> {
    let uid = [uid.to_owned(), uid.replace('-', "_")];
    let all =
        std::fs::read_dir("/proc").expect("processes").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_ours = |pid: &String| {
        let text = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text("comm").starts_with("controller-mana") && uid.iter().any(|uid| text("cgroup").contains(uid))
    };
    all.filter(is_ours).collect()
}

fn signal(pids: &[String], signal: &str) {
    assert!(Command::new("kill").arg(signal).args(pids).status().expect("kill").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_leader_is_replaced_and_does_not_lead_on_resume() {
    let Some(world) = world_with(Access::Machine).await else { return };
    let (first, pods) = led(&world).await;
    let uid = pods.get(&first).await.expect("the pod exists").metadata.uid.expect("a uid");
    let stopped = processes_of(&uid);
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    signal(&stopped, "-STOP");
    let seconds = carried_out(&world, 2).await;
    eprintln!("{seconds:.1} s after the leader stood still a change is carried out");
    let second = leader(&world).await;
    assert_ne!(second, first);
    signal(&stopped, "-CONT");
    wait_for_two_managers(&world).await;
    carried_out(&world, 1).await;
    wait_for_ready_pods(&world, 1).await;
    assert_eq!(leader(&world).await, second, "the resumed manager must not lead");
}

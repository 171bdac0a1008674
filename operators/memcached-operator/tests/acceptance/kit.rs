//! Helpers of the acceptance tests: the sample, and functions that play the other controllers of a cluster.

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod, core::v1::Service, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::ResourceExt;
use manager_testing::World;
use memcached_operator::{Memcached, MemcachedOperator};
use serde_json::json;

pub(crate) const SAMPLE: &str = include_str!("../../samples/cache_v1_memcached.yaml");
pub(crate) const NAME: &str = "memcached-sample";

pub(crate) async fn world() -> Option<World> {
    World::start(&MemcachedOperator, env!("CARGO_BIN_EXE_memcached-operator")).await
}

// ANCHOR: quiet
/// Like [`world`], but without a running operator.
pub(crate) async fn quiet_world() -> Option<World> {
    let shared = || cluster::Cluster::shared(cluster::Nodes::None);
    World::prepare(&MemcachedOperator, env!("CARGO_BIN_EXE_memcached-operator"), shared).await
}
// ANCHOR_END: quiet

pub(crate) fn memcached(name: &str, spec: &serde_json::Value) -> String {
    json!({
        "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached", "metadata": {"name": name}, "spec": spec,
    })
    .to_string()
}

/// Waits for the Deployment to have this number of replicas.
pub(crate) async fn deployment(world: &World, name: &str, replicas: i32) -> Deployment {
    world
        .until(&format!("Deployment {name} with {replicas} replicas"), async || {
            let deployment: Deployment = world.get(name).await?;
            (deployment.spec.as_ref()?.replicas == Some(replicas)).then_some(deployment)
        })
        .await
}

pub(crate) async fn children(world: &World) -> (Deployment, Service, PodDisruptionBudget) {
    let deployment = deployment(world, NAME, 3).await;
    let service = world.until("the Service", async || world.get::<Service>(NAME).await).await;
    let budget = world.until("the budget", async || world.get::<PodDisruptionBudget>(NAME).await).await;
    (deployment, service, budget)
}

/// Plays the Deployment controller: reports `ready` pods of the current template, all of them ready.
pub(crate) async fn roll_out(world: &World, name: &str, ready: i32) {
    let deployment: Deployment = world.get(name).await.expect("a Deployment");
    let status = json!({
        "observedGeneration": deployment.metadata.generation, "replicas": ready, "updatedReplicas": ready,
        "readyReplicas": ready, "availableReplicas": ready,
        "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": ""}],
    });
    world.patch_status::<Deployment>(name, status).await;
}

/// Plays the `ReplicaSet` controller and the kubelet: creates a pod of this Memcached, ready or not.
pub(crate) async fn pod(world: &World, memcached: &str, pod: &str, ready: bool) {
    let body = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "labels": {
            "app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": memcached,
            "app.kubernetes.io/managed-by": "memcached-operator",
        }},
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "memcached", "image": "memcached", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            }}],
        },
    });
    world.create::<Pod>(body).await;
    let status = json!({
        "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
    });
    world.patch_status::<Pod>(pod, status).await;
}

/// Applies the sample, and plays the other controllers until it is ready.
pub(crate) async fn converged(world: &World) -> Memcached {
    world.apply(SAMPLE).await;
    children(world).await;
    for name in ["a", "b", "c"] {
        pod(world, NAME, &format!("{NAME}-{name}"), true).await;
    }
    roll_out(world, NAME, 3).await;
    until_condition(world, NAME, "Ready", "True", "Ready").await
}

/// Waits until the condition has this status and reason for the current generation.
pub(crate) async fn until_condition(world: &World, name: &str, type_: &str, status: &str, reason: &str) -> Memcached {
    world
        .until(&format!("{name} is {type_}={status}/{reason}"), async || {
            let memcached: Memcached = world.get(name).await?;
            let found = condition(&memcached, type_)?;
            let current = found.observed_generation == memcached.metadata.generation;
            (current && found.status == status && found.reason == reason).then_some(memcached)
        })
        .await
}

pub(crate) fn condition<'a>(memcached: &'a Memcached, type_: &str) -> Option<&'a Condition> {
    memcached.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}

/// Requests another reconcile of the object, and waits for its end.
pub(crate) async fn reconcile_again(world: &World, name: &str) {
    let token = manager_testing::run_id();
    let annotation = "memcached.cache.example.com/reconcile-requested-at";
    world.patch::<Memcached>(name, json!({"metadata": {"annotations": {annotation: token}}})).await;
    world
        .until("the operator answers the reconcile request", async || {
            let memcached: Memcached = world.get(name).await?;
            (memcached.status?.last_handled_reconcile_at? == token).then_some(())
        })
        .await;
}

pub(crate) fn uid(object: &impl kube::Resource) -> String {
    object.meta().uid.clone().unwrap_or_default()
}

pub(crate) fn names<K: ResourceExt>(objects: &[K]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}

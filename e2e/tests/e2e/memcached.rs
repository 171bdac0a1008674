//! Memcached with real nodes.

use std::time::Duration;

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod, networking::v1::NetworkPolicy, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::util::intstr::IntOrString::Int,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use manager_testing::World;
use memcached_operator::Memcached;
use serde_json::json;

use crate::kit::{set_and_get, world};

const SAMPLE: &str = include_str!("../../../operators/memcached-operator/samples/cache_v1_memcached.yaml");
const NAME: &str = "memcached-sample";

async fn ready(world: &World, size: usize) -> Memcached {
    world
        .until(&format!("{size} nodes are ready"), async || {
            let memcached: Memcached = world.get(NAME).await?;
            let status = memcached.status.as_ref()?;
            let ready = status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
            let current = status.observed_generation == memcached.metadata.generation;
            (ready && current && status.endpoints.len() == size).then_some(memcached)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn t19_real_nodes_cache_and_are_listed() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let memcached = ready(&world, 3).await;
    let status = memcached.status.expect("a status");
    assert_eq!(status.nodes.len(), 3);
    let answers = set_and_get(world.cluster.clone(), status.endpoints.clone()).await;
    let expected: Vec<String> = status.endpoints.iter().map(|address| format!("hello {address}")).collect();
    assert_eq!(answers, expected);

    let lost = status.nodes[0].clone();
    world.api::<Pod>().delete(&lost, &DeleteParams::default()).await.expect("deleted");
    world
        .within(Duration::from_secs(5), "the lost node is not listed", async || {
            let nodes = world.get::<Memcached>(NAME).await?.status?.nodes;
            (!nodes.contains(&lost)).then_some(())
        })
        .await;
    ready(&world, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_killed_at_work_is_replaced_and_goes_on() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let managers: Api<Pod> = Api::namespaced(world.client.clone(), e2e::MANAGER_NAMESPACE);
    let manager = managers.list(&ListParams::default()).await.expect("pods").items;
    for pod in &manager {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        managers.delete(name, &DeleteParams::default().grace_period(0)).await.expect("killed");
    }
    // Its webhooks are away too until there is another.
    let grown = SAMPLE.replace("size: 3", "size: 5");
    world.until("the size is taken", async || world.try_apply(&grown).await.ok()).await;
    ready(&world, 5).await;
    let deployments: Vec<Deployment> = world.list().await;
    assert_eq!(deployments.len(), 1, "nothing was made twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn children_come_change_and_go_with_what_asks_for_them() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let asked = |from: &[&str], most: u8| {
        let from: Vec<_> = from.iter().map(|app| json!({"podSelector": {"matchLabels": {"app": app}}})).collect();
        json!({"spec": {
            "networkPolicy": {"enabled": true, "from": from},
            "podDisruptionBudget": {"mode": "Always", "maxUnavailable": most},
        }})
    };
    world.patch::<Memcached>(NAME, asked(&["shop"], 1)).await;
    let peers = async || {
        let policy: NetworkPolicy = world.get(NAME).await?;
        let rules = policy.spec?.ingress?;
        Some(rules.into_iter().flat_map(|rule| rule.from.unwrap_or_default()).count())
    };
    let most = async || world.get::<PodDisruptionBudget>(NAME).await?.spec?.max_unavailable;
    world
        .until("both are there", async || (peers().await == Some(1) && most().await == Some(Int(1))).then_some(()))
        .await;

    world.patch::<Memcached>(NAME, asked(&["shop", "admin"], 2)).await;
    world
        .until("both have changed", async || (peers().await == Some(2) && most().await == Some(Int(2))).then_some(()))
        .await;

    let neither = json!({"spec": {"networkPolicy": {"enabled": false}, "podDisruptionBudget": {"mode": "Never"}}});
    world.patch::<Memcached>(NAME, neither).await;
    world.until("both are gone", async || (peers().await.is_none() && most().await.is_none()).then_some(())).await;
}

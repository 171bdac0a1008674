//! Acceptance tests of the operator on a real API server, which the test kit starts. It runs no pods.

use gadget_operator::{Gadget, GadgetOperator};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use manager_testing::World;
use serde_json::json;

const SAMPLE: &str = include_str!("../samples/sample.yaml");
const NAME: &str = "gadget-sample";

async fn world() -> Option<World> {
    World::start(&GadgetOperator, env!("CARGO_BIN_EXE_gadget-operator")).await
}

/// Waits for a `ConfigMap` with this text.
async fn child(world: &World, text: &str) -> ConfigMap {
    world
        .until(&format!("a ConfigMap with the text {text:?}"), async || {
            let child: ConfigMap = world.get(NAME).await?;
            (child.data.as_ref()?.get("text")? == text).then_some(child)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_gets_a_config_map_that_follows_it() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let owners = child(&world, "Hello").await.owner_references().to_vec();
    assert_eq!((owners.len(), owners[0].kind.as_str(), owners[0].controller), (1, "Gadget", Some(true)));
    world.until_condition::<Gadget>(NAME, "Ready", "True", "Ready").await;

    world.patch::<Gadget>(NAME, json!({"spec": {"text": "Goodbye"}})).await;
    child(&world, "Goodbye").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_and_deleted_config_maps_are_restored() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let uid = child(&world, "Hello").await.uid();
    world.patch::<ConfigMap>(NAME, json!({"data": {"text": "from another client"}})).await;
    child(&world, "Hello").await;

    world.delete::<ConfigMap>(NAME).await;
    world
        .until("another ConfigMap", async || {
            let child: ConfigMap = world.get(NAME).await?;
            (child.uid() != uid).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_refuses_an_empty_text() {
    let Some(world) = world().await else { return };
    let error = world.try_apply(&SAMPLE.replace("Hello", "''")).await.expect_err("is refused").to_string();
    assert!(error.contains("spec.text"), "{error}");
}

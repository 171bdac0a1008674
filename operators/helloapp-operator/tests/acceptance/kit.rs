//! Helpers of the acceptance tests: the sample, and worlds that run this operator.

use helloapp_operator::{HelloApp, HelloAppOperator};
use manager_testing::World;
use serde_json::{Value, json};

pub(crate) const SAMPLE: &str = include_str!("../../samples/apps_v1_helloapp.yaml");
pub(crate) const NAME: &str = "helloapp-sample";
pub(crate) const IMAGE: &str = "docker.io/nginxinc/nginx-unprivileged:stable";

pub(crate) async fn world() -> Option<World> {
    World::start(&HelloAppOperator, env!("CARGO_BIN_EXE_helloapp-operator")).await
}

/// Like [`world`], but without a running operator.
pub(crate) async fn quiet_world() -> Option<World> {
    let shared = || cluster::Cluster::shared(cluster::Nodes::None);
    World::prepare(&HelloAppOperator, env!("CARGO_BIN_EXE_helloapp-operator"), shared).await
}

pub(crate) fn hello(name: &str, spec: &Value) -> String {
    json!({"apiVersion": "apps.anupam.com/v1", "kind": "HelloApp", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

/// Applies the sample with more fields in its spec, and plays the other controllers until it is ready.
pub(crate) async fn converged(world: &World, more: &Value) -> HelloApp {
    let mut spec = json!({"image": IMAGE, "size": 1});
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let size = spec["size"].as_i64().and_then(|it| i32::try_from(it).ok()).expect("a size");
    world.apply(&hello(NAME, &spec)).await;
    world.until_deployment(NAME, size).await;
    world.roll_out(NAME, size).await;
    world.until_condition(NAME, "Ready", "True", "Ready").await
}

pub(crate) fn uid(object: &impl kube::Resource) -> String {
    object.meta().uid.clone().unwrap_or_default()
}

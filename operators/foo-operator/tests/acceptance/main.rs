//! Acceptance tests of the operator on a real API server. The cluster runs no pods: the tests write the status that the
//! Deployment controller would write.

use foo_operator::{Foo, FooOperator};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use manager_testing::World;
use serde_json::{Value, json};

const SAMPLE: &str = include_str!("../../samples/example-foo.yaml");
const NAME: &str = "example-foo";

async fn world() -> Option<World> {
    World::start(&FooOperator, env!("CARGO_BIN_EXE_foo-operator")).await
}

fn foo(name: &str, spec: &Value) -> String {
    json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

/// Waits for the Deployment to have this number of replicas.
async fn deployment(world: &World, replicas: i32) -> Deployment {
    world
        .until(&format!("a Deployment with {replicas} replicas"), async || {
            let deployment: Deployment = world.get(NAME).await?;
            (deployment.spec.as_ref()?.replicas == Some(replicas)).then_some(deployment)
        })
        .await
}

/// Plays the Deployment controller: reports `available` pods.
async fn roll_out(world: &World, available: i32) {
    let deployment: Deployment = world.get(NAME).await.expect("a Deployment");
    let status = json!({
        "observedGeneration": deployment.metadata.generation, "replicas": available, "updatedReplicas": available,
        "readyReplicas": available, "availableReplicas": available,
    });
    world.patch_status::<Deployment>(NAME, status).await;
}

/// Waits until the status reports this number of available replicas, and returns the reason of `Ready`.
async fn counted(world: &World, available: i32) -> String {
    world
        .until(&format!("{available} available"), async || {
            let status = world.get::<Foo>(NAME).await?.status?;
            let ready = status.conditions.iter().find(|it| it.type_ == "Ready")?;
            (status.available_replicas == available).then(|| ready.reason.clone())
        })
        .await
}

/// Returns the column STATUS of what `kubectl get foo` prints about an object.
fn status_column(world: &World, name: &str) -> String {
    let output =
        world.cluster.kubectl(["get", "foo", name, "--namespace", &world.namespace]).output().expect("kubectl");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, row) = table.trim().split_once('\n').unwrap_or_else(|| panic!("{table}"));
    let column = head.split_whitespace().position(|it| it == "STATUS").unwrap_or_else(|| panic!("{table}"));
    row.split_whitespace().nth(column).unwrap_or_else(|| panic!("{table}")).to_owned()
}

async fn synced(world: &World, name: &str) -> usize {
    world.events(name).await.iter().filter(|(_, reason, _)| reason == "Synced").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_gets_a_deployment_and_its_status_follows() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let child = deployment(&world, 1).await;
    let owners = child.owner_references();
    assert_eq!((owners.len(), owners[0].kind.as_str(), owners[0].controller), (1, "Foo", Some(true)));
    assert_eq!(counted(&world, 0).await, "ReplicasNotReady");
    assert_eq!(status_column(&world, NAME), "ReplicasNotReady");
    assert_eq!(world.until_event(NAME, "Normal", "Synced").await, "Foo synced successfully");

    roll_out(&world, 1).await;
    assert_eq!(counted(&world, 1).await, "Ready");
    assert_eq!(status_column(&world, NAME), "Ready");
    world.patch::<Foo>(NAME, json!({"spec": {"replicas": 2}})).await;
    deployment(&world, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unowned_deployment_is_reported_and_left_alone() {
    let Some(world) = world().await else { return };
    // The unowned Deployment looks exactly like ours. The operator does not take it over, because a Foo never adopts.
    let unowned = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "labels": {
            "app.kubernetes.io/name": "foo", "app.kubernetes.io/instance": NAME, "app.kubernetes.io/managed-by": "foo-operator",
        }},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "nginx", "controller": NAME}},
            "template": {
                "metadata": {"labels": {"app": "nginx", "controller": NAME}},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    });
    let unowned = world.create::<Deployment>(unowned).await;
    world.apply(SAMPLE).await;
    let said = world.until_event(NAME, "Warning", "ErrResourceExists").await;
    assert_eq!(said, "Resource \"example-foo\" already exists and is not managed by Foo");
    let reason = counted(&world, 0).await;
    assert_eq!(reason, "ResourceConflict");
    assert_eq!(status_column(&world, NAME), "ResourceConflict");
    let untouched: Deployment = world.get(NAME).await.expect("the unowned Deployment");
    assert_eq!(untouched.resource_version(), unowned.resource_version());
    assert_eq!(synced(&world, NAME).await, 0);

    world.delete::<Deployment>(NAME).await;
    deployment(&world, 1).await;
    world.until_event(NAME, "Normal", "Synced").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_of_two_foos_keeps_the_deployment() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let child = deployment(&world, 1).await;
    world.apply(&foo("second", &json!({"deploymentName": NAME, "replicas": 5}))).await;
    world.until_event("second", "Warning", "ErrResourceExists").await;
    let after = deployment(&world, 1).await;
    assert_eq!(after.resource_version(), child.resource_version());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_deployment_is_recreated() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let uid = deployment(&world, 1).await.uid();
    world.delete::<Deployment>(NAME).await;
    world
        .until("another Deployment", async || {
            let deployment: Deployment = world.get(NAME).await?;
            (deployment.uid() != uid).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unset_replicas_are_not_reverted() {
    let Some(world) = world().await else { return };
    world.apply(&foo(NAME, &json!({"deploymentName": NAME}))).await;
    deployment(&world, 1).await;
    world.patch::<Deployment>(NAME, json!({"spec": {"replicas": 4}})).await;
    roll_out(&world, 4).await;
    assert_eq!(counted(&world, 4).await, "Ready");
    deployment(&world, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_rejects_what_upstream_rejects() {
    let Some(world) = world().await else { return };
    for (spec, says) in [
        (json!({"deploymentName": "a", "replicas": 11}), "should be less than or equal to 10"),
        (json!({"deploymentName": "a", "replicas": -1}), "should be greater than or equal to 0"),
        (json!({"deploymentName": ""}), "spec.deploymentName"),
        (json!({"deploymentName": "Capital"}), "deploymentName must consist of lower case letters"),
        (json!({"replicas": 1}), "spec.deploymentName: Required value"),
    ] {
        let error = world.try_apply(&foo("refused", &spec)).await.expect_err("is refused").to_string();
        assert!(error.contains(says), "{spec}: {error}");
    }
    world.apply(&foo("zero", &json!({"deploymentName": "zero", "replicas": 0}))).await;
    let renamed = world.try_apply(&foo("zero", &json!({"deploymentName": "other", "replicas": 0}))).await;
    let error = renamed.expect_err("is refused").to_string();
    assert!(error.contains("deploymentName cannot be changed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn misspelt_field_is_pruned() {
    let Some(world) = world().await else { return };
    let misspelt = json!({
        "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": "a"},
        "spec": {"deploymentName": "a", "Replicas": 3},
    });
    let stored = world.create::<Foo>(misspelt).await;
    assert_eq!(stored.spec.replicas, None);
}

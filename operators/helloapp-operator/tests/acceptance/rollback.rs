//! `rollback: OnStall`: the operator replaces a release that does not become available by the last one that did.

use helloapp_operator::HelloApp;
use k8s_openapi::api::apps::v1::Deployment;
use manager_testing::{World, condition};
use serde_json::json;

use crate::kit::{IMAGE, NAME, converged, world};

async fn until_image(world: &World, image: &str) {
    world
        .until(&format!("the Deployment runs {image}"), async || {
            let deployment: Deployment = world.get(NAME).await?;
            let found = deployment.spec?.template.spec?.containers.first()?.image.clone()?;
            (found == image).then_some(())
        })
        .await;
}

/// Releases an image that does not start, and plays the Deployment controller until it reports a stalled rollout.
async fn release_and_stall(world: &World, image: &str) {
    world.patch::<HelloApp>(NAME, json!({"spec": {"image": image}})).await;
    until_image(world, image).await;
    let status = json!({
        "replicas": 4, "updatedReplicas": 1, "readyReplicas": 3, "availableReplicas": 3,
        "conditions": [{
            "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "has timed out",
        }],
    });
    world.deployment_status(NAME, status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_release_is_rolled_back_until_the_spec_changes() {
    let Some(mut world) = world().await else { return };
    converged(&world, &json!({"size": 3, "rollback": "OnStall"})).await;
    let good: Deployment = world.get(NAME).await.expect("a Deployment");

    release_and_stall(&world, "example.com/hello:bad").await;
    world.until_event(NAME, "Warning", "RolloutStalled").await;
    until_image(&world, IMAGE).await;
    let rolled_back: Deployment = world.get(NAME).await.expect("a Deployment");
    assert_eq!(rolled_back.spec.map(|it| it.template), good.spec.map(|it| it.template));
    world.roll_out(NAME, 3).await;
    let told = world.until_condition::<HelloApp>(NAME, "Degraded", "True", "RolledBack").await;
    let message = &condition(&told, "Degraded").expect("Degraded").message;
    assert!(
        message.contains("change spec.image or another field of the pods to try again")
            && message.contains("has timed out"),
        "{message}"
    );
    assert_eq!(condition(&told, "Ready").map(|it| it.status.as_str()), Some("False"));
    assert_eq!(condition(&told, "Available").map(|it| it.status.as_str()), Some("True"));
    assert_eq!(told.spec.image, "example.com/hello:bad", "the operator does not change spec");
    assert_eq!(&world.until_event(NAME, "Warning", "RolledBack").await, message);
    let warnings: Vec<_> = world.events(NAME).await.into_iter().filter(|it| it.0 == "Warning").collect();
    assert_eq!(warnings.len(), 2, "the operator's own rollback is not drift: {warnings:?}");

    // An autoscaler may change the size: that does not try the bad release again.
    world.patch::<HelloApp>(NAME, json!({"spec": {"size": 4}})).await;
    world.until_deployment(NAME, 4).await;
    world.roll_out(NAME, 4).await;
    until_image(&world, IMAGE).await;
    world.until_condition::<HelloApp>(NAME, "Degraded", "True", "RolledBack").await;

    // A restart loses no decision, and a converged object still causes no write.
    world.restart();
    world.reconcile_again::<HelloApp>(NAME).await;
    let settled = world.requests();
    world.reconcile_again::<HelloApp>(NAME).await;
    assert_eq!(world.requests().since(&settled).written(), ["patch helloapps/status"]);
    until_image(&world, IMAGE).await;

    world.patch::<HelloApp>(NAME, json!({"spec": {"image": "example.com/hello:fixed"}})).await;
    until_image(&world, "example.com/hello:fixed").await;
    world.roll_out(NAME, 4).await;
    let cured = world.until_condition::<HelloApp>(NAME, "Ready", "True", "Ready").await;
    let status = cured.status.expect("a status");
    assert_eq!(status.rolled_back, None);
    assert!(status.last_available_template.expect("a template").contains("example.com/hello:fixed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_operator_still_rolls_back() {
    let Some(mut world) = world().await else { return };
    converged(&world, &json!({"size": 3, "rollback": "OnStall"})).await;
    world.patch::<HelloApp>(NAME, json!({"spec": {"image": "example.com/hello:bad"}})).await;
    until_image(&world, "example.com/hello:bad").await;
    world.operator = None;
    release_and_stall(&world, "example.com/hello:bad").await;
    for _ in 0..3 {
        world.restart();
        tokio::task::yield_now().await;
    }
    until_image(&world, IMAGE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_release_is_not_rolled_back_by_default() {
    let Some(world) = world().await else { return };
    converged(&world, &json!({"size": 3})).await;
    release_and_stall(&world, "example.com/hello:bad").await;
    world.until_condition::<HelloApp>(NAME, "Degraded", "True", "RolloutStalled").await;
    for _ in 0..3 {
        world.reconcile_again::<HelloApp>(NAME).await;
    }
    until_image(&world, "example.com/hello:bad").await;
    let status = world.get::<HelloApp>(NAME).await.and_then(|it| it.status).expect("a status");
    assert_eq!((status.last_available_template, status.rolled_back), (None, None));
}

//! The status, its conditions and the events of a HelloApp.

use helloapp_operator::HelloApp;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use manager_testing::{World, condition};
use serde_json::{Value, json};

use crate::kit::{IMAGE, NAME, SAMPLE, converged, hello, world};

const POD: &str = "helloapp-sample-7d4b9c6f5-x2x8q";

/// Applies the sample, and creates one pod that waits for this reason.
async fn waiting(world: &World, reason: &str, message: &str) {
    world.apply(SAMPLE).await;
    let deployment = world.until_deployment(NAME, 1).await;
    world.make_pod(&deployment, POD).await;
    world.container_state(POD, json!({"waiting": {"reason": reason, "message": message}})).await;
}

/// Waits for a problem, checks its message and that `Ready` has the same reason. Then lets the pod run, and waits until the
/// problem is gone.
async fn until_reported_and_cleared(world: &World, reason: &str, message: &str) {
    let told = world.until_condition::<HelloApp>(NAME, "Degraded", "True", reason).await;
    assert_eq!(condition(&told, "Degraded").map(|it| it.message.as_str()), Some(message));
    assert_eq!(condition(&told, "Ready").map(|it| it.reason.as_str()), Some(reason));
    world.container_state(POD, json!({"running": {}})).await;
    world.roll_out(NAME, 1).await;
    let healed = world.until_condition::<HelloApp>(NAME, "Ready", "True", "Ready").await;
    assert_eq!(condition(&healed, "Degraded").map(|it| it.reason.as_str()), Some("AsExpected"));
}

#[tokio::test(flavor = "multi_thread")]
async fn t10_root_image_is_reported_and_fixed_by_the_profile() {
    let Some(world) = world().await else { return };
    let refusal = "container has runAsNonRoot and image will run as root (pod: \"x\", container: app)";
    waiting(&world, "CreateContainerConfigError", refusal).await;
    let told = world.until_condition::<HelloApp>(NAME, "Degraded", "True", "ImageRunsAsRoot").await;
    let message = format!(
        "image \"{IMAGE}\" runs as root; use an image with a numeric non-root user, set spec.runAsUser, or set \
         spec.securityProfile: Baseline"
    );
    assert_eq!(condition(&told, "Degraded").map(|it| &it.message), Some(&message));
    assert_eq!(world.until_event(NAME, "Warning", "ImageRunsAsRoot").await, message);

    world.patch::<HelloApp>(NAME, json!({"spec": {"securityProfile": "Baseline"}})).await;
    world
        .until("the template follows", async || {
            let pod = world.get::<Deployment>(NAME).await?.spec?.template.spec?;
            pod.security_context?.run_as_non_root.is_none().then_some(())
        })
        .await;
    // The rollout replaces the pod.
    world.delete::<Pod>(POD).await;
    world.roll_out(NAME, 1).await;
    world.until_condition::<HelloApp>(NAME, "Ready", "True", "Ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_image_is_reported_and_clears() {
    let Some(world) = world().await else { return };
    waiting(&world, "ImagePullBackOff", "not found").await;
    let message = format!("Pod {POD}: cannot pull image \"{IMAGE}\": not found");
    until_reported_and_cleared(&world, "ImagePullFailed", &message).await;
    assert_eq!(world.until_event(NAME, "Warning", "ImagePullFailed").await, message);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_secret_key_is_reported_without_reading_it() {
    let Some(world) = world().await else { return };
    waiting(&world, "CreateContainerConfigError", "couldn't find key url in Secret test/database").await;
    let message = "Secret \"database\" has no key \"url\"";
    until_reported_and_cleared(&world, "SecretNotFound", message).await;
    assert_eq!(world.until_event(NAME, "Warning", "SecretNotFound").await, message);
    assert_eq!(world.requests().count("get secrets"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_refused_by_quota_are_reported_and_recover() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    world.until_deployment(NAME, 1).await;
    let refused =
        format!("pods \"{POD}\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1");
    let failure = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refused});
    world.deployment_status(NAME, json!({"conditions": [failure]})).await;
    let told = world.until_condition::<HelloApp>(NAME, "Degraded", "True", "QuotaExceeded").await;
    assert_eq!(
        condition(&told, "Degraded").map(|it| it.message.as_str()),
        Some(
            "pods cannot be created: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1; raise the \
             quota or request less"
        )
    );
    world.roll_out(NAME, 1).await;
    world.until_condition::<HelloApp>(NAME, "Ready", "True", "Ready").await;
}

fn stalled(total: i32, ready: i32) -> Value {
    json!({
        "replicas": total, "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready,
        "conditions": [{
            "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "has timed out",
        }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_stalled_rollout_emits_one_event() {
    let Some(world) = world().await else { return };
    converged(&world, &json!({"rollout": {"progressDeadlineSeconds": 60}})).await;
    world.patch::<HelloApp>(NAME, json!({"spec": {"image": "example.com/hello:2"}})).await;
    world.until_event(NAME, "Normal", "RolloutStarted").await;
    world.deployment_status(NAME, stalled(2, 1)).await;
    let told = world.until_condition::<HelloApp>(NAME, "Degraded", "True", "RolloutStalled").await;
    let message = "Rollout made no progress for 60s: has timed out";
    assert_eq!(condition(&told, "Degraded").map(|it| it.message.as_str()), Some(message));
    assert_eq!(condition(&told, "Available").map(|it| it.status.as_str()), Some("True"), "the old pod serves");
    assert_eq!(world.until_event(NAME, "Warning", "RolloutStalled").await, message);
    for _ in 0..3 {
        world.reconcile_again::<HelloApp>(NAME).await;
    }
    let events = world.events(NAME).await;
    assert_eq!(events.iter().filter(|event| event.1 == "RolloutStalled").count(), 1, "{events:?}");
    assert_eq!(
        world.get::<HelloApp>(NAME).await.and_then(|it| it.status?.image).as_deref(),
        Some(IMAGE),
        "the image that is fully rolled out"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn size_zero_is_ready() {
    let Some(world) = world().await else { return };
    converged(&world, &json!({"port": 8080})).await;
    world.patch::<HelloApp>(NAME, json!({"spec": {"size": 0}})).await;
    world.until_deployment(NAME, 0).await;
    world.roll_out(NAME, 0).await;
    let told = world.until_condition::<HelloApp>(NAME, "Ready", "True", "ScaledToZero").await;
    assert!(told.status.and_then(|it| it.url).is_some(), "the address stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_object_is_not_reconciled() {
    let Some(world) = world().await else { return };
    converged(&world, &json!({})).await;
    let paused = "apps.anupam.com/paused";
    world.patch::<HelloApp>(NAME, json!({"metadata": {"annotations": {paused: "true"}}, "spec": {"size": 5}})).await;
    world.until_condition::<HelloApp>(NAME, "Ready", "Unknown", "Paused").await;
    assert_eq!(world.get::<Deployment>(NAME).await.and_then(|it| it.spec?.replicas), Some(1));
    world.roll_out(NAME, 0).await;
    let shown = async || (world.get::<HelloApp>(NAME).await?.status?.ready_replicas == 0).then_some(());
    world.until("the status shows that no pod is ready", shown).await;
    world.until_condition::<HelloApp>(NAME, "Available", "False", "NoReadyReplicas").await;
    world.patch::<HelloApp>(NAME, json!({"metadata": {"annotations": {paused: null}}})).await;
    world.until_deployment(NAME, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_environment_variables_are_accepted() {
    let Some(world) = world().await else { return };
    let env: Vec<Value> = (0..100).map(|n| json!({"name": format!("A{n}"), "value": "x".repeat(100)})).collect();
    world.apply(&hello(NAME, &json!({"image": IMAGE, "env": env}))).await;
    let deployment = world.until_deployment(NAME, 1).await;
    let container = deployment.spec.and_then(|it| it.template.spec).expect("a pod").containers.remove(0);
    assert_eq!(container.env.map(|it| it.len()), Some(100));
}

//! Tests of `HelloApp` with real pods: it answers, it scales, it reports problems, and it recovers when they are fixed.

use std::time::{Duration, Instant};

use helloapp_operator::HelloApp;
use installation::TESTBOX;
use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{ConfigMap, Node, Pod, ResourceQuota, Secret, Service},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams, Patch, PatchParams},
};
use manager_testing::{World, condition};
use serde_json::{Value, json};

use crate::kit::{app_is_ready, world, world_with_testbox};

const SAMPLE: &str = include_str!("../../../operators/helloapp-operator/samples/apps_v1_helloapp.yaml");
const NAME: &str = "helloapp-sample";

pub(crate) async fn apply(world: &World, name: &str, spec: Value) {
    let object =
        json!({"apiVersion": "apps.anupam.com/v1", "kind": "HelloApp", "metadata": {"name": name}, "spec": spec});
    world.apply(&object.to_string()).await;
}

/// Waits until the app is `Degraded` with this reason, and returns the condition's message.
pub(crate) async fn degraded(world: &World, name: &str, reason: &str) -> String {
    // For some reasons, Kubernetes itself takes half a minute.
    world
        .within(Duration::from_mins(3), &format!("{name} is Degraded/{reason}"), async || {
            let app: HelloApp = world.get(name).await?;
            let found = condition(&app, "Degraded").filter(|it| it.status == "True" && it.reason == reason)?;
            Some(found.message.clone())
        })
        .await
}

/// Runs one command in a separate pod, and returns its output.
async fn run_in_a_pod(world: &World, name: &str, command: &[&str]) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "OnFailure", // the address may not be resolvable at first
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "box", "image": TESTBOX, "args": command, "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            }}],
        },
    });
    world.create::<Pod>(pod).await;
    world
        .until("the command succeeds", async || {
            (world.get::<Pod>(name).await?.status?.phase? == "Succeeded").then_some(())
        })
        .await;
    world.api::<Pod>().logs(name, &LogParams::default()).await.expect("logs")
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_runs_one_pod_of_its_image() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let app = app_is_ready(&world, NAME).await;
    let status = app.status.expect("a status");
    assert_eq!((status.ready_replicas, status.url), (1, None));
    assert_eq!(status.image.as_deref(), Some(&*app.spec.image));
    let pods = world.list::<Pod>().await;
    assert_eq!(pods.len(), 1);
    assert!(pods[0].name_any().starts_with("helloapp-sample-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_url_follows_service_port() {
    let Some(world) = world().await else { return };
    let image = "docker.io/nginxinc/nginx-unprivileged:stable";
    apply(&world, "web", json!({"image": image, "port": 8080})).await;
    let url = async || world.get::<HelloApp>("web").await?.status?.url;
    world.until("it has an address", url).await;
    world.patch::<HelloApp>("web", json!({"spec": {"service": {"port": 8081}}})).await;
    world.until("the address has changed", async || url().await.filter(|it| it.contains(":8081"))).await;
    world.patch::<HelloApp>("web", json!({"spec": {"port": null, "service": null}})).await;
    world.until("the address is gone", async || url().await.is_none().then_some(())).await;
    assert!(world.get::<Service>("web").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn t15_app_answers_on_its_url_from_another_pod() {
    let Some(world) = world_with_testbox().await else { return };
    // This server answers with the name of its pod.
    let serve = json!(["serve", "--port", "8080"]);
    let app = json!({"image": TESTBOX, "args": serve, "size": 2, "port": 8080, "probe": {"path": "/"}});
    apply(&world, "web", app).await;
    let url = app_is_ready(&world, "web").await.status.and_then(|it| it.url).expect("an address");
    let answer = run_in_a_pod(&world, "client", &["get", &url]).await;
    assert!(answer.contains("web-"), "the answer lacks the host name of a pod: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t05_autoscaler_size_is_not_reverted() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    app_is_ready(&world, NAME).await;
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": NAME},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps.anupam.com/v1", "kind": "HelloApp", "name": NAME},
            "minReplicas": 3, "maxReplicas": 5,
        },
    });
    world.create::<HorizontalPodAutoscaler>(autoscaler).await;
    // The autoscaler runs every 15 s, and may take long to find new objects.
    let raised = world
        .within(Duration::from_mins(3), "the autoscaler raises the size", async || {
            world.get::<HelloApp>(NAME).await.filter(|app| app.spec.size == 3)
        })
        .await;
    app_is_ready(&world, NAME).await;
    for _ in 0..3 {
        world.reconcile_again::<HelloApp>(NAME).await;
    }
    let app: HelloApp = world.get(NAME).await.expect("the app");
    assert_eq!(
        (app.spec.size, app.metadata.generation),
        (3, raised.metadata.generation),
        "the operator changed the size back"
    );
    let deployment: Deployment = world.get(NAME).await.expect("a Deployment");
    assert_eq!(deployment.spec.and_then(|it| it.replicas), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn t10_image_running_as_root_is_reported_and_fixed() {
    let Some(world) = world().await else { return };
    let image = "docker.io/library/busybox:1.36";
    let sleep = json!(["sleep", "1h"]);
    apply(&world, "root", json!({"image": image, "command": sleep})).await;
    assert_eq!(
        degraded(&world, "root", "ImageRunsAsRoot").await,
        format!(
            "image \"{image}\" runs as root; use an image with a numeric non-root user, set spec.runAsUser, or set \
             spec.securityProfile: Baseline"
        )
    );
    apply(&world, "root", json!({"image": image, "command": sleep, "runAsUser": 101})).await;
    app_is_ready(&world, "root").await;

    // This namespace enforces the restricted standard. It refuses the other fix, and the condition reports that too.
    apply(&world, "root", json!({"image": image, "command": sleep, "securityProfile": "Baseline"})).await;
    let message = degraded(&world, "root", "ChildRejected").await;
    assert!(message.contains("violates PodSecurity"), "{message}");
    let available: HelloApp = world.get("root").await.expect("the app");
    assert_eq!(
        condition(&available, "Available").map(|it| it.status.as_str()),
        Some("True"),
        "the old pod no longer serves"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_dependency_is_reported_until_it_exists() {
    let Some(world) = world_with_testbox().await else { return };
    let sleep = json!(["sleep", "1h"]);
    let from = |source: Value| json!([{"name": "GREETING", "valueFrom": source}]);
    let config_map = from(json!({"configMapKeyRef": {"name": "settings", "key": "greeting"}}));
    let secret = from(json!({"secretKeyRef": {"name": "database", "key": "url"}}));
    let label = world.namespace.clone();
    apply(&world, "config", json!({"image": TESTBOX, "args": sleep, "env": config_map})).await;
    apply(&world, "secret", json!({"image": TESTBOX, "args": sleep, "env": secret})).await;
    let files = json!([{"name": "files", "secret": {"secretName": "files"}}]);
    let mounts = json!([{"name": "files", "mountPath": "/files"}]);
    apply(&world, "files", json!({"image": TESTBOX, "args": sleep, "volumes": files, "volumeMounts": mounts})).await;
    apply(&world, "nowhere", json!({"image": TESTBOX, "args": sleep, "nodeSelector": {(label.clone()): "yes"}})).await;

    assert_eq!(degraded(&world, "config", "SecretNotFound").await, "ConfigMap \"settings\" not found");
    assert_eq!(degraded(&world, "secret", "SecretNotFound").await, "Secret \"database\" not found");
    let message = degraded(&world, "nowhere", "Unschedulable").await;
    assert!(message.contains("node affinity/selector"), "{message}");
    let event = world.until_event("nowhere", "Warning", "Unschedulable").await;
    assert!(event.contains("node affinity/selector"), "{event}");
    let message = degraded(&world, "files", "PodsNotStarting").await;
    assert!(message.contains("every Secret and ConfigMap that it mounts must exist"), "{message}");
    world.until_event("files", "Warning", "PodsNotStarting").await;

    let named = |kind: &str, name: &str, data: Value| {
        let field = if kind == "Secret" { "stringData" } else { "data" };
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, field: data})
    };
    world.create::<ConfigMap>(named("ConfigMap", "settings", json!({"other": "x"}))).await;
    let no_key = "ConfigMap \"settings\" has no key \"greeting\"";
    world
        .until("the condition names the missing key", async || {
            (degraded(&world, "config", "SecretNotFound").await == no_key).then_some(())
        })
        .await;
    world.patch::<ConfigMap>("settings", json!({"data": {"greeting": "hello"}})).await;
    world.create::<Secret>(named("Secret", "database", json!({"url": "x"}))).await;
    world.create::<Secret>(named("Secret", "files", json!({"a": "b"}))).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let nodes_now = nodes.list(&ListParams::default()).await.expect("nodes").items;
    let node = nodes_now.iter().find(|node| takes_pods(node)).expect("a node that takes pods").name_any();
    let patch = json!({"metadata": {"labels": {(label.clone()): "yes"}}});
    nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("labelled");
    for name in ["config", "secret", "nowhere"] {
        app_is_ready(&world, name).await;
    }
    // The kubelet retries to mount a volume after up to two minutes.
    world
        .within(Duration::from_mins(4), "the volume is mounted", async || {
            let app: HelloApp = world.get("files").await?;
            condition(&app, "Ready").filter(|it| it.status == "True").map(drop)
        })
        .await;
    let patch = json!({"metadata": {"labels": {label: null}}});
    nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("no longer labelled");
}

/// Whether the scheduler gives pods without tolerations to the node. The first node of many clusters is that of the control plane,
/// which takes none.
fn takes_pods(node: &Node) -> bool {
    let spec = node.spec.clone().unwrap_or_default();
    let repels = spec.taints.unwrap_or_default().iter().any(|taint| taint.effect != "PreferNoSchedule");
    !repels && spec.unschedulable != Some(true)
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_release_is_reported_and_next_one_recovers() {
    let Some(world) = world_with_testbox().await else { return };
    let good = json!({"image": TESTBOX, "args": ["sleep", "1h"]});
    let missing = "localhost/no-such-image:1";
    apply(&world, "missing", json!({"image": missing})).await;
    apply(&world, "crashing", json!({"image": TESTBOX, "args": ["exit", "3"]})).await;
    apply(&world, "unstartable", json!({"image": TESTBOX, "command": ["/nope"]})).await;
    let message = degraded(&world, "missing", "ImagePullFailed").await;
    assert!(message.contains(&format!("cannot pull image \"{missing}\": ")), "{message}");
    let message = degraded(&world, "crashing", "CrashLooping").await;
    assert!(message.contains("container app exited ") && message.contains(" times, last with code 3"), "{message}");
    let message = degraded(&world, "unstartable", "PodsNotStarting").await;
    assert!(message.contains("/nope"), "{message}");
    for name in ["missing", "crashing", "unstartable"] {
        apply(&world, name, good.clone()).await;
    }
    for name in ["missing", "crashing", "unstartable"] {
        let healed = app_is_ready(&world, name).await;
        assert_eq!(condition(&healed, "Degraded").map(|it| it.status.as_str()), Some("False"));
    }
}

/// The kubelet starts the program again and again, and each start is progress to the Deployment controller.
#[tokio::test(flavor = "multi_thread")]
async fn release_that_crashes_is_rolled_back_when_its_time_is_over() {
    let Some(world) = world_with_testbox().await else { return };
    let release = |args: &[&str]| {
        let rollout = json!({"progressDeadlineSeconds": 60});
        json!({"image": TESTBOX, "args": args, "rollback": "OnStall", "rollout": rollout})
    };
    let (good, crashing) = (["sleep", "1h"], ["exit", "3"]);
    apply(&world, "web", release(&good)).await;
    let app = app_is_ready(&world, "web").await;
    let template = app.status.and_then(|it| it.last_available_template).expect("a template to return to");
    assert!(template.contains("1h"), "{template}");

    let begun = Instant::now();
    apply(&world, "web", release(&crashing)).await;
    // 60 s, 30 s until a pod without a probe is available, and 10 s more; the rest is for a busy machine.
    let rolled_back = world
        .within(Duration::from_mins(4), "the release is rolled back", async || {
            let app: HelloApp = world.get("web").await?;
            condition(&app, "Degraded").is_some_and(|it| it.reason == "RolledBack").then_some(app)
        })
        .await;
    // The Deployment controller rounds times down to seconds.
    assert!(begun.elapsed() >= Duration::from_secs(59), "too early: {:?}", begun.elapsed());
    let message = condition(&rolled_back, "Degraded").map(|it| it.message.clone()).unwrap_or_default();
    assert!(message.contains("last with code 3"), "{message}");
    assert_eq!(condition(&rolled_back, "Available").map(|it| it.status.as_str()), Some("True"), "the old pod serves");
    assert_eq!(rolled_back.spec.args, crashing, "the operator does not change the spec");
    let args = async || -> Option<Vec<String>> {
        let deployment: Deployment = world.get("web").await?;
        deployment.spec?.template.spec?.containers.first()?.args.clone()
    };
    world.until("the Deployment has the old program", async || args().await.filter(|it| *it == good)).await;

    apply(&world, "web", release(&["sleep", "2h"])).await;
    let app = app_is_ready(&world, "web").await;
    assert_eq!(app.status.and_then(|it| it.rolled_back), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn exceeded_quota_is_reported_and_app_recovers() {
    let Some(world) = world_with_testbox().await else { return };
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}, "spec": {"hard": {"pods": "1"}},
    });
    world.create::<ResourceQuota>(quota).await;
    world
        .until("the quota has its usage", async || {
            world.get::<ResourceQuota>("pods").await?.status?.used?.contains_key("pods").then_some(())
        })
        .await;
    apply(&world, "many", json!({"image": TESTBOX, "args": ["sleep", "1h"], "size": 2})).await;
    let message = degraded(&world, "many", "QuotaExceeded").await;
    assert!(message.starts_with("pods cannot be created: exceeded quota: pods, "), "{message}");
    world.delete::<ResourceQuota>("pods").await;
    world
        .within(Duration::from_mins(5), "the ReplicaSet has tried again", async || {
            let app: HelloApp = world.get("many").await?;
            condition(&app, "Ready").filter(|it| it.status == "True").map(drop)
        })
        .await;
}

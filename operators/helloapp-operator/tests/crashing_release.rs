//! A release whose program crashes soon after each start, without a probe that would notice or with one that succeeds for a moment:
//! the operator never calls it good and, if the spec wants it, restores the last good one. In paused time, with a stand-in for the
//! Deployment controller.

use std::time::Duration;

use helloapp_operator::{HelloApp, HelloAppOperator};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager_testing::InMemory;
use serde_json::{Value, json};

const NAME: &str = "web";
const GOOD: &str = "localhost/web:good";
const CRASHING: &str = "localhost/web:crashing";
/// The crashing program runs for 5 of 20 seconds.
const RUNS: u64 = 5;
const PERIOD: u64 = 20;

async fn apply(memory: &InMemory, image: &str, size: i32, rollback: &str) {
    let rollout = json!({"maxSurge": "100%", "maxUnavailable": 0, "progressDeadlineSeconds": 60});
    apply_spec(memory, &json!({"image": image, "size": size, "rollback": rollback, "rollout": rollout})).await;
}

async fn apply_spec(memory: &InMemory, spec: &Value) {
    let api: Api<HelloApp> = Api::namespaced(memory.model.client(), "default");
    let object =
        json!({"apiVersion": "apps.anupam.com/v1", "kind": "HelloApp", "metadata": {"name": NAME}, "spec": spec});
    api.patch(NAME, &PatchParams::apply("kubectl").force(), &Patch::Apply(&object)).await.expect("applied");
}

fn deployment(memory: &InMemory) -> Value {
    memory.model.object("deployments.apps", "default", NAME).expect("a Deployment")
}

fn image(memory: &InMemory) -> String {
    deployment(memory)["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned()
}

fn status(memory: &InMemory) -> Value {
    let object = memory.model.object("helloapps.apps.anupam.com", "default", NAME).expect("a HelloApp");
    object["status"].clone()
}

/// Whether the condition `Ready` is `True`.
fn is_ready(memory: &InMemory) -> bool {
    let conditions = status(memory)["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// The reason of the condition `Degraded`.
fn degraded(memory: &InMemory) -> Option<Value> {
    let conditions = status(memory)["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|it| it["type"] == "Degraded").map(|it| it["reason"].clone())
}

fn remembers(memory: &InMemory, image: &str) -> bool {
    status(memory)["lastAvailableTemplate"].as_str().is_some_and(|it| it.contains(image))
}

/// Returns the messages of the events with this reason.
fn notes(memory: &InMemory, reason: &str) -> Vec<String> {
    let events = memory.model.objects("events.events.k8s.io").into_iter().filter(|event| event["reason"] == reason);
    events.filter_map(|event| event["note"].as_str().map(str::to_owned)).collect()
}

/// A stand-in for the Deployment controller and the kubelet: all pods of a template start together.
#[derive(Default)]
struct Cluster {
    second: u64,
    image: String,
    /// When the present pods started.
    started: u64,
    /// When the Deployment controller last observed progress. More ready pods are progress to it, also after a crash.
    renewed: u64,
    is_ready: bool,
    is_complete: bool,
}

impl Cluster {
    /// Plays this many seconds.
    async fn play(&mut self, memory: &mut InMemory, seconds: u64) {
        for _ in 0..seconds {
            self.tick(memory);
            memory.pass(Duration::from_secs(1)).await;
            self.second += 1;
        }
    }

    fn tick(&mut self, memory: &InMemory) {
        let mut live = deployment(memory);
        let spec = live["spec"].clone();
        let size = spec["replicas"].as_u64().expect("a size");
        if image(memory) != self.image {
            (self.image, self.started, self.renewed) = (image(memory), self.second, self.second);
            (self.is_ready, self.is_complete) = (false, false);
        }
        let age = self.second - self.started;
        let runs_for = if self.image == CRASHING { age % PERIOD } else { age };
        let is_ready = self.image != CRASHING || runs_for < RUNS;
        let is_available = is_ready && runs_for >= spec["minReadySeconds"].as_u64().unwrap_or(0);
        let deadline = spec["progressDeadlineSeconds"].as_u64().expect("a deadline");
        if is_ready && !self.is_ready {
            self.renewed = self.second;
        }
        self.is_ready = is_ready;
        self.is_complete |= is_available; // the controller does not watch a completed rollout any more
        let (is, reason) = match () {
            () if self.is_complete => ("True", "NewReplicaSetAvailable"),
            () if self.second - self.renewed > deadline => ("False", "ProgressDeadlineExceeded"),
            () => ("True", "ReplicaSetUpdated"),
        };
        let count = |holds: bool| if holds { size } else { 0 };
        let status = json!({
            "observedGeneration": live["metadata"]["generation"], "replicas": size, "updatedReplicas": size,
            "readyReplicas": count(is_ready), "availableReplicas": count(is_available),
            "conditions": [{"type": "Progressing", "status": is, "reason": reason, "message": "stuck"}],
        });
        if live["status"] != status {
            live["status"] = status;
            memory.model.put(live);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn release_that_crashes_soon_after_each_start_is_never_good_and_is_rolled_back() {
    let mut memory = InMemory::new(&HelloAppOperator, &[]);
    apply(&memory, GOOD, 2, "OnStall").await;
    memory.start();
    memory.until_quiet().await;
    let mut cluster = Cluster::default();
    cluster.play(&mut memory, 20).await;
    assert_eq!(status(&memory)["lastAvailableTemplate"], Value::Null, "a start alone proves nothing");
    cluster.play(&mut memory, 20).await;
    assert!(remembers(&memory, GOOD));

    apply(&memory, CRASHING, 2, "OnStall").await;
    memory.pass(Duration::from_secs(1)).await;
    assert_eq!(image(&memory), CRASHING);
    cluster.play(&mut memory, 55).await;
    assert_eq!(notes(&memory, "RolloutFinished"), [""; 0], "a rollout whose pods crash has not finished");
    assert!(remembers(&memory, GOOD));
    cluster.play(&mut memory, 100).await;
    assert_eq!(image(&memory), GOOD);
    assert_eq!(degraded(&memory), Some(json!("RolledBack")));
    let finished = notes(&memory, "RolloutFinished");
    let last = finished.last().map(String::as_str).unwrap_or_default();
    assert!(last.starts_with("All 2 replicas updated in ") && last.ends_with("; still RolledBack"), "{finished:?}");

    // An autoscaler changes the size again and again.
    for size in [3, 5, 2] {
        apply(&memory, CRASHING, size, "OnStall").await;
        cluster.play(&mut memory, 100).await;
        assert_eq!(
            (image(&memory).as_str(), deployment(&memory)["spec"]["replicas"].as_i64()),
            (GOOD, Some(size.into()))
        );
    }
    assert_eq!(degraded(&memory), Some(json!("RolledBack")));
}

#[tokio::test(start_paused = true)]
async fn app_without_a_probe_is_ready_after_its_time_and_never_while_it_crashes() {
    let mut memory = InMemory::new(&HelloAppOperator, &[]);
    apply(&memory, GOOD, 1, "Never").await;
    memory.start();
    memory.until_quiet().await;
    let mut cluster = Cluster::default();
    cluster.play(&mut memory, 9).await;
    assert_eq!(
        (&status(&memory)["readyReplicas"], is_ready(&memory)),
        (&json!(1), false),
        "a start alone proves nothing"
    );
    cluster.play(&mut memory, 10).await;
    assert!(is_ready(&memory), "{}", status(&memory));

    apply(&memory, CRASHING, 1, "Never").await;
    memory.pass(Duration::from_secs(1)).await;
    for second in 0..120 {
        cluster.play(&mut memory, 1).await;
        assert!(!is_ready(&memory), "after {second} s: {}", status(&memory));
    }
    assert_eq!(status(&memory)["image"], GOOD, "the last image that all pods ran");
    assert_eq!((degraded(&memory), image(&memory).as_str()), (Some(json!("RolloutStalled")), CRASHING));
}

/// Its pods are ready after each start, but never for `minReadySeconds`.
#[tokio::test(start_paused = true)]
async fn release_whose_probe_succeeds_for_a_moment_after_each_start_is_rolled_back() {
    let mut memory = InMemory::new(&HelloAppOperator, &[]);
    let spec = |image: &str| {
        let rollout =
            json!({"maxSurge": "100%", "maxUnavailable": 0, "minReadySeconds": 30, "progressDeadlineSeconds": 60});
        json!({"image": image, "size": 2, "port": 8080, "rollback": "OnStall", "rollout": rollout})
    };
    apply_spec(&memory, &spec(GOOD)).await;
    memory.start();
    memory.until_quiet().await;
    let mut cluster = Cluster::default();
    cluster.play(&mut memory, 40).await;
    assert!(remembers(&memory, GOOD));

    apply_spec(&memory, &spec(CRASHING)).await;
    memory.pass(Duration::from_secs(1)).await;
    cluster.play(&mut memory, 55).await;
    assert_eq!(image(&memory), CRASHING, "it still has time");
    assert!(remembers(&memory, GOOD));
    cluster.play(&mut memory, 100).await;
    assert_eq!(image(&memory), GOOD);
    assert_eq!(degraded(&memory), Some(json!("RolledBack")));
}

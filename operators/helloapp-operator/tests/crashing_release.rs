//! A release whose program crashes soon after each start, without a probe that would notice or with one that succeeds for a moment:
//! the operator never calls it good and, if the spec wants it, restores the last good one. In paused time, with a stand-in for the
//! Deployment controller.

use std::time::Duration;

use helloapp_operator::{HelloApp, HelloAppOperator};
use jiff::Timestamp;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager_testing::InMemory;
use serde_json::{Value, json};

const NAME: &str = "web";
const GOOD: &str = "localhost/web:good";
const CRASHING: &str = "localhost/web:crashing";
/// Another good release.
const BETTER: &str = "localhost/web:better";
/// A release that begins to crash late.
const LATE: &str = "localhost/web:late";
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

/// A stand-in for the Deployment controller and the kubelet. All pods of a template are created together.
#[derive(Default)]
struct Cluster {
    second: u64,
    image: String,
    /// When each of the present pods has started, or will start.
    starts: Vec<u64>,
    /// When the program of [`LATE`] begins to crash.
    crashes_from: u64,
    /// When the Deployment controller last observed progress. More ready or available pods are progress to it, also after a crash.
    renewed: u64,
    ready: usize,
    available: usize,
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
        let size = spec["replicas"].as_u64().and_then(|it| usize::try_from(it).ok()).expect("a size");
        if image(memory) != self.image {
            (self.image, self.starts, self.renewed) = (image(memory), Vec::new(), self.second);
            (self.ready, self.available, self.is_complete) = (0, 0, false);
        }
        self.starts.resize(size, self.second);
        self.tell_pods(memory, &live);
        let patience = spec["minReadySeconds"].as_u64().unwrap_or(0);
        let times: Vec<u64> = self.starts.iter().filter_map(|start| self.runs_for(*start)).collect();
        let (ready, available) = (times.len(), times.iter().filter(|time| **time >= patience).count());
        if ready > self.ready || available > self.available {
            self.renewed = self.second;
        }
        (self.ready, self.available) = (ready, available);
        self.is_complete |= available == size; // the controller does not watch a completed rollout any more
        let deadline = spec["progressDeadlineSeconds"].as_u64().expect("a deadline");
        let (is, reason) = match () {
            () if self.is_complete => ("True", "NewReplicaSetAvailable"),
            () if self.second - self.renewed > deadline => ("False", "ProgressDeadlineExceeded"),
            () => ("True", "ReplicaSetUpdated"),
        };
        let message = format!("ReplicaSet \"{}\" is progressing.", self.replica_set());
        let status = json!({
            "observedGeneration": live["metadata"]["generation"], "replicas": size, "updatedReplicas": size,
            "readyReplicas": ready, "availableReplicas": available,
            "conditions": [{"type": "Progressing", "status": is, "reason": reason, "message": message}],
        });
        if live["status"] != status {
            live["status"] = status;
            memory.model.put(live);
        }
    }

    /// For how long the program of a pod has run that started then; `None` if it does not run.
    fn runs_for(&self, start: u64) -> Option<u64> {
        let age = self.second.checked_sub(start)?;
        let time = if self.crashes() { age % PERIOD } else { age };
        (!self.crashes() || time < RUNS).then_some(time)
    }

    fn crashes(&self) -> bool {
        self.image == CRASHING || self.image == LATE && self.second >= self.crashes_from
    }

    fn replica_set(&self) -> String {
        format!("{NAME}-{}", self.image.rsplit(':').next().unwrap_or_default())
    }

    /// Writes the pods of the present template, and removes all others.
    fn tell_pods(&self, memory: &InMemory, deployment: &Value) {
        let template = &deployment["spec"]["template"];
        let names: Vec<String> = (0..self.starts.len()).map(|it| format!("{}-{it}", self.replica_set())).collect();
        for pod in memory.model.objects("pods") {
            let name = pod["metadata"]["name"].as_str().expect("a name");
            if names.iter().all(|it| it != name) {
                memory.model.take("pods", "default", name);
            }
        }
        for (name, start) in names.iter().zip(&self.starts) {
            let metadata = json!({"name": name, "namespace": "default", "labels": template["metadata"]["labels"]});
            let new = || json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
            let mut pod = memory.model.object("pods", "default", name).unwrap_or_else(new);
            let status = self.pod_status(*start, memory.model.now());
            if pod["status"] != status {
                pod["status"] = status;
                memory.model.put(pod);
            }
        }
    }

    /// The status of a pod that started then.
    fn pod_status(&self, start: u64, now: Timestamp) -> Value {
        if start > self.second {
            return json!({"phase": "Pending"});
        }
        let restarts = if self.crashes() { (self.second - start) / PERIOD } else { 0 };
        let mut container = json!({"name": "app", "restartCount": restarts});
        container["state"] = match self.runs_for(start) {
            Some(time) => {
                let began = now.as_second() - i64::try_from(time).expect("a short time");
                json!({"running": {"startedAt": Timestamp::from_second(began).expect("a time")}})
            }
            None => json!({"waiting": {"reason": "CrashLoopBackOff"}}),
        };
        if self.crashes() {
            container["lastState"] = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        }
        json!({"phase": "Running", "containerStatuses": [container]})
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

/// The autoscaler changes the size more often than the deadline passes.
#[tokio::test(start_paused = true)]
async fn release_that_crashes_is_rolled_back_although_its_size_changes_again_and_again() {
    let mut memory = InMemory::new(&HelloAppOperator, &[]);
    apply(&memory, GOOD, 2, "OnStall").await;
    memory.start();
    memory.until_quiet().await;
    let mut cluster = Cluster::default();
    cluster.play(&mut memory, 40).await;
    assert!(remembers(&memory, GOOD));

    for size in [2, 3].into_iter().cycle().take(12) {
        apply(&memory, CRASHING, size, "OnStall").await;
        memory.pass(Duration::from_secs(1)).await;
        cluster.play(&mut memory, 49).await;
    }
    assert_eq!((image(&memory).as_str(), degraded(&memory)), (GOOD, Some(json!("RolledBack"))));
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
    assert_eq!((degraded(&memory), image(&memory).as_str()), (Some(json!("CrashLooping")), CRASHING));
    let conditions = status(&memory)["conditions"].to_string();
    assert!(conditions.contains("also: RolloutStalled"), "{conditions}");
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

/// Makes [`GOOD`] the last available release of three pods, and applies `image`, of which two pods become available. Then a node
/// fails, and the pods are regained one after another: the Deployment controller takes each for progress, the operator does not.
async fn lose_a_node_during_the_rollout(memory: &mut InMemory, image: &str) -> Cluster {
    apply(memory, GOOD, 3, "OnStall").await;
    memory.start();
    memory.until_quiet().await;
    let mut cluster = Cluster { crashes_from: u64::MAX, ..Cluster::default() };
    cluster.play(memory, 40).await;
    assert!(remembers(memory, GOOD));

    apply(memory, image, 3, "OnStall").await;
    memory.pass(Duration::from_secs(1)).await;
    cluster.play(memory, 1).await;
    let begin = cluster.second;
    cluster.starts = vec![begin, begin, begin + 1_000];
    cluster.play(memory, 40).await;
    assert_eq!(status(memory)["rollout"]["available"], 2);
    for _ in 0..5 {
        let lost = cluster.second;
        cluster.starts = vec![lost + 30, lost + 80, lost + 1_000];
        cluster.play(memory, 115).await;
        assert_eq!(status(memory)["rollout"]["available"], 2, "the best so far");
    }
    cluster
}

#[tokio::test(start_paused = true)]
async fn good_release_is_not_rolled_back_when_a_node_fails_during_its_rollout() {
    let mut memory = InMemory::new(&HelloAppOperator, &[]);
    let mut cluster = lose_a_node_during_the_rollout(&mut memory, BETTER).await;
    assert_eq!((image(&memory).as_str(), &status(&memory)["rolledBack"]), (BETTER, &Value::Null));
    assert_ne!(degraded(&memory), Some(json!("RolloutStalled")));
    cluster.starts = vec![cluster.second; 3];
    cluster.play(&mut memory, 40).await;
    assert_eq!((image(&memory).as_str(), is_ready(&memory)), (BETTER, true));
    assert!(remembers(&memory, BETTER));
}

#[tokio::test(start_paused = true)]
async fn release_that_crashes_when_its_time_is_over_is_rolled_back_at_once() {
    let mut memory = InMemory::new(&HelloAppOperator, &[]);
    let mut cluster = lose_a_node_during_the_rollout(&mut memory, LATE).await;
    assert_eq!(image(&memory), LATE);
    cluster.crashes_from = cluster.second;
    cluster.play(&mut memory, 10).await;
    assert_eq!(image(&memory), GOOD);
}

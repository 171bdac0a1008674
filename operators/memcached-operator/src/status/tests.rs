use serde_json::{Value, json};

use super::*;
use crate::samples;

const NOW: &str = "2026-11-21T10:10:00Z";

/// Reasons of the Deployment's own condition `Progressing`.
const ONGOING: &str = "ReplicaSetUpdated";
const COMPLETE: &str = "NewReplicaSetAvailable";

/// A Deployment at generation 2 with `[replicas, updated, ready]`, and `reason` in its condition `Progressing`.
fn deployment(observed: i64, [replicas, updated, ready]: [i32; 3], reason: &str) -> Live<DeploymentView> {
    let containers = json!([{"name": "memcached", "image": "docker.io/library/memcached:1.6"}]);
    let conditions = json!([{"type": "Progressing", "status": "?", "reason": reason, "message": "no progress"}]);
    live(
        "memcached-sample",
        &json!({
            "spec": {"template": {"spec": {"containers": containers}}},
            "status": {
                "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
                "conditions": conditions,
            },
        }),
    )
}

fn pod(name: &str, status: &Value) -> Arc<Live<PodView>> {
    Arc::new(live(name, &json!({"status": status})))
}

fn ready_pod(name: &str, ip: &str) -> Arc<Live<PodView>> {
    pod(name, &json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}))
}

fn unpullable_pod(name: &str) -> Arc<Live<PodView>> {
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}});
    let container = json!({"name": "memcached", "image": "memcached:nope", "state": waiting});
    pod(name, &json!({"phase": "Pending", "containerStatuses": [container]}))
}

fn live<V: serde::de::DeserializeOwned>(name: &str, object: &Value) -> Live<V> {
    Live {
        namespace: "default".into(),
        name: name.into(),
        uid: name.into(),
        generation: 2,
        created: None,
        deleting: None,
        view: serde_json::from_value(object.clone()).expect("a view of the object"),
    }
}

fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

fn memcached(size: i32) -> Memcached {
    samples::with_spec(&json!({"size": size}))
}

#[test]
fn conditions_have_reasons_and_messages_about_nodes() {
    let told = |ready: i32| {
        let report = of(&memcached(3), Some(&deployment(2, [3, 3, ready], ONGOING)), &[], at(NOW));
        let health = report.health;
        let verdicts = [health.available.expect("Available"), health.progressing.expect("Progressing"), health.ready];
        verdicts.map(|it| format!("{}: {}", it.reason, it.message))
    };
    assert_eq!(
        told(3),
        [
            "MinimumNodesAvailable: 3/3 nodes are ready",
            "Stable: no change is being carried out",
            "Ready: all 3 nodes are ready",
        ]
    );
    assert_eq!(
        told(0),
        ["NoReadyNodes: 0/3 nodes are ready", "RollingOut: 3/3 nodes updated", "NodesNotReady: 0/3 nodes are ready"]
    );
    let stalled = of(&memcached(3), Some(&deployment(2, [4, 1, 3], "ProgressDeadlineExceeded")), &[], at(NOW));
    assert_eq!(stalled.health.problems[0].message, "Rollout made no progress for 600s: no progress");
}

#[test]
fn status_reports_nodes_endpoints_and_counts() {
    let pods = [ready_pod("b", "fd00::2"), ready_pod("a", "10.0.0.1"), unpullable_pod("c")];
    let report = of(&memcached(3), Some(&deployment(2, [3, 2, 2], ONGOING)), &pods, at(NOW));
    assert_eq!(
        serde_json::to_value(report.status).expect("JSON"),
        json!({
            "nodes": ["a", "b", "c"],
            "endpoints": ["10.0.0.1:11211", "[fd00::2]:11211"],
            "replicas": 3,
            "readyReplicas": 2,
            "updatedReplicas": 2,
            "labelSelector": "app.kubernetes.io/instance=memcached-sample,app.kubernetes.io/name=memcached",
            "conditions": [],
        })
    );
}

#[test]
fn status_image_is_the_fully_rolled_out_one() {
    let (before, now) = ("docker.io/library/memcached:1.5", "docker.io/library/memcached:1.6");
    let image = |stored: Option<&str>, observed: i64, counts: [i32; 3], reason: &str| {
        let status = stored.map(|image| MemcachedStatus { image: Some(image.to_owned()), ..Default::default() });
        let memcached = Memcached { status, ..memcached(3) };
        of(&memcached, Some(&deployment(observed, counts, reason)), &[], at(NOW)).status.image
    };
    assert_eq!(image(None, 2, [3, 3, 1], ONGOING), None, "no image has been rolled out yet");
    assert_eq!(image(Some(before), 1, [3, 3, 3], COMPLETE).as_deref(), Some(before), "the new one is not observed");
    assert_eq!(image(Some(before), 2, [4, 1, 3], ONGOING).as_deref(), Some(before), "three pods run the former one");
    assert_eq!(image(Some(before), 2, [3, 3, 3], ONGOING).as_deref(), Some(now));
    assert_eq!(image(None, 2, [3, 3, 2], COMPLETE).as_deref(), Some(now), "a pod died later");
}

#[test]
fn nodes_and_endpoints_are_empty_lists_at_size_zero() {
    let status = serde_json::to_value(of(&memcached(0), None, &[], at(NOW)).status).expect("JSON");
    assert_eq!((&status["nodes"], &status["endpoints"]), (&json!([]), &json!([])));
    assert_eq!(status.get("image"), None);
}

#[test]
fn invalid_size_is_reported_against_current_replicas() {
    let mut memcached = memcached(1);
    memcached.metadata.annotations = Some([(INVALID_SIZE.to_owned(), "\"three\"".to_owned())].into());
    let complete =
        json!([{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": ""}]);
    let status = json!({
        "observedGeneration": 2, "replicas": 4, "updatedReplicas": 4, "readyReplicas": 4, "conditions": complete,
    });
    let four = live("memcached-sample", &json!({"spec": {"replicas": 4}, "status": status}));
    let health = of(&memcached, Some(&four), &[], at(NOW)).health;
    let message = "spec.size \"three\" is not a number from 0 to 64; set spec.size (and remove annotation \
                   memcached.cache.example.com/invalid-size if the size is 1)";
    assert_eq!(health.problems, [Problem::new(ProblemKind::invalid("InvalidSize"), message)]);
    assert_eq!(health.ready.message, "all 4 nodes are ready");
    memcached.spec.size = 2;
    assert!(of(&memcached, Some(&four), &[], at(NOW)).health.problems.is_empty());
}

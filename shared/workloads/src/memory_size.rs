//! Tests how much memory the views of one small app take. The cache holds a view of each watched object, so bytes count.

use std::mem::size_of;

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use serde_json::{Value, json};

use crate::{DeploymentView, JobView, Live, PodDisruptionBudgetView, PodView, Progress, ServiceView, Trouble, Viewed};

/// The size of the memory that a view points to, in bytes.
trait Heap {
    fn heap(&self) -> usize;
}

impl Heap for DeploymentView {
    fn heap(&self) -> usize {
        self.containers_heap()
            + self.refused().map_or(0, str::len)
            + match self.progress() {
                Progress::Stalled(message) => message.len(),
                Progress::Ongoing { replica_set } => replica_set.as_deref().map_or(0, str::len),
                Progress::Unknown | Progress::Paused | Progress::Complete => 0,
            }
    }
}

impl Heap for JobView {
    fn heap(&self) -> usize {
        Self::heap(self)
    }
}

impl Heap for PodView {
    fn heap(&self) -> usize {
        self.trouble().map_or(0, |trouble| {
            size_of::<Trouble>()
                + match trouble {
                    Trouble::ImagePull { image, message } => image.len() + message.len(),
                    Trouble::RunsAsRoot { image } => image.len(),
                    Trouble::Unschedulable { message, .. } | Trouble::MissingInput { message } => message.len(),
                    Trouble::Preparing { .. } => 0,
                    Trouble::CannotStart { container, message } => container.len() + message.len(),
                    Trouble::CrashLoop { container, tail, .. } => container.len() + tail.len(),
                }
        })
    }
}

impl Heap for ServiceView {
    fn heap(&self) -> usize {
        0
    }
}

impl Heap for PodDisruptionBudgetView {
    fn heap(&self) -> usize {
        0
    }
}

/// The bytes of a view with its identity: name and uid, but not the namespace, which many objects share.
fn bytes<K: Viewed<View: Heap>>(name: &str, object: &Value) -> usize {
    let view: K::View = serde_json::from_value(object.clone()).expect("a view of the object");
    let identity = name.len() + "7a3c9c1e-0d5b-4f6e-9c55-3a8f4d3b2a10".len();
    size_of::<Live<K::View>>() + identity + view.heap()
}

fn pod(container_status: &Value) -> Value {
    json!({
        "metadata": {"labels": {"app.kubernetes.io/name": "memcached"}, "managedFields": []},
        "spec": {"nodeName": "worker-1", "containers": [{"name": "memcached"}]},
        "status": {
            "phase": "Running",
            "podIP": "10.244.11.213",
            "podIPs": [{"ip": "10.244.11.213"}],
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"},
            ],
            "containerStatuses": [container_status],
        },
    })
}

#[test]
fn memory_of_a_small_app_is_bounded() {
    let deployment = json!({
        "spec": {"replicas": 3, "template": {"spec": {
            "containers": [{"name": "memcached", "image": "docker.io/library/memcached:1.6", "args": ["-m", "64"]}],
        }}},
        "status": {
            "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
            "conditions": [{"type": "Progressing", "reason": "NewReplicaSetAvailable", "message": "has progressed"}],
        },
    });
    let running =
        pod(&json!({"name": "memcached", "image": "docker.io/library/memcached:1.6", "state": {"running": {}}}));

    let name = "memcached-sample";
    let children = bytes::<Deployment>(name, &deployment)
        + bytes::<Service>(name, &json!({}))
        + bytes::<PodDisruptionBudget>(name, &json!({}));
    let pods = 3 * bytes::<Pod>("memcached-sample-7d4b9c6f5-x2x8q", &running);

    println!("children: {children} bytes, pods: {pods} bytes");
    assert!(children + pods <= 1300, "{children} + {pods}");
}

#[test]
fn only_a_rollout_takes_memory_for_the_name_of_its_replica_set() {
    let (name, replica_set) = ("memcached-sample", "memcached-sample-7d4b9c6f5");
    let deployment = |reason: &str| {
        let message = format!("ReplicaSet \"{replica_set}\" is progressing.");
        let condition = json!({"type": "Progressing", "status": "True", "reason": reason, "message": message});
        bytes::<Deployment>(name, &json!({"status": {"observedGeneration": 1, "conditions": [condition]}}))
    };
    assert_eq!(deployment("ReplicaSetUpdated") - deployment("NewReplicaSetAvailable"), replica_set.len());
}

#[test]
fn memory_of_a_failing_pod_is_bounded() {
    let chatter = "very long words ".repeat(1000);
    let crashing = pod(&json!({
        "name": "memcached", "image": "docker.io/library/memcached:1.6", "restartCount": 12,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": chatter}},
        "lastState": {"terminated": {"exitCode": 1, "message": chatter}},
    }));
    let unpullable = pod(&json!({
        "name": "memcached", "image": "docker.io/library/memcached:1.6",
        "state": {"waiting": {"reason": "ErrImagePull", "message": chatter}},
    }));
    for object in [crashing, unpullable] {
        let bytes = bytes::<Pod>("memcached-sample-7d4b9c6f5-x2x8q", &object);
        assert!(bytes <= 900, "{bytes}");
    }
}

#[test]
fn memory_of_a_failed_job_is_bounded() {
    let time = "2026-11-20T00:01:00Z";
    let failed = json!({
        "metadata": {"annotations": {"stable.example.com/scheduled-at": time}},
        "spec": {"template": {"spec": {"containers": [{"name": "cron", "image": "cron", "args": ["a", "b"]}]}}},
        "status": {"startTime": time, "failed": 7, "conditions": [{
            "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the limit",
            "lastTransitionTime": time,
        }]},
    });
    let bytes = bytes::<Job>("my-new-cron-object-1795132860", &failed);
    println!("a failed job: {bytes} bytes");
    assert!(bytes <= 320, "{bytes}");
}

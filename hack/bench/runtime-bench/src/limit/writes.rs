//! The requests that the operator sends for a Memcached that waits for it: it creates the three children, records that in an event, and
//! writes the status once the Deployment is ready.
//!
//! The children are those of the snapshots of the operator's own tests, so they change with the operator.

use anyhow::{Context, Result};
use http::{HeaderValue, header::CONTENT_TYPE};
use kube::{
    api::{Patch, PatchParams, PostParams},
    core::{ObjectMeta, Request as Http},
};
use serde_json::{Value, json};

pub(super) type Request = http::Request<Vec<u8>>;

const NAMESPACE: &str = "default";
const API_VERSION: &str = "memcached.cache.example.com/v1";
const MEMCACHEDS: &str = "/apis/memcached.cache.example.com/v1/namespaces/default/memcacheds";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
/// The operator's field manager.
const MANAGER: &str = "memcached-controller";
/// The number of replicas of the sample, and of the objects of a measurement.
const SIZE: i32 = 3;
/// A time with the length of any other. The API server does not compare it with its own.
const TIME: &str = "2026-01-01T00:00:00Z";
const MICRO_TIME: &str = "2026-01-01T00:00:00.000000Z";
/// The name of the snapshots' object, and a mark for its uid.
const SAMPLE: &str = "memcached-sample";
const UID: &str = "uid-of-the-owner";

macro_rules! snapshot {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../operators/memcached-operator/src/desired/snapshots/memcached_operator__desired__",
            $name,
            "_of_the_sample.snap"
        ))
    };
}

/// The paths and snapshots of the children, in the order in which the operator names them.
const CHILDREN: [(&str, &str); 3] = [
    ("/apis/apps/v1/namespaces/default/deployments", snapshot!("deployment__tests__the_deployment")),
    ("/api/v1/namespaces/default/services", snapshot!("service__tests__the_service")),
    (
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        snapshot!("disruption_budget__tests__the_disruption_budget"),
    ),
];

/// A Memcached that waits.
pub(super) struct Owner {
    name: String,
    uid: String,
    version: String,
    /// A number of its own, for the name of its event.
    number: usize,
}

impl Owner {
    pub(super) fn of(metadata: ObjectMeta, number: usize) -> Option<Self> {
        let ObjectMeta { name, uid, resource_version, .. } = metadata;
        Some(Self { name: name?, uid: uid?, version: resource_version?, number })
    }
}

/// The requests for any object.
pub(super) struct Writes {
    /// The paths of the children, and their JSON with the name of the sample.
    children: Vec<(&'static str, String)>,
}

impl Writes {
    pub(super) fn new() -> Result<Self> {
        let children = CHILDREN.map(|(path, snapshot)| Ok::<_, anyhow::Error>((path, child(snapshot)?.to_string())));
        Ok(Self { children: children.into_iter().collect::<Result<_>>()? })
    }

    /// The requests for this object.
    pub(super) fn of(&self, owner: &Owner) -> Result<Vec<Request>> {
        let create = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let mut requests = Vec::with_capacity(self.children.len() + 2);
        for (path, child) in &self.children {
            let body = child.replace(SAMPLE, &owner.name).replace(UID, &owner.uid);
            requests.push(Http::new(*path).create(&create, body.into_bytes())?);
        }
        requests.push(Http::new(EVENTS).create(&PostParams::default(), event(owner).to_string().into_bytes())?);
        let patching = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        // kube's own type of a JSON patch would have to be built from the operations first. So the content type is set afterwards.
        let operations = Patch::Merge(status_operations(owner));
        let mut patch = Http::new(MEMCACHEDS).patch_subresource("status", &owner.name, &patching, &operations)?;
        patch.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json-patch+json"));
        requests.push(patch);
        Ok(requests)
    }
}

/// The child of a snapshot, with what the runtime adds to it: the namespace and the owner.
fn child(snapshot: &str) -> Result<Value> {
    let (_, text) = snapshot.split_once("\n---\n").context("a snapshot has no head")?;
    let mut child: Value = serde_saphyr::from_str(text).context("a snapshot is not YAML")?;
    child["metadata"]["namespace"] = NAMESPACE.into();
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": API_VERSION, "kind": "Memcached", "name": SAMPLE, "uid": UID, "controller": true,
        "blockOwnerDeletion": true,
    }]);
    Ok(child)
}

fn event(Owner { name, uid, number, .. }: &Owner) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": format!("{name}.{number:016x}"), "namespace": NAMESPACE},
        "eventTime": MICRO_TIME,
        "type": "Normal",
        "reason": "Created",
        "action": "Reconcile",
        "note": format!("Created Deployment, Service and PodDisruptionBudget \"{name}\""),
        "regarding": {"apiVersion": API_VERSION, "kind": "Memcached", "namespace": NAMESPACE, "name": name, "uid": uid},
        "reportingController": MANAGER,
        "reportingInstance": "runtime-bench",
    })
}

/// The JSON patch of a first status: the uid and the version have to be those that were read.
fn status_operations(owner: &Owner) -> Value {
    json!([
        {"op": "test", "path": "/metadata/uid", "value": owner.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": owner.version},
        {"op": "add", "path": "/status", "value": status(&owner.name)},
    ])
}

/// The status of a Memcached whose Deployment is ready and that has no pods, as in a herd.
fn status(name: &str) -> Value {
    let condition = |type_: &str, status: bool, reason: &str, message: &str| {
        json!({
            "type": type_, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
            "lastTransitionTime": TIME, "observedGeneration": 1,
        })
    };
    json!({
        "nodes": [], "endpoints": [], "replicas": SIZE, "readyReplicas": SIZE, "updatedReplicas": SIZE,
        "labelSelector": format!("app.kubernetes.io/instance={name},app.kubernetes.io/name=memcached"),
        "image": "docker.io/library/memcached:1.6",
        "observedGeneration": 1,
        "conditions": [
            condition("Available", true, "MinimumNodesAvailable", "3/3 nodes are ready"),
            condition("Progressing", false, "Stable", "no change is being carried out"),
            condition("Degraded", false, "AsExpected", ""),
            condition("Ready", true, "Ready", "all 3 nodes are ready"),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(name: &str) -> Vec<(String, Value)> {
        let owner = Owner { name: name.to_owned(), uid: "u-7".to_owned(), version: "42".to_owned(), number: 10 };
        let requests = Writes::new().unwrap().of(&owner).unwrap();
        let shown = |request: Request| {
            let line = format!("{} {}", request.method(), request.uri().path());
            (line, serde_json::from_slice(request.body()).unwrap())
        };
        requests.into_iter().map(shown).collect()
    }

    #[test]
    fn object_has_the_requests_of_the_operator() {
        let lines: Vec<String> = requests("cr-00001").into_iter().map(|(line, _)| line).collect();
        assert_eq!(
            lines,
            [
                "POST /apis/apps/v1/namespaces/default/deployments",
                "POST /api/v1/namespaces/default/services",
                "POST /apis/policy/v1/namespaces/default/poddisruptionbudgets",
                "POST /apis/events.k8s.io/v1/namespaces/default/events",
                "PATCH /apis/memcached.cache.example.com/v1/namespaces/default/memcacheds/cr-00001/status",
            ]
        );
    }

    #[test]
    fn child_is_that_of_the_snapshot_with_the_name_and_the_owner() {
        let requests = requests("cr-00001");
        for ((_, body), kind) in requests.iter().zip(["Deployment", "Service", "PodDisruptionBudget"]) {
            assert_eq!(body["kind"], kind);
            assert_eq!(body["metadata"]["name"], "cr-00001", "{body}");
            assert_eq!(body["metadata"]["labels"]["app.kubernetes.io/instance"], "cr-00001", "{body}");
            assert_eq!(body["metadata"]["ownerReferences"][0]["name"], "cr-00001", "{body}");
            assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "u-7", "{body}");
            assert!(!body.to_string().contains(SAMPLE), "{body}");
        }
        let [(_, deployment), (_, service), ..] = requests.as_slice() else { panic!("{requests:?}") };
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(deployment["spec"]["replicas"], SIZE);
        assert_eq!(container["args"][1], "64", "a text, not a number");
        assert_eq!(container["resources"]["limits"]["memory"], "107Mi");
        assert_eq!(service["spec"]["clusterIP"], "None");
    }

    #[test]
    fn status_is_written_on_the_version_that_was_read() {
        let requests = requests("cr-00001");
        let operations = &requests[4].1;
        assert_eq!(operations[0]["value"], "u-7");
        assert_eq!(operations[1]["value"], "42");
        assert_eq!(operations[2]["value"]["observedGeneration"], 1);
        assert_eq!(requests[3].1["metadata"]["name"], "cr-00001.000000000000000a");
    }
}

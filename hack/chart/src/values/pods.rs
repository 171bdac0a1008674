//! What pods are made of, and who may call and drain them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Open;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(super) struct PodDisruptionBudget {
    /// Whether it is made, for more than one replica.
    enabled: bool,
    /// Pods that may be missing: a number or a percentage.
    #[schemars(extend("type" = ["integer", "string"]))]
    max_unavailable: Value,
}

impl Default for PodDisruptionBudget {
    fn default() -> Self {
        Self { enabled: true, max_unavailable: json!(1) }
    }
}

#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(super) struct NetworkPolicy {
    /// Whether it is made. The pods' way out is never limited: where the API server is differs too much.
    enabled: bool,
    /// Who may call the webhooks, a list of NetworkPolicyPeers; empty is everybody. API servers mostly call from nodes.
    webhooks_from: Vec<Open>,
    /// Who may read metrics; empty is everybody.
    metrics_from: Vec<Open>,
    /// Who may call the probes; empty is everybody.
    probes_from: Vec<Open>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(super) struct BookingServer {
    /// null: where flightticket is enabled and names no provider.
    enabled: Option<bool>,
    /// Where bookings are kept.
    persistence: Persistence,
    /// Requests and limits.
    resources: Open,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Persistence {
    /// In a volume of its own. Without it, all bookings are gone with the pod.
    enabled: bool,
    /// Size of the volume.
    size: String,
    /// StorageClass of the volume; the cluster's default when empty.
    storage_class_name: String,
}

impl Default for BookingServer {
    fn default() -> Self {
        let persistence = Persistence { enabled: false, size: "1Gi".to_owned(), storage_class_name: String::new() };
        Self { enabled: None, persistence, resources: resources("10m", "16Mi", "64Mi") }
    }
}

pub(super) fn resources(cpu: &str, memory: &str, limit: &str) -> Open {
    object(json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}))
}

/// What the restricted standard of Pod Security asks of a pod.
pub(super) fn pod_security_context() -> Open {
    object(json!({
        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }))
}

/// What it asks of a container, and a root that nobody can write.
pub(super) fn security_context() -> Open {
    object(json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    }))
}

fn object(value: Value) -> Open {
    match value {
        Value::Object(object) => object,
        _ => Open::new(),
    }
}

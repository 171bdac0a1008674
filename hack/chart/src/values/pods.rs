//! Values of the pods: security contexts, disruption budget, network policies, and the booking server.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Open;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(super) struct PodDisruptionBudget {
    /// Whether the chart creates the PodDisruptionBudget. It does so only for more than one replica.
    enabled: bool,
    /// Pods that may be unavailable at once: a number or a percentage.
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
    /// Whether the chart creates NetworkPolicies. They limit ingress only: egress rules would need the address of the API server, which differs between clusters.
    enabled: bool,
    /// NetworkPolicyPeers that may call the webhooks; empty means all clients. API servers mostly call from the addresses of nodes.
    webhooks_from: Vec<Open>,
    /// NetworkPolicyPeers that may read metrics; empty means all clients.
    metrics_from: Vec<Open>,
    /// NetworkPolicyPeers that may call the probes; empty means all clients.
    probes_from: Vec<Open>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(super) struct BookingServer {
    /// Whether the booking server runs. With null, it runs if an operator that needs a provider is enabled without `provider.url`.
    enabled: Option<bool>,
    /// Storage of the bookings.
    persistence: Persistence,
    /// Requests and limits of the booking server.
    resources: Open,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Persistence {
    /// Whether a PersistentVolumeClaim stores the bookings. Without it, all bookings are lost with the pod.
    enabled: bool,
    /// Size of the volume.
    size: String,
    /// StorageClass of the volume; empty means the cluster's default.
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

/// The pod settings that the restricted Pod Security Standard requires.
pub(super) fn pod_security_context() -> Open {
    object(json!({
        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }))
}

/// The container settings that the same standard requires, and a read-only root file system.
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

//! Values of the pods: security contexts, disruption budget, network policies, and the booking server.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Open;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(super) struct PodDisruptionBudget {
    /// Whether the chart creates the PodDisruptionBudget. It does so for more than one replica, and if `replicas` is null.
    enabled: bool,
    /// Pods that may be unavailable at once: a number, or a percentage such as `50%`.
    #[schemars(extend("type" = ["integer", "string"], "minimum" = 0, "pattern" = "^(100|[0-9]{1,2})%$"))]
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
    /// Whether the chart creates NetworkPolicies. They limit ingress, and egress if `egress` has rules.
    enabled: bool,
    /// NetworkPolicyEgressRules of the operators' pods; empty means that they may connect to anything. They need DNS, the API server, the booking provider and the collector of traces; the chart cannot know the addresses. The booking server may then connect to nothing.
    egress: Vec<Open>,
    /// NetworkPolicyPeers that may call the webhooks; empty means all clients. API servers mostly call from the addresses of nodes.
    webhooks_from: Vec<Open>,
    /// NetworkPolicyPeers that may read metrics; empty means all clients.
    metrics_from: Vec<Open>,
    /// NetworkPolicyPeers that may call the probes; empty means all clients.
    probes_from: Vec<Open>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(super) struct Service {
    /// Annotations of the Services.
    annotations: BTreeMap<String, String>,
    /// IP family policy of the Services, such as `PreferDualStack`; empty means the cluster's default.
    ip_family_policy: IpFamilyPolicy,
    /// IP families of the Services in order, such as `[IPv6, IPv4]`; empty means the cluster's default.
    ip_families: Vec<IpFamily>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
enum IpFamilyPolicy {
    #[default]
    #[serde(rename = "")]
    Default,
    #[expect(dead_code, reason = "not the default")]
    SingleStack,
    #[expect(dead_code, reason = "not the default")]
    PreferDualStack,
    #[expect(dead_code, reason = "not the default")]
    RequireDualStack,
}

#[derive(Debug, Serialize, JsonSchema)]
#[expect(dead_code, reason = "none by default")]
enum IpFamily {
    IPv4,
    IPv6,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(super) struct Probes {
    /// Fields of the liveness probe.
    liveness: Open,
    /// Fields of the readiness probe.
    readiness: Open,
}

impl Default for Probes {
    fn default() -> Self {
        Self { liveness: object(json!({"periodSeconds": 20})), readiness: object(json!({"periodSeconds": 2})) }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub(super) struct CaBundle {
    /// Name of a ConfigMap in the namespace of the release with the authorities.
    config_map_name: String,
    /// Name of a Secret with the authorities, in place of a ConfigMap.
    secret_name: String,
    /// Key of the authorities, certificates in PEM.
    key: String,
}

impl Default for CaBundle {
    fn default() -> Self {
        Self { config_map_name: String::new(), secret_name: String::new(), key: "ca.crt".to_owned() }
    }
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

//! `memcached.cache.example.com/v1`, the version that is stored.
//!
//! Doc comments here are what `kubectl explain` prints. A field that says *Default* and is optional gets that default
//! from the operator, so it is not written into the object and a later release may change it. The API server fills in
//! `size`, and what is missing in an object such as `config` once the user has written that object.

#![expect(unreachable_pub, reason = "KubeSchema derives through a hidden copy of the struct")]
#![expect(clippy::doc_markdown, reason = "kubectl explain would print the backticks")]

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint},
    apimachinery::pkg::{apis::meta::v1::Condition, util::intstr::IntOrString},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::{DisruptionBudget, ImagePullPolicy, schemas};

mod access;
mod metrics;
mod placement;

pub use access::{AuthSettings, ClientAuth, NetworkPolicySettings, TlsSettings};
pub use metrics::{MetricsSettings, ServiceMonitorSettings};

/// What the cache should be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "memcached.cache.example.com",
    version = "v1",
    kind = "Memcached",
    plural = "memcacheds",
    shortname = "mc",
    category = "all",
    namespaced,
    doc = "A number of independent memcached servers behind one headless Service.",
    derive = "PartialEq",
    status = "MemcachedStatus",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    ),
    printcolumn(name = "SIZE", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "READY", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(
        name = "STATUS",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "IMAGE", type_ = "string", json_path = ".status.image", priority = 1),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 52")
        .message("metadata.name must be a DNS-1035 label of at most 52 characters")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.tls) || self.tls.clientAuth == 'None' || has(self.tls.secretName)",
        "message": "tls.clientAuth needs tls.secretName",
    },
    {
        "rule": "!has(self.metrics) || !self.metrics.enabled || (has(self.port) ? self.port : 11211) != self.metrics.port",
        "message": "metrics.port must differ from port",
    },
    {
        "rule": "!has(self.metrics) || !has(self.metrics.serviceMonitor) || !self.metrics.serviceMonitor.enabled || self.metrics.enabled",
        "message": "serviceMonitor needs metrics.enabled",
    },
]))]
pub struct MemcachedSpec {
    /// Number of memcached servers, called nodes. 0 keeps the Service and stops all nodes. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 64))]
    pub size: i32,

    /// Image of the nodes; its entrypoint must be memcached. Default: the operator's --memcached-image,
    /// docker.io/library/memcached:1.6. The image in effect is status.image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,

    /// When the kubelet pulls the image. Default: Always for the tag latest, else IfNotPresent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets with the credentials to pull the image with. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::pull_secrets")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// TCP port of every node and of the Service. Default: 11211.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: Option<i32>,

    /// How memcached is started. A change restarts the nodes one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<CacheConfig>,

    /// CPU and memory of each node, taken as they are written. A memory limit must leave at least 32Mi beside
    /// config.memoryMB. Default: a request of 50m CPU, no CPU limit, and as memory request and limit what memcached needs
    /// for config.memoryMB and config.maxConnections (107Mi for their defaults).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resources")]
    pub resources: Option<ResourceRequirements>,

    /// Labels that the machines must have to run nodes. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints of machines that the nodes tolerate. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::tolerations")]
    pub tolerations: Vec<Toleration>,

    /// How evenly the nodes are spread over machines, zones or other domains; without a labelSelector, the nodes of this
    /// Memcached are counted. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "placement::spread_constraints")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// PriorityClass of the nodes. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,

    /// Whether two nodes may run on one machine: Soft avoids it, Hard forbids it, None does not care. Default: Soft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<AntiAffinity>,

    /// How many nodes a drain may take at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<DisruptionBudget>,

    /// The Service through which the nodes are found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSettings>,

    /// How a change is carried from node to node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSettings>,

    /// TLS between clients and nodes. A change, also of the Secret, restarts the nodes one by one. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSettings>,

    /// Passwords that clients have to give, in memcached's text protocol. A change, also of the Secret, restarts the nodes
    /// one by one. Default: none, and everybody who reaches a node may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSettings>,

    /// Who reaches the nodes, for networks that obey a NetworkPolicy. Restarts nothing. Default: everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicySettings>,

    /// Metrics of the nodes for Prometheus, from an exporter in each pod. A change restarts the nodes one by one, but for
    /// serviceMonitor. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsSettings>,

    /// How long a node may take to end, of which the first 5 s are spent waiting for clients to look elsewhere.
    /// Default: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 6, max = 600))]
    pub termination_grace_period_seconds: Option<i64>,

    /// Labels for the pods, beside the operator's own, which win. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub pod_labels: BTreeMap<String, String>,

    /// Annotations for the pods. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::annotations")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// How memcached is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.maxItemSizeKiB <= self.memoryMB * 512",
    "message": "maxItemSizeKiB may be at most half of memoryMB",
}]))]
pub struct CacheConfig {
    /// Memory for items, in MiB (-m). Default: 64.
    #[serde(rename = "memoryMB")]
    #[schemars(range(min = 16, max = 65536))]
    pub memory_mb: i32,

    /// Connections at a time (-c). Default: 1024.
    #[schemars(range(min = 1, max = 65536))]
    pub max_connections: i32,

    /// Worker threads (-t). Default: 4.
    #[schemars(range(min = 1, max = 128))]
    pub threads: i32,

    /// The largest item, in KiB (-I); a multiple of 512, and at most half of memoryMB. Default: 1024.
    #[serde(rename = "maxItemSizeKiB")]
    #[schemars(range(min = 512, max = 1_048_576), extend("multipleOf" = 512))]
    pub max_item_size_kib: i32,

    /// Whether old items make room for new ones; false answers with an error when the memory is full (-M). Default: true.
    pub evictions: bool,

    /// How much memcached logs: 0 is least, 1 errors and warnings (-v), 2 also commands and answers (-vv). Default: 0.
    #[schemars(range(min = 0, max = 2))]
    pub verbosity: i32,

    /// Further arguments, passed last and in order. Flags that the operator sets itself, or that would open or move the
    /// port, are refused. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(length(min = 1, max = 256)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub extra_args: Vec<String>,
}

/// The Service through which the nodes are found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSettings {
    /// Headless gives clients the address of every node, which their consistent hashing needs. ClusterIP is one address
    /// for all nodes: each connection ends at any of them, so use it with size 1 or with a proxy. A change replaces the
    /// Service. Default: Headless.
    pub r#type: ServiceType,

    /// Annotations for the Service; those that others put on it are kept. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// How a change is carried from node to node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(string(self.maxSurge) in ['0','0%'] && string(self.maxUnavailable) in ['0','0%'])",
    "message": "maxSurge and maxUnavailable cannot both be 0",
}]))]
pub struct RolloutSettings {
    /// How many nodes may be there beyond size during a change: a number, or a percentage. Default: 1.
    #[schemars(schema_with = "schemas::pods_or_percent")]
    pub max_surge: IntOrString,

    /// How many nodes may be missing during a change: a number, or a percentage. Default: 0.
    #[schemars(schema_with = "schemas::pods_or_percent")]
    pub max_unavailable: IntOrString,

    /// The pause after each new node, so that one cold cache fills before the next is lost. Default: 10.
    #[schemars(range(min = 0, max = 3600))]
    pub min_ready_seconds: i32,
}

/// Whether two nodes may run on one machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum AntiAffinity {
    #[default]
    Soft,
    Hard,
    None,
}

/// How clients find the nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum ServiceType {
    #[default]
    Headless,
    ClusterIP,
}

/// What the cache is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MemcachedStatus {
    /// Names of the pods, those that are not ready yet included; sorted.
    #[schemars(length(max = 256), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub nodes: Vec<String>,

    /// Address and port of every node that is ready; sorted.
    #[schemars(length(max = 256), inner(length(max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub endpoints: Vec<String>,

    /// Pods that exist.
    pub replicas: i32,

    /// Pods that are ready.
    pub ready_replicas: i32,

    /// Pods that have the latest configuration.
    pub updated_replicas: i32,

    /// Selects the pods; for kubectl scale and autoscalers.
    #[schemars(length(max = 256))]
    pub label_selector: String,

    /// The image in effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub image: Option<String>,

    /// The last value of the annotation memcached.cache.example.com/reconcile-requested-at that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub last_handled_reconcile_at: Option<String>,

    /// The generation of the object that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready, Available, Progressing and Degraded; Reconciling and Stalled while they are true.
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

impl MemcachedSpec {
    /// `port`, or its default.
    pub fn port(&self) -> i32 {
        self.port.unwrap_or(11211)
    }

    /// `config`, or its defaults.
    pub fn config(&self) -> CacheConfig {
        self.config.clone().unwrap_or_default()
    }

    /// `antiAffinity`, or its default.
    pub fn anti_affinity(&self) -> AntiAffinity {
        self.anti_affinity.unwrap_or_default()
    }

    /// `podDisruptionBudget`, or its defaults.
    pub fn pod_disruption_budget(&self) -> DisruptionBudget {
        self.pod_disruption_budget.clone().unwrap_or_default()
    }

    /// `service`, or its defaults.
    pub fn service(&self) -> ServiceSettings {
        self.service.clone().unwrap_or_default()
    }

    /// `rollout`, or its defaults.
    pub fn rollout(&self) -> RolloutSettings {
        self.rollout.clone().unwrap_or_default()
    }

    /// `metrics`, if they are wanted.
    pub fn metrics(&self) -> Option<&MetricsSettings> {
        self.metrics.as_ref().filter(|it| it.enabled)
    }

    /// Whether clients have to speak TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.secret_name.is_some())
    }

    /// `terminationGracePeriodSeconds`, or its default.
    pub fn termination_grace_period_seconds(&self) -> i64 {
        self.termination_grace_period_seconds.unwrap_or(30)
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            memory_mb: 64,
            max_connections: 1024,
            threads: 4,
            max_item_size_kib: 1024,
            evictions: true,
            verbosity: 0,
            extra_args: Vec::new(),
        }
    }
}

impl Default for RolloutSettings {
    fn default() -> Self {
        Self { max_surge: IntOrString::Int(1), max_unavailable: IntOrString::Int(0), min_ready_seconds: 10 }
    }
}

fn one() -> i32 {
    1
}

#[cfg(test)]
mod tests;

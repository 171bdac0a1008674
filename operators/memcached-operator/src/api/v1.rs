//! `memcached.cache.example.com/v1`, the stored version.
//!
//! `kubectl explain` prints the doc comments of this module. The operator applies the *Default* of an optional field without
//! writing it into the object, so a later release may change it. The API server itself sets `size`, and the missing fields of an
//! object such as `config` if the user has written that object.

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

pub use access::{AuthSettings, ClientAuth, NetworkPolicySettings, TlsSettings};
pub use metrics::{MetricsSettings, ServiceMonitorSettings};

/// The desired state of the cache.
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
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    ),
    selectable = ".spec.size",
    selectable = ".status.image",
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
    /// Number of pods; each runs one memcached server. 0 stops all pods and keeps the Service. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 64))]
    pub size: i32,

    /// Image of memcached; its entrypoint must be memcached. Default: the operator's --memcached-image,
    /// docker.io/library/memcached:1.6. status.image shows the image that the pods run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), extend("x-kubernetes-validations" = [{
        "rule": r"self.matches('^\\S+$')",
        "message": "image must not contain blanks",
    }]))]
    pub image: Option<String>,

    /// When the kubelet pulls the image. Default: Always for the tag latest, else IfNotPresent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets with the credentials for pulling the images. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::pull_secrets")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// TCP port of memcached in every pod, and of the Service. Default: 11211.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: Option<i32>,

    /// Settings of memcached itself. A change restarts the pods one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<CacheConfig>,

    /// CPU and memory of memcached in each pod. If set, it replaces the default completely. A memory limit must be at least
    /// 32Mi larger than config.memoryMB. Default: a request of 50m CPU, no CPU limit, and as memory request and limit the amount
    /// that memcached needs for config.memoryMB and config.maxConnections (107Mi for their defaults).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resources")]
    pub resources: Option<ResourceRequirements>,

    /// Labels that a Kubernetes node must have to run the pods. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints of Kubernetes nodes that the pods tolerate. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::tolerations")]
    pub tolerations: Vec<Toleration>,

    /// How evenly the pods are spread over Kubernetes nodes, zones or other domains. A constraint without a labelSelector counts
    /// the pods of this Memcached. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::spread_constraints")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// PriorityClass of the pods. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,

    /// Whether two pods may run on the same Kubernetes node: Soft avoids it, Hard forbids it, None allows it. Default: Soft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<AntiAffinity>,

    /// How many pods a drain may evict at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<DisruptionBudget>,

    /// The Service through which clients find the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSettings>,

    /// How fast a change replaces the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSettings>,

    /// TLS between clients and memcached. A change of these settings or of the Secret restarts the pods one by one.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSettings>,

    /// Passwords for clients, in memcached's text protocol. A change of these settings or of the Secret restarts the pods one by
    /// one. Default: none; every client that reaches a pod may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSettings>,

    /// Which clients may reach the pods, in clusters whose network enforces NetworkPolicies. A change restarts no pods.
    /// Default: all clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicySettings>,

    /// Metrics for Prometheus, from an exporter in each pod. A change restarts the pods one by one, except a change of
    /// serviceMonitor. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsSettings>,

    /// Seconds that a pod may take to stop. For the first 5 s it continues to serve, so that clients can stop using its address.
    /// Default: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 6, max = 600))]
    pub termination_grace_period_seconds: Option<i64>,

    /// Labels for the pods, in addition to the operator's own labels, which win. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub pod_labels: BTreeMap<String, String>,

    /// Annotations for the pods. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::annotations")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// Settings of memcached itself.
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

    /// Maximum number of simultaneous connections (-c). Default: 1024.
    #[schemars(range(min = 1, max = 65536))]
    pub max_connections: i32,

    /// Worker threads (-t). Default: 4.
    #[schemars(range(min = 1, max = 128))]
    pub threads: i32,

    /// The largest item, in KiB (-I); a multiple of 512, and at most half of memoryMB. Default: 1024.
    #[serde(rename = "maxItemSizeKiB")]
    #[schemars(range(min = 512, max = 1_048_576), extend("multipleOf" = 512))]
    pub max_item_size_kib: i32,

    /// Whether memcached evicts old items when the memory is full. If false, it answers with an error instead (-M).
    /// Default: true.
    pub evictions: bool,

    /// How much memcached logs: 0 the least, 1 errors and warnings (-v), 2 also commands and responses (-vv). Default: 0.
    #[schemars(range(min = 0, max = 2))]
    pub verbosity: i32,

    /// Further arguments, passed last and in order. The operator refuses flags that it sets itself, that open or move a port, or
    /// that stop memcached or change how it runs in the container. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(length(min = 1, max = 256)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub extra_args: Vec<String>,
}

/// The Service through which clients find the pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSettings {
    /// Headless gives clients the address of every pod, which they need for consistent hashing. ClusterIP is one address for all
    /// pods: each connection reaches an arbitrary pod, so use it with size 1 or with a proxy. A change deletes the Service and
    /// creates it again. Default: Headless.
    pub r#type: ServiceType,

    /// Annotations for the Service. The operator keeps annotations that other clients have set. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// How fast a change replaces the pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(string(self.maxSurge) in ['0','0%'] && string(self.maxUnavailable) in ['0','0%'])",
    "message": "maxSurge and maxUnavailable cannot both be 0",
}]))]
pub struct RolloutSettings {
    /// How many pods may exist beyond size during a change: a number or a percentage. Default: 1.
    #[schemars(schema_with = "schemas::pods_or_percent")]
    pub max_surge: IntOrString,

    /// How many pods may be unavailable during a change: a number or a percentage. Default: 0.
    #[schemars(schema_with = "schemas::pods_or_percent")]
    pub max_unavailable: IntOrString,

    /// Seconds that a new pod must be ready before the next one is replaced, so that its cache can fill. Default: 10.
    #[schemars(range(min = 0, max = 3600))]
    pub min_ready_seconds: i32,
}

/// Whether two pods may run on the same Kubernetes node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum AntiAffinity {
    #[default]
    Soft,
    Hard,
    None,
}

/// How clients find the pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum ServiceType {
    #[default]
    Headless,
    ClusterIP,
}

/// The observed state of the cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MemcachedStatus {
    /// Names of the pods, including those that are not ready yet; sorted.
    #[schemars(length(max = 256), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub nodes: Vec<String>,

    /// Address and port of every pod that is ready; sorted.
    #[schemars(length(max = 256), inner(length(max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub endpoints: Vec<String>,

    /// Pods that exist.
    pub replicas: i32,

    /// Pods that are ready.
    pub ready_replicas: i32,

    /// Pods that have the latest configuration.
    pub updated_replicas: i32,

    /// Label selector of the pods, for kubectl scale and autoscalers.
    #[schemars(length(max = 256))]
    pub label_selector: String,

    /// The image that all pods run. During a change, this is the image before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub image: Option<String>,

    /// The last value of the annotation memcached.cache.example.com/reconcile-requested-at that the operator has handled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub last_handled_reconcile_at: Option<String>,

    /// The generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready: all pods are ready and no change is under way. Available: at least one pod is ready, or size is 0. Progressing: a
    /// change is under way. Degraded: a user should act, as its reason says. Also Reconciling and Stalled, but only while they are
    /// True.
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

    /// `metrics`, if they are enabled.
    pub fn metrics(&self) -> Option<&MetricsSettings> {
        self.metrics.as_ref().filter(|it| it.enabled)
    }

    /// Whether clients must use TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.generate || tls.secret_name.is_some())
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

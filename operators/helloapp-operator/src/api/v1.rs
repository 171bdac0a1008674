//! `apps.anupam.com/v1`, the only version.
//!
//! `kubectl explain` prints the doc comments of this module. The operator applies the *Default* of an optional field without
//! writing it into the object, so a later release may change it. The API server itself sets `size`, and the missing fields of an
//! object such as `rollout` if the user has written that object.

#![expect(unreachable_pub, reason = "KubeSchema derives through a hidden copy of the struct")]
#![expect(clippy::doc_markdown, reason = "kubectl explain would print the backticks")]

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Affinity, EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements, Toleration,
        TopologySpreadConstraint, Volume, VolumeMount,
    },
    apimachinery::pkg::{apis::meta::v1::Condition, util::intstr::IntOrString},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::{DisruptionBudget, ImagePullPolicy, RolloutProgress, SecurityProfile, schemas};

/// The desired state of the app.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "apps.anupam.com",
    version = "v1",
    kind = "HelloApp",
    plural = "helloapps",
    shortname = "ha",
    category = "all",
    namespaced,
    doc = "An image that runs a number of times, with an address if it listens on a port.",
    derive = "PartialEq",
    status = "HelloAppStatus",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    ),
    printcolumn(name = "IMAGE", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "SIZE", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "READY", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(
        name = "STATUS",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url", priority = 1),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    ),
    selectable = ".spec.image",
    selectable = ".status.image",
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 52")
        .message("metadata.name must be a DNS-1035 label of at most 52 characters")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.runAsUser) || self.runAsUser >= 1 || (has(self.securityProfile) && self.securityProfile != 'Restricted')",
        "message": "runAsUser must be at least 1 under Restricted",
    },
    {
        "rule": "!has(self.probe) || !has(self.probe.path) || has(self.port)",
        "message": "probe.path needs port",
    },
    {
        "rule": "!has(self.startupProbe) || (has(self.port) && (!has(self.probe) || !self.probe.disabled))",
        "message": "startupProbe needs port and a probe that is not disabled",
    },
    {
        "rule": "!has(self.service) || !has(self.service.enabled) || !self.service.enabled || has(self.port)",
        "message": "service.enabled needs port",
    },
]))]
pub struct HelloAppSpec {
    /// The image to run, with a tag or a digest.
    #[schemars(length(min = 1, max = 512), extend("x-kubernetes-validations" = [{
        "rule": r"self.matches('^\\S+$')",
        "message": "image must not contain blanks",
    }]))]
    pub image: String,

    /// Number of pods. 0 stops all pods and keeps the other objects. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub size: i32,

    /// TCP port on which the app listens. If set, the operator adds a Service and probes. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,

    /// The program to run, instead of the image's entrypoint. Default: the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::words")]
    pub command: Vec<String>,

    /// The arguments of the program, instead of the image's. Default: the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::words")]
    pub args: Vec<String>,

    /// Environment variables. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::env")]
    pub env: Vec<EnvVar>,

    /// Secrets and ConfigMaps. Each of their keys becomes an environment variable; variables in env win. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::env_from")]
    pub env_from: Vec<EnvFromSource>,

    /// Files for the pods: empty folders, and the contents of ConfigMaps and Secrets. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::volumes")]
    pub volumes: Vec<Volume>,

    /// Where the container mounts the volumes. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::volume_mounts")]
    pub volume_mounts: Vec<VolumeMount>,

    /// CPU and memory of each pod. If set, it replaces the default completely. Default: a request of 50m CPU and 64Mi memory, no
    /// limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resources")]
    pub resources: Option<ResourceRequirements>,

    /// How Kubernetes checks whether a pod serves. Default: if port is set, it opens a connection to that port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeSettings>,

    /// For an app that takes long to start: until it answers, the other probes wait. It checks the same as probe. If the app does
    /// not answer within failureThreshold times periodSeconds, the container is restarted. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_probe: Option<StartupProbe>,

    /// The Service, one address for all pods. It needs port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSettings>,

    /// When the kubelet pulls the image. Default: Always for the tag latest, else IfNotPresent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets with the credentials for pulling the image. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::pull_secrets")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// ServiceAccount of the pods. If set, the pods get its token, unless the ServiceAccount itself disables that. Default: the
    /// default account of the namespace, without a token unless securityProfile is Baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,

    /// Labels that a Kubernetes node must have to run the pods. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints of Kubernetes nodes that the pods tolerate. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::tolerations")]
    pub tolerations: Vec<Toleration>,

    /// How evenly the pods are spread over Kubernetes nodes, zones or other domains. A constraint without a labelSelector counts
    /// the pods of this HelloApp. Default: the constraints of the scheduler, which prefer different Kubernetes nodes and zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::spread_constraints")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// Which Kubernetes nodes and which neighbours the pods need, prefer or avoid. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::affinity")]
    pub affinity: Option<Affinity>,

    /// How strictly the rights of the pods are limited. Restricted: no root and no privileges, as the restricted Pod Security
    /// Standard requires. RootAllowed: the same, but the image may run as root. Baseline: also with the usual capabilities.
    /// Default: the operator's --default-security-profile, Restricted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_profile: Option<SecurityProfile>,

    /// The id of the user that runs the container; at least 1 under Restricted. Default: the image's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub run_as_user: Option<i64>,

    /// How fast a change replaces the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSettings>,

    /// How many pods a drain may evict at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<DisruptionBudget>,

    /// What the operator does when a change makes no progress for rollout.progressDeadlineSeconds. Never: it reports the problem.
    /// OnStall: it also restores the last available pod template, until spec results in another template; a new size does not.
    /// Default: Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,

    /// Labels for the pods, in addition to the operator's own labels, which win. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub pod_labels: BTreeMap<String, String>,

    /// Annotations for the pods. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::annotations")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// How Kubernetes checks whether a pod serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProbeSettings {
    /// The path that answers with a status from 200 to 399 while the pod serves. Default: none; then Kubernetes only opens a
    /// connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), extend("x-kubernetes-validations" = [{
        "rule": r"self.matches('^/\\S*$')",
        "message": "path must begin with / and not contain blanks",
    }]))]
    pub path: Option<String>,

    /// Whether to use no probes: a pod then counts as ready after a time, see rollout.minReadySeconds. Default: false.
    pub disabled: bool,
}

/// How Kubernetes waits for an app that takes long to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct StartupProbe {
    /// Seconds between two checks. Default: 10.
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: i32,

    /// How many checks may fail. Default: 30; with periodSeconds 10 the app has five minutes.
    #[schemars(range(min = 1, max = 3600))]
    pub failure_threshold: i32,
}

/// The Service, one address for all pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSettings {
    /// Whether the operator creates a Service. Default: true if spec.port is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,

    /// The port of the Service. Default: 80.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,

    /// Annotations for the Service. The operator keeps annotations that other clients have set. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// How fast a change replaces the pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(string(self.maxSurge) in ['0','0%'] && string(self.maxUnavailable) in ['0','0%'])",
        "message": "maxSurge and maxUnavailable cannot both be 0",
    },
    {
        "rule": "self.progressDeadlineSeconds > self.minReadySeconds",
        "message": "progressDeadlineSeconds must be more than minReadySeconds",
    },
]))]
pub struct RolloutSettings {
    /// How many pods may exist beyond size during a change: a number or a percentage. Default: 25%.
    #[schemars(schema_with = "schemas::pods_or_percent")]
    pub max_surge: IntOrString,

    /// How many pods may be unavailable during a change: a number or a percentage. Default: 25%.
    #[schemars(schema_with = "schemas::pods_or_percent")]
    pub max_unavailable: IntOrString,

    /// Seconds that a new pod must be ready before the change continues. Without a probe, a pod counts as ready after 10 seconds at
    /// the earliest, with rollback OnStall after 30, or one second before a shorter progressDeadlineSeconds. Default: 0.
    #[schemars(range(min = 0, max = 3600))]
    pub min_ready_seconds: i32,

    /// Seconds without progress after which a change counts as stalled; more than minReadySeconds. Progress is that more pods than
    /// before are replaced or available; a pod that crashes and starts again is none. Default: 600.
    #[schemars(range(min = 10, max = 86400))]
    pub progress_deadline_seconds: i32,
}

/// What the operator does when a change makes no progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum Rollback {
    #[default]
    Never,
    OnStall,
}

/// The observed state of the app.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HelloAppStatus {
    /// Pods that exist.
    pub replicas: i32,

    /// Pods that are ready. Without a probe: pods whose program runs.
    pub ready_replicas: i32,

    /// Pods that have been ready for rollout.minReadySeconds or, without a probe, have run for 10 seconds at least.
    pub available_replicas: i32,

    /// Pods that have the latest configuration.
    pub updated_replicas: i32,

    /// Label selector of the pods, for kubectl scale and autoscalers.
    #[schemars(length(max = 256))]
    pub label_selector: String,

    /// The image that all pods run. During a change, this is the image before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub image: Option<String>,

    /// The address of the app inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub url: Option<String>,

    /// How far a change of the pods has come that is under way, and since when it has made no progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutProgress>,

    /// With rollback OnStall: the pod template that was last fully available, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub last_available_template: Option<String>,

    /// With rollback OnStall: the release that the operator has given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RolledBack>,

    /// The last value of the annotation apps.anupam.com/reconcile-requested-at that the operator has handled.
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

/// A release that the operator has given up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RolledBack {
    /// The generation of the object when the release stalled.
    pub generation: i64,

    /// SHA-256 of its pod template. The operator tries any other template.
    #[schemars(length(max = 64))]
    pub template_hash: String,

    /// What was wrong with it.
    #[schemars(length(max = 4096))]
    pub because: String,
}

impl HelloAppSpec {
    /// `probe`, or its defaults.
    pub fn probe(&self) -> ProbeSettings {
        self.probe.clone().unwrap_or_default()
    }

    /// `service`, or its defaults.
    pub fn service(&self) -> ServiceSettings {
        self.service.clone().unwrap_or_default()
    }

    /// `rollout`, or its defaults.
    pub fn rollout(&self) -> RolloutSettings {
        self.rollout.clone().unwrap_or_default()
    }

    /// `podDisruptionBudget`, or its defaults.
    pub fn pod_disruption_budget(&self) -> DisruptionBudget {
        self.pod_disruption_budget.clone().unwrap_or_default()
    }

    /// `rollback`, or its default.
    pub fn rollback(&self) -> Rollback {
        self.rollback.unwrap_or_default()
    }
}

impl Default for StartupProbe {
    fn default() -> Self {
        Self { period_seconds: 10, failure_threshold: 30 }
    }
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self { enabled: None, port: 80, annotations: BTreeMap::new() }
    }
}

impl Default for RolloutSettings {
    fn default() -> Self {
        let quarter = || IntOrString::String("25%".to_owned());
        Self { max_surge: quarter(), max_unavailable: quarter(), min_ready_seconds: 0, progress_deadline_seconds: 600 }
    }
}

fn one() -> i32 {
    1
}

#[cfg(test)]
mod tests;

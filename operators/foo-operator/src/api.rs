//! `samplecontroller.k8s.io/v1alpha1`: what users write. Doc comments are what `kubectl explain` prints.

#![expect(clippy::duplicated_attributes, reason = "columns have a type each")]
#![expect(unreachable_pub, reason = "KubeSchema derives through a hidden copy of the struct")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::schemas;

/// What a Foo is to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    plural = "foos",
    namespaced,
    doc = "A Deployment of nginx, as in Kubernetes' own sample controller.",
    derive = "PartialEq",
    status = "FooStatus",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.availableReplicas"),
    annotation(
        "api-approved.kubernetes.io",
        "unapproved, experimental-only; please get an approval from Kubernetes API reviewers if you're trying to develop a CRD in the *.k8s.io or *.kubernetes.io groups"
    ),
    printcolumn(name = "DEPLOYMENT", type_ = "string", json_path = ".spec.deploymentName"),
    printcolumn(name = "REPLICAS", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "AVAILABLE", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// Name of the Deployment. Cannot be changed.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    #[x_kube(validation = Rule::new("self == oldSelf").message("deploymentName cannot be changed"))]
    pub deployment_name: String,

    /// Number of pods. Default: whatever the Deployment has; then others may scale it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub replicas: Option<i32>,
}

/// What became of a Foo.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FooStatus {
    /// Number of pods that have been ready for long enough.
    pub available_replicas: i32,

    /// The generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The value of annotation samplecontroller.k8s.io/reconcile-requested-at that was last acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub last_handled_reconcile_at: Option<String>,

    /// Ready and Degraded; Reconciling and Stalled while they are true.
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

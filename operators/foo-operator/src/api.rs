//! The API, `samplecontroller.k8s.io/v1alpha1`. `kubectl explain` prints the doc comments of this module.

#![expect(clippy::duplicated_attributes, reason = "columns have a type each")]
#![expect(unreachable_pub, reason = "KubeSchema derives through a hidden copy of the struct")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::schemas;

/// The desired state of a Foo.
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
    printcolumn(name = "STATUS", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    ),
    selectable = ".spec.deploymentName"
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// Name of the Deployment. Cannot be changed.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
            .message("deploymentName must consist of lower case letters, digits, '-' and '.', and each part between dots must begin and end with a letter or digit"),
        validation = Rule::new("self == oldSelf").message("deploymentName cannot be changed")
    )]
    pub deployment_name: String,

    /// Number of pods. Default: the replicas that the Deployment has, so that other clients may scale it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub replicas: Option<i32>,
}

/// The observed state of a Foo.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FooStatus {
    /// Number of available pods of the Deployment.
    pub available_replicas: i32,

    /// The generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The last value of the annotation samplecontroller.k8s.io/reconcile-requested-at that the operator has handled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub last_handled_reconcile_at: Option<String>,

    /// Ready and Degraded; Reconciling and Stalled while they are true.
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

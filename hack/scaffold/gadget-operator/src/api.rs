//! The API, `shop.example.com/v1alpha1`. `kubectl explain` prints the doc comments of this module.

#![expect(clippy::duplicated_attributes, reason = "columns have a type each")]
#![expect(unreachable_pub, reason = "KubeSchema derives through a hidden copy of the struct")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::schemas;

/// The desired state of the object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "shop.example.com",
    version = "v1alpha1",
    kind = "Gadget",
    plural = "gadgets",
    namespaced,
    doc = "A text in a ConfigMap.",
    derive = "PartialEq",
    status = "GadgetStatus",
    printcolumn(name = "STATUS", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct GadgetSpec {
    /// The text of the `ConfigMap`.
    #[schemars(length(min = 1, max = 1024))]
    pub text: String,
}

/// The observed state of the object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GadgetStatus {
    /// The generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The last value of the annotation shop.example.com/reconcile-requested-at that the operator has handled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub last_handled_reconcile_at: Option<String>,

    /// Ready and Degraded; Reconciling and Stalled while they are true.
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

use kube::CustomResource;
use manager::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, status = "GreetingStatus")]
pub struct GreetingSpec {}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GreetingStatus {
    observed_generation: Option<i64>,
    last_handled_reconcile_at: Option<String>,
    conditions: Vec<Condition>,
}
manager::standard_status!(GreetingStatus);

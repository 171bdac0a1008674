use kube::CustomResource;
use manager::StandardStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, status = "StandardStatus")]
pub struct GreetingSpec {}

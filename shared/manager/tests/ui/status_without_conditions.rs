//! Mistake: the status of a kind has no conditions.

use kube::CustomResource;
use manager::Controller;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "tests.example.com", version = "v1", kind = "Counter", namespaced, status = "Count")]
struct CounterSpec {
    step: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Count {
    value: i32,
}

fn main() {
    let _ = Controller::of::<Counter>();
}

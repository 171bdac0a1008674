//! The custom resource definitions of all operators, in the form in which they are applied. All other manifests are in the chart,
//! `charts/operators`.

use manager::{normalize, printed};
use serde_json::Value;

use crate::OPERATORS;

/// Returns the custom resource definitions of all operators as JSON.
pub fn definitions() -> Vec<Value> {
    let crds = OPERATORS.iter().flat_map(|operator| operator.crds());
    crds.map(|crd| printed(&normalize(&crd))).collect()
}

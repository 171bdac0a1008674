//! The custom resource definitions of all operators, as they are applied. Everything else that runs them in a cluster is in
//! the chart, `charts/operators`.

use manager::{normalize, printed};
use serde_json::Value;

use crate::OPERATORS;

/// The custom resource definitions of all operators.
pub fn definitions() -> Vec<Value> {
    let crds = OPERATORS.iter().flat_map(|operator| operator.crds());
    crds.map(|crd| printed(&normalize(&crd))).collect()
}

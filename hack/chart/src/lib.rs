//! What the Helm chart `charts/operators` is made from, and Helm itself.
//!
//! Reading order: [`values`] (what users can set: the one source of `values.yaml`, its schema and its table), [`document`]
//! (how these three are written), [`files`] (what each operator brings: the chart's templates read it and name no operator),
//! [`helm`] (both majors, as the tools that `hack/tools` pins), [`rendered`] (what the chart makes, as objects), [`plain`]
//! (the same without Helm, for `make dist`), [`schemas`] (what other minors of Kubernetes know), [`hub`] (what Artifact Hub
//! shows).

use std::path::{Path, PathBuf};

pub mod document;
pub mod files;
pub mod helm;
pub mod hub;
pub mod plain;
pub mod rendered;
pub mod schemas;
pub mod values;

/// The chart, below the root of the checkout.
pub const CHART: &str = "charts/operators";

/// The namespace that our commands install into.
pub const NAMESPACE: &str = "operators-system";

/// The name of the release that our commands make.
pub const RELEASE: &str = "operators";

/// Where the chart is.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(CHART)
}

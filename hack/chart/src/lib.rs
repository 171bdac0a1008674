//! Generates the parts of the Helm chart `charts/operators` that come from Rust types, and runs Helm.
//!
//! Reading order:
//!
//! - [`values`]: what users can set. It is the single source of `values.yaml`, its schema and its table.
//! - [`document`]: writes these three, and the defaults for the templates.
//! - [`files`]: the files of each operator. The chart's templates read them and name no operator.
//! - [`helm`]: runs both majors of Helm, at the versions that `hack/tools` pins.
//! - [`rendered`]: the output of Helm, as objects.
//! - [`plain`]: the same as plain manifests, for `make dist`.
//! - [`snapshots`]: what Helm renders by default, as files of the repository.
//! - [`schemas`]: the published schemas of other minors of Kubernetes.
//! - [`hub`]: the annotations for Artifact Hub.

use std::path::{Path, PathBuf};

pub mod document;
pub mod files;
pub mod helm;
pub mod hub;
pub mod plain;
pub mod rendered;
pub mod schemas;
pub mod snapshots;
pub mod values;

/// The folder of the chart, relative to the root of the checkout.
pub const CHART: &str = "charts/operators";

/// The namespace into which the tasks of this repository install the chart.
pub const NAMESPACE: &str = "operators-system";

/// The name of the Helm release that the tasks of this repository create.
pub const RELEASE: &str = "operators";

/// The absolute path of the chart's folder.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(CHART)
}

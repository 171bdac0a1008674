//! The Prometheus operator's `ServiceMonitor`, reduced to the fields that our operators write. Clusters without the Prometheus
//! operator do not have this kind.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{App, Child, Viewed};

/// Selects the Services that Prometheus scrapes, in the namespace of the object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource)]
#[kube(group = "monitoring.coreos.com", version = "v1", kind = "ServiceMonitor", namespaced, schema = "disabled")]
pub struct ServiceMonitorSpec {
    /// The ports to scrape, and how often.
    pub endpoints: Vec<Endpoint>,
    /// Selects the Services by their labels.
    pub selector: LabelSelector,
}

/// A port of a Service that answers at `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The name of the port in the Service.
    pub port: String,
    /// The time between two scrapes, as a Prometheus duration: `30s`.
    pub interval: String,
}

/// Returns a monitor of the Service of `app`. `labels` are the user's; our labels win.
pub fn service_monitor(
    name: String,
    app: &App,
    labels: &BTreeMap<String, String>,
    endpoint: Endpoint,
) -> ServiceMonitor {
    let mut metadata = app.metadata(name);
    let ours = metadata.labels.take().unwrap_or_default();
    metadata.labels = Some(labels.clone().into_iter().chain(ours).collect());
    let spec = ServiceMonitorSpec { endpoints: vec![endpoint], selector: app.label_selector() };
    ServiceMonitor { metadata, spec }
}

impl Viewed for ServiceMonitor {
    type View = ServiceMonitorView;
}

impl Child for ServiceMonitor {
    const EXCLUSIVE_FIELDS: &'static [&'static [&'static str]] = &[&["spec"]];

    /// The CRD has no defaults for the fields that we write.
    fn set_defaults(_: &mut Value) {}
}

/// Empty: reconcilers read only the identity of a `ServiceMonitor`, which [`Live`](crate::Live) holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ServiceMonitorView {}

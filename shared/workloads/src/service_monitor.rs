//! The Prometheus operator's `ServiceMonitor`, as far as operators write it. Clusters without that operator have no such kind.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{App, Child, Viewed};

/// Which Services are scraped, in the namespace of the object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource)]
#[kube(group = "monitoring.coreos.com", version = "v1", kind = "ServiceMonitor", namespaced, schema = "disabled")]
pub struct ServiceMonitorSpec {
    /// Ports, and how often.
    pub endpoints: Vec<Endpoint>,
    /// The Services, by their labels.
    pub selector: LabelSelector,
}

/// A port of a Service that answers at `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its name.
    pub port: String,
    /// As Prometheus writes durations: `30s`.
    pub interval: String,
}

/// A monitor of the Service of `app`. `labels` are the user's, and ours win.
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
    const AUTHORS_ALONE: &'static [&'static [&'static str]] = &[&["spec"]];

    /// The definition has no defaults for what we write.
    fn set_defaults(_: &mut Value) {}
}

/// The part of a `ServiceMonitor` that reconcilers read: none. Identity is kept beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ServiceMonitorView {}

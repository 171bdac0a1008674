//! Settings of the metrics for Prometheus.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::ResourceRequirements, networking::v1::NetworkPolicyPeer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::schemas;

/// An exporter in every pod, which serves memcached's statistics to Prometheus.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MetricsSettings {
    /// Whether each pod runs an exporter. Default: false.
    pub enabled: bool,

    /// Image of the exporter. Default: the operator's --memcached-exporter-image,
    /// docker.io/prom/memcached-exporter:v0.15.4.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), extend("x-kubernetes-validations" = [{
        "rule": r"self.matches('^\\S+$')",
        "message": "image must not contain blanks",
    }]))]
    pub image: Option<String>,

    /// Port of the exporter in the pods and in the Service, where its name is metrics. Default: 9150.
    #[schemars(range(min = 1024, max = 65535))]
    pub port: i32,

    /// CPU and memory of the exporter. If set, it replaces the default completely. Default: requests of 10m CPU and 16Mi memory,
    /// and a memory limit of 64Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resources")]
    pub resources: Option<ResourceRequirements>,

    /// Which clients may reach the exporters if networkPolicy is enabled, such as the pods of Prometheus in another namespace. A
    /// change restarts no pods. Default: those of networkPolicy.from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::peers")]
    pub from: Vec<NetworkPolicyPeer>,

    /// A ServiceMonitor that makes the Prometheus operator scrape the exporters. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_monitor: Option<ServiceMonitorSettings>,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { enabled: false, image: None, port: 9150, resources: None, from: Vec::new(), service_monitor: None }
    }
}

/// A `ServiceMonitor` of the Prometheus operator. If the cluster does not have this kind, the operator creates the object once
/// the kind is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceMonitorSettings {
    /// Whether the operator creates a ServiceMonitor. Default: false.
    pub enabled: bool,

    /// Time between two scrapes of an exporter, such as 30s or 1m30s; at least 1s. Default: 30s.
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$') && self.matches('[1-9]')",
        "message": "interval must be numbers with the units y, w, d, h, m and s in this order, such as 1m30s, and at least 1s",
    }]))]
    pub interval: String,

    /// Labels for the ServiceMonitor; a Prometheus selects ServiceMonitors by their labels. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub labels: BTreeMap<String, String>,
}

impl Default for ServiceMonitorSettings {
    fn default() -> Self {
        Self { enabled: false, interval: "30s".to_owned(), labels: BTreeMap::new() }
    }
}

//! Metrics of the nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::schemas;

/// An exporter beside every node, which tells Prometheus how the node fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MetricsSettings {
    /// Whether there is an exporter. Default: false.
    pub enabled: bool,

    /// Image of the exporter. Default: the operator's --memcached-exporter-image,
    /// docker.io/prom/memcached-exporter:v0.15.4.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,

    /// Port of the exporter, in the pods and in the Service, where it is called metrics. Default: 9150.
    #[schemars(range(min = 1024, max = 65535))]
    pub port: i32,

    /// CPU and memory of the exporter, taken as they are written. Default: requests of 10m CPU and 16Mi, and a memory
    /// limit of 64Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resources")]
    pub resources: Option<ResourceRequirements>,

    /// Whether the Prometheus operator is told of the exporters. Default: it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_monitor: Option<ServiceMonitorSettings>,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { enabled: false, image: None, port: 9150, resources: None, service_monitor: None }
    }
}

/// A `ServiceMonitor` of the Prometheus operator. On a cluster without that operator none is made until it comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceMonitorSettings {
    /// Whether there is one. Default: false.
    pub enabled: bool,

    /// How often Prometheus asks each exporter, such as 30s or 1m30s. Default: 30s.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h|d|w|y))+$"))]
    pub interval: String,

    /// Labels for the ServiceMonitor, by which a Prometheus chooses those that it follows. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub labels: BTreeMap<String, String>,
}

impl Default for ServiceMonitorSettings {
    fn default() -> Self {
        Self { enabled: false, interval: "30s".to_owned(), labels: BTreeMap::new() }
    }
}

//! Metrics of the nodes.

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
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { enabled: false, image: None, port: 9150, resources: None }
    }
}

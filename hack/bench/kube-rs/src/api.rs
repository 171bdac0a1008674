//! The API, with only the fields that the benchmark uses. The CustomResourceDefinition is that of memcached-operator.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "memcached.cache.example.com",
    version = "v1",
    kind = "Memcached",
    plural = "memcacheds",
    status = "MemcachedStatus",
    schema = "disabled",
    namespaced
)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedSpec {
    pub size: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemcachedStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub replicas: i32,
    pub ready_replicas: i32,
    pub conditions: Vec<Condition>,
}

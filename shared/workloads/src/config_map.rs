//! The cached view of a `ConfigMap`. It is empty: reconcilers read only the identity.

use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;
use serde_json::Value;

use crate::{Child, Viewed};

impl Viewed for ConfigMap {
    type View = ConfigMapView;
}

impl Child for ConfigMap {
    const EXCLUSIVE_FIELDS: &'static [&'static [&'static str]] = &[&["data"], &["binaryData"]];

    /// The API server sets no defaults.
    fn set_defaults(_: &mut Value) {}
}

/// Empty: reconcilers read only the identity of a `ConfigMap`, which [`Live`](crate::Live) holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ConfigMapView {}

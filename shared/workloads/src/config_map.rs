//! What is kept of a `ConfigMap`: nothing beside its identity.

use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;
use serde_json::Value;

use crate::{Child, Viewed};

impl Viewed for ConfigMap {
    type View = ConfigMapView;
}

impl Child for ConfigMap {
    const AUTHORS_ALONE: &'static [&'static [&'static str]] = &[&["data"], &["binaryData"]];

    /// The API server fills nothing in.
    fn set_defaults(_: &mut Value) {}
}

/// The part of a `ConfigMap` that reconcilers read: none. Identity is kept beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ConfigMapView {}

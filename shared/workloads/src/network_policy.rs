//! What is kept of a network policy: nothing but that it exists.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde::Deserialize;
use serde_json::Value;

use crate::{Child, Viewed};

impl Viewed for NetworkPolicy {
    type View = NetworkPolicyView;
}

impl Child for NetworkPolicy {
    const AUTHORS_ALONE: &'static [&'static [&'static str]] = &[&["spec"]];

    /// `networking/v1` fills in protocols and policy types, which we always give.
    fn set_defaults(_: &mut Value) {}
}

/// The part of a network policy that reconcilers read: none. Identity is kept beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct NetworkPolicyView {}

//! The cached view of a network policy. It is empty: reconcilers read only the identity.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde::Deserialize;
use serde_json::Value;

use crate::{Child, Viewed};

impl Viewed for NetworkPolicy {
    type View = NetworkPolicyView;
}

impl Child for NetworkPolicy {
    const EXCLUSIVE_FIELDS: &'static [&'static [&'static str]] = &[&["spec"]];

    /// `networking/v1` sets defaults only for protocols and policy types, and we always set both.
    fn set_defaults(_: &mut Value) {}
}

/// Empty: reconcilers read only the identity of a network policy, which [`Live`](crate::Live) holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct NetworkPolicyView {}

//! The cached view of a disruption budget. It is empty: reconcilers read only the identity.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Deserialize;
use serde_json::Value;

use crate::{Child, Viewed, defaults};

impl Viewed for PodDisruptionBudget {
    type View = PodDisruptionBudgetView;
}

impl Child for PodDisruptionBudget {
    const EXCLUSIVE_FIELDS: &'static [&'static [&'static str]] = &[&["spec"]];

    fn set_defaults(object: &mut Value) {
        defaults::disruption_budget(object);
    }
}

/// Empty: reconcilers read only the identity of a disruption budget, which [`Live`](crate::Live) holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct PodDisruptionBudgetView {}

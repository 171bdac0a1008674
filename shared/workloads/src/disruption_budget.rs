//! What is kept of a disruption budget: nothing but that it exists.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Deserialize;
use serde_json::Value;

use crate::{Child, Viewed, defaults};

impl Viewed for PodDisruptionBudget {
    type View = PodDisruptionBudgetView;
}

impl Child for PodDisruptionBudget {
    const AUTHORS_ALONE: &'static [&'static [&'static str]] = &[&["spec"]];

    fn set_defaults(object: &mut Value) {
        defaults::disruption_budget(object);
    }
}

/// The part of a disruption budget that reconcilers read: none. Identity is kept beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct PodDisruptionBudgetView {}

//! The disruption budget of an app's pods: the user's settings, and the object built from them.

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{App, schemas};

/// How many pods a drain may evict at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DisruptionBudget {
    #[expect(clippy::doc_markdown, reason = "kubectl explain would print the backticks")]
    /// Whether a PodDisruptionBudget is created: Auto (if size is at least 2), Always or Never. Default: Auto.
    pub mode: BudgetMode,

    /// How many pods may be unavailable at a time: a number, or a percentage such as 25%; at least 1. Default: 1.
    #[schemars(schema_with = "schemas::some_pods_or_percent")]
    pub max_unavailable: IntOrString,
}

/// When a disruption budget is created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum BudgetMode {
    #[default]
    Auto,
    Always,
    Never,
}

impl Default for DisruptionBudget {
    fn default() -> Self {
        Self { mode: BudgetMode::default(), max_unavailable: IntOrString::Int(1) }
    }
}

impl DisruptionBudget {
    /// Returns the budget for `size` pods, or `None` if the mode wants none. `Auto` wants none for a single pod, because such a
    /// budget protects nothing: it lets a drain evict one pod at a time.
    ///
    /// A drain may always evict pods that are not ready: a broken pod must not block it.
    pub fn of(&self, name: String, app: &App, size: i32) -> Option<PodDisruptionBudget> {
        let wanted = match self.mode {
            BudgetMode::Auto => size >= 2,
            BudgetMode::Always => true,
            BudgetMode::Never => false,
        };
        wanted.then(|| PodDisruptionBudget {
            metadata: app.metadata(name),
            spec: Some(PodDisruptionBudgetSpec {
                max_unavailable: Some(self.max_unavailable.clone()),
                unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
                selector: Some(app.label_selector()),
                min_available: None,
            }),
            status: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn budget(mode: BudgetMode, size: i32) -> Option<PodDisruptionBudget> {
        let app = App::of(&ConfigMap::default());
        DisruptionBudget { mode, ..Default::default() }.of("x".to_owned(), &app, size)
    }

    #[test]
    fn budget_mode_decides_whether_a_budget_exists() {
        for (mode, sizes_with_a_budget) in
            [(BudgetMode::Auto, [false, false, true]), (BudgetMode::Always, [true; 3]), (BudgetMode::Never, [false; 3])]
        {
            assert_eq!([0, 1, 2].map(|size| budget(mode, size).is_some()), sizes_with_a_budget, "{mode:?}");
        }
    }
}

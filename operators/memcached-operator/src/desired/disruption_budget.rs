//! The disruption budget that keeps drains from emptying several caches at a time.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use workloads::App;

use crate::api::{Memcached, v1::BudgetMode};

/// None where it would do harm: a budget for a single node makes a drain wait for ever.
pub fn disruption_budget(memcached: &Memcached) -> Option<PodDisruptionBudget> {
    let budget = memcached.spec.pod_disruption_budget();
    let wanted = match budget.mode {
        BudgetMode::Auto => memcached.spec.size >= 2,
        BudgetMode::Always => true,
        BudgetMode::Never => false,
    };
    let app = App::of(memcached);
    wanted.then(|| workloads::disruption_budget(memcached.name_any(), &app, budget.max_unavailable))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    use serde_json::json;

    use super::*;
    use crate::samples;

    #[test]
    fn the_disruption_budget_of_the_sample() {
        insta::assert_yaml_snapshot!(disruption_budget(&samples::seed()));
    }

    #[test]
    fn when_there_is_one() {
        for (mode, sizes_with_a_budget) in
            [("Auto", [false, false, true]), ("Always", [true; 3]), ("Never", [false; 3])]
        {
            let exists = [0, 1, 2].map(|size| {
                let spec = json!({"size": size, "podDisruptionBudget": {"mode": mode}});
                disruption_budget(&samples::with_spec(&spec)).is_some()
            });
            assert_eq!(exists, sizes_with_a_budget, "{mode}");
        }
    }

    #[test]
    fn a_share_of_the_nodes() {
        let spec = json!({"size": 8, "podDisruptionBudget": {"maxUnavailable": "25%"}});
        let budget = disruption_budget(&samples::with_spec(&spec)).expect("a budget");
        let max_unavailable = budget.spec.and_then(|it| it.max_unavailable);
        assert_eq!(max_unavailable, Some(IntOrString::String("25%".to_owned())));
    }
}

//! The disruption budget, which prevents drains from emptying several caches at a time.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use workloads::App;

use crate::api::Memcached;

/// Returns the disruption budget; `None` if the spec wants none.
pub fn disruption_budget(memcached: &Memcached) -> Option<PodDisruptionBudget> {
    let spec = &memcached.spec;
    spec.pod_disruption_budget().of(memcached.name_any(), &App::of(memcached), spec.size)
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
    fn budget_accepts_a_percentage() {
        let spec = json!({"size": 8, "podDisruptionBudget": {"maxUnavailable": "25%"}});
        let budget = disruption_budget(&samples::with_spec(&spec)).expect("a budget");
        let max_unavailable = budget.spec.and_then(|it| it.max_unavailable);
        assert_eq!(max_unavailable, Some(IntOrString::String("25%".to_owned())));
    }
}

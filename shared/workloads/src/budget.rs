//! The disruption budget of an app's pods.

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::core::ObjectMeta;

use crate::App;

/// Lets drains take at most `max_unavailable` of the app's healthy pods at a time.
///
/// Pods that are not ready may always go: a broken pod must not block a drain.
pub fn disruption_budget(name: String, app: &App, max_unavailable: IntOrString) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: ObjectMeta { name: Some(name), labels: Some(app.labels()), ..Default::default() },
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(max_unavailable),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            selector: Some(app.label_selector()),
            min_available: None,
        }),
        status: None,
    }
}

//! The desired children of a HelloApp: names, labels and specs. The runtime adds the namespace and the owner reference.

mod deployment;
mod service;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use workloads::App;

pub use deployment::{CONTAINER, deployment, is_possible, min_ready_seconds, proof, template};
pub use service::{service, url};

use crate::HelloApp;

/// Returns the disruption budget, which prevents drains from evicting all pods at a time; `None` if the spec wants none.
pub fn disruption_budget(hello: &HelloApp) -> Option<PodDisruptionBudget> {
    hello.spec.pod_disruption_budget().of(hello.name_any(), &App::of(hello), hello.spec.size)
}

#[cfg(test)]
mod tests;

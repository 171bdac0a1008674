//! The children of a HelloApp as they should be: names, labels and specs. The runtime adds namespace and owner.

mod deployment;
mod service;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use workloads::App;

pub use deployment::{CONTAINER, deployment, template};
pub use service::{service, url};

use crate::HelloApp;

/// Keeps drains from taking all pods at a time. None where it would do harm.
pub fn disruption_budget(hello: &HelloApp) -> Option<PodDisruptionBudget> {
    hello.spec.pod_disruption_budget().of(hello.name_any(), &App::of(hello), hello.spec.size)
}

#[cfg(test)]
mod tests;

//! The status of a Foo.

use manager::{Health, Report, Verdict};
use workloads::{DeploymentView, Live};

use crate::{Foo, api::FooStatus};

manager::standard_status!(FooStatus);

/// Returns the status of `object`, from its Deployment, if that exists.
pub fn of(object: &Foo, deployment: Option<&Live<DeploymentView>>) -> Report<FooStatus> {
    let available = deployment.map_or(0, |it| it.available());
    let wanted = object.spec.replicas.or(deployment.map(|it| it.wanted())).unwrap_or(1);
    let says = format!("{available}/{wanted} replicas are available");
    let ready = match deployment {
        Some(deployment) if deployment.is_observed() && available >= wanted => Verdict::yes("Ready", says),
        _ => Verdict::no("ReplicasNotReady", says),
    };
    let status = FooStatus { available_replicas: available, ..FooStatus::default() };
    Report { status, health: Health::of(ready) }
}

/// Whether `after` differs from `before` in generation, available replicas or `Degraded`. The operator then emits upstream's
/// event `Synced`.
pub fn changed(before: Option<&FooStatus>, after: Option<&FooStatus>) -> bool {
    let degraded = |it: &FooStatus| it.conditions.iter().any(|it| it.type_ == "Degraded" && it.status == "True");
    let reported =
        |status: Option<&FooStatus>| status.map(|it| (it.observed_generation, it.available_replicas, degraded(it)));
    reported(before) != reported(after)
}

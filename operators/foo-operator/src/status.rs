//! The status of a Foo.

use manager::{Health, Report, Verdict};
use workloads::{DeploymentView, Live, refused_pods};

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
    let problems = deployment.and_then(|it| it.refused()).map(refused_pods).into_iter().collect();
    Report { status, health: Health { problems, ..Health::of(ready) } }
}

/// Whether `after` differs from `before` in generation, available replicas or `Degraded`. The operator then emits upstream's
/// event `Synced`.
pub fn changed(before: Option<&FooStatus>, after: Option<&FooStatus>) -> bool {
    let degraded = |it: &FooStatus| it.conditions.iter().any(|it| it.type_ == "Degraded" && it.status == "True");
    let reported =
        |status: Option<&FooStatus>| status.map(|it| (it.observed_generation, it.available_replicas, degraded(it)));
    reported(before) != reported(after)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refused_pods_are_reported_as_a_problem() {
        let foo: Foo = serde_saphyr::from_str(include_str!("../samples/example-foo.yaml")).expect("a valid Foo");
        let problems = |message: &str| {
            let failure =
                json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message});
            let deployment = Live {
                namespace: "default".into(),
                name: "example-foo".into(),
                uid: "u".into(),
                generation: 1,
                created: None,
                deleting: None,
                view: serde_json::from_value(json!({"status": {"observedGeneration": 1, "conditions": [failure]}}))
                    .expect("a view of the object"),
            };
            let problems = of(&foo, Some(&deployment)).health.problems;
            problems.into_iter().map(|it| (it.kind.reason, it.message)).collect::<Vec<_>>()
        };
        let rule = "pods \"x-1\" is forbidden: violates PodSecurity \"restricted:latest\"";
        let said = "pods cannot be created: violates PodSecurity \"restricted:latest\"".to_owned();
        assert_eq!(problems(rule), [("ChildRejected", said)]);
        let [(reason, _)] = problems("exceeded quota: q, requested: pods=1").try_into().expect("one problem");
        assert_eq!(reason, "QuotaExceeded");
    }
}

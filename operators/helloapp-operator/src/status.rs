//! The status of a HelloApp: counts, image, address, and health.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::apis::meta::v1::Condition};
use manager::{Problem, ProblemKind, Report};
use workloads::{
    App, ClockReading, DeploymentView, Fleet, FleetWording, Live, PodView, RolloutProgress, SecurityPolicy, ServiceView,
};

use crate::{
    HelloApp,
    api::v1::{HelloAppStatus, Rollback, RolledBack},
    desired::{self, CONTAINER},
    rollback::{self, GivenUp},
};

manager::standard_status!(HelloAppStatus);

/// The rollout made no progress, so the pods run the previous template.
const ROLLED_BACK: ProblemKind =
    ProblemKind::new("RolledBack", ProblemKind::ROLLOUT_STALLED.rank).with_event("RolledBack");

const WORDING: FleetWording = FleetWording {
    pod: "replica",
    pods: "replicas",
    available: "MinimumReplicasAvailable",
    none_ready: "NoReadyReplicas",
    not_ready: ProblemKind::not_ready("ReplicasNotReady"),
};

/// The observed objects of a HelloApp.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The pod template of the spec.
    pub wanted: &'a PodTemplateSpec,
    /// The release that the operator has given up, if another template runs instead.
    pub given_up: Option<&'a GivenUp>,
    /// Its Deployment, if it exists.
    pub deployment: Option<&'a Live<DeploymentView>>,
    /// Whether the Deployment has the template that the operator wants now. The API server may have refused it: then the Deployment
    /// shows how an earlier template does.
    pub is_applied: bool,
    /// Its Service, if it exists.
    pub service: Option<&'a Live<ServiceView>>,
    /// Whether the Service has the port that the operator wants now. The API server may have refused it: then the Service still has
    /// the port of the stored address.
    pub is_service_applied: bool,
    /// Its pods.
    pub pods: &'a [Arc<Live<PodView>>],
}

/// Returns the status of `hello`, from its observed objects and the stored status. `security` says which profiles it may set.
pub fn of(
    hello: &HelloApp,
    observed: Observed<'_>,
    security: SecurityPolicy,
    now: Timestamp,
) -> Report<HelloAppStatus> {
    let Observed { wanted, given_up, deployment, is_applied, service, is_service_applied, pods } = observed;
    let applied = Some(given_up.map_or(wanted, |it| &it.instead)).filter(|_| is_applied);
    let (Report { status, mut health }, is_stalled) = shown(hello, applied, deployment, pods, security, now);
    let worst = health.problems.iter().min_by_key(|it| it.kind.rank).map(|it| it.message.as_str());
    // Without rollbacks there is nothing to remember, whatever the Deployment has.
    let memory = if is_applied || hello.spec.rollback() == Rollback::Never {
        rollback::remember(hello, wanted, given_up, deployment, is_stalled, worst, security)
    } else {
        rollback::Memory::stored(hello.status.as_ref())
    };
    health.problems.extend(given_up.map(|it| rolled_back(&it.rolled_back, is_applied)));
    let stored_url = hello.status.as_ref().and_then(|it| it.url.clone());
    let url = if is_service_applied { Some(desired::url(hello)) } else { stored_url };
    let status = HelloAppStatus {
        url: url.filter(|_| service.is_some()),
        last_available_template: memory.template,
        rolled_back: memory.rolled_back,
        ..status
    };
    Report { status, health }
}

/// Returns what the Deployment and the pods of `hello` show. The address and what the status remembers of releases stay as stored.
pub fn observe(
    hello: &HelloApp,
    deployment: Option<&Live<DeploymentView>>,
    pods: &[Arc<Live<PodView>>],
    security: SecurityPolicy,
    now: Timestamp,
) -> Report<HelloAppStatus> {
    let (Report { status, health }, _) = shown(hello, None, deployment, pods, security, now);
    let stored = hello.status.clone().unwrap_or_default();
    let status = HelloAppStatus {
        url: stored.url,
        last_available_template: stored.last_available_template,
        rolled_back: stored.rolled_back,
        ..status
    };
    Report { status, health }
}

/// Returns what the Deployment and the pods of `hello` show, without its address and what the status remembers of releases. Also
/// returns whether the rollout has stalled. `applied` is the template that the Deployment has; `None` if the operator has not
/// applied it now.
fn shown(
    hello: &HelloApp,
    applied: Option<&PodTemplateSpec>,
    deployment: Option<&Live<DeploymentView>>,
    pods: &[Arc<Live<PodView>>],
    security: SecurityPolicy,
    now: Timestamp,
) -> (Report<HelloAppStatus>, bool) {
    let stored = hello.status.as_ref();
    let conditions: &[Condition] = stored.map_or(&[], |it| &it.conditions);
    let before = stored.and_then(|it| it.rollout.as_ref());
    let known = || before.map(|it| it.template.clone());
    let template = || applied.map(rollback::hash).or_else(known).unwrap_or_default();
    let present = ClockReading::new(now, conditions);
    let progress = RolloutProgress::of(deployment, hello.spec.size, template, before, present);
    let deadline = hello.spec.rollout().progress_deadline_seconds;
    let min_ready = desired::min_ready_seconds(&hello.spec);
    let stalls_at = progress.as_ref().zip(deployment).and_then(|(it, live)| it.stalls_at(live, deadline, min_ready));
    let fleet = Fleet {
        wording: WORDING,
        size: hello.spec.size,
        proof: desired::proof(hello),
        progress_deadline_seconds: deadline,
        stalls_at,
        deployment,
        pods,
        stored: conditions,
        security: Some(security),
        now,
    };
    let (rollout, health) = (fleet.rollout(), fleet.health());
    let rolled_out = rollout.change.is_none();
    let image = deployment.and_then(|it| it.image(CONTAINER)).filter(|_| rolled_out).map(ToOwned::to_owned);
    let status = HelloAppStatus {
        replicas: deployment.map_or(0, |it| it.replicas()),
        ready_replicas: deployment.map_or(0, |it| it.ready()),
        available_replicas: deployment.map_or(0, |it| it.available()),
        updated_replicas: deployment.map_or(0, |it| it.updated()),
        label_selector: App::of(hello).to_string(),
        image: image.or_else(|| stored?.image.clone()),
        rollout: progress,
        ..Default::default()
    };
    (Report { status, health }, rollout.stalled.is_some())
}

/// `is_applied` tells whether the Deployment has the last available template. If it was not written, the pods may still run the
/// release that the operator has given up.
fn rolled_back(rolled_back: &RolledBack, is_applied: bool) -> Problem {
    let RolledBack { generation, because, .. } = rolled_back;
    let (verb, but) = if is_applied { ("run", "") } else { ("should run", ", but the Deployment was not written") };
    let message = format!(
        "the pods {verb} the last available template, because the release of generation {generation} made no progress{but}; \
         change spec.image or another field of the pods to try again; the problem was: {because}"
    );
    Problem::new(ROLLED_BACK, message)
}

#[cfg(test)]
mod tests;

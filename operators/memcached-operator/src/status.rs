//! What users are told of a Memcached: counts, nodes, and how it fares.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use manager::{Health, Problem, Report, Verdict};
use workloads::{
    App, DeploymentView, Live, PodView, pods,
    rollout::{Change, Rollout},
};

use crate::{
    api::{Memcached, v1::MemcachedStatus},
    desired::{CONTAINER, PROGRESS_DEADLINE_SECONDS},
};

manager::standard_status!(MemcachedStatus);

/// A node that is lost is replaced within this time, as a rule.
const REPLACED_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// The status of `memcached`, from its Deployment (if there is one) and its pods as they are now.
pub fn of(
    memcached: &Memcached,
    deployment: Option<&Live<DeploymentView>>,
    pods: &[Arc<Live<PodView>>],
    now: Timestamp,
) -> Report<MemcachedStatus> {
    let status = MemcachedStatus {
        nodes: pods::names(pods),
        endpoints: pods::endpoints(pods, memcached.spec.port()),
        replicas: deployment.map_or(0, |it| it.replicas()),
        ready_replicas: deployment.map_or(0, |it| it.ready()),
        updated_replicas: deployment.map_or(0, |it| it.updated()),
        label_selector: App::of(memcached).to_string(),
        image: deployment.and_then(|it| it.image(CONTAINER)).map(ToOwned::to_owned),
        ..Default::default()
    };
    Report { status, health: health(memcached, deployment, pods, now) }
}

fn health(
    memcached: &Memcached,
    deployment: Option<&Live<DeploymentView>>,
    pods: &[Arc<Live<PodView>>],
    now: Timestamp,
) -> Health {
    let stored = Stored::of(memcached);
    let rollout = Rollout::of(deployment, memcached.spec.size, stored.change());
    let diagnosis = pods::diagnose(pods, now);
    let late = late_from(&rollout, &stored, now);

    let mut problems: Vec<_> = diagnosis.faults.into_iter().map(|it| Problem::new(it.reason, it.message)).collect();
    problems.extend(rollout.stalled.as_deref().map(stalled));
    if late.is_some_and(|then| then <= now) {
        problems.push(Problem::new("NodesNotReady", nodes_ready(&rollout)));
    }
    Health {
        available: Some(available(&rollout)),
        progressing: Some(progressing(&rollout)),
        problems,
        ready: ready(&rollout),
        recheck: diagnosis.recheck.into_iter().chain(late.filter(|then| *then > now)).min(),
    }
}

fn available(rollout: &Rollout) -> Verdict {
    match rollout {
        Rollout { size: 0, .. } => scaled_to_zero(),
        Rollout { ready: 0, .. } => Verdict::no("NoReadyNodes", nodes_ready(rollout)),
        _ => Verdict::yes("MinimumNodesAvailable", nodes_ready(rollout)),
    }
}

fn progressing(rollout: &Rollout) -> Verdict {
    let Rollout { size, updated, ready, .. } = rollout;
    match rollout.change {
        None => Verdict::no("Stable", "no change is being carried out"),
        Some(change @ Change::RollingOut) => Verdict::yes(change.reason(), format!("{updated}/{size} nodes updated")),
        Some(change @ Change::Scaling) => {
            Verdict::yes(change.reason(), format!("scaling to {size} nodes, {ready} are ready"))
        }
    }
}

fn ready(rollout: &Rollout) -> Verdict {
    match rollout {
        Rollout { size: 0, .. } => scaled_to_zero(),
        Rollout { size, .. } if rollout.all_ready() => Verdict::yes("Ready", format!("all {size} nodes are ready")),
        _ => Verdict::no("NodesNotReady", nodes_ready(rollout)),
    }
}

fn scaled_to_zero() -> Verdict {
    Verdict::yes("ScaledToZero", "size is 0")
}

fn stalled(message: &str) -> Problem {
    let text = format!("Rollout made no progress for {PROGRESS_DEADLINE_SECONDS}s: {message}");
    Problem::new("RolloutStalled", text)
}

fn nodes_ready(rollout: &Rollout) -> String {
    format!("{}/{} nodes are ready", rollout.ready, rollout.size)
}

/// From when on it is a problem that nodes are missing. Normal start-up must not be called one.
fn late_from(rollout: &Rollout, stored: &Stored<'_>, now: Timestamp) -> Option<Timestamp> {
    if rollout.all_ready() {
        return None;
    }
    let (since, grace) = match rollout.change {
        // The Deployment itself says when a rollout takes too long.
        Some(Change::RollingOut) => return None,
        Some(Change::Scaling) => {
            (stored.since("Progressing", "True"), SignedDuration::from_secs(PROGRESS_DEADLINE_SECONDS.into()))
        }
        None => {
            let unready = stored.since("Ready", "False");
            let stable = stored.since("Progressing", "False");
            (unready.zip(stable).map(|(unready, stable)| unready.max(stable)), REPLACED_WITHIN)
        }
    };
    since.unwrap_or(now).checked_add(grace).ok()
}

/// What the status said the last time. A Deployment does not tell since when it lacks nodes, nor why.
struct Stored<'a> {
    conditions: &'a [Condition],
}

impl<'a> Stored<'a> {
    fn of(memcached: &'a Memcached) -> Self {
        Self { conditions: memcached.status.as_ref().map_or(&[], |it| &it.conditions) }
    }

    fn condition(&self, type_: &str, status: &str) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.type_ == type_ && it.status == status)
    }

    fn change(&self) -> Option<Change> {
        self.condition("Progressing", "True").and_then(|it| Change::from_reason(&it.reason))
    }

    fn since(&self, type_: &str, status: &str) -> Option<Timestamp> {
        self.condition(type_, status).map(|it| it.last_transition_time.0)
    }
}

#[cfg(test)]
mod tests;

//! The status of a Memcached: counts, names and addresses of the pods, and health.

use std::sync::Arc;

use jiff::Timestamp;
use manager::{Problem, ProblemKind, Report};
use workloads::{App, DeploymentView, Fleet, FleetWording, Live, PodView, Proof, pods};

use crate::{
    api::{
        Memcached,
        convert::{INVALID_SIZE, invalid_size},
        v1::MemcachedStatus,
    },
    desired::{CONTAINER, PROGRESS_DEADLINE_SECONDS},
};

manager::standard_status!(MemcachedStatus);

const WORDING: FleetWording = FleetWording {
    pod: "node",
    pods: "nodes",
    available: "MinimumNodesAvailable",
    none_ready: "NoReadyNodes",
    not_ready: ProblemKind::not_ready("NodesNotReady"),
};

/// Returns the status of `memcached`, from the current state of its Deployment (if it exists) and of its pods.
pub fn of(
    memcached: &Memcached,
    deployment: Option<&Live<DeploymentView>>,
    pods: &[Arc<Live<PodView>>],
    now: Timestamp,
) -> Report<MemcachedStatus> {
    let stored = memcached.status.as_ref();
    let invalid = invalid_size(memcached);
    let fleet = Fleet {
        wording: WORDING,
        // If the size is invalid, report against the current replicas.
        size: match (&invalid, deployment) {
            (Some(_), Some(deployment)) => deployment.wanted(),
            _ => memcached.spec.size,
        },
        proof: Proof::Probe,
        progress_deadline_seconds: PROGRESS_DEADLINE_SECONDS,
        stalls_at: None, // nodes that crash again and again are reported as `CrashLooping`
        deployment,
        pods,
        stored: stored.map_or(&[], |it| &it.conditions),
        security: None,
        now,
    };
    let mut health = fleet.health();
    health.problems.extend(invalid.map(|raw| no_size(&raw)));

    let rolled_out = fleet.rollout().change.is_none();
    let image = deployment.and_then(|it| it.image(CONTAINER)).filter(|_| rolled_out).map(ToOwned::to_owned);
    let status = MemcachedStatus {
        nodes: pods::names(pods),
        endpoints: pods::endpoints(pods, memcached.spec.port()),
        replicas: deployment.map_or(0, |it| it.replicas()),
        ready_replicas: deployment.map_or(0, |it| it.ready()),
        updated_replicas: deployment.map_or(0, |it| it.updated()),
        label_selector: App::of(memcached).to_string(),
        // Until all pods run the new image, the former one is in use.
        image: image.or_else(|| stored?.image.clone()),
        ..Default::default()
    };
    Report { status, health }
}

fn no_size(raw: &str) -> Problem {
    let message = format!(
        "spec.size \"{raw}\" is not a number from 0 to 64; set spec.size (and remove annotation {INVALID_SIZE} if the size is 1)"
    );
    Problem::new(ProblemKind::invalid("InvalidSize"), message)
}

#[cfg(test)]
mod tests;

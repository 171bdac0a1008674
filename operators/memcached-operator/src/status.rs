//! The status of a Memcached: counts, names and addresses of the pods, and health.

use std::sync::Arc;

use jiff::Timestamp;
use manager::{Problem, ProblemKind, Report};
use workloads::{App, DeploymentView, Fleet, FleetWording, Live, PodView, pods};

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
    let invalid = invalid_size(memcached);
    let fleet = Fleet {
        wording: WORDING,
        // If the size is invalid, report against the current replicas.
        size: match (&invalid, deployment) {
            (Some(_), Some(deployment)) => deployment.wanted(),
            _ => memcached.spec.size,
        },
        progress_deadline_seconds: PROGRESS_DEADLINE_SECONDS,
        deployment,
        pods,
        stored: memcached.status.as_ref().map_or(&[], |it| &it.conditions),
        security: None,
        now,
    };
    let mut health = fleet.health();
    health.problems.extend(invalid.map(|raw| no_size(&raw)));
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

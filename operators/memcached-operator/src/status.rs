//! What users are told of a Memcached: counts, nodes, and how it fares.

use std::sync::Arc;

use jiff::Timestamp;
use manager::Report;
use workloads::{App, DeploymentView, Fleet, Live, PodView, Words, pods};

use crate::{
    api::{Memcached, v1::MemcachedStatus},
    desired::{CONTAINER, PROGRESS_DEADLINE_SECONDS},
};

manager::standard_status!(MemcachedStatus);

const WORDS: Words =
    Words { pods: "nodes", available: "MinimumNodesAvailable", none_ready: "NoReadyNodes", not_ready: "NodesNotReady" };

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
    let fleet = Fleet {
        words: WORDS,
        size: memcached.spec.size,
        progress_deadline_seconds: PROGRESS_DEADLINE_SECONDS,
        deployment,
        pods,
        stored: memcached.status.as_ref().map_or(&[], |it| &it.conditions),
        now,
    };
    Report { status, health: fleet.health() }
}

#[cfg(test)]
mod tests;

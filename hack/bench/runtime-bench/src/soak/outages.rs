//! Outages of parts of the control plane.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use cluster::Cluster;
use fastrand::Rng;
use tokio::time::Instant;

use super::tally::Tally;

/// One outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outage {
    /// The time since the last outage.
    after: Duration,
    part: &'static str,
    /// How long the part is paused; `None` if it is killed and started again.
    pause: Option<Duration>,
}

/// The time in which a killed part is running again.
const START: Duration = Duration::from_secs(20);

/// Draws the outages, one after another.
#[derive(Debug)]
pub(crate) struct Course {
    rng: Rng,
    /// The sorts of outages that have not happened yet.
    opening: Vec<(&'static str, Option<u64>)>,
}

/// Each sort of outage, with the pause in seconds. Each comes once, soon after the start: the memory of a process is stable only
/// after it has been through all of them.
const SORTS: [(&str, Option<u64>); 6] = [
    ("kube-apiserver", None),
    ("kube-apiserver", Some(5)),
    ("kube-apiserver", Some(15)), // longer than the renew deadline
    ("etcd", None),
    ("etcd", Some(5)),
    ("kube-controller-manager", None),
];

impl Course {
    pub(crate) fn new(mut rng: Rng) -> Self {
        let mut opening = SORTS.to_vec();
        rng.shuffle(&mut opening);
        Self { rng, opening }
    }

    fn next(&mut self) -> Outage {
        let rng = &mut self.rng;
        let (after, (part, pause)) = match self.opening.pop() {
            Some(sort) => (rng.u64(8..15), sort),
            None => (rng.u64(20..60), SORTS[rng.usize(..SORTS.len())]),
        };
        // With some variation.
        let pause = pause.map(|seconds| Duration::from_millis(rng.u64(seconds * 800..seconds * 1_400)));
        Outage { after: Duration::from_secs(after), part, pause }
    }
}

impl Outage {
    fn what(&self) -> String {
        format!("{} of {}", if self.pause.is_some() { "pause" } else { "restart" }, self.part)
    }
}

/// Causes outages until `end`. By then, all parts run again.
pub(crate) async fn happen(cluster: &Arc<Cluster>, rng: Rng, end: Instant, tally: &Tally) -> Result<()> {
    let mut course = Course::new(rng);
    loop {
        let outage = course.next();
        if Instant::now() + outage.after + outage.pause.unwrap_or(START) > end {
            return Ok(());
        }
        tokio::time::sleep(outage.after).await;
        tally.outage(outage.what());
        let Outage { part, pause, .. } = outage;
        match pause {
            Some(pause) => {
                block(cluster, move |cluster| cluster.pause_part(part)).await?;
                tokio::time::sleep(pause).await;
                block(cluster, move |cluster| cluster.resume_part(part)).await?;
            }
            None => block(cluster, move |cluster| cluster.restart_part(part)).await?,
        }
    }
}

/// Waits until the API server is ready.
pub(crate) async fn over(cluster: &Arc<Cluster>) -> Result<()> {
    block(cluster, |cluster| cluster.wait_until_ready(Duration::from_mins(1))).await
}

async fn block(cluster: &Arc<Cluster>, call: impl FnOnce(&Cluster) -> Result<()> + Send + 'static) -> Result<()> {
    let cluster = cluster.clone();
    tokio::task::spawn_blocking(move || call(&cluster)).await.context("a call to the cluster panicked")?
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn course(seed: u64, count: usize) -> Vec<Outage> {
        let mut course = Course::new(Rng::with_seed(seed));
        (0..count).map(|_| course.next()).collect()
    }

    #[test]
    fn seed_determines_outages() {
        assert_eq!(course(1, 100), course(1, 100));
        assert_ne!(course(1, 100), course(2, 100));
    }

    #[test]
    fn all_outage_kinds_happen_early_and_again_later() {
        for seed in 0..50 {
            let all = course(seed, 100);
            let (opening, rest) = all.split_at(SORTS.len());
            for outages in [opening, rest] {
                let sorts: BTreeSet<String> = outages.iter().map(Outage::what).collect();
                assert_eq!(sorts.len(), 5, "{sorts:?}");
                let longest = outages.iter().filter_map(|outage| outage.pause).max();
                assert!(longest > Some(Duration::from_secs(11)), "one costs the lease");
            }
            let opening: Duration = opening.iter().map(|it| it.after + it.pause.unwrap_or_default()).sum();
            assert!(opening < Duration::from_secs(150), "{opening:?}");
        }
    }
}

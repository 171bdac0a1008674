//! Rollouts that have made no progress for longer than their deadline.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model_apiserver::Model;
use serde_json::Value;

use crate::{checks::condition, controllers::DEPLOYMENTS, objects::owner};

/// The primaries whose Deployment reports that its rollout has stalled.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// The time of the last change that is taken in.
    changed: Duration,
    /// Since when, by uid of the primary.
    since: BTreeMap<String, Duration>,
}

impl Stalls {
    /// Takes in the present Deployments. `changed` is the time of the last change of the cluster.
    pub(crate) fn follow(&mut self, model: &Model, changed: Duration) {
        if changed == self.changed {
            return;
        }
        self.changed = changed;
        let stalled: BTreeSet<String> =
            model.objects(DEPLOYMENTS).iter().filter(|it| has_stalled(it)).map(owner).collect();
        self.since.retain(|uid, _| stalled.contains(uid));
        for uid in stalled {
            self.since.entry(uid).or_insert(changed);
        }
    }

    /// Returns the uids of the primaries, each with the time since when its rollout has stalled.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.since.iter().map(|(uid, since)| (uid.as_str(), *since))
    }
}

/// Whether the Deployment controller reports that the present rollout has stalled.
fn has_stalled(deployment: &Value) -> bool {
    let (metadata, status) = (&deployment["metadata"], &deployment["status"]);
    let progressing = condition(status, "Progressing");
    metadata["deletionTimestamp"].is_null()
        && status["observedGeneration"] == metadata["generation"]
        && progressing["status"] == "False"
        && progressing["reason"] == "ProgressDeadlineExceeded"
}

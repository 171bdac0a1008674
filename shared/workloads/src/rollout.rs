//! The state of a Deployment's rollout, and the change under way.

use jiff::SignedDuration;

use crate::{DeploymentView, Live, Progress};

/// What proves that a pod serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// A probe. The pods that it reports as ready count.
    Probe,
    /// Only time: the pods have no probe, so they are ready as soon as their program starts. Those count that have run for this
    /// number of seconds, the `minReadySeconds` of the Deployment.
    Seconds(i32),
}

impl Proof {
    /// The number of pods that count as ready, of any template.
    fn count(self, live: &DeploymentView) -> i32 {
        match self {
            Self::Probe => live.ready(),
            Self::Seconds(_) => live.available(),
        }
    }

    /// How long a pod that is ready has to wait until it counts.
    pub(crate) fn time(self) -> SignedDuration {
        match self {
            Self::Probe => SignedDuration::ZERO,
            Self::Seconds(seconds) => SignedDuration::from_secs(seconds.into()),
        }
    }
}

/// The state of a Deployment, compared with the wanted number of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// The wanted number of pods.
    pub size: i32,
    /// Pods of the current template; 0 until the Deployment controller has observed that template.
    pub updated: i32,
    /// Pods that count as ready, of any template.
    pub ready: i32,
    /// The change that is under way, if any.
    pub change: Option<Change>,
    /// Why the rollout counts as stalled, if it made no progress within its deadline. The Deployment's own message, if it has one.
    pub stalled: Option<Box<str>>,
}

/// A change that a Deployment carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Pods of a new template replace the old ones. Starting the first pods is a rollout too.
    RollingOut,
    /// The number of pods changes, but not their template.
    Scaling,
}

impl Change {
    /// The reason of this change in the condition `Progressing`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::RollingOut => "RollingOut",
            Self::Scaling => "Scaling",
        }
    }

    /// The change that has this reason in a stored condition `Progressing`.
    pub(crate) fn from_reason(reason: &str) -> Option<Self> {
        [Self::RollingOut, Self::Scaling].into_iter().find(|it| it.reason() == reason)
    }
}

impl Rollout {
    /// Reads the state of a Deployment, which may not exist yet.
    ///
    /// `before` is the change that was under way at the last reconcile. It is needed because a Deployment reports the same while
    /// it waits for two additional pods and after it has lost two pods. Only the former is a change. `proof` says which pods count
    /// as ready.
    pub fn of(deployment: Option<&Live<DeploymentView>>, size: i32, before: Option<Change>, proof: Proof) -> Self {
        let Some(live) = deployment else {
            return Self { size, updated: 0, ready: 0, change: Some(Change::RollingOut), stalled: None };
        };
        Self {
            size,
            updated: if live.is_observed() { live.updated() } else { 0 },
            ready: proof.count(live),
            change: change(live, size, before, proof),
            stalled: match live.progress() {
                Progress::Stalled(message) => Some(message.clone()),
                _ => None,
            },
        }
    }

    /// Whether all wanted pods are ready.
    pub fn all_ready(&self) -> bool {
        self.ready >= self.size
    }
}

fn change(live: &Live<DeploymentView>, size: i32, before: Option<Change>, proof: Proof) -> Option<Change> {
    let complete = [live.replicas(), live.updated(), proof.count(live)] == [size; 3];
    let old_pods = live.replicas() > live.updated();
    match live.progress() {
        _ if complete && live.is_observed() => None,
        _ if old_pods || !live.was_ever_observed() => Some(Change::RollingOut),
        Progress::Ongoing { .. } | Progress::Paused | Progress::Stalled(_) => Some(Change::RollingOut),
        // The size is right already, so the change that the Deployment controller has not observed yet is in the template.
        _ if !live.is_observed() && live.replicas() == size => Some(Change::RollingOut),
        _ if !live.is_observed() || live.replicas() > size => Some(Change::Scaling),
        Progress::Complete => before.filter(|it| *it == Change::Scaling),
        Progress::Unknown => before,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COMPLETE: &str = "NewReplicaSetAvailable";
    const ONGOING: &str = "ReplicaSetUpdated";

    /// A Deployment at generation 2 with `[replicas, updated, ready]`.
    fn deployment(observed: i64, [replicas, updated, ready]: [i32; 3], reason: &str) -> Live<DeploymentView> {
        let status = json!({
            "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
            "conditions": [{"type": "Progressing", "status": "True", "reason": reason, "message": "stuck"}],
        });
        Live {
            namespace: "default".into(),
            name: "x".into(),
            uid: "u".into(),
            generation: 2,
            created: None,
            deleting: None,
            view: serde_json::from_value(json!({"status": status})).expect("a view of the object"),
        }
    }

    #[test]
    fn rollout_detects_the_ongoing_change() {
        use Change::{RollingOut, Scaling};
        for (situation, live, size, before, expected) in [
            ("never looked at", deployment(0, [0, 0, 0], ""), 3, None, Some(RollingOut)),
            ("first pods start", deployment(2, [3, 3, 1], ONGOING), 3, None, Some(RollingOut)),
            ("done", deployment(2, [3, 3, 3], ONGOING), 3, Some(RollingOut), None),
            ("a pod died later", deployment(2, [3, 3, 2], COMPLETE), 3, None, None),
            ("a pod died in between", deployment(2, [3, 3, 2], COMPLETE), 3, Some(RollingOut), None),
            ("a pod is being replaced", deployment(2, [2, 2, 2], COMPLETE), 3, None, None),
            ("new size not seen", deployment(1, [3, 3, 3], COMPLETE), 5, None, Some(Scaling)),
            ("new pods start", deployment(2, [5, 5, 3], COMPLETE), 5, Some(Scaling), Some(Scaling)),
            ("surplus pods go", deployment(2, [5, 5, 5], COMPLETE), 3, None, Some(Scaling)),
            ("new template not seen", deployment(1, [3, 3, 3], COMPLETE), 3, None, Some(RollingOut)),
            ("old pods go", deployment(2, [4, 1, 3], ONGOING), 3, Some(RollingOut), Some(RollingOut)),
            ("stuck", deployment(2, [4, 1, 3], "ProgressDeadlineExceeded"), 3, None, Some(RollingOut)),
            ("down to nothing", deployment(2, [0, 0, 0], COMPLETE), 0, Some(Scaling), None),
            ("back from nothing", deployment(1, [0, 0, 0], COMPLETE), 3, None, Some(Scaling)),
        ] {
            assert_eq!(Rollout::of(Some(&live), size, before, Proof::Probe).change, expected, "{situation}");
        }
    }

    /// Such a pod is ready as soon as its program starts, also if it is about to crash.
    #[test]
    fn pods_without_a_probe_count_when_they_are_available() {
        let rollout = |available: i32, proof: Proof| {
            let mut live = deployment(2, [3, 3, 3], ONGOING);
            live.view = serde_json::from_value(json!({"status": {
                "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
                "availableReplicas": available, "conditions": [{"type": "Progressing", "status": "True", "reason": ONGOING}],
            }}))
            .expect("a view of the object");
            let Rollout { ready, change, .. } = Rollout::of(Some(&live), 3, None, proof);
            (ready, change)
        };
        let time = Proof::Seconds(30);
        assert_eq!(rollout(0, time), (0, Some(Change::RollingOut)));
        assert_eq!(rollout(2, time), (2, Some(Change::RollingOut)));
        assert_eq!(rollout(3, time), (3, None));
        assert_eq!(rollout(0, Proof::Probe), (3, None), "the probe proves it at once");
    }

    #[test]
    fn missing_deployment_is_rolling_out() {
        let rollout = Rollout::of(None, 3, None, Proof::Probe);
        assert_eq!((rollout.change, rollout.ready, rollout.all_ready()), (Some(Change::RollingOut), 0, false));
    }

    #[test]
    fn stalled_rollout_keeps_its_message() {
        let stuck = deployment(2, [4, 1, 3], "ProgressDeadlineExceeded");
        assert_eq!(Rollout::of(Some(&stuck), 3, None, Proof::Probe).stalled.as_deref(), Some("stuck"));
    }
}

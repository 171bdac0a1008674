//! Derives the conditions of an app that a Deployment runs: whether it serves, which change is under way, what is wrong.

use std::{borrow::Cow, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    ClockReading, DeploymentView, Health, Live, PodView, Problem, ProblemKind, SecurityPolicy, Verdict,
    pods::{self, PATIENCE},
    rollout::{Change, Proof, Rollout},
};

/// A lost pod is normally replaced by a ready one within this time. A pod that is missing for longer is a problem.
const REPLACED_WITHIN: SignedDuration = SignedDuration::from_secs(60);
/// The message of a stall that the Deployment does not report.
const STANDS_STILL: &str = "pods crash again and again, and no more become available";

/// The operator's name for its pods, and the condition reasons that contain it.
#[derive(Debug, Clone, Copy)]
pub struct FleetWording {
    /// For example `node`.
    pub pod: &'static str,
    /// For example `nodes`.
    pub pods: &'static str,
    /// For example `MinimumNodesAvailable`.
    pub available: &'static str,
    /// For example `NoReadyNodes`.
    pub none_ready: &'static str,
    /// The problem that fewer pods are ready than wanted, for example `NodesNotReady`.
    pub not_ready: ProblemKind,
}

/// The pods of one app: the wanted size, the observed objects, and the conditions that the last reconcile stored.
#[derive(Debug, Clone, Copy)]
pub struct Fleet<'a> {
    /// Names for messages and reasons.
    pub wording: FleetWording,
    /// The wanted number of pods.
    pub size: i32,
    /// What proves that a pod serves.
    pub proof: Proof,
    /// Seconds that a rollout may make no progress.
    pub progress_deadline_seconds: i32,
    /// From when on the rollout counts as stalled if its pods crash again and again, whatever the Deployment itself says, from
    /// [`RolloutProgress::stalls_at`](crate::RolloutProgress::stalls_at). If the status of the operator's kind does not store the
    /// progress, this is `None`, and only the Deployment itself reports stalls.
    pub stalls_at: Option<Timestamp>,
    /// The app's Deployment, if it exists.
    pub deployment: Option<&'a Live<DeploymentView>>,
    /// The app's pods.
    pub pods: &'a [Arc<Live<PodView>>],
    /// The stored conditions. They are needed because a Deployment does not record since when it lacks pods, nor why.
    pub stored: &'a [Condition],
    /// The profiles that the object may set; `None` if its spec has no profile.
    pub security: Option<SecurityPolicy>,
    /// The current time.
    pub now: Timestamp,
}

impl Fleet<'_> {
    /// Returns the conditions and problems of the app.
    pub fn health(&self) -> Health {
        let (rollout, present) = (self.rollout(), ClockReading::new(self.now, self.stored));
        let diagnosis = pods::diagnose(self.pods, PATIENCE, present, self.security);
        let wait = self
            .wait_for_pods(&rollout)
            .map(|(since, length)| if self.shows_not_ready(since) { None } else { present.end_of(since, length) });

        // Once that time is over, only a pod that crashes makes the stall.
        let stall = self.stalls_at.filter(|end| rollout.stalled.is_none() && *end > present.time());

        let mut problems = diagnosis.problems;
        problems.extend(self.deployment.and_then(|it| it.refused()).map(refused_pods));
        problems.extend(rollout.stalled.as_deref().map(|message| self.stalled(message)));
        if wait == Some(None) {
            problems.push(Problem::new(self.wording.not_ready, self.count(&rollout)));
        }
        Health {
            available: Some(self.available(&rollout)),
            progressing: Some(self.progressing(&rollout)),
            problems,
            ready: self.ready(&rollout),
            stays_ready: false,
            is_settled: self.deployment.is_some_and(|it| it.available() >= self.size),
            own: Vec::new(),
            recheck: diagnosis.recheck.into_iter().chain(wait.flatten()).chain(stall).min(),
        }
    }

    /// Returns the state of the app's rollout.
    pub fn rollout(&self) -> Rollout {
        let before = self.condition("Progressing", "True").and_then(|it| Change::from_reason(&it.reason));
        let rollout = Rollout::of(self.deployment, self.size, before, self.proof);
        let present = ClockReading::new(self.now, self.stored);
        let stands_still = self.stalls_at.is_some_and(|end| end <= present.time()) && self.any_new_pod_crashes(present);
        let stalled = rollout.stalled.or_else(|| stands_still.then(|| STANDS_STILL.into()));
        Rollout { stalled, ..rollout }
    }

    /// Whether a pod of the template that is rolled out crashes again and again. Pods that are lost and regained, as when a node
    /// fails, make no progress either: a release is not bad for that.
    ///
    /// The Deployment names the `ReplicaSet` of the present template as soon as its controller observes progress of it, and without
    /// such progress there is no [`stalls_at`](Self::stalls_at).
    fn any_new_pod_crashes(&self, present: ClockReading) -> bool {
        let replica_set = self.deployment.and_then(|live| live.replica_set());
        replica_set.is_some_and(|it| pods::any_crashes(self.pods, it, present))
    }

    fn available(&self, rollout: &Rollout) -> Verdict {
        match rollout {
            Rollout { size: 0, .. } => scaled_to_zero(),
            Rollout { ready: 0, .. } => Verdict::no(self.wording.none_ready, self.count(rollout)),
            _ => Verdict::yes(self.wording.available, self.count(rollout)),
        }
    }

    fn progressing(&self, rollout: &Rollout) -> Verdict {
        let Rollout { size, updated, ready, .. } = rollout;
        let pods = self.wording.pods;
        match rollout.change {
            None => Verdict::no("Stable", "no change is being carried out"),
            Some(change @ Change::RollingOut) => {
                Verdict::yes(change.reason(), format!("{updated}/{size} {pods} updated"))
            }
            Some(change @ Change::Scaling) => {
                Verdict::yes(change.reason(), format!("scaling to {size} {pods}, {ready} {}", self.proven()))
            }
        }
    }

    fn ready(&self, rollout: &Rollout) -> Verdict {
        match rollout {
            Rollout { size: 0, .. } => scaled_to_zero(),
            Rollout { size: 1, .. } if rollout.all_ready() => {
                Verdict::yes("Ready", format!("the only {} is ready", self.wording.pod))
            }
            Rollout { size, .. } if rollout.all_ready() => {
                Verdict::yes("Ready", format!("all {size} {} are ready", self.wording.pods))
            }
            _ => Verdict::no(self.wording.not_ready.reason, self.count(rollout)),
        }
    }

    fn count(&self, rollout: &Rollout) -> String {
        format!("{}/{} {} {}", rollout.ready, rollout.size, self.wording.pods, self.proven())
    }

    /// Returns what the counted pods have done.
    fn proven(&self) -> Cow<'static, str> {
        match self.proof {
            Proof::Probe => "are ready".into(),
            Proof::Seconds(seconds) => format!("have run for {seconds}s").into(),
        }
    }

    fn stalled(&self, message: &str) -> Problem {
        let seconds = self.progress_deadline_seconds;
        Problem::new(ProblemKind::ROLLOUT_STALLED, format!("Rollout made no progress for {seconds}s: {message}"))
    }

    /// Returns since when pods are missing, and after how long that becomes a problem; `None` if all pods are ready or a rollout
    /// is under way. The delay exists because normal start-up is not a problem.
    fn wait_for_pods(&self, rollout: &Rollout) -> Option<(Timestamp, SignedDuration)> {
        if rollout.all_ready() {
            return None;
        }
        let (since, grace) = match rollout.change {
            // The Deployment itself reports a rollout that takes too long.
            Some(Change::RollingOut) => return None,
            Some(Change::Scaling) => {
                let deadline = SignedDuration::from_secs(self.progress_deadline_seconds.into());
                (self.since("Progressing", "True"), deadline + self.proof.time())
            }
            None => {
                let unready = self.since("Ready", "False");
                let stable = self.since("Progressing", "False");
                (unready.zip(stable).map(|(unready, stable)| unready.max(stable)), REPLACED_WITHIN + self.proof.time())
            }
        };
        Some((since.unwrap_or(self.now), grace))
    }

    /// Whether the status has reported since then that pods are missing. This problem lasts until the pods are ready: a clock
    /// that was put back, and is now about to reach `since` again, does not end it.
    fn shows_not_ready(&self, since: Timestamp) -> bool {
        let reason = self.wording.not_ready.reason;
        self.condition("Degraded", "True").is_some_and(|degraded| {
            degraded.last_transition_time.0 >= since && (degraded.reason == reason || degraded.message.contains(reason))
        })
    }

    fn condition(&self, type_: &str, status: &str) -> Option<&Condition> {
        self.stored.iter().find(|it| it.type_ == type_ && it.status == status)
    }

    fn since(&self, type_: &str, status: &str) -> Option<Timestamp> {
        self.condition(type_, status).map(|it| it.last_transition_time.0)
    }
}

fn scaled_to_zero() -> Verdict {
    Verdict::yes("ScaledToZero", "size is 0")
}

/// The problem that the API server accepts the Deployment but refuses its pods. `message` is that of
/// [`DeploymentView::refused`].
pub fn refused_pods(message: &str) -> Problem {
    if message.contains("exceeded quota") {
        return Problem::new(
            ProblemKind::QUOTA_EXCEEDED,
            format!("pods cannot be created: {message}; raise the quota or request less"),
        );
    }
    Problem::new(ProblemKind::CHILD_REJECTED, format!("pods cannot be created: {message}"))
}

#[cfg(test)]
mod tests;

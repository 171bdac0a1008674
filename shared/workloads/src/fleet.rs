//! What people are told of an app that a Deployment runs: whether it serves, what is being changed, what is wrong.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    DeploymentView, Health, Live, PodView, Present, Problem, Verdict,
    pods::{self, PATIENCE},
    rollout::{Change, Rollout},
};

/// A pod that is lost is replaced within this time, as a rule.
const REPLACED_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// What an operator calls its pods, and the reasons that follow from it.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// `nodes`.
    pub pods: &'static str,
    /// `MinimumNodesAvailable`.
    pub available: &'static str,
    /// `NoReadyNodes`.
    pub none_ready: &'static str,
    /// `NodesNotReady`.
    pub not_ready: &'static str,
}

/// The pods of one app: what is wanted, what is there, and what was said of it the last time.
#[derive(Debug, Clone, Copy)]
pub struct Fleet<'a> {
    /// How to speak of it.
    pub words: Words,
    /// Pods that are wanted.
    pub size: i32,
    /// How long a rollout may make no progress.
    pub progress_deadline_seconds: i32,
    /// Its Deployment, if there is one.
    pub deployment: Option<&'a Live<DeploymentView>>,
    /// Its pods.
    pub pods: &'a [Arc<Live<PodView>>],
    /// The stored conditions. A Deployment does not tell since when it lacks pods, nor why.
    pub stored: &'a [Condition],
    /// Now.
    pub now: Timestamp,
}

impl Fleet<'_> {
    /// How it fares.
    pub fn health(&self) -> Health {
        let (rollout, present) = (self.rollout(), Present::new(self.now, self.stored));
        let diagnosis = pods::diagnose(self.pods, PATIENCE, present);
        let wait = self.wait_for_pods(&rollout).map(|(since, length)| present.end_of(since, length));

        let mut problems = diagnosis.problems;
        problems.extend(self.deployment.and_then(|it| it.refused()).map(refused));
        problems.extend(rollout.stalled.as_deref().map(|message| self.stalled(message)));
        if wait == Some(None) {
            problems.push(Problem::new(self.words.not_ready, self.count(&rollout)));
        }
        Health {
            available: Some(self.available(&rollout)),
            progressing: Some(self.progressing(&rollout)),
            problems,
            ready: self.ready(&rollout),
            stays_ready: false,
            recheck: diagnosis.recheck.into_iter().chain(wait.flatten()).min(),
        }
    }

    /// How far its Deployment is.
    pub fn rollout(&self) -> Rollout {
        let before = self.condition("Progressing", "True").and_then(|it| Change::from_reason(&it.reason));
        Rollout::of(self.deployment, self.size, before)
    }

    fn available(&self, rollout: &Rollout) -> Verdict {
        match rollout {
            Rollout { size: 0, .. } => scaled_to_zero(),
            Rollout { ready: 0, .. } => Verdict::no(self.words.none_ready, self.count(rollout)),
            _ => Verdict::yes(self.words.available, self.count(rollout)),
        }
    }

    fn progressing(&self, rollout: &Rollout) -> Verdict {
        let Rollout { size, updated, ready, .. } = rollout;
        let pods = self.words.pods;
        match rollout.change {
            None => Verdict::no("Stable", "no change is being carried out"),
            Some(change @ Change::RollingOut) => {
                Verdict::yes(change.reason(), format!("{updated}/{size} {pods} updated"))
            }
            Some(change @ Change::Scaling) => {
                Verdict::yes(change.reason(), format!("scaling to {size} {pods}, {ready} are ready"))
            }
        }
    }

    fn ready(&self, rollout: &Rollout) -> Verdict {
        match rollout {
            Rollout { size: 0, .. } => scaled_to_zero(),
            Rollout { size, .. } if rollout.all_ready() => {
                Verdict::yes("Ready", format!("all {size} {} are ready", self.words.pods))
            }
            _ => Verdict::no(self.words.not_ready, self.count(rollout)),
        }
    }

    fn count(&self, rollout: &Rollout) -> String {
        format!("{}/{} {} are ready", rollout.ready, rollout.size, self.words.pods)
    }

    fn stalled(&self, message: &str) -> Problem {
        let seconds = self.progress_deadline_seconds;
        Problem::new("RolloutStalled", format!("Rollout made no progress for {seconds}s: {message}"))
    }

    /// Since when pods are missing, and after how long that is a problem. Normal start-up must not be called one.
    fn wait_for_pods(&self, rollout: &Rollout) -> Option<(Timestamp, SignedDuration)> {
        if rollout.all_ready() {
            return None;
        }
        let (since, grace) = match rollout.change {
            // The Deployment itself says when a rollout takes too long.
            Some(Change::RollingOut) => return None,
            Some(Change::Scaling) => {
                (self.since("Progressing", "True"), SignedDuration::from_secs(self.progress_deadline_seconds.into()))
            }
            None => {
                let unready = self.since("Ready", "False");
                let stable = self.since("Progressing", "False");
                (unready.zip(stable).map(|(unready, stable)| unready.max(stable)), REPLACED_WITHIN)
            }
        };
        Some((since.unwrap_or(self.now), grace))
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

/// The API server takes the Deployment, but not its pods.
fn refused(message: &str) -> Problem {
    if message.contains("exceeded quota") {
        return Problem::new(
            "QuotaExceeded",
            format!("pods cannot be made: {message}; raise the quota or ask for less"),
        );
    }
    Problem::new("ChildRejected", format!("pods cannot be made: {message}"))
}

#[cfg(test)]
mod tests;

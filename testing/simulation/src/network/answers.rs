//! Faults of single requests, answers and watch events: the API server refuses them, or they break off, trickle, come twice, come
//! late, or never come.

use std::time::Duration;

use fastrand::Rng;
use fault_plan::{Action, Due};
use model_apiserver::{RequestInfo, Verb};

use super::{
    State, name,
    refusals::{conflict, denied, forbidden},
};
use crate::disturbance::Act;

/// The operator gives up a request that is neither a list nor a watch when there is no answer within this time.
const UNANSWERED: Duration = Duration::from_secs(20);
/// The operator gives up a watch within this time after the last event.
const SILENCE: Duration = Duration::from_mins(4);
/// A watch falls silent at most once in this time. Otherwise there would be no limit for how long the operator may not know of a
/// change.
const BETWEEN_SILENCES: Duration = Duration::from_mins(15);
/// An answer or event that trickles is complete within this time, or the operator has given it up. One object takes less than
/// the 20 s after which a request has failed; only long lists take more than their minute.
const TRICKLING: Duration = Duration::from_mins(1);
/// An answer or event breaks off before this many bytes. None is shorter, so each of them becomes unreadable.
const SHORTEST: usize = 16;

impl State {
    /// Adds what goes wrong with this request and its answer. Nothing goes wrong with the answer to a request that the API server
    /// does not get, and each effect is counted.
    pub(super) fn disturb_answer(&mut self, now: Duration, request: &RequestInfo, due: &mut Due) {
        let is_stream = matches!(request.verb, Verb::List | Verb::Watch);
        let refusals = [Act::LoadBalancerRefuses, Act::Conflicts, Act::Forbidden, Act::Denied];
        for trouble in self.troubles(now, &refusals) {
            let happens = self.rng.u8(..100) < 60;
            let (refusal, wait) = match trouble.act {
                Act::LoadBalancerRefuses if happens => self.refusal_on_the_way(),
                Act::Conflicts if happens && request.verb.writes() => (conflict(request), Duration::ZERO),
                Act::Forbidden if is_stream && request.resource() == trouble.about => {
                    (forbidden(request), Duration::ZERO)
                }
                Act::Denied if request.verb.writes() && request.resource() == trouble.about => {
                    denied(request, trouble.seed)
                }
                _ => continue,
            };
            if is_handled(due) {
                due.before.push(Action::Answer(refusal));
                self.suffer(now, trouble.act, wait);
            }
        }
        let acts =
            [Act::SilentRequests, Act::Repetitions, Act::TruncatedAnswers, Act::TricklingAnswers, Act::LateLease];
        for trouble in self.troubles(now, &acts) {
            let happens = self.rng.u8(..100) < 60;
            if !is_handled(due) || !is_answered(due) {
                return;
            }
            match trouble.act {
                // A silent list would last longer than a namespace may take to leave.
                Act::SilentRequests if happens && !is_stream => {
                    let side = if self.rng.bool() { &mut due.before } else { &mut due.after };
                    side.push(Action::Stall);
                }
                Act::Repetitions if happens && request.verb.writes() => due.before.push(Action::Duplicate),
                Act::TruncatedAnswers if happens && request.verb != Verb::Watch => due.after.push(self.truncation()),
                Act::TricklingAnswers if request.verb != Verb::Watch => due.after.push(self.trickle(now, trouble.seed)),
                Act::LateLease if request.verb == Verb::Get && is_lease(request) => due.after.push(delay(trouble.seed)),
                _ => continue,
            }
            let is_silent = trouble.act == Act::SilentRequests;
            let time = if is_silent { UNANSWERED } else { due.after.last().map_or(Duration::ZERO, delays) };
            // The second answer, or what is left of the only one, does not tell what was written. A slow one does in time.
            if request.verb.writes() && trouble.act != Act::TricklingAnswers && is_handled(due) {
                self.lose(now, request);
            }
            self.suffer(now, trouble.act, time);
        }
    }

    /// Adds what goes wrong with an event of this watch. An event meets at most one of these faults, and none if the watch ends
    /// instead.
    pub(super) fn disturb_event(&mut self, now: Duration, watch: &RequestInfo, actions: &mut Vec<Action>) {
        if actions.iter().any(|action| matches!(action, Action::Cut(_) | Action::Gone)) {
            return;
        }
        let acts = [Act::SilentWatches, Act::Repetitions, Act::TruncatedAnswers, Act::TricklingAnswers, Act::LateLease];
        for trouble in self.troubles(now, &acts) {
            let happens = self.rng.u8(..100) < 60;
            let is_concerned = trouble.about == watch.resource();
            let action = match trouble.act {
                Act::SilentWatches if is_concerned && self.falls_silent(now, watch) => Action::Stall,
                Act::Repetitions if happens && trouble.seed.is_multiple_of(2) => Action::Join,
                Act::Repetitions => Action::Duplicate,
                Act::TruncatedAnswers if happens => self.truncation(),
                Act::TricklingAnswers => self.trickle(now, trouble.seed),
                Act::LateLease if is_lease(watch) => delay(trouble.seed),
                _ => continue,
            };
            self.suffer(now, trouble.act, delays(&action));
            actions.push(action);
            return;
        }
    }

    /// Whether this process may not know what the operator has written to this object. It does not know for this time after an
    /// answer was lost. If its own watch of the resource fell silent in this time, it does not know for this time after it has
    /// given up the watch. No other watch tells it: neither those of other kinds, nor those of other processes.
    pub(super) fn may_not_know(
        &self,
        now: Duration,
        process: &str,
        resource: &str,
        object: &str,
        within: Duration,
    ) -> bool {
        let Some(lost) = self.lost.get(&(resource.to_owned(), object.to_owned())) else { return false };
        let silent = self.silent.get(&(process.to_owned(), resource.to_owned()));
        let known =
            silent.filter(|since| **since < *lost + within).map_or(*lost, |since| (*since + SILENCE).max(*lost));
        now < known + within
    }

    /// Whether a watch of this resource is silent, and may not have been given up yet.
    pub(super) fn is_silent(&self, now: Duration, resource: &str) -> bool {
        self.silent.iter().any(|((_, of), since)| of == resource && now < *since + SILENCE)
    }

    /// Takes in that the answer about this object is lost.
    pub(super) fn lose(&mut self, now: Duration, request: &RequestInfo) {
        let object = format!("{}/{}", request.namespace, name(request));
        self.lost.insert((request.resource(), object), now);
    }

    fn falls_silent(&mut self, now: Duration, watch: &RequestInfo) -> bool {
        let watch = (watch.client.clone(), watch.resource());
        if self.silent.get(&watch).is_some_and(|since| now < *since + BETWEEN_SILENCES) {
            return false;
        }
        self.silent.insert(watch, now);
        self.hinder(now + SILENCE);
        true
    }

    fn truncation(&mut self) -> Action {
        Action::Truncate(self.rng.usize(1..SHORTEST))
    }

    fn trickle(&mut self, now: Duration, seed: u64) -> Action {
        self.hinder(now + TRICKLING);
        let mut rng = Rng::with_seed(seed);
        Action::Trickle(rng.usize(100..600), Duration::from_millis(rng.u64(10..200)))
    }
}

fn delay(seed: u64) -> Action {
    Action::Delay(Duration::from_millis(Rng::with_seed(seed).u64(10..8_000)))
}

/// For how long this action delays an answer or an event.
fn delays(action: &Action) -> Duration {
    if let Action::Delay(pause) = action { *pause } else { Duration::ZERO }
}

pub(super) fn is_lease(request: &RequestInfo) -> bool {
    request.resource().starts_with("leases")
}

/// Whether the API server gets the request.
pub(super) fn is_handled(due: &Due) -> bool {
    !due.before.iter().any(|action| matches!(action, Action::Drop | Action::Answer(_) | Action::Stall))
}

/// Whether the client gets the answer.
fn is_answered(due: &Due) -> bool {
    !due.after.iter().any(|action| matches!(action, Action::Drop | Action::Stall))
}

#[cfg(test)]
mod tests;

//! The condition model: how an operator's findings about an object become `status.conditions`.
//!
//! An operator states facts ([`Health`]); the runtime adds what it knows itself (a refused child, a pause), decides which
//! reason wins, derives `Ready`, `Reconciling` and `Stalled`, and keeps the times. These functions are pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use workloads::ClockReading;
pub use workloads::{Health, Problem, ProblemKind, Verdict};

mod external;

pub use external::{External, Finding};

/// A status and the health that belongs to it. An operator's `status::of` returns it, and `Context::apply_status` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<S> {
    /// The kind's own status fields. The runtime fills in conditions and `observedGeneration`.
    pub status: S,
    /// The facts that the conditions are made of.
    pub health: Health,
}

/// The report of a kind whose status has no fields of its own.
impl<S: Default> From<Health> for Report<S> {
    fn from(health: Health) -> Self {
        Self { status: S::default(), health }
    }
}

/// What the runtime knows in addition to the operator's findings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConditionContext<'a> {
    /// The conditions in the stored status.
    pub(crate) stored: &'a [Condition],
    /// The generation that the reconcile acted on.
    pub(crate) generation: i64,
    /// Now.
    pub(crate) now: Timestamp,
}

/// Why an object is not reconciled now: only its status is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotReconciled {
    /// An annotation of the user pauses the object.
    Paused(String),
    /// The operator's own validation refuses the object.
    Invalid(Problem),
}

/// The types of the conditions that the runtime derives. All others are a kind's own ([`Health::own`]).
const STANDARD: [&str; 7] = ["Available", "Progressing", "Degraded", "Ready", "Synced", "Reconciling", "Stalled"];

/// How long a problem may last before the object is `Stalled`, which tells tools that a user has to act.
const STALLED_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// An earlier child of the same name is being garbage-collected. This counts as progress, not as a problem.
pub(crate) const WAITING: ProblemKind = ProblemKind::new("WaitingForGarbageCollection", u8::MAX);

/// Returns the conditions of a reconciled object, and the time at which they will change with time alone, if any.
///
/// `Degraded` comes before `Ready`, and both come before a kind's own conditions. So the first reason other than `AsExpected` is
/// the one to show to users, and a column of `kubectl get` can select it.
pub(crate) fn combine(
    health: &Health,
    refusals: &[Problem],
    context: ConditionContext<'_>,
) -> (Vec<Condition>, Option<Timestamp>) {
    let waiting = refusals.iter().find(|refusal| refusal.kind == WAITING);
    let mut problems: Vec<&Problem> = health.problems.iter().chain(refusals).filter(|p| p.kind != WAITING).collect();
    problems.sort_by_key(|problem| problem.kind.rank);

    let progressing = match waiting {
        Some(waiting) => health.progressing.as_ref().map(|_| Verdict::yes(WAITING.reason, waiting.message.clone())),
        None => health.progressing.clone(),
    };
    let stalling: Vec<&Problem> = problems.iter().copied().filter(|problem| problem.kind.stalls).collect();
    let (degraded, stalled) = (degraded(&problems), degraded(&stalling));
    let ready = if degraded.status && !health.stays_ready {
        Verdict::no(degraded.reason, degraded.message.clone())
    } else if let Some(waiting) = waiting {
        Verdict::no(WAITING.reason, waiting.message.clone())
    } else {
        match &progressing {
            Some(change) if change.status => Verdict::no(change.reason, change.message.clone()),
            _ => health.ready.clone(),
        }
    };

    let mut conditions = Vec::with_capacity(6);
    conditions.extend(health.available.as_ref().map(|verdict| context.condition("Available", verdict)));
    conditions.extend(progressing.as_ref().map(|verdict| context.condition("Progressing", verdict)));
    conditions.push(context.condition("Degraded", &degraded));
    conditions.push(context.condition("Ready", &ready));

    let mut recheck = health.recheck;
    if stalled.status {
        let stored = context.stored.iter().find(|stored| stored.type_ == "Stalled");
        // `Degraded` may be older than the first problem that stalls. Then `Stalled` itself has the time: it is False until the end of
        // the minute.
        let has_time = stored.map_or(stalling.len() < problems.len(), |stored| stored.status == "False");
        let begun = if has_time { context.since("Stalled", false) } else { context.since("Degraded", true) };
        let stalled_at = ClockReading::new(context.now, context.stored).end_of(begun, STALLED_AFTER);
        // The problem that stalled the object still does: time alone does not end that, even if the clock was put back.
        let was_stalled = stored.is_some_and(|stored| stored.status == "True" && stored.reason == stalled.reason);
        match stalled_at {
            Some(then) if stalling.first().is_some_and(|first| first.kind.can_pass) && !was_stalled => {
                recheck = Some(recheck.map_or(then, |other| other.min(then)));
                if has_time {
                    conditions.push(context.condition("Stalled", &Verdict { status: false, ..stalled }));
                }
            }
            _ => conditions.push(context.condition("Stalled", &stalled)),
        }
    } else if !ready.status {
        conditions.push(context.condition("Reconciling", &Verdict { status: true, ..ready }));
    }
    conditions.extend(health.own.iter().map(|(type_, verdict)| context.condition(type_, verdict)));
    (conditions, recheck)
}

/// Returns the conditions of an object that is not reconciled at the moment: some of its stored ones, and the reason.
pub(crate) fn halted(halt: &NotReconciled, context: ConditionContext<'_>) -> Vec<Condition> {
    let stored = |is_kept: &dyn Fn(&str) -> bool| -> Vec<Condition> {
        let kept = context.stored.iter().filter(|condition| is_kept(&condition.type_)).cloned();
        // After a restore from a backup, the restored object may have got a status from the lost time.
        let capped = |generation: i64| generation.min(context.generation);
        kept.map(|it| Condition { observed_generation: it.observed_generation.map(capped), ..it }).collect()
    };
    let kept = |names: &[&str]| stored(&|type_| names.contains(&type_));
    let own = stored(&|type_| !STANDARD.contains(&type_));
    match halt {
        NotReconciled::Paused(message) => {
            let mut conditions = kept(&["Available", "Degraded"]);
            if context.stored.iter().any(|condition| condition.type_ == "Progressing") {
                conditions.insert(
                    conditions.iter().take_while(|condition| condition.type_ == "Available").count(),
                    context.condition("Progressing", &Verdict::no("Paused", message.clone())),
                );
            }
            let ready = context.condition("Ready", &Verdict::no("Paused", message.clone()));
            conditions.push(context.timed(Condition { status: "Unknown".to_owned(), ..ready }));
            conditions.extend(kept(&["Synced"])); // after `Ready`, as in the status of an object that is not paused
            conditions.extend(own);
            conditions
        }
        NotReconciled::Invalid(problem) => {
            let mut conditions = kept(&["Available", "Progressing"]);
            let wrong = Verdict::yes(problem.kind.reason, problem.explanation());
            conditions.push(context.condition("Degraded", &wrong));
            conditions.push(context.condition("Ready", &Verdict { status: false, ..wrong.clone() }));
            conditions.push(context.condition("Stalled", &wrong));
            conditions.extend(own);
            conditions
        }
    }
}

/// Brings the stored `Available` of an object that is not reconciled at the moment up to date.
pub(crate) fn observed(conditions: &mut [Condition], health: &Health, context: ConditionContext<'_>) {
    let stored = conditions.iter_mut().find(|condition| condition.type_ == "Available");
    if let (Some(stored), Some(available)) = (stored, &health.available) {
        *stored = context.condition("Available", available);
    }
}

/// Whether the condition of this type is true.
pub(crate) fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

fn degraded(problems: &[&Problem]) -> Verdict {
    let Some((first, others)) = problems.split_first() else { return Verdict::no("AsExpected", "") };
    let mut message = first.explanation();
    let also: Vec<&str> = others
        .iter()
        .map(|problem| problem.kind.reason)
        .filter(|reason| *reason != first.kind.reason)
        .take(3)
        .collect();
    if !also.is_empty() {
        message.push_str("; also: ");
        message.push_str(&also.join(", "));
    }
    Verdict { status: true, reason: first.kind.reason, message }
}

impl ConditionContext<'_> {
    fn condition(&self, type_: &str, verdict: &Verdict) -> Condition {
        self.timed(Condition {
            type_: type_.to_owned(),
            status: if verdict.status { "True" } else { "False" }.to_owned(),
            reason: verdict.reason.to_owned(),
            message: verdict.message.clone(),
            observed_generation: Some(self.generation),
            last_transition_time: Time(self.now),
        })
    }

    /// Keeps the time of the stored condition unless `status` has changed. A change is never earlier than the stored times of all
    /// conditions, even if a replica whose clock is ahead has stored them: their order shows what happened first.
    fn timed(&self, mut condition: Condition) -> Condition {
        let stored = self.stored.iter().find(|stored| stored.type_ == condition.type_);
        condition.last_transition_time = match stored {
            Some(stored) if stored.status == condition.status => stored.last_transition_time.clone(),
            _ => {
                let newest = self.stored.iter().map(|stored| stored.last_transition_time.0).max();
                Time(newest.unwrap_or(Timestamp::MIN).max(truncated(self.now)))
            }
        };
        condition
    }

    fn since(&self, type_: &str, status: bool) -> Timestamp {
        let status = if status { "True" } else { "False" };
        let stored = self.stored.iter().find(|stored| stored.type_ == type_ && stored.status == status);
        stored.map_or(self.now, |stored| stored.last_transition_time.0)
    }
}

/// Truncates a time to whole seconds, as the API stores it, so that it equals the stored one.
fn truncated(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;

//! The health of an object: facts that an operator states and the runtime turns into conditions.

use jiff::Timestamp;

use crate::Problem;

/// One condition without its time and generation, which the runtime adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// True or False. Only the runtime sets `Unknown`.
    pub status: bool,
    /// A `CamelCase` word, part of the API.
    pub reason: &'static str,
    /// A sentence for users.
    pub message: String,
}

impl Verdict {
    /// The condition holds.
    pub fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: true, reason, message: message.into() }
    }

    /// The condition does not hold.
    pub fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: false, reason, message: message.into() }
    }
}

/// An operator's findings about one object. The runtime ranks and combines them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Whether the object serves. `None` for kinds without this condition.
    pub available: Option<Verdict>,
    /// Whether a change is under way. `None` for kinds without this condition.
    pub progressing: Option<Verdict>,
    /// All problems, in any order.
    pub problems: Vec<Problem>,
    /// `Ready` while no change is under way and, unless [`Self::stays_ready`] is set, no problem exists.
    pub ready: Verdict,
    /// Problems do not make the object unready: `ready` applies unchanged.
    pub stays_ready: bool,
    /// Whether all pods have been ready for as long as they must be. The end of a rollout is reported only then: a program may
    /// crash soon after its start.
    pub is_settled: bool,
    /// Conditions that only this kind has, by their types.
    pub own: Vec<(&'static str, Verdict)>,
    /// When to reconcile again, because time alone changes a verdict then (a threshold).
    pub recheck: Option<Timestamp>,
}

impl Health {
    /// Returns the health of a kind that reports only `Ready`.
    pub fn of(ready: Verdict) -> Self {
        let (problems, own) = (Vec::new(), Vec::new());
        Self {
            available: None,
            progressing: None,
            problems,
            ready,
            stays_ready: false,
            is_settled: true,
            own,
            recheck: None,
        }
    }
}

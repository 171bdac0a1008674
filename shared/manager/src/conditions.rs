//! The condition model: what an operator says of an object's health, and how that becomes `status.conditions`.
//!
//! An operator states facts ([`Health`]); the runtime adds what it knows itself (a child that was refused, a pause),
//! decides which reason wins, derives `Ready`, `Reconciling` and `Stalled`, and keeps the times. Pure.

use jiff::Timestamp;

/// One condition before the runtime has given it a time and a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// True or False; `Unknown` is only ever set by the runtime.
    pub status: bool,
    /// A `CamelCase` word, part of the API.
    pub reason: &'static str,
    /// A sentence for people.
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

/// Something that needs a person, or capacity below what was asked: makes `Degraded` true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A `CamelCase` word; which of several wins is decided by [`Problem::RANKING`].
    pub reason: &'static str,
    /// A sentence that says what to do.
    pub message: String,
}

impl Problem {
    /// A problem with its explanation.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What an operator finds about one object, in any order; the runtime ranks and combines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// It serves. `None` for kinds that have no such condition.
    pub available: Option<Verdict>,
    /// A change is still being carried out. `None` for kinds that have no such condition.
    pub progressing: Option<Verdict>,
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
    /// `Ready` for the case that nothing progresses and nothing is wrong.
    pub ready: Verdict,
    /// When a verdict would change by the mere passing of time (a threshold): look again then.
    pub recheck: Option<Timestamp>,
}

/// A status with the health it was derived with: what `status::of` returns and `Context::apply_status` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<S> {
    /// The kind's own status fields. The runtime fills in conditions and `observedGeneration`.
    pub status: S,
    /// The facts that the conditions are made of.
    pub health: Health,
}

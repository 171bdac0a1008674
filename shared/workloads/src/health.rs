//! How an object fares, as facts: what operators state and the runtime turns into conditions.

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
    /// `Ready` for the case that nothing progresses and, unless it [stays ready](Self::stays_ready), nothing is wrong.
    pub ready: Verdict,
    /// Nothing that is wrong makes it unready: `ready` holds as it is.
    pub stays_ready: bool,
    /// When a verdict would change by the mere passing of time (a threshold): look again then.
    pub recheck: Option<Timestamp>,
}

impl Health {
    /// Of a kind that is ready or not, and has no more to tell.
    pub fn of(ready: Verdict) -> Self {
        Self { available: None, progressing: None, problems: Vec::new(), ready, stays_ready: false, recheck: None }
    }
}

impl Problem {
    /// Which reason wins when several apply, the strongest first. Reasons of one line are equals.
    pub const RANKING: &'static [&'static [&'static str]] = &[
        &["InvalidSpec", "InvalidSize", "InvalidSchedule", "UnknownTimeZone"],
        &["ResourceConflict"],
        &["Forbidden"],
        &["QuotaExceeded"],
        &["ChildRejected"],
        &["SecretNotFound"],
        &["ImageRunsAsRoot"],
        &["ImagePullFailed"],
        &["CrashLooping"],
        &["Unschedulable", "PodsNotStarting"],
        &["RolloutStalled", "RolledBack"],
        &["TooManyActiveJobs"],
        &["LastRunFailed"],
        &["NodesNotReady", "ReplicasNotReady"],
    ];

    /// The place in [`Problem::RANKING`]: 0 is the strongest.
    pub fn rank(&self) -> usize {
        Self::RANKING.iter().position(|line| line.contains(&self.reason)).unwrap_or(Self::RANKING.len())
    }
}

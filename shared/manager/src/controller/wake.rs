//! Why an object is looked at: each cause is in the log at level `trace`, under the target `manager::wake`.

use std::{fmt, time::Duration};

use workqueue::{Priority, WorkQueue};

use crate::{informer::Origin, object::ObjectKey};

/// What brings an object into the queue.
#[derive(Debug)]
pub(crate) enum Cause<'a> {
    /// It changed, or a list contains it.
    Change(Origin),
    /// An object that belongs to it changed, or a list contains that.
    Related { kind: &'a str, key: &'a ObjectKey, origin: Origin },
    /// An answer to a request of its own reconcile shows a change on which that reconcile did not act.
    Answer,
    /// All objects are looked at again.
    Resync,
    /// The time of day has jumped.
    Clock,
    /// Its last reconcile asked to come back after this time.
    Asked(Duration),
    /// Its last reconcile failed.
    Failure,
}

/// Puts an object into the queue.
pub(crate) fn wake(queue: &WorkQueue<ObjectKey>, key: ObjectKey, priority: Priority, cause: &Cause<'_>) {
    wake_after(queue, key, priority, Duration::ZERO, cause);
}

/// The same, after this time at the earliest, unless something else wakes it sooner.
pub(crate) fn wake_after(
    queue: &WorkQueue<ObjectKey>,
    key: ObjectKey,
    priority: Priority,
    wait: Duration,
    cause: &Cause<'_>,
) {
    explain(&key, cause);
    queue.add_after(key, priority, wait);
}

/// Says why an object is in the queue, or will be.
pub(super) fn explain(key: &ObjectKey, cause: &Cause<'_>) {
    tracing::trace!(target: "manager::wake", object = %key, %cause, "Wake");
}

/// Says that an object is looked at now.
pub(super) fn start(key: &ObjectKey) {
    tracing::trace!(target: "manager::wake", object = %key, "Reconcile");
}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(origin) => write!(f, "{}", seen(*origin)),
            Self::Related { kind, key, origin } => write!(f, "{kind} {key} {}", seen(*origin)),
            Self::Answer => f.write_str("an answer shows a change"),
            Self::Resync => f.write_str("resync"),
            Self::Clock => f.write_str("the clock has jumped"),
            Self::Asked(wait) => write!(f, "asked for in {wait:?}"),
            Self::Failure => f.write_str("failure"),
        }
    }
}

fn seen(origin: Origin) -> &'static str {
    match origin {
        Origin::Live => "changed",
        Origin::List => "listed",
    }
}

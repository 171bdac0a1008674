//! Puts objects into the queue, and logs why: at level `trace`, under the target `manager::wake`.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use cache::{ObjectKey, Origin};
use workqueue::{Priority, WorkQueue};

/// Why an object is in the queue.
#[derive(Debug)]
pub(crate) enum Cause<'a> {
    /// The object changed, or a list contains it.
    Change(Origin),
    /// A child or another related object changed, or a list contains it.
    Related { kind: &'a str, key: &'a ObjectKey, origin: Origin },
    /// Something outside of the cluster changed.
    External,
    /// An answer to a request of its own reconcile shows a change on which that reconcile did not act.
    Answer,
    /// The object has not been reconciled for long.
    Resync,
    /// A resource is served again, or for the first time.
    Served,
    /// The object waited for a list when this process lost its leadership.
    Demotion,
    /// The time of day has jumped.
    Clock,
    /// The object's last reconcile requested a requeue after this time, or the API server did.
    RequeueAfter(Duration),
    /// The object's last reconcile failed.
    Failure,
    /// The object's last reconcile was cancelled, as when this process loses its leadership.
    Cancelled,
}

/// The flow of an object in the queue: its namespace. So the objects of one namespace take turns with those of another.
pub(crate) fn flow_of(key: &ObjectKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.namespace.hash(&mut hasher);
    hasher.finish()
}

/// Puts an object into the queue of this controller.
pub(crate) fn wake(
    queue: &WorkQueue<ObjectKey>,
    controller: &str,
    key: ObjectKey,
    priority: Priority,
    cause: &Cause<'_>,
) {
    wake_after(queue, controller, key, priority, Duration::ZERO, cause);
}

/// Puts an object into the queue after this time, unless something else wakes it sooner.
pub(crate) fn wake_after(
    queue: &WorkQueue<ObjectKey>,
    controller: &str,
    key: ObjectKey,
    priority: Priority,
    wait: Duration,
    cause: &Cause<'_>,
) {
    explain(controller, &key, cause);
    queue.add_after(key, priority, wait);
}

/// Puts an object into the queue, unless a delay that ends within this time does so.
pub(crate) fn wake_unless_due(
    queue: &WorkQueue<ObjectKey>,
    controller: &str,
    key: ObjectKey,
    priority: Priority,
    within: Duration,
    cause: &Cause<'_>,
) {
    explain(controller, &key, cause);
    queue.add_unless_due(key, priority, within);
}

/// Logs why an object is in the queue, or will be. The name of the controller tells the queues of one process apart.
pub(crate) fn explain(controller: &str, key: &ObjectKey, cause: &Cause<'_>) {
    tracing::trace!(target: "manager::wake", %controller, object = %key, %cause, "Wake");
}

/// Logs that the reconcile of an object starts.
pub(crate) fn start(controller: &str, key: &ObjectKey) {
    tracing::trace!(target: "manager::wake", %controller, object = %key, "Reconcile");
}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(origin) => write!(f, "{}", seen(*origin)),
            Self::Related { kind, key, origin } => write!(f, "{kind} {key} {}", seen(*origin)),
            Self::External => f.write_str("a stream names it"),
            Self::Answer => f.write_str("an answer shows a change"),
            Self::Resync => f.write_str("resync"),
            Self::Served => f.write_str("a resource is served again"),
            Self::Demotion => f.write_str("the leadership is lost"),
            Self::Clock => f.write_str("the clock has jumped"),
            Self::RequeueAfter(wait) => write!(f, "requeue after {wait:?}"),
            Self::Failure => f.write_str("failure"),
            Self::Cancelled => f.write_str("its reconcile was cancelled"),
        }
    }
}

fn seen(origin: Origin) -> &'static str {
    match origin {
        Origin::Live => "changed",
        Origin::List => "listed",
        Origin::Answer => "was changed by another reconcile",
    }
}

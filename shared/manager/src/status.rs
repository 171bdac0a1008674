//! The trait of all statuses, and the gate that joins a burst of status changes into one write.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Debug,
    time::Duration,
};

use cache::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::object::HasStatus;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;
use workloads::{Fence, Scoped, schemas};
use xxhash_rust::xxh3::xxh3_64;

use crate::reverts::Reverts;

/// A status whose conditions and `observedGeneration` the runtime fills in.
#[diagnostic::on_unimplemented(
    message = "the runtime cannot report to the status `{Self}`",
    label = "expected a status with conditions",
    note = "use `status = \"StandardStatus\"` in `#[kube(…)]`, or call `manager::standard_status!({Self})` for a status with fields of its own"
)]
pub trait Status: Serialize + DeserializeOwned + Clone + Default + PartialEq + Debug + Send + Sync + 'static {
    /// `status.conditions`.
    fn conditions(&self) -> &[Condition];
    /// `status.conditions`.
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;
    /// `status.observedGeneration`.
    fn observed_generation_mut(&mut self) -> &mut Option<i64>;
    /// `status.lastHandledReconcileAt`, the echo of the annotation that requests a reconcile.
    fn last_handled_reconcile_at_mut(&mut self) -> &mut Option<String>;
    /// Clears what the operator plans to do next. The runtime calls it for an object that is paused or invalid, whose status
    /// otherwise stays as it is.
    fn clear_plans(&mut self) {}
    /// `status.fence`.
    fn fence(&self) -> Option<&Fence> {
        None
    }
    /// `status.fence`, for a status that holds memory. The runtime writes such a status with the resource version that it
    /// read, and with the leadership under which it writes. `None` for a status that can be computed again.
    fn fence_mut(&mut self) -> Option<&mut Option<Fence>> {
        None
    }
}

/// The status of a kind that reports nothing but conditions. A kind with more fields has a struct of its own, see
/// [`standard_status!`](crate::standard_status).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct StandardStatus {
    /// The generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The last value of the annotation reconcile-requested-at that the operator has handled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub last_handled_reconcile_at: Option<String>,

    /// Ready and Degraded; Reconciling and Stalled while they are true.
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}
crate::standard_status!(StandardStatus);

/// A custom resource that a controller reconciles: any `#[derive(CustomResource)]` type with a [`Status`].
pub trait Primary:
    Scoped + HasStatus<Status: Status> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

impl<K> Primary for K where
    K: Scoped + HasStatus<Status: Status> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

/// Implements [`Status`] for a struct with the fields `conditions`, `observed_generation` and
/// `last_handled_reconcile_at`, as every status of this workspace has them. Use `standard_status!(CronTabStatus, fenced)`
/// for a status that holds memory and has a field `fence`. Further items of the trait may follow in braces.
#[macro_export]
macro_rules! standard_status {
    ($status:ty $(, $fenced:ident)? $(, { $($item:item)* })?) => {
        impl $crate::Status for $status {
            fn conditions(&self) -> &[$crate::Condition] {
                &self.conditions
            }

            fn conditions_mut(&mut self) -> &mut Vec<$crate::Condition> {
                &mut self.conditions
            }

            fn observed_generation_mut(&mut self) -> &mut Option<i64> {
                &mut self.observed_generation
            }

            fn last_handled_reconcile_at_mut(&mut self) -> &mut Option<String> {
                &mut self.last_handled_reconcile_at
            }

            $($crate::standard_status!(@$fenced);)?
            $($($item)*)?
        }
    };
    (@fenced) => {
        fn fence(&self) -> Option<&$crate::Fence> {
            self.fence.as_ref()
        }

        fn fence_mut(&mut self) -> Option<&mut Option<$crate::Fence>> {
            Some(&mut self.fence)
        }
    };
}

/// Decides when a changed status is written, so that a burst of changes becomes one request.
///
/// The write happens at once if the caller wants that, as when the object has become `Ready`, or if its status was not written
/// lately and the reconcile has changed no children. Otherwise it waits, at most for [`WINDOW`]: the events of changed children
/// will change the status again.
///
/// A status that another client changes again and again is restored ever more slowly, see [`Reverts`]. The other client may be a
/// second release of the operator, an older one, or an API server that drops a field that its CRD does not know.
#[derive(Debug, Default)]
pub(crate) struct StatusGate {
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    /// The time of the last write, for [`WINDOW`].
    recent: HashMap<ObjectKey, Instant>,
    order: VecDeque<(Instant, ObjectKey)>,
    /// The hash of what was last written, by the hash of the key: 17 bytes an entry, with room for up to twice as many. A status
    /// that is written again without a change of its own is a revert.
    written: HashMap<u64, u32>,
    /// The reverts of those statuses that another client has changed recently.
    reverts: HashMap<ObjectKey, Reverts>,
}

/// The longest delay of a changed status.
const WINDOW: Duration = Duration::from_millis(400);

impl StatusGate {
    /// Returns `None` to write now, or else the time at which to try again. `held` is the time of the first change that is not
    /// written yet; the caller keeps it for each object, and clears it when the status is written or no longer differs.
    pub(crate) fn hold(
        &self,
        held: &mut Option<Instant>,
        key: &ObjectKey,
        at_once: bool,
        changed_children: bool,
        now: Instant,
    ) -> Option<Instant> {
        if at_once {
            return None;
        }
        let due = if let Some(since) = *held {
            since + WINDOW
        } else {
            let recently = self.state.lock().recent.get(key).is_some_and(|written| now < *written + WINDOW);
            if !recently && !changed_children {
                return None;
            }
            *held = Some(now);
            now + WINDOW
        };
        (now < due).then_some(due)
    }

    /// Returns the time at which this status may be written, if it was written before and another client has changed it since.
    pub(crate) fn contested(&self, key: &ObjectKey, content: u32, now: Instant) -> Option<Instant> {
        let state = self.state.lock();
        if state.written.get(&hash(key)) != Some(&content) {
            return None;
        }
        state.reverts.get(key)?.due().filter(|due| *due > now)
    }

    /// Records that the status was written. Returns how often it was reverted lately, this time included.
    pub(crate) fn written(&self, key: &ObjectKey, content: u32, now: Instant) -> u32 {
        let mut state = self.state.lock();
        state.recent.insert(key.clone(), now);
        state.order.push_back((now, key.clone()));
        while state.order.front().is_some_and(|(written, _)| now >= *written + WINDOW) {
            let Some((written, key)) = state.order.pop_front() else { break };
            if state.recent.get(&key) == Some(&written) {
                state.recent.remove(&key);
            }
        }
        let is_revert = state.written.insert(hash(key), content) == Some(content);
        if !is_revert || state.reverts.get(key).is_some_and(|reverts| reverts.is_over(now)) {
            state.reverts.remove(key);
        }
        if is_revert { state.reverts.entry(key.clone()).or_default().record(now) } else { 0 }
    }

    /// Drops everything about an object that is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        let mut state = self.state.lock();
        state.written.remove(&hash(key));
        state.reverts.remove(key);
        if state.written.is_empty() {
            state.written = HashMap::new(); // frees what a burst has allocated
        }
    }
}

/// Returns the hash of what a status says, without the times at which its conditions changed: these depend on what another
/// client wrote in between.
pub(crate) fn content(status: &Value) -> u32 {
    let mut status = status.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    let [_, _, _, _, low @ ..] = xxh3_64(status.to_string().as_bytes()).to_be_bytes();
    u32::from_be_bytes(low)
}

fn hash(key: &ObjectKey) -> u64 {
    xxh3_64(format!("{}/{}", key.namespace, key.name).as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[tokio::test(start_paused = true)]
    async fn status_of_a_quiet_object_is_written_at_once() {
        let (gate, key, now) = (StatusGate::default(), ObjectKey::new("n", "a"), Instant::now());
        let held = &mut None;
        assert_eq!(gate.hold(held, &key, false, false, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn status_burst_is_written_once_within_the_window() {
        let (gate, key, start) = (StatusGate::default(), ObjectKey::new("n", "a"), Instant::now());
        let held = &mut None;
        let due = at(start, 400);
        assert_eq!(gate.hold(held, &key, false, true, start), Some(due));
        assert_eq!(gate.hold(held, &key, false, true, at(start, 399)), Some(due), "later changes do not push it back");
        assert_eq!(gate.hold(held, &key, false, true, due), None);
        gate.written(&key, 1, due);
        *held = None;
        assert_eq!(gate.hold(held, &key, false, false, at(start, 401)), Some(at(start, 801)), "written a moment ago");
    }

    #[tokio::test(start_paused = true)]
    async fn ready_transition_is_written_at_once() {
        let (gate, key, now) = (StatusGate::default(), ObjectKey::new("n", "a"), Instant::now());
        let held = &mut None;
        gate.hold(held, &key, false, true, now);
        assert_eq!(gate.hold(held, &key, true, true, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn status_that_another_client_changes_is_restored_ever_more_slowly() {
        let (gate, key, start) = (StatusGate::default(), ObjectKey::new("n", "a"), Instant::now());
        let (mut now, mut waits) = (start, Vec::new());
        for number in 0..9 {
            assert_eq!(gate.written(&key, 1, now), number);
            let due = gate.contested(&key, 1, now).unwrap_or(now);
            waits.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(waits, [0, 0, 1, 2, 4, 8, 16, 32, 60]);
        gate.written(&key, 1, now);
        assert_eq!(gate.contested(&key, 2, now), None, "the operator itself wants to say something else");
        assert_eq!(gate.contested(&ObjectKey::new("n", "b"), 1, now), None, "another object");
        assert_eq!(gate.written(&key, 2, now), 0, "no revert");
        assert_eq!(gate.contested(&key, 2, now), None);
        for number in 1..4 {
            assert_eq!(gate.written(&key, 2, now), number);
        }
        let later = now + Duration::from_hours(1);
        assert_eq!(gate.written(&key, 2, later), 1, "a contest that is over is forgotten");
        gate.forget(&key);
        assert_eq!(gate.written(&key, 2, later), 0, "another object of the name");
    }

    #[test]
    fn times_of_conditions_are_not_content() {
        let status = |time: &str, reason: &str| {
            content(
                &json!({"size": 1, "conditions": [{"type": "Ready", "reason": reason, "lastTransitionTime": time}]}),
            )
        };
        assert_eq!(status("2026-01-01T00:00:00Z", "a"), status("2026-01-01T00:00:01Z", "a"));
        assert_ne!(status("2026-01-01T00:00:00Z", "a"), status("2026-01-01T00:00:00Z", "b"));
        assert_eq!(content(&Value::Null), content(&Value::Null), "no conditions");
    }
}

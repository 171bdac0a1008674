//! Writes the status: only if it differs, with one write for a burst of changes, and with an event for a new problem.

use api_errors::Class;
use cache::Metadata;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    Context, Primary, Shared,
    memory::{Remembered, Rollout},
    primary::reconcile_request,
};
use crate::{
    conditions::{
        ConditionContext, External, Health, NotReconciled, Problem, Report, combine, halted, is_true, observed,
    },
    controller::Observe,
    error::Error,
    events::{EventType, cut},
    reverts::REPORTED,
    status::{Status, content},
};

/// The largest size of `lastHandledReconcileAt` in bytes. It echoes an annotation, which may be much longer.
const ECHO_BYTES: usize = 1_024;
/// The event of a status that another client changes again and again.
const STATUS_CONTESTED: &str = "Another client changes the status again and again, such as a second release of this operator, or \
                                an API server whose CRD is older than the operator; the operator restores it at most once a \
                                minute";

/// How long the write of a changed status may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Urgency {
    /// For the burst of events that follows a change of children.
    MayWait,
    /// Only while another client changes it again and again.
    Now,
    /// Never: the next step relies on it.
    Always,
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Writes the status if it differs from the stored one. It holds the operator's own fields, and conditions made from the
    /// operator's findings and from the refused writes of this reconcile. Sets `observedGeneration`, keeps the times of
    /// conditions that did not change, and requeues the object for the time at which a condition changes by itself.
    ///
    /// The write may be delayed for a moment, so that the burst of events that follows a change of children becomes one
    /// write. If another client changes the status again and again, it is restored at most once a minute.
    pub async fn apply_status(&self, report: Report<K::Status>) -> Result<(), Error> {
        self.report(report, Urgency::MayWait).await
    }

    /// Like [`apply_status`](Context::apply_status), but never delayed: for memory that the next step relies on.
    pub async fn apply_status_at_once(&self, report: Report<K::Status>) -> Result<(), Error> {
        self.report(report, Urgency::Always).await
    }

    async fn report(&self, report: Report<K::Status>, urgency: Urgency) -> Result<(), Error> {
        let refusals = self.reconciliation.refusals.lock().clone();
        let object = self.object();
        let (conditions, recheck) = combine(&report.health, &refusals, self.context(&object));
        if let Some(time) = recheck {
            self.requeue_at(time);
        }
        let stored = stored_conditions(&*object);
        let fresh = fresh_problems(stored, &report.health, &refusals);
        let ready = is_true(&conditions, "Ready");
        let became_ready = ready && !is_true(stored, "Ready");
        let (since, over) = (rolling_since(stored), is_over(&conditions));
        let (degraded, is_settled) = (degraded_because(&conditions), report.health.is_settled);
        let urgency = if became_ready && urgency == Urgency::MayWait { Urgency::Now } else { urgency };
        let written = self.write_status(report.status, conditions, urgency).await?;
        if written {
            for problem in &fresh {
                if let Some(reason) = problem.kind.event {
                    self.event(EventType::Warning, reason, problem.message.clone());
                }
            }
            self.tell_resumed(stored);
        }
        // Report the end of a rollout once: if the stored status still shows the rollout, wait for the write that ends it.
        if over && (written || since.is_none()) {
            self.tell_rollout_finished(since, is_settled, degraded.as_deref());
        }
        Ok(())
    }

    /// Like [`apply_status_at_once`](Context::apply_status_at_once), for an object that represents something outside of the
    /// cluster. Its conditions show what the operator found there.
    pub async fn apply_external(&self, status: K::Status, external: &External) -> Result<(), Error> {
        let object = self.object();
        let conditions = external.conditions(self.context(&object));
        if self.write_status(status, conditions, Urgency::Always).await? {
            self.tell_resumed(stored_conditions(&*object));
        }
        Ok(())
    }

    /// Writes conditions that say why the object is not reconciled at the moment. Its other status fields stay, apart from
    /// [`plans`](Status::clear_plans) and from what the operator still observes.
    pub(crate) async fn halt(&self, halt: &NotReconciled, observe: Option<&Observe<K, S>>) -> Result<(), Error> {
        let object = self.object();
        let mut conditions = halted(halt, self.context(&object));
        let mut status = match observe.map(|observe| observe(&object, self)) {
            Some(Report { status, health }) => {
                observed(&mut conditions, &health, self.context(&object));
                status
            }
            None => object.status().cloned().unwrap_or_default(),
        };
        status.clear_plans();
        let event = match halt {
            NotReconciled::Paused(message) => (EventType::Normal, "Paused", message.clone()),
            NotReconciled::Invalid(problem) => {
                (EventType::Warning, problem.kind.event.unwrap_or(problem.kind.reason), problem.message.clone())
            }
        };
        let reported = stored_conditions(&*object).iter().any(|stored| match halt {
            NotReconciled::Paused(_) => stored.type_ == "Ready" && stored.reason == "Paused",
            NotReconciled::Invalid(problem) => {
                stored.type_ == "Degraded" && stored.reason == problem.kind.reason && stored.message == problem.message
            }
        });
        // Later changes are those of pods, which come in bursts.
        let urgency = if reported { Urgency::MayWait } else { Urgency::Now };
        if self.write_status(status, conditions, urgency).await? && !reported {
            self.event(event.0, event.1, event.2);
        }
        Ok(())
    }

    /// Whether the stored status is of the present generation.
    pub(super) fn is_observed(&self) -> bool {
        let object = self.object();
        let generation = object.meta().generation;
        object.status().is_some_and(|status| {
            let mut status = status.clone();
            *status.observed_generation_mut() == generation
        })
    }

    /// Writes the status if it differs and need not wait. Returns whether it was written.
    async fn write_status(
        &self,
        mut status: K::Status,
        conditions: Vec<Condition>,
        urgency: Urgency,
    ) -> Result<bool, Error> {
        let object = self.object();
        *status.conditions_mut() = conditions;
        *status.observed_generation_mut() = object.meta().generation;
        *status.last_handled_reconcile_at_mut() =
            reconcile_request(&*object).map(|token| cut(token, ECHO_BYTES).to_owned());

        // A new fence alone is no reason to write: keep the stored one here, and raise it only when something else differs.
        let stored_fence = object.status().and_then(Status::fence).cloned();
        let fenced = status.fence_mut().map(|fence| *fence = stored_fence).is_some();

        let (key, gate, memory) = (&self.reconciliation.key, &self.controller.gate, &self.controller.memory);
        let requests = &self.reconciliation.requests;
        if object.status() == Some(&status) {
            memory.modify(key, |it| it.held_status = None);
            self.controller.environment.metrics.skipped_writes.with_label_values(&[requests.kind(), "status"]).inc();
            return Ok(false);
        }
        let changed_children = self.reconciliation.changed_children.load(std::sync::atomic::Ordering::Relaxed);
        let at_once = urgency != Urgency::MayWait;
        let held = |it: &mut Remembered| gate.hold(&mut it.held_status, key, at_once, changed_children, Instant::now());
        if let Some(due) = memory.modify(key, held) {
            self.wake(due);
            return Ok(false);
        }
        let decode_error = requests.undecodable("write the status of", key);
        if let (Some(fence), Some(present)) = (status.fence_mut(), self.reconciliation.term.fence()) {
            *fence = Some(present);
        }
        let new = serde_json::to_value(&status).map_err(&decode_error)?;
        let content = content(&new);
        if urgency != Urgency::Always
            && let Some(due) = gate.contested(key, content, Instant::now())
        {
            self.wake(due);
            return Ok(false);
        }
        let old = match object.status() {
            Some(old) => serde_json::to_value(old).map_err(&decode_error)?,
            None => Value::Null,
        };
        let change = difference(&old, new);
        let stored = self.stored_status(&object).unwrap_or(old);
        let conditions = Basis::conditions(&stored).filter(|_| !fenced);
        let basis = conditions.unwrap_or_else(|| Basis::version(&*object));
        let operations = |basis: &Basis| operations(&self.reconciliation.uid, basis, &stored, &change);
        let answer = match requests.json_patch_status(key, &operations(&basis)).await {
            // The test also fails if the conditions are stored in another notation, such as a time with fractions, or if a user has
            // changed an object that has no conditions yet.
            Err(error) if error.class() == Class::Conflict && !fenced => match self.same_status(&stored).await? {
                Some(basis) => requests.json_patch_status(key, &operations(&basis)).await,
                None => Err(error),
            },
            answer => answer,
        };
        match answer {
            Ok(answer) => drop(self.cache_patched(&json!({"status": change}), &answer)?),
            // The object was deleted: there is nothing to report on.
            Err(error) if error.class() == Class::NotFound => {}
            // Includes a conflict: the next attempt finds in the cache what another process has written in the meantime, or
            // a different object of this name.
            Err(error) => return Err(error),
        }
        let reverts = gate.written(key, content, Instant::now());
        if reverts == REPORTED {
            self.event(EventType::Warning, "StatusContested", STATUS_CONTESTED);
        }
        memory.modify(key, |it| it.held_status = None);
        Ok(true)
    }

    /// Returns the status as the API server stores it. The typed one may have more: the defaults of fields that an earlier version
    /// of the operator, or an older definition, does not have. `None` if the cache has another version of the object.
    fn stored_status(&self, object: &K) -> Option<Value> {
        let text = self.controller.primary.store.text(&self.reconciliation.key)?;
        let stored: Stored<'_> = serde_json::from_str(&text).ok()?;
        (object.meta().resource_version.as_deref() == Some(&*stored.metadata.resource_version)).then_some(stored.status)
    }

    /// Reads the object into the cache. Returns the basis of another attempt if the object still has the status that this reconcile
    /// started from: the same conditions or, if there are none, the same status as a whole.
    async fn same_status(&self, started_from: &Value) -> Result<Option<Basis>, Error> {
        let Some(text) = self.read_primary().await? else { return Ok(None) };
        let Some(present) = self.cache_and_keep(&text)? else { return Ok(None) };
        let conditions = stored_conditions(&*present);
        let is_same = conditions == stored_conditions(&*self.object())
            && (!conditions.is_empty() || status_of(&text).as_ref() == Some(started_from));
        Ok(is_same.then(|| Basis::version(&*present)))
    }

    fn context<'a>(&self, object: &'a K) -> ConditionContext<'a> {
        ConditionContext {
            stored: stored_conditions(object),
            generation: object.meta().generation.unwrap_or_default(),
            now: self.now(),
        }
    }

    fn tell_resumed(&self, stored: &[Condition]) {
        if stored.iter().any(|stored| stored.type_ == "Ready" && stored.reason == "Paused") {
            self.event(EventType::Normal, "Resumed", "Reconciliation resumed");
        }
    }

    /// Reports the end of a rollout, once its pods are settled. Prefers the in-memory start; after a restart uses the
    /// condition's time, `since`, and emits no event, because the number of replicas is unknown.
    fn tell_rollout_finished(&self, since: Option<Timestamp>, is_settled: bool, degraded: Option<&str>) {
        let (memory, key) = (&self.controller.memory, &self.reconciliation.key);
        let is_reported = |rollout: Rollout| rollout.replicas.is_some(); // the initial rollout has no event
        if !is_settled && memory.read(key, |it| it.rollout.is_some_and(is_reported)) {
            return;
        }
        let remembered = memory.modify(key, |it| it.rollout.take());
        let took = match (remembered, since) {
            (Some(rollout), _) => rollout.since.elapsed(),
            (None, Some(since)) => self.now().duration_since(since).max(SignedDuration::ZERO).unsigned_abs(),
            (None, None) => return,
        };
        self.controller.children.rolled_out(took);
        if let Some(Rollout { replicas: Some(replicas), .. }) = remembered {
            self.event(EventType::Normal, "RolloutFinished", finished(replicas, took.as_secs(), degraded));
        }
    }
}

/// Returns the message about the end of a rollout. A rollout that ends does not mean that all is well: it may have restored the
/// former template.
fn finished(replicas: i64, seconds: u64, degraded: Option<&str>) -> String {
    let updated = if replicas == 1 { "The replica was".to_owned() } else { format!("All {replicas} replicas") };
    let still = degraded.map(|reason| format!("; still {reason}")).unwrap_or_default();
    format!("{updated} updated in {seconds}s{still}")
}

/// Returns when the present rollout began, according to these conditions.
fn rolling_since(conditions: &[Condition]) -> Option<Timestamp> {
    let rolling = |it: &&Condition| it.type_ == "Progressing" && it.status == "True" && it.reason == "RollingOut";
    conditions.iter().find(rolling).map(|it| it.last_transition_time.0)
}

/// Returns the reason of `Degraded`, if it is true.
fn degraded_because(conditions: &[Condition]) -> Option<String> {
    conditions.iter().find(|it| it.type_ == "Degraded" && it.status == "True").map(|it| it.reason.clone())
}

/// Whether no rollout is running any more, according to these conditions.
fn is_over(conditions: &[Condition]) -> bool {
    match conditions.iter().find(|it| it.type_ == "Progressing") {
        Some(progressing) => progressing.status == "False" && progressing.reason == "Stable",
        None => is_true(conditions, "Ready"), // a kind without `Progressing`
    }
}

/// The parts of an object's JSON that a status write needs.
#[derive(Deserialize)]
struct Stored<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(default)]
    status: Value,
}

/// Returns the status in the JSON of an object; null if it has none.
fn status_of(text: &str) -> Option<Value> {
    serde_json::from_str::<Stored<'_>>(text).ok().map(|stored| stored.status)
}

fn stored_conditions<K: Primary>(object: &K) -> &[Condition] {
    object.status().map_or(&[], Status::conditions)
}

/// Returns the problems that the stored status does not show yet.
fn fresh_problems(stored: &[Condition], health: &Health, refusals: &[Problem]) -> Vec<Problem> {
    let reported = stored.iter().find(|stored| stored.type_ == "Degraded" && stored.status == "True");
    let known = |problem: &&Problem| {
        reported.is_some_and(|reported| {
            reported.reason == problem.kind.reason || reported.message.contains(problem.kind.reason)
        })
    };
    let mut fresh: Vec<Problem> = Vec::new();
    for problem in health.problems.iter().chain(refusals).filter(|problem| !known(problem)) {
        if !fresh.contains(problem) {
            fresh.push(problem.clone());
        }
    }
    fresh
}

/// Returns the JSON merge patch that turns `old` into `new`: only what differs, and `null` for fields to remove.
fn difference(old: &Value, new: Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, &new) else { return new };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(before) if before == value => {}
            Some(before) => {
                patch.insert(name.clone(), difference(before, value.clone()));
            }
            None => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// A value that the new status was made from, and that the write tests. A process that has just become leader may not have
/// seen the last status yet. Without the test it would set times of conditions back, or lose the memory of an earlier leader.
struct Basis {
    path: &'static str,
    value: Value,
}

impl Basis {
    /// Tests the version of the whole object: for a status that holds memory, and for the first status, which would replace one
    /// that another manager has written since.
    fn version<K: Primary>(object: &K) -> Self {
        let version = object.meta().resource_version.as_deref().unwrap_or_default();
        Self { path: "/metadata/resourceVersion", value: version.into() }
    }

    /// Tests the conditions of the stored status, if there are any, for a status that can be computed again. Users may then
    /// change the object in the meantime.
    fn conditions(stored: &Value) -> Option<Self> {
        let conditions = stored.get("conditions").filter(|all| all.as_array().is_some_and(|all| !all.is_empty()));
        conditions.map(|value| Self { path: "/status/conditions", value: value.clone() })
    }
}

/// Returns the JSON patch that carries out a difference of the status. It fails unless the object still has this uid and the
/// value of `basis`.
///
/// A merge patch is not safe: in one for the status of a custom resource, the API server ignores the uid. So the status of an
/// object that is gone would be written to a different object of its name.
fn operations(uid: &str, Basis { path, value }: &Basis, stored: &Value, difference: &Value) -> Value {
    let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": uid})];
    operations.push(json!({"op": "test", "path": path, "value": value}));
    add_operations(&mut operations, "/status", Some(stored).filter(|stored| !stored.is_null()), difference);
    operations.into()
}

/// Adds the operations that carry out the difference below `path`, where `stored` is; `None` if nothing is there. A JSON patch adds
/// only to objects that exist, and removes only what exists.
fn add_operations(operations: &mut Vec<Value>, path: &str, stored: Option<&Value>, difference: &Value) {
    match (stored, difference) {
        (Some(Value::Object(stored)), Value::Object(changes)) => {
            for (name, change) in changes {
                let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                add_operations(operations, &path, stored.get(name), change);
            }
        }
        (Some(_), Value::Null) => operations.push(json!({"op": "remove", "path": path})),
        (None, Value::Null) => {}
        _ => {
            let mut value = difference.clone();
            remove_nulls(&mut value);
            operations.push(json!({"op": "add", "path": path, "value": value}));
        }
    }
}

/// Removes the members of objects that are to be removed.
fn remove_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| !member.is_null());
        members.values_mut().for_each(remove_nulls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_rollout_is_told_in_words() {
        assert_eq!(finished(3, 12, None), "All 3 replicas updated in 12s");
        assert_eq!(finished(1, 5, None), "The replica was updated in 5s");
        assert_eq!(finished(3, 7, Some("RolledBack")), "All 3 replicas updated in 7s; still RolledBack");
    }

    #[test]
    fn status_patch_contains_only_differences() {
        let old = json!({"nodes": ["a"], "replicas": 3, "image": "x", "gone": 1});
        let new = json!({"nodes": ["b"], "replicas": 3, "image": "x"});
        assert_eq!(difference(&old, new), json!({"nodes": ["b"], "gone": null}));
        assert_eq!(difference(&Value::Null, json!({"nodes": []})), json!({"nodes": []}));
    }

    /// The type of the status has fields that the stored one lacks, such as maps that are empty by default.
    #[test]
    fn status_patch_adds_the_objects_that_the_stored_status_lacks() {
        let typed = json!({"image": "x", "by": {}, "last": {"name": "a", "time": "t"}});
        for (new, stored, expected) in [
            (json!({"image": "x", "by": {"c": 1}}), json!({"image": "x"}), json!({"image": "x", "by": {"c": 1}})),
            (
                json!({"image": "y", "by": {}, "last": {"name": "b"}}),
                json!({}),
                json!({"image": "y", "last": {"name": "b"}}),
            ),
            (json!({"image": "x", "by": {}}), json!({"image": "x", "newer": 1}), json!({"image": "x", "newer": 1})),
        ] {
            let basis = Basis { path: "/metadata/resourceVersion", value: "7".into() };
            let patch = operations("u", &basis, &stored, &difference(&typed, new));
            let patch: json_patch::Patch = serde_json::from_value(patch).expect("a JSON patch");
            let mut object = json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": stored});
            json_patch::patch(&mut object, &patch).expect("it applies");
            assert_eq!(object["status"], expected);
        }
    }

    #[test]
    fn status_patch_applies_only_to_the_expected_object() {
        let old = json!({"nodes": ["a"], "by": {"a/b": 1, "c": 2}, "gone": 1, "image": "x"});
        let new = json!({"nodes": [], "by": {"a/b": 3}, "image": "x", "fresh": {"a": 1}});
        for (old, new) in [(&old, &new), (&Value::Null, &new), (&new, &old), (&json!({}), &new)] {
            let mut object = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
            if !old.is_null() {
                object["status"] = old.clone();
            }
            let change = difference(old, new.clone());
            for (uid, version, is_taken) in [("u", "7", true), ("u", "6", false), ("v", "7", false)] {
                let basis = Basis { path: "/metadata/resourceVersion", value: version.into() };
                let patch: json_patch::Patch =
                    serde_json::from_value(operations(uid, &basis, old, &change)).expect("a JSON patch");
                let mut object = object.clone();
                assert_eq!(json_patch::patch(&mut object, &patch).is_ok(), is_taken, "{patch}");
                assert!(!is_taken || object["status"] == *new, "{patch}");
            }
        }
    }
}

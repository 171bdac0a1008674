//! What an object says about itself. Pure.

use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use crate::kinds::Kind;

/// How long an operator may work on an object until a user should look at it. The chart's alert about an object that is not ready
/// waits as long.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);

/// How an object is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Health {
    /// Its operator cannot do what it wants, has tried for longer than [`PATIENCE`], or does not work.
    Wrong,
    /// The operator works on it.
    InProgress,
    /// The user has paused it.
    Paused,
    /// As it wants to be.
    Ready,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) since: Option<Timestamp>,
}

/// The state of an object in a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) health: Health,
    /// The status of its condition `Ready`: `True`, `False`, `Unknown`, or `-` if it has none.
    pub(crate) ready: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) since: Option<Timestamp>,
}

pub(crate) fn conditions(object: &DynamicObject) -> Vec<Condition> {
    let stored = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let read = |condition: &Value| {
        let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        Condition {
            type_: text("type"),
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            since: text("lastTransitionTime").parse().ok(),
        }
    };
    stored.into_iter().flatten().map(read).collect()
}

pub(crate) fn paused_annotation(kind: &Kind) -> String {
    format!("{}/paused", kind.resource.group)
}

pub(crate) fn is_paused(kind: &Kind, object: &DynamicObject) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(&paused_annotation(kind))).is_some_and(|value| value == "true")
}

/// The generation that the status describes.
pub(crate) fn observed_generation(object: &DynamicObject) -> Option<i64> {
    object.data.pointer("/status/observedGeneration").and_then(Value::as_i64)
}

/// Says how the object is at the time `now`.
pub(crate) fn state(kind: &Kind, object: &DynamicObject, now: Timestamp) -> State {
    let conditions = conditions(object);
    let find = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    let holds = |type_: &str| find(type_).filter(|condition| condition.status == "True");
    let Some(ready) = find("Ready") else {
        let message = "it has no status: is its operator running?".to_owned();
        let (reason, since) = ("NoStatus".to_owned(), None);
        return State { health: Health::Wrong, ready: "-".to_owned(), reason, message, since };
    };
    let is_outdated = observed_generation(object).is_some_and(|seen| Some(seen) < object.metadata.generation);
    let synced = find("Synced");
    let (health, shown) = if is_paused(kind, object) {
        (Health::Paused, ready)
    } else if let Some(trouble) = holds("Stalled").or_else(|| holds("Degraded")) {
        (Health::Wrong, trouble)
    } else if ready.status == "True" && !is_outdated && object.metadata.deletion_timestamp.is_none() {
        // What is outside of the cluster may differ from the spec, or be unknown.
        let different = synced.filter(|synced| synced.status != "True");
        different.map_or((Health::Ready, ready), |different| (Health::Wrong, different))
    } else if ready.status != "True" && !is_outdated && needs_a_user(object, ready, synced, holds("Reconciling"), now) {
        (Health::Wrong, ready)
    } else {
        (Health::InProgress, ready)
    };
    let (mut reason, mut message) = (shown.reason.clone(), shown.message.clone());
    if object.metadata.deletion_timestamp.is_some() {
        "Deleting".clone_into(&mut reason);
    } else if health == Health::Paused {
        "Paused".clone_into(&mut reason);
    } else if health == Health::InProgress && is_outdated {
        "the operator has not handled the last change yet".clone_into(&mut message);
    }
    State { health, ready: ready.status.clone(), reason, message, since: shown.since }
}

/// Whether a user should look at an object that is not ready. Its operator does not work on it, has done so for long, or cannot
/// see what is outside of the cluster: then `Reconciling` only says that it tries again.
fn needs_a_user(
    object: &DynamicObject,
    ready: &Condition,
    synced: Option<&Condition>,
    reconciling: Option<&Condition>,
    now: Timestamp,
) -> bool {
    // The pause has ended, and the operator has not noticed yet.
    if ready.reason == "Paused" {
        return false;
    }
    let is_unknown = [Some(ready), synced].into_iter().flatten().any(|condition| condition.status == "Unknown");
    // The present work may be younger than the problem before it, which has made the object unready.
    let deletion = object.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let begun = reconciling.unwrap_or(ready).since.into_iter().chain(deletion).max();
    let is_late = begun.is_some_and(|begun| now.duration_since(begun) > PATIENCE);
    reconciling.is_none() || is_unknown || is_late
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Kind;

    pub(crate) fn kind() -> Kind {
        let resource = kube::api::ApiResource {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            api_version: "example.com/v1".to_owned(),
            kind: "Thing".to_owned(),
            plural: "things".to_owned(),
        };
        Kind { resource, singular: "thing".to_owned(), short_names: vec!["th".to_owned()], is_namespaced: true }
    }

    pub(crate) fn object(name: &str, metadata: &Value, status: &Value) -> DynamicObject {
        let mut object = json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "status": status,
            "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 2,
                         "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        for (key, value) in metadata.as_object().into_iter().flatten() {
            object["metadata"][key] = value.clone();
        }
        serde_json::from_value(object).expect("an object")
    }

    pub(crate) fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
               "lastTransitionTime": "2026-01-01T00:10:00Z"})
    }

    #[test]
    fn health_follows_from_conditions_generation_and_pause() {
        let ready = condition("Ready", "True", "Ready", "");
        let rolling = condition("Ready", "False", "RollingOut", "1 of 3");
        let reconciling = condition("Reconciling", "True", "RollingOut", "1 of 3");
        let degraded = condition("Degraded", "True", "ImagePull", "no such image");
        let synced = condition("Synced", "True", "UpToDate", "");
        let diverged = condition("Synced", "False", "Diverged", "Booking BK-1 is Mumbai -> Lisbon");
        let (unknown, unseen) =
            (condition("Ready", "Unknown", "NoAnswer", ""), condition("Synced", "Unknown", "NoAnswer", ""));
        let resumed = condition("Ready", "Unknown", "Paused", "");
        let early = json!({"type": "Ready", "status": "False", "reason": "RollingOut", "message": "1 of 3",
                           "lastTransitionTime": "2026-01-01T00:04:59Z"});
        let for_long = json!({"type": "Reconciling", "status": "True", "reason": "RollingOut", "message": "1 of 3",
                              "lastTransitionTime": "2026-01-01T00:04:59Z"});
        let none = json!({});
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:20:00Z"});
        let paused = json!({"annotations": {"example.com/paused": "true"}});
        for (metadata, generation, conditions, health, reason) in [
            (&none, 2, vec![&ready], Health::Ready, "Ready"),
            (&none, 2, vec![&ready, &synced], Health::Ready, "Ready"),
            (&none, 2, vec![&ready, &diverged], Health::Wrong, "Diverged"),
            (&none, 1, vec![&ready, &diverged], Health::InProgress, "Ready"),
            (&none, 2, vec![&ready, &unseen], Health::Wrong, "NoAnswer"),
            (&none, 1, vec![&ready], Health::InProgress, "Ready"),
            (&none, 2, vec![&rolling, &reconciling], Health::InProgress, "RollingOut"),
            (&none, 2, vec![&rolling], Health::Wrong, "RollingOut"),
            (&none, 2, vec![&early, &for_long], Health::Wrong, "RollingOut"),
            (&none, 2, vec![&early, &reconciling], Health::InProgress, "RollingOut"),
            (&none, 1, vec![&early, &for_long], Health::InProgress, "RollingOut"),
            (&deleted, 2, vec![&early, &for_long], Health::InProgress, "Deleting"),
            (&none, 2, vec![&rolling, &diverged, &reconciling], Health::InProgress, "RollingOut"),
            (&none, 2, vec![&rolling, &unseen, &reconciling], Health::Wrong, "RollingOut"),
            (&none, 2, vec![&unknown, &synced, &reconciling], Health::Wrong, "NoAnswer"),
            (&none, 1, vec![&unknown, &unseen, &reconciling], Health::InProgress, "NoAnswer"),
            (&paused, 2, vec![&unknown, &unseen], Health::Paused, "Paused"),
            (&none, 2, vec![&resumed, &unseen], Health::InProgress, "Paused"),
            (&none, 2, vec![&degraded, &ready], Health::Wrong, "ImagePull"),
            (&none, 2, vec![], Health::Wrong, "NoStatus"),
            (&paused, 2, vec![&ready], Health::Paused, "Paused"),
            (&deleted, 2, vec![&ready], Health::InProgress, "Deleting"),
        ] {
            let status = json!({"observedGeneration": generation, "conditions": conditions});
            let now = "2026-01-01T00:20:00Z".parse().expect("a time");
            let state = state(&kind(), &object("a", metadata, &status), now);
            assert_eq!((state.health, state.reason.as_str()), (health, reason), "{metadata} {status}");
        }
    }
}

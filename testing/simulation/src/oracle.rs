//! Helpers for [`Subject::judge`](crate::Subject::judge): the required children and conditions of all kinds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use model_apiserver::Model;
use serde_json::{Value, json};

use crate::condition;

/// Checks that `live` contains everything in `wanted`. Lists must agree element by element.
///
/// # Errors
///
/// Names the first place that differs, as `path` and the fields below it.
pub fn contains(live: &Value, wanted: &Value, path: &str) -> Result<(), String> {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().try_for_each(|(key, wanted)| {
            contains(live.get(key).unwrap_or(&Value::Null), wanted, &format!("{path}.{key}"))
        }),
        (Value::Array(live), Value::Array(wanted)) if live.len() == wanted.len() => live
            .iter()
            .zip(wanted)
            .enumerate()
            .try_for_each(|(index, (live, wanted))| contains(live, wanted, &format!("{path}[{index}]"))),
        _ if live == wanted => Ok(()),
        // An absent number counts as zero, because the API server may omit zeros.
        (Value::Null, Value::Number(number)) if number.as_i64() == Some(0) => Ok(()),
        _ => Err(format!("{path} is {live}, not {wanted}")),
    }
}

/// Returns the object with this resource and name in the namespace of `object`.
pub fn beside(object: &Value, cluster: &Model, resource: &str, name: &str) -> Option<Value> {
    cluster.object(resource, object["metadata"]["namespace"].as_str().unwrap_or_default(), name)
}

/// The labels of a child. `app` is the kind of the primary in lower case, `name` is the name of the primary.
pub fn labels(app: &str, name: &str) -> Value {
    json!({
        "app.kubernetes.io/name": app, "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": format!("{app}-operator"),
    })
}

/// The part of [`labels`] that selects pods.
pub fn selector(app: &str, name: &str) -> Value {
    json!({"app.kubernetes.io/name": app, "app.kubernetes.io/instance": name})
}

/// The owner reference to this object in its children.
pub fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}

/// The children that an object should have now.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The name of the children.
    pub name: &'a str,
    /// Whether the operator adopts children that an earlier object of the name has left behind.
    pub adopts: bool,
    /// The kind of the primary in lower case.
    pub app: &'a str,
    /// Resources of children, each with whether the child is wanted.
    pub children: &'a [(&'a str, bool)],
    /// Whether an orphan (second argument) has the immutable fields that the primary (first argument) wants. If not, the
    /// operator treats it as the object of another client.
    pub fits: fn(&Value, &Value) -> bool,
}

impl Wanted<'_> {
    /// Checks that exactly the wanted children exist. Returns `false` if the object of another client has the name of one of them
    /// and the conditions report that: then nothing else can be expected.
    ///
    /// # Errors
    ///
    /// Names the child that is missing, left over or not adopted, or the condition that is wrong.
    pub fn are_there(&self, object: &Value, cluster: &Model) -> Result<bool, String> {
        self.are_there_in(object["metadata"]["namespace"].as_str().unwrap_or_default(), object, cluster)
    }

    /// Like [`are_there`](Self::are_there), in another namespace than that of the object.
    ///
    /// # Errors
    ///
    /// As [`are_there`](Self::are_there).
    pub fn are_there_in(&self, namespace: &str, object: &Value, cluster: &Model) -> Result<bool, String> {
        let owner = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut foreign = Vec::new();
        for &(resource, is_wanted) in self.children {
            match cluster.object(resource, namespace, self.name) {
                // The operator leaves an unowned object alone; it matters only if its name is wanted.
                Some(child) if !is_owned(&child, object) => foreign.extend(is_wanted.then_some(child)),
                Some(_) if !is_wanted => return Err(format!("a child is not wanted any more: {resource}")),
                None if is_wanted => return Err(format!("a child is missing: {resource}")),
                Some(_) | None => {}
            }
        }
        for object_there in &foreign {
            // The operator must adopt the orphans of an earlier object of the name.
            let metadata = &object_there["metadata"];
            let is_orphan = metadata["ownerReferences"].as_array().is_none_or(Vec::is_empty);
            let has_our_labels = contains(&metadata["labels"], &labels(self.app, owner), "").is_ok();
            if self.adopts && is_orphan && has_our_labels && (self.fits)(object, object_there) {
                return Err(format!("{} was not adopted", object_there["kind"]));
            }
        }
        if foreign.is_empty() {
            return Ok(true);
        }
        let conflict = |is| (is, "ResourceConflict");
        let told = [("Ready", conflict("False")), ("Degraded", conflict("True")), ("Stalled", conflict("True"))];
        say(&object["status"], &told).map(|()| false)
    }
}

fn is_owned(child: &Value, object: &Value) -> bool {
    let owners = child["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|all| all.iter().any(|it| it["controller"] == true && it["uid"] == object["metadata"]["uid"]))
}

/// Checks that these conditions have the expected status and reason.
///
/// # Errors
///
/// Names the first condition that differs.
pub fn say(status: &Value, expected: &[(&str, (&str, &str))]) -> Result<(), String> {
    for &(type_, (is, reason)) in expected {
        let found = condition(status, type_);
        if found["status"] != is || found["reason"] != reason {
            return Err(format!("{type_} is {}/{}, not {is}/{reason}", found["status"], found["reason"]));
        }
    }
    Ok(())
}

/// Checks the conditions of an object whose work is done. `ready` and `available` are the reasons of these conditions.
///
/// # Errors
///
/// As [`say`]; also if there is a condition `Reconciling` or `Stalled`.
pub fn all_done(status: &Value, ready: &str, available: &str) -> Result<(), String> {
    let expected = [
        ("Ready", ("True", ready)),
        ("Available", ("True", available)),
        ("Progressing", ("False", "Stable")),
        ("Degraded", ("False", "AsExpected")),
    ];
    say(status, &expected)?;
    match ["Reconciling", "Stalled"].iter().find(|type_| !condition(status, type_).is_null()) {
        Some(type_) => Err(format!("{type_} is {}", condition(status, type_))),
        None => Ok(()),
    }
}

/// The reasons that win over `RolloutStalled`: what may be the cause of it. An operator may report several at once.
const CAUSES_OF_STALLS: [&str; 11] = [
    "ResourceConflict",
    "Forbidden",
    "QuotaExceeded",
    "ChildRejected",
    "FieldsContested",
    "SecretNotFound",
    "ImageRunsAsRoot",
    "ImagePullFailed",
    "CrashLooping",
    "Unschedulable",
    "PodsNotStarting",
];
/// `Degraded` names at most this many problems besides the first.
const OTHERS: usize = 3;
/// A status is certainly `Stalled` when it has been `Degraded` for this long. The specification says 60 seconds, and clocks
/// differ by less than as much.
const CERTAINLY_STALLED: SignedDuration = SignedDuration::from_secs(120);

/// Checks the conditions of an object whose rollout has stalled: it is degraded and not ready, it names the stall, and it is
/// `Stalled` after a minute. `stalled_for` and `now` are those of [`Subject::judge_stall`](crate::Subject::judge_stall).
///
/// # Errors
///
/// Names the condition that is wrong.
pub fn tells_of_stall(status: &Value, stalled_for: Duration, now: Timestamp) -> Result<(), String> {
    let [ready, degraded, stalled] = ["Ready", "Degraded", "Stalled"].map(|type_| condition(status, type_));
    if ready["status"] != "False" || degraded["status"] != "True" {
        return Err(format!("Ready is {ready}, and Degraded is {degraded}"));
    }
    let (reason, message) = (&degraded["reason"], degraded["message"].as_str().unwrap_or_default());
    let others: Vec<&str> =
        message.rsplit_once("; also: ").into_iter().flat_map(|(_, others)| others.split(", ")).collect();
    let is_cause = CAUSES_OF_STALLS.iter().any(|cause| *reason == **cause);
    let is_named = others.contains(&"RolloutStalled") || others.len() >= OTHERS;
    if *reason != "RolloutStalled" && !(is_cause && is_named) {
        return Err(format!("Degraded is {degraded}, which does not name RolloutStalled"));
    }
    let since = degraded["lastTransitionTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let has_lasted = since.is_some_and(|since| now.duration_since(since) >= CERTAINLY_STALLED);
    let is_certain = has_lasted && stalled_for >= CERTAINLY_STALLED.unsigned_abs();
    if is_certain && stalled["status"] != "True" {
        return Err(format!("Stalled is {stalled}, although it has been degraded since {since:?}"));
    }
    Ok(())
}

/// Checks the counts of pods that the status of a primary copies from its Deployment.
///
/// # Errors
///
/// Names the first count that differs.
pub fn counts_agree(status: &Value, deployment: &Value, fields: &[&str]) -> Result<(), String> {
    let count = |of: &Value, field: &str| of[field].as_i64().unwrap_or(0);
    match fields.iter().find(|field| count(status, field) != count(&deployment["status"], field)) {
        Some(field) => Err(format!("{field} is {}, not {}", count(status, field), count(&deployment["status"], field))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_has_to_tell_of_a_stall_and_to_be_stalled_after_a_while() {
        let begun = Timestamp::UNIX_EPOCH;
        let status = |reason: &str, message: &str, ready: &str, stalled: &str| {
            let time = begun.to_string();
            json!({"conditions": [
                {"type": "Degraded", "status": "True", "reason": reason, "message": message, "lastTransitionTime": time},
                {"type": "Ready", "status": ready},
                {"type": "Stalled", "status": stalled},
            ]})
        };
        let judge = |status: &Value, seconds: u32| {
            let passed = Duration::from_secs(1) * seconds;
            tells_of_stall(status, passed, begun + passed).is_ok()
        };
        for (reason, message, is_right) in [
            ("RolloutStalled", "Rollout made no progress for 600s", true),
            ("ImagePullFailed", "Back-off; also: RolloutStalled", true),
            ("ImagePullFailed", "Back-off", false),
            ("QuotaExceeded", "objects; also: SecretNotFound, CrashLooping, Unschedulable", true),
            ("NodesNotReady", "1/2; also: RolloutStalled", false),
        ] {
            assert_eq!(judge(&status(reason, message, "False", "False"), 30), is_right, "{reason}: {message}");
            assert!(!judge(&status(reason, message, "True", "True"), 30), "{reason}: {message}");
        }
        assert!(judge(&status("RolloutStalled", "", "False", "True"), 120));
        assert!(!judge(&status("RolloutStalled", "", "False", "False"), 120));
    }
}

//! What the common part of the specification says of children and conditions, for judges to use.

use model_apiserver::Model;
use serde_json::{Value, json};

use crate::condition;

/// Everything in `wanted` is in `live`; lists agree element by element.
///
/// # Errors
///
/// Names the first place that differs.
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
        // The API server leaves out a zero here.
        (Value::Null, Value::Number(number)) if number.as_i64() == Some(0) => Ok(()),
        _ => Err(format!("{path} is {live}, not {wanted}")),
    }
}

/// What has this name, and is in the namespace of the object.
pub fn beside(object: &Value, cluster: &Model, resource: &str, name: &str) -> Option<Value> {
    cluster.object(resource, object["metadata"]["namespace"].as_str().unwrap_or_default(), name)
}

/// The labels that a child carries. `app` is the kind in lower case, `name` the object's.
pub fn labels(app: &str, name: &str) -> Value {
    json!({
        "app.kubernetes.io/name": app, "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": format!("{app}-operator"),
    })
}

/// Those of them by which pods are selected.
pub fn selector(app: &str, name: &str) -> Value {
    json!({"app.kubernetes.io/name": app, "app.kubernetes.io/instance": name})
}

/// The owner reference to this object that a child carries.
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
    /// Whether what an earlier object has left behind is adopted.
    pub adopts: bool,
    /// The kind in lower case.
    pub app: &'a str,
    /// Resources of children, each with whether it is wanted.
    pub children: &'a [(&'a str, bool)],
    /// Whether an orphan says what cannot be changed as it is wanted; if not, it is treated as the object of another client.
    pub fits: fn(&Value, &Value) -> bool,
}

impl Wanted<'_> {
    /// Whether exactly the wanted children are there. `false` when the object of another client has the name of one of them, and
    /// the conditions say so: then nothing else can be expected.
    ///
    /// # Errors
    ///
    /// Names the child that is missing, or left over, or was not adopted; or says which condition is wrong.
    pub fn are_there(&self, object: &Value, cluster: &Model) -> Result<bool, String> {
        let owner = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut foreign = Vec::new();
        for &(resource, is_wanted) in self.children {
            match beside(object, cluster, resource, self.name) {
                // What is not ours and not in the way is let be.
                Some(child) if !is_owned(&child, object) => foreign.extend(is_wanted.then_some(child)),
                Some(_) if !is_wanted => return Err(format!("a child of {resource} is not wanted any more")),
                None if is_wanted => return Err(format!("there is no child of {resource}")),
                Some(_) | None => {}
            }
        }
        for object_there in &foreign {
            // What is left from an earlier object of the name is adopted.
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

/// Conditions, each with its status and reason.
///
/// # Errors
///
/// Names the first one that says something else.
pub fn say(status: &Value, expected: &[(&str, (&str, &str))]) -> Result<(), String> {
    for &(type_, (is, reason)) in expected {
        let found = condition(status, type_);
        if found["status"] != is || found["reason"] != reason {
            return Err(format!("{type_} is {}/{}, not {is}/{reason}", found["status"], found["reason"]));
        }
    }
    Ok(())
}

/// The conditions of an object whose work is done, `ready` and `available` being the reasons of these conditions.
///
/// # Errors
///
/// As [`say`]; and when there is a condition that speaks of work or of an obstacle.
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

/// The counts of pods that a status takes over from a Deployment.
///
/// # Errors
///
/// Names the first one that differs.
pub fn counts_agree(status: &Value, deployment: &Value, fields: &[&str]) -> Result<(), String> {
    let count = |of: &Value, field: &str| of[field].as_i64().unwrap_or(0);
    match fields.iter().find(|field| count(status, field) != count(&deployment["status"], field)) {
        Some(field) => Err(format!("{field} is {}, not {}", count(status, field), count(&deployment["status"], field))),
        None => Ok(()),
    }
}

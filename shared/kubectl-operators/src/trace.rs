//! `trace`: what happened to an object, in the order of time.
//!
//! The API server keeps most times without fractions of a second. Within one second the order is that of cause and effect.

use std::{collections::BTreeMap, fmt::Write as _};

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use kube::api::DynamicObject;
use serde_json::Value;

use crate::{
    Session,
    children::Children,
    cli::TargetFlags,
    events::Event,
    object::{conditions, observed_generation},
    observed::Observed,
    text::{age, labelled, one_line, table},
};

/// How many changed fields of one writer are named.
const FIELDS: usize = 4;

pub(crate) async fn run(session: &Session, target: &TargetFlags) -> Result<String, String> {
    Ok(text(&Observed::read(session, target).await?))
}

fn text(observed: &Observed<'_>) -> String {
    let Observed { kind, object, children, events, now } = observed;
    let now = *now;
    let metadata = &object.metadata;
    let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let handled = object.data.pointer("/status/lastHandledReconcileAt").and_then(Value::as_str);
    let facts = [
        (
            "Object",
            format!("{} in {}", kind.named(metadata.name.as_deref().unwrap_or_default()), kind.resource.api_version),
        ),
        ("Namespace", metadata.namespace.clone().unwrap_or_default()),
        ("Generation", format!("{}, observed {}", number(metadata.generation), number(observed_generation(object)))),
        ("Version", metadata.resource_version.clone().unwrap_or_default()),
        ("Reconcile", handled.map(|token| format!("last request handled: {token}")).unwrap_or_default()),
    ];
    let mut text = labelled(facts);

    let mut moments = moments(object, children, events.as_deref().unwrap_or_default());
    // The sort is stable: children of one second keep the order of the tree, owners first.
    moments.sort_by_key(|moment| (second(moment.time), moment.rank, moment.time));
    let head = ["TIME", "AGE", "WHAT", "DETAILS"];
    let rows = moments
        .into_iter()
        .map(|Moment { time, what, details, .. }| vec![second(time).to_string(), age(time, now), what, details]);
    let _ = write!(text, "\n{}", table(head, rows));
    // The rest is worth showing nevertheless.
    if let Err(error) = events {
        let _ = writeln!(text, "\nEvents: {}", one_line(error));
    }
    if !children.forbidden.is_empty() {
        let _ = writeln!(text, "\nChildren: cannot read {}", children.forbidden.join(", "));
    }
    text
}

/// The second in which it was. Times in objects are cut off in the same way.
fn second(time: Timestamp) -> Timestamp {
    time.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor)).unwrap_or(time)
}

/// What kind of moment it is: causes before their effects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Created,
    Written,
    ChildCreated,
    DeletionRequested,
    Event,
    Condition,
    /// A status reports what happened before, and its time is that of the last write.
    StatusWritten,
}

/// Something that happened.
struct Moment {
    time: Timestamp,
    rank: Rank,
    what: String,
    details: String,
}

/// Everything whose time is known. A condition and a writer have only the time of their last change.
fn moments(object: &DynamicObject, children: &Children, events: &[Event]) -> Vec<Moment> {
    let metadata = &object.metadata;
    let mut moments = Vec::new();
    let mut add = |time: Option<Timestamp>, rank: Rank, what: String, details: String| {
        moments.extend(time.map(|time| Moment { time, rank, what, details }));
    };
    add(metadata.creation_timestamp.as_ref().map(|it| it.0), Rank::Created, "created".to_owned(), String::new());
    let finalizers = metadata.finalizers.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
    let waits = if finalizers.is_empty() { String::new() } else { format!("waits for finalizers {finalizers}") };
    add(
        metadata.deletion_timestamp.as_ref().map(|it| it.0),
        Rank::DeletionRequested,
        "deletion requested".to_owned(),
        waits,
    );
    for entry in metadata.managed_fields.iter().flatten() {
        let manager = entry.manager.as_deref().unwrap_or("unknown");
        let part = entry.subresource.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
        let operation = entry.operation.as_deref().unwrap_or_default().to_lowercase();
        let version = entry.api_version.as_deref().and_then(|it| it.rsplit('/').next()).unwrap_or_default();
        let fields = entry.fields_v1.as_ref().map(|it| fields(&it.0)).unwrap_or_default();
        let details = format!("{operation} in {version}; its fields: {}", named(&fields));
        let rank = if entry.subresource.as_deref() == Some("status") { Rank::StatusWritten } else { Rank::Written };
        add(entry.time.as_ref().map(|it| it.0), rank, format!("written{part} by {manager}"), details);
    }
    for it in conditions(object) {
        let details =
            [it.reason, it.message].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
        add(it.since, Rank::Condition, format!("{} became {}", it.type_, it.status), details);
    }
    for it in events {
        let repeated = match (it.count, it.first) {
            (2.., Some(first)) => format!(" ({} times since {})", it.count, second(first)),
            _ => String::new(),
        };
        add(it.last, Rank::Event, format!("{} event {}", it.type_, it.reason), format!("{}{repeated}", it.message));
    }
    for (_, child) in children.in_order(metadata.uid.as_deref().unwrap_or_default()) {
        add(child.created, Rank::ChildCreated, format!("{} created", child.kind), child.name.clone());
    }
    moments
}

/// The paths of the fields in a set of `managedFields`, to a depth of two.
fn fields(set: &Value) -> Vec<String> {
    let names = |set: &Value| -> BTreeMap<String, Value> {
        let fields = set.as_object().into_iter().flatten();
        fields.filter_map(|(key, below)| Some((key.strip_prefix("f:")?.to_owned(), below.clone()))).collect()
    };
    let mut paths = Vec::new();
    for (name, below) in names(set) {
        let inner = names(&below);
        if inner.is_empty() {
            paths.push(name);
        } else {
            paths.extend(inner.into_keys().map(|key| format!("{name}.{key}")));
        }
    }
    paths
}

fn named(fields: &[String]) -> String {
    let mut text = fields.iter().take(FIELDS).cloned().collect::<Vec<_>>().join(", ");
    if let Some(more) = fields.len().checked_sub(FIELDS).filter(|more| *more > 0) {
        let _ = write!(text, " and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        events::tests::event,
        object::tests::{condition, kind, object},
    };

    #[test]
    fn timeline_is_in_order_and_names_writers_and_fields() {
        let spec = json!({"f:spec": {".": {}, "f:size": {}, "f:image": {}, "f:port": {}, "f:a": {}, "f:b": {}}});
        let metadata = json!({
            "resourceVersion": "42", "deletionTimestamp": "2026-01-01T00:15:00Z", "finalizers": ["example.com/clean-up"],
            "managedFields": [
                {"manager": "kubectl", "operation": "Apply", "apiVersion": "example.com/v1alpha1", "time": "2026-01-01T00:00:00Z",
                 "fieldsType": "FieldsV1", "fieldsV1": spec},
                {"manager": "thing-controller", "operation": "Update", "apiVersion": "example.com/v1", "subresource": "status",
                 "time": "2026-01-01T00:10:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:conditions": {}}}},
            ],
        });
        let status = json!({
            "observedGeneration": 2, "lastHandledReconcileAt": "again", "conditions": [condition("Ready", "True", "Ready", "all is well")],
        });
        let thing = object("web", &metadata, &status);
        let child = object(
            "web-child",
            &json!({"creationTimestamp": "2026-01-01T00:02:00Z", "ownerReferences": [
                {"apiVersion": "example.com/v1", "kind": "Thing", "name": "web", "uid": "uid-web"},
            ]}),
            &json!({}),
        );
        let children = Children::from_objects(&[("Service", child)]);
        let events = Ok(vec![event("2026-01-01T00:05:00Z", 3, "Warning", "Refused", "no room")]);
        let now = "2026-01-01T00:20:00Z".parse().expect("a time");
        insta::assert_snapshot!(text(&Observed { kind: &kind(), object: thing, children, events, now }));
    }

    #[test]
    fn causes_come_before_effects_within_one_second() {
        let at = "2026-01-01T00:00:07Z";
        let written = |manager: &str, subresource: Option<&str>| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "example.com/v1", "time": at,
                   "subresource": subresource, "fieldsType": "FieldsV1", "fieldsV1": {}})
        };
        let metadata = json!({
            "creationTimestamp": at, "deletionTimestamp": at,
            "managedFields": [written("thing-controller", Some("status")), written("kubectl", None)],
        });
        let mut ready = condition("Ready", "True", "Ready", "");
        ready["lastTransitionTime"] = json!(at);
        let thing = object("web", &metadata, &json!({"conditions": [ready]}));
        let child = |name: &str, owner: &str| {
            let owner = json!({"apiVersion": "v1", "kind": "Owner", "name": owner, "uid": format!("uid-{owner}")});
            object(name, &json!({"creationTimestamp": at, "ownerReferences": [owner]}), &json!({}))
        };
        // The list has the pod before its owner.
        let children = Children::from_objects(&[("Pod", child("pod", "set")), ("ReplicaSet", child("set", "web"))]);
        // Events have fractions of a second. This one is nearer to the next second, but belongs to this one.
        let events = Ok(vec![
            event("2026-01-01T00:00:07.900000Z", 1, "Normal", "Later", ""),
            event("2026-01-01T00:00:07.100000Z", 1, "Normal", "Earlier", ""),
        ]);
        let now = "2026-01-01T00:20:00Z".parse().expect("a time");
        let text = text(&Observed { kind: &kind(), object: thing, children, events, now });
        let rows = text.lines().skip_while(|line| !line.starts_with("TIME")).skip(1);
        let order: Vec<_> = rows
            .map(|line| {
                assert!(line.starts_with(at), "{line}");
                line[at.len()..].trim_start().trim_start_matches(|it: char| !it.is_whitespace()).trim_start()
            })
            .map(|line| line.split("  ").next().unwrap_or_default())
            .collect();
        let expected = [
            "created",
            "written by kubectl",
            "ReplicaSet created",
            "Pod created",
            "deletion requested",
            "Normal event Earlier",
            "Normal event Later",
            "Ready became True",
            "written status by thing-controller",
        ];
        assert_eq!(order, expected, "{text}");
    }
}

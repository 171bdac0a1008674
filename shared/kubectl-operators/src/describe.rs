//! `describe`: an object, its children as a tree, and its last events.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::{
    Session,
    cli::TargetFlags,
    object::{conditions, is_paused, observed_generation, state},
    observed::Observed,
    text::{age, labelled, one_line, table},
};

/// The number of events shown. `trace` shows all of them.
const EVENTS: usize = 10;

pub(crate) async fn run(session: &Session, target: &TargetFlags) -> Result<String, String> {
    Ok(text(&Observed::read(session, target).await?))
}

fn text(observed: &Observed<'_>) -> String {
    let Observed { kind, object, children, events, now } = observed;
    let now = *now;
    let metadata = &object.metadata;
    let name = metadata.name.clone().unwrap_or_default();
    let since = |time: Option<Timestamp>| time.map(|time| age(time, now)).unwrap_or_default();
    let state = state(kind, object, now);
    let mut facts = vec![
        ("Object", kind.named(&name)),
        ("Namespace", metadata.namespace.clone().unwrap_or_default()),
        ("API version", kind.resource.api_version.clone()),
        ("Age", since(metadata.creation_timestamp.as_ref().map(|time| time.0))),
        ("Ready", format!("{} ({}) for {}", state.ready, state.reason, since(state.since))),
        ("Message", state.message),
    ];
    if is_paused(kind, object) {
        facts.push(("Paused", format!("yes; `kubectl operators resume {}` ends that", kind.named(&name))));
    }
    if let (Some(seen), Some(generation)) = (observed_generation(object), metadata.generation)
        && seen < generation
    {
        facts.push(("Change", "the operator has not handled the last change of the spec yet".to_owned()));
    }
    let mut text = labelled(facts);

    let head = ["  TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"];
    let rows = conditions(object)
        .into_iter()
        .map(|it| vec![format!("  {}", it.type_), it.status, it.reason, since(it.since), it.message]);
    let _ = write!(text, "\nConditions:\n{}", table(head, rows));

    let root = format!("{}/{name}", kind.resource.kind);
    let tree = children.tree(&root, metadata.uid.as_deref().unwrap_or_default());
    let _ = writeln!(text, "\nChildren:");
    for line in tree.lines() {
        let _ = writeln!(text, "  {line}");
    }
    if !children.forbidden.is_empty() {
        let _ = writeln!(text, "  (cannot read: {})", children.forbidden.join(", "));
    }
    match events {
        Err(error) => {
            let _ = writeln!(text, "\nEvents: {}", one_line(error));
        }
        Ok(events) if events.is_empty() => {
            let _ = writeln!(text, "\nEvents: none in the time for which the cluster keeps them");
        }
        Ok(events) => {
            let head = ["  LAST", "COUNT", "TYPE", "REASON", "MESSAGE"];
            let newest = events.iter().rev().take(EVENTS).map(|it| {
                let (last, count) = (format!("  {}", since(it.last)), it.count.to_string());
                vec![last, count, it.type_.clone(), it.reason.clone(), it.message.clone()]
            });
            let _ = write!(text, "\nEvents:\n{}", table(head, newest));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        children::Children,
        events::tests::event,
        object::tests::{condition, kind, object},
    };

    fn child(name: &str, owner: &str, data: &Value) -> DynamicObject {
        let owners = json!([{"apiVersion": "v1", "kind": "Owner", "name": "owner", "uid": owner}]);
        let mut object = object(name, &json!({"ownerReferences": owners}), &json!({}));
        object.data = data.clone();
        object
    }

    #[test]
    fn object_is_shown_with_its_tree_and_events() {
        let status = json!({"observedGeneration": 1, "conditions": [
            condition("Degraded", "True", "ImagePull", "cannot pull nginx:nope"), condition("Ready", "False", "ImagePull", ""),
        ]});
        let thing = object("web", &json!({"annotations": {"example.com/paused": "true"}}), &status);
        let waiting = json!({"status": {"phase": "Pending", "containerStatuses": [
            {"restartCount": 2, "state": {"waiting": {"reason": "ImagePullBackOff"}}},
        ]}});
        let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let replicas = json!({"spec": {"replicas": 2}, "status": {"readyReplicas": 1}});
        let done = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
        let children = Children::from_objects(&[
            ("Deployment", child("web", "uid-web", &replicas)),
            ("ReplicaSet", child("web-1", "uid-web", &replicas)),
            ("Job", child("web-job", "uid-web", &done)),
            ("Pod", child("web-1-a", "uid-web-1", &running)),
            ("Pod", child("web-1-b", "uid-web-1", &waiting)),
            ("Pod", child("of-another", "uid-other", &running)),
            ("Service", child("web-svc", "uid-web", &json!({"spec": {"clusterIP": "None"}}))),
        ]);
        let events = Ok(vec![
            event("2026-01-01T00:01:00Z", 1, "Normal", "Created", "created Deployment web"),
            event("2026-01-01T00:12:00Z", 4, "Warning", "ImagePull", "cannot pull\nnginx:nope"),
        ]);
        let now = "2026-01-01T00:20:00Z".parse().expect("a time");
        insta::assert_snapshot!(text(&Observed { kind: &kind(), object: thing, children, events, now }));
    }

    #[test]
    fn cycle_of_owners_ends() {
        let (a, b) = (child("a", "uid-b", &json!({})), child("b", "uid-a", &json!({})));
        let children = Children::from_objects(&[("Pod", a), ("Pod", b)]);
        assert_eq!(children.in_order("uid-a").len(), 2);
    }
}

//! The events on an object.

use jiff::Timestamp;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;

use crate::{Session, text::request_error};

/// An event and its repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) first: Option<Timestamp>,
    pub(crate) last: Option<Timestamp>,
    pub(crate) count: i64,
    pub(crate) type_: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The events on the object, the oldest first. The API server keeps events for an hour by default. The error is a sentence for the
/// user.
pub(crate) async fn of(session: &Session, object: &DynamicObject) -> Result<Vec<Event>, String> {
    let resource = ApiResource {
        group: "events.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "events.k8s.io/v1".to_owned(),
        kind: "Event".to_owned(),
        plural: "events".to_owned(),
    };
    // Events on cluster-scoped objects are in this namespace.
    let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
    let api: Api<DynamicObject> = Api::namespaced_with(session.client.clone(), namespace, &resource);
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let list = api.list(&ListParams::default().fields(&format!("regarding.name={name}"))).await;
    let list = list.map_err(|error| request_error("cannot read the events", &error))?;
    let is_ours = |event: &&DynamicObject| event.data["regarding"]["uid"] == uid;
    let mut events: Vec<Event> = list.items.iter().filter(is_ours).map(|event| read(&event.data)).collect();
    events.sort_by_key(|event| event.last);
    Ok(events)
}

/// Reads an event in the new form (with a series) or in the old one.
fn read(event: &Value) -> Event {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let time = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
    let first = time(&event["eventTime"]).or_else(|| time(&event["deprecatedFirstTimestamp"]));
    let last = time(&event["series"]["lastObservedTime"]).or_else(|| time(&event["deprecatedLastTimestamp"]));
    let count = event["series"]["count"].as_i64().or_else(|| event["deprecatedCount"].as_i64());
    Event {
        first,
        last: last.or(first),
        count: count.unwrap_or(1).max(1),
        type_: text("type"),
        reason: text("reason"),
        message: text("note"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn event(time: &str, count: i64, type_: &str, reason: &str, message: &str) -> Event {
        read(&json!({
            "eventTime": time, "type": type_, "reason": reason, "note": message,
            "series": {"count": count, "lastObservedTime": time},
        }))
    }

    #[test]
    fn events_of_both_forms_are_read() {
        let (first, last) = ("2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z");
        let new = json!({"eventTime": first, "series": {"count": 3, "lastObservedTime": last}, "note": "a"});
        let old = json!({"deprecatedFirstTimestamp": first, "deprecatedLastTimestamp": last, "deprecatedCount": 3, "note": "a"});
        assert_eq!(read(&new), read(&old));
        assert_eq!((read(&new).count, read(&new).last), (3, last.parse().ok()));
        let single = read(&json!({"eventTime": first, "note": "a"}));
        assert_eq!((single.count, single.last), (1, first.parse().ok()));
    }
}

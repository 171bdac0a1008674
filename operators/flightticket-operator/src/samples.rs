//! Objects for tests: the samples for users, and variations of the first.

use serde_json::{Value, json};

use crate::FlightTicket;

pub(crate) const UID: &str = "c0ffee00-0000-4000-8000-000000000001";

/// Returns the sample of the README.
pub(crate) fn seed() -> FlightTicket {
    created(include_str!("../samples/flights_v1_flightticket.yaml"))
}

/// Returns the first sample, merged with `patch`.
pub(crate) fn with(patch: &Value) -> FlightTicket {
    let mut object = serde_json::to_value(seed()).expect("JSON");
    merge(&mut object, patch);
    serde_json::from_value(object).expect("a FlightTicket")
}

fn merge(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

/// Sets the metadata and the status that the API server sets.
fn created(yaml: &str) -> FlightTicket {
    let ticket: FlightTicket = serde_saphyr::from_str(yaml).expect("a valid FlightTicket");
    let mut object = serde_json::to_value(ticket).expect("JSON");
    object["metadata"] = json!({
        "name": object["metadata"]["name"], "namespace": "default", "uid": UID,
        "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-11-21T10:00:00Z",
    });
    object["status"] = json!({"phase": "Pending"});
    serde_json::from_value(object).expect("a FlightTicket")
}

#[test]
fn first_sample_gets_the_schema_defaults() {
    let spec = serde_json::to_value(seed().spec).expect("JSON");
    let whole = json!({
        "from": "Mumbai", "to": "London", "number": 2, "cabin": "Economy", "deletionPolicy": "Cancel",
        "managementPolicy": "Manage", "rebookPolicy": "Never",
    });
    assert_eq!(spec, whole);
}

#[test]
fn second_sample_sets_every_field() {
    let spec =
        serde_json::to_value(created(include_str!("../samples/flightticket-conference.yaml")).spec).expect("JSON");
    assert_eq!(spec.as_object().map(serde_json::Map::len), Some(8));
}

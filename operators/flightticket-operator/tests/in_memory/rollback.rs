//! A rollback of the operator: data that a newer version has written to an object leads to no booking and to no cancellation.

use std::time::Duration;

use booking_server::ledger::Airline as Act;
use flightticket_operator::FlightTicket;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject},
};
use serde_json::{Value, json};

use crate::office::{Office, TICKETS};

const HOUR: Duration = Duration::from_hours(1);

/// Merges `more` into the booked ticket, as a newer version would write it, and starts a new process of this version.
async fn after_a_newer_version(mut office: Office, more: Value) -> Office {
    let mut ticket = stored(&office);
    merge(&mut ticket, more);
    ticket["metadata"].as_object_mut().expect("an object").remove("resourceVersion");
    office.model.put(ticket);
    office.restart().await;
    office.until_quiet().await;
    office.pass(HOUR).await;
    office
}

async fn booked() -> Office {
    let mut office = Office::open();
    office.apply("ours", json!({"rebookPolicy": "Always"})).await;
    office.until_quiet().await;
    assert_eq!(office.said("ours"), "Booked True/Booked True/UpToDate");
    office
}

fn stored(office: &Office) -> Value {
    office.model.object(TICKETS, "default", "ours").expect("it exists")
}

/// Deletes the ticket with a dynamic client, because this version cannot parse the object.
async fn delete(office: &Office) {
    let kind = ApiResource::erase::<FlightTicket>(&());
    let api = Api::<DynamicObject>::namespaced_with(office.model.client(), "default", &kind);
    drop(api.delete("ours", &DeleteParams::default()).await.expect("it is accepted"));
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// Returns how many bookings were ever made, and how many of them are live.
fn bookings(office: &Office) -> (usize, usize) {
    let made = office.airline.books().bookings.len();
    (made, office.airline.live().len())
}

#[tokio::test(start_paused = true)]
async fn unknown_phase_stops_all_requests_until_the_upgrade() {
    let mut office = after_a_newer_version(booked().await, json!({"status": {"phase": "OnHold"}})).await;
    let before = stored(&office);
    assert_eq!(before["status"]["phase"], "OnHold", "this version does not change it");
    let asked = office.airline.requests();
    delete(&office).await;
    office.restart().await;
    office.pass(HOUR).await;
    assert_eq!(office.airline.requests(), asked, "no request to the provider");
    assert_eq!(bookings(&office), (1, 1));
    assert!(stored(&office)["metadata"]["deletionTimestamp"].is_string(), "the finalizer keeps the object");

    // The newer version runs again, and leaves a phase that both versions know.
    let mut office = after_a_newer_version(office, json!({"status": {"phase": "Booked"}})).await;
    office.pass(HOUR).await;
    assert_eq!(office.said("ours"), "gone");
    assert_eq!(bookings(&office), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn unknown_deletion_policy_cancels_nothing() {
    let mut office = after_a_newer_version(booked().await, json!({"spec": {"deletionPolicy": "Resell"}})).await;
    delete(&office).await;
    office.pass(HOUR).await;
    assert_eq!(bookings(&office), (1, 1));
    assert!(stored(&office)["metadata"]["deletionTimestamp"].is_string(), "the finalizer keeps the object");
}

#[tokio::test(start_paused = true)]
async fn unknown_status_fields_cause_no_booking() {
    let of_newer = json!({
        "metadata": {"annotations": {"flights.com/upgrade-class": "true"}, "finalizers": [
            "flights.com/booking-protection", "flights.com/loyalty",
        ]},
        "status": {
            "loyalty": {"points": 12}, "settled": "v2:of-another-form", "fence": {"lease": "another", "epoch": 9},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "CheckedIn", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    });
    let office = booked().await;
    let finalizer = stored(&office)["metadata"]["finalizers"][0].clone();
    let mut of_newer = of_newer;
    of_newer["metadata"]["finalizers"][0] = finalizer;
    let mut office = after_a_newer_version(office, of_newer.clone()).await;
    assert_eq!(office.said("ours"), "Booked True/Booked True/UpToDate");
    assert_eq!(bookings(&office), (1, 1));
    let ticket = stored(&office);
    assert_eq!(ticket["metadata"]["finalizers"], of_newer["metadata"]["finalizers"]);
    assert_eq!(ticket["metadata"]["annotations"]["flights.com/upgrade-class"], "true");
    let writes = office.writes();
    office.restart().await;
    office.pass(HOUR).await;
    assert_eq!(office.writes(), writes, "nothing is left to write");

    // This version removes its own finalizer after the cancellation. It keeps the finalizer of the newer version.
    delete(&office).await;
    office.pass(HOUR).await;
    assert_eq!(bookings(&office), (1, 0));
    assert_eq!(stored(&office)["metadata"]["finalizers"], json!(["flights.com/loyalty"]));
}

#[tokio::test(start_paused = true)]
async fn lost_booking_settled_by_newer_version_is_not_rebooked() {
    let mut office = Office::open();
    office.apply("ours", json!({})).await;
    office.until_quiet().await;
    let id = office.ticket("ours").and_then(|it| it.status?.booking_id).expect("an id");
    office.airline.act(Act::Cancel, &id);
    office.pass(HOUR).await;
    assert_eq!(office.said("ours"), "Cancelled False/BookingCancelledExternally False/NotBooked");
    let office = after_a_newer_version(office, json!({"status": {"settled": "v2:of-another-form"}})).await;
    assert_eq!(office.said("ours"), "Cancelled False/BookingCancelledExternally False/NotBooked");
    assert_eq!(bookings(&office), (1, 0));
}

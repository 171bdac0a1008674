//! Acceptance tests of bookings that change, are cancelled, are lost, or move to another object.

use flightticket_operator::{FlightTicket, api::v1::Phase};
use serde_json::json;

use crate::{
    desk::{Desk, NAME, ticket},
    objects::table,
};

#[tokio::test(flavor = "multi_thread")]
async fn t06_booked_seats_follow_the_spec_while_seats_are_free() {
    let Some(mut desk) = Desk::open().await else { return };
    let id = desk.booked().await.booking_id.expect("an id");
    desk.apply(NAME, &json!({"number": 4})).await;
    desk.until_synced(NAME, 4).await;
    assert_eq!(desk.provider.audit().seats_taken, 4);
    let note = desk.world.until_event(NAME, "Normal", "Modified").await;
    assert_eq!(note, format!("Booking {id} changed from 2 to 4 seat(s)"));

    desk.provider.seats("Mumbai", "London", 7).await;
    desk.apply(NAME, &json!({"number": 10})).await;
    let refused = desk.world.until_condition::<FlightTicket>(NAME, "Synced", "False", "ModificationRejected").await;
    assert_eq!(refused.status.as_ref().map(|it| (it.phase, it.number)), Some((Phase::Booked, Some(4))));
    desk.until_booked(NAME).await;
    let said = desk.world.until_event(NAME, "Warning", "ModificationRejected").await;
    let wide = table(&desk.world, "wide").remove(1).join(" ");
    assert!(wide.ends_with(&said), "it says why the booking does not match, and not that there is one: {wide}");
    desk.provider.seats("Mumbai", "London", 10).await;
    desk.run("1s"); // a new process checks at once; the test in `in_memory` waits for the five minutes
    desk.until_synced(NAME, 10).await;

    // The operator reverts a change that another client makes at the provider.
    desk.provider.change(&id, 1).await;
    let is_back = async || (desk.provider.audit().seats_taken == 10).then_some(());
    desk.world.until("ten seats again", is_back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t07_deletion_cancels_the_booking_unless_retained() {
    let Some(desk) = Desk::open().await else { return };
    desk.booked().await;
    desk.delete(NAME).await;
    assert_eq!((desk.provider.count("CANCELLED"), desk.provider.audit().seats_taken), (1, 0));
    desk.world.until_event(NAME, "Normal", "Cancelled").await;

    desk.apply("kept", &json!({"deletionPolicy": "Retain"})).await;
    desk.until_booked("kept").await;
    desk.delete("kept").await;
    assert_eq!((desk.provider.count("CONFIRMED"), desk.provider.audit().seats_taken), (1, 2));
    desk.world.until_event("kept", "Normal", "Retained").await;

    // A booking that has departed cannot be cancelled. It does not block the deletion.
    desk.apply("flown", &json!({})).await;
    let id = desk.until_booked("flown").await.booking_id.expect("an id");
    desk.provider.airline("depart", &id).await;
    desk.delete("flown").await;
    desk.world.until_event("flown", "Warning", "CancelRefused").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_cancelled_booking_is_rebooked_only_by_policy() {
    let Some(desk) = Desk::open().await else { return };
    let id = desk.booked().await.booking_id.expect("an id");
    desk.apply("always", &json!({"rebookPolicy": "Always"})).await;
    let first = desk.until_booked("always").await.booking_id.expect("an id");
    desk.provider.airline("cancel", &id).await;
    desk.provider.airline("cancel", &first).await;

    let lost = desk.until(NAME, "False", "BookingCancelledExternally").await;
    assert_eq!(lost.phase, Phase::Cancelled);
    let ticket = desk.get(NAME).await;
    assert!(manager_testing::condition(&ticket, "Stalled").is_some());
    let is_anew = async || {
        let status = desk.get("always").await.status?;
        (status.attempt == 1 && status.phase == Phase::Booked).then_some(status)
    };
    let anew = desk.world.until("another booking", is_anew).await;
    let uid = desk.get("always").await.metadata.uid.expect("a uid");
    assert_eq!(anew.reference, Some(format!("{uid}.1")));
    desk.until_asked("get", 3).await;
    let confirmed: Vec<String> =
        desk.provider.bookings().await.into_iter().filter(|it| it.2 == "CONFIRMED").map(|it| it.1).collect();
    assert_eq!(confirmed, [format!("{uid}.1")]);
    desk.delete("always").await;
    assert_eq!(desk.provider.count("CONFIRMED"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn t10_restored_ticket_adopts_only_with_the_annotation() {
    let Some(desk) = Desk::open().await else { return };
    let id = desk.booked().await.booking_id.expect("an id");
    let copy = |name: &str| {
        let mut copy: serde_json::Value = serde_json::from_str(&ticket(name, &json!({}))).expect("JSON");
        copy["metadata"]["annotations"] = json!({"flights.com/booking-id": id});
        copy.to_string()
    };
    for name in ["copy", "restored"] {
        desk.world.apply(&copy(name)).await;
        desk.until(name, "False", "BookingHeldByAnother").await;
    }
    desk.delete("copy").await;
    assert_eq!(desk.provider.count("CONFIRMED"), 1, "the copy never had the booking");

    desk.annotate("restored", "flights.com/adopt-booking", Some("true")).await;
    let status = desk.until_booked("restored").await;
    assert_eq!((status.booking_id.as_deref(), desk.provider.count("CONFIRMED")), (Some(&*id), 1));
    desk.until(NAME, "False", "BookingHeldByAnother").await;
    desk.delete(NAME).await;
    assert_eq!(desk.provider.count("CONFIRMED"), 1, "the booking belongs to the other object now");
    desk.delete("restored").await;
    assert_eq!(desk.provider.count("CONFIRMED"), 0);
}

/// The uid of a ticket is the reference of its booking: who knows it could ask the provider for the booking.
#[tokio::test(flavor = "multi_thread")]
async fn refused_takeover_tells_nothing_of_the_other_ticket() {
    let Some(desk) = Desk::open().await else { return };
    let (uid, tenant) = ("5ec4e700-0000-4000-8000-0000000000f1", "namespace-of-another-team");
    let id = desk.provider.book(uid, tenant).await;
    for (name, spec, adopt) in [
        ("claims", json!({}), Some("true")),
        ("names", json!({}), None),
        ("observes", json!({"managementPolicy": "Observe"}), None),
    ] {
        let mut claim: serde_json::Value = serde_json::from_str(&ticket(name, &spec)).expect("JSON");
        claim["metadata"]["annotations"] = json!({"flights.com/booking-id": id});
        if let Some(adopt) = adopt {
            claim["metadata"]["annotations"]["flights.com/adopt-booking"] = json!(adopt);
        }
        desk.world.apply(&claim.to_string()).await;
        desk.until(name, "False", "BookingHeldByAnother").await;
        desk.world.until_event(name, "Warning", "BookingHeldByAnother").await;
        let object = serde_json::to_string(&desk.get(name).await).expect("JSON");
        let events = format!("{:?}", desk.world.events(name).await);
        for shown in [object, events] {
            assert!(!shown.contains(uid) && !shown.contains(tenant), "{shown}");
        }
    }
    let log = desk.world.operator.as_ref().expect("it runs").log();
    assert!(!log.is_empty() && !log.contains(uid) && !log.contains(tenant), "{log}");
    assert_eq!(desk.provider.count("CONFIRMED"), 1, "the booking stays with its ticket");
}

#[tokio::test(flavor = "multi_thread")]
async fn x11_wiped_status_is_recovered() {
    let Some(desk) = Desk::open().await else { return };
    let before = desk.booked().await;
    let wiped = json!({"phase": "Pending", "bookingId": null, "reference": null, "number": null, "conditions": []});
    desk.world.patch_status::<FlightTicket>(NAME, wiped.clone()).await;
    let found = async || desk.get(NAME).await.status.filter(|status| status.booking_id == before.booking_id);
    desk.world.until("the booking", found).await;
    desk.world.patch_status::<FlightTicket>(NAME, wiped).await;
    desk.annotate(NAME, "flights.com/booking-id", None).await;
    desk.world.until("the booking", found).await;
    assert_eq!(desk.provider.audit().bookings.values().sum::<u64>(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_seats_are_never_oversold() {
    let Some(mut desk) = Desk::closed().await else { return };
    desk.provider.seats("Mumbai", "London", 300).await;
    for number in 0..200 {
        desk.apply(&format!("ticket-{number}"), &json!({})).await;
    }
    desk.run("5m");
    let is_decided = async || {
        let tickets = desk.world.list::<FlightTicket>().await;
        let with = |reason: &str| {
            let is_it =
                |it: &&FlightTicket| manager_testing::condition(*it, "Ready").is_some_and(|it| it.reason == reason);
            tickets.iter().filter(is_it).count()
        };
        let counts = (with("Booked"), with("InsufficientSeats"));
        (counts.0 + counts.1 == 200).then_some(counts)
    };
    assert_eq!(desk.world.until("all are decided", is_decided).await, (150, 50));
    assert_eq!((desk.provider.count("CONFIRMED"), desk.provider.audit().seats_taken), (150, 300));
}

#[tokio::test(flavor = "multi_thread")]
async fn t14_settled_booking_causes_only_reads() {
    let Some(desk) = Desk::open().await else { return };
    desk.booked().await;
    desk.until_asked("get", 1).await;
    let (writes, created) = (desk.world.requests().writes(), desk.provider.requests("create").await);
    desk.until_asked("get", 3).await;
    assert_eq!((desk.world.requests().writes(), desk.provider.requests("create").await), (writes, created));
}

#[tokio::test(flavor = "multi_thread")]
async fn t15_recreated_ticket_gets_a_new_booking() {
    let Some(desk) = Desk::open().await else { return };
    desk.booked().await;
    desk.delete(NAME).await;
    desk.booked().await;
    let bookings = desk.provider.bookings().await;
    let states: Vec<&str> = bookings.iter().map(|it| it.2.as_str()).collect();
    assert_eq!(states, ["CANCELLED", "CONFIRMED"]);
    assert_ne!(bookings[0].1, bookings[1].1);
}

//! An object takes over the booking of another one.

use std::time::Duration;

use flightticket_operator::FlightTicket;
use serde_json::{Value, json};

use crate::{
    mischief::{POINTS, Plan, REACTIONS},
    office::Office,
};

const BOOKED: &str = "Booked True/Booked True/UpToDate";
const HELD: &str = "Rejected False/BookingHeldByAnother False/NotBooked";
const BOOKING_ID: &str = "flights.com/booking-id";
const ADOPT: &str = "flights.com/adopt-booking";
const PAUSED: &str = "flights.com/paused";

async fn book(office: &mut Office) {
    office.apply("first", json!({"rebookPolicy": "Always"})).await;
    office.until_quiet().await;
}

/// Requests that `second` takes over the booking of `first`.
async fn hand_over(office: &mut Office) {
    let id = office.ticket("first").and_then(|it| it.status?.booking_id).expect("an id");
    let annotations = json!({BOOKING_ID: id, ADOPT: "true"});
    office.apply_with("default", "second", json!({"rebookPolicy": "Always"}), annotations).await;
}

/// Lets `second` take over the booking of `first`, and waits until nothing happens any more.
async fn adopt(office: &mut Office) {
    book(office).await;
    hand_over(office).await;
    office.until_quiet().await;
    // A former leader may have taken the booking over, and cannot wake the tickets of the next one: they wait for their poll.
    office.pass(Duration::from_mins(6)).await;
}

/// Deletes the former owner while its status still shows the booking, and waits until nothing happens any more.
async fn adopt_and_delete_the_former_owner(office: &mut Office) {
    book(office).await;
    office.annotate("first", PAUSED, "true").await; // so it does not look at its booking
    hand_over(office).await;
    for _ in 0..600 {
        let owner = office.ticket("second").expect("a ticket").reference(0);
        if office.airline.live().iter().any(|(reference, _)| *reference == owner) {
            break;
        }
        office.pass(Duration::from_millis(100)).await;
    }
    let shown = office.ticket("first").and_then(|it| it.status?.booking_id);
    assert!(shown.is_some(), "the former owner still shows the booking");
    office.delete("first").await;
    office.until_quiet().await;
}

/// # Errors
///
/// If the booking did not move, or if the request to adopt is still there.
fn moved(office: &Office) -> Result<(), String> {
    let second = office.ticket("second").expect("a ticket");
    let said = (office.said("first"), office.said("second"));
    if (said.0.as_str(), said.1.as_str()) != (HELD, BOOKED) {
        return Err(format!("the tickets report {said:?}"));
    }
    has_only_the_booking_of(office, &second)?;
    match second.annotation(ADOPT) {
        None => Ok(()),
        Some(_) => Err("the annotation is still there".to_owned()),
    }
}

/// # Errors
///
/// If the provider does not have exactly one booking, a live one of this ticket.
fn has_only_the_booking_of(office: &Office, owner: &FlightTicket) -> Result<(), String> {
    let (live, all) = (office.airline.live(), office.airline.books().bookings.len());
    if live == [(owner.reference(0), 2)] && all == 1 {
        Ok(())
    } else {
        Err(format!("the provider has {live:?} of {all}"))
    }
}

/// # Errors
///
/// If the deletion of the former owner did more than remove it.
fn only_former_owner_is_gone(office: &Office) -> Result<(), String> {
    let said = (office.said("first"), office.said("second"));
    if (said.0.as_str(), said.1.as_str()) != ("gone", BOOKED) {
        return Err(format!("the tickets report {said:?}"));
    }
    has_only_the_booking_of(office, &office.ticket("second").expect("a ticket"))
}

/// It does not wait for its next poll.
#[tokio::test(start_paused = true)]
async fn former_owner_knows_of_the_adoption_at_once() {
    let mut office = Office::open();
    book(&mut office).await;
    hand_over(&mut office).await;
    office.pass(Duration::from_secs(2)).await;
    assert_eq!((office.said("first").as_str(), office.said("second").as_str()), (HELD, BOOKED));
}

#[tokio::test(start_paused = true)]
async fn any_fault_while_the_former_owner_is_deleted_leaves_the_adopted_booking() {
    let mut office = Office::open();
    adopt_and_delete_the_former_owner(&mut office).await;
    assert_eq!(only_former_owner_is_gone(&office), Ok(()));
    for request in 0..office.mischief.requests().len() {
        for point in POINTS {
            for reaction in REACTIONS {
                let plan = Plan { request, point, reaction };
                let mut office = Office::open();
                office.mischief.set_plan(plan);
                adopt_and_delete_the_former_owner(&mut office).await;
                assert_eq!(only_former_owner_is_gone(&office), Ok(()), "{plan}\n{:#?}", office.mischief.requests());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_fault_during_an_adoption_leaves_one_booking_and_no_request_to_adopt() {
    let mut office = Office::open();
    adopt(&mut office).await;
    assert_eq!(moved(&office), Ok(()));
    for request in 0..office.mischief.requests().len() {
        for point in POINTS {
            for reaction in REACTIONS {
                let plan = Plan { request, point, reaction };
                let mut office = Office::open();
                office.mischief.set_plan(plan);
                adopt(&mut office).await;
                assert_eq!(moved(&office), Ok(()), "{plan}\n{:#?}", office.mischief.requests());
            }
        }
    }
}

/// `kubectl get -o yaml | kubectl apply -n other`, before and after the adoption, and an attack with a known id.
#[tokio::test(start_paused = true)]
async fn copy_of_an_object_takes_nothing_and_its_deletion_cancels_nothing() {
    let mut office = Office::open();
    adopt(&mut office).await;
    let live = office.airline.live();
    let second = office.ticket("second").expect("a ticket");
    let copied = json!(second.metadata.annotations);
    let claimed = json!({BOOKING_ID: copied[BOOKING_ID], ADOPT: "true"});
    for (namespace, name, annotations) in
        [("default", "copy", &copied), ("other", "copy", &copied), ("other", "attack", &claimed)]
    {
        office.apply_with(namespace, name, json!({"rebookPolicy": "Always"}), annotations.clone()).await;
        office.until_quiet().await;
        assert_eq!(office.said_in(namespace, name), HELD);
        let ticket = office.ticket_in(namespace, name).expect("a ticket");
        let is_of_ticket = |event: &Value| {
            let object = &event["regarding"];
            object["namespace"] == namespace && object["name"] == name
        };
        let mut events = office.model.objects("events.events.k8s.io");
        events.retain(is_of_ticket);
        assert!(!events.is_empty(), "a warning says that the booking is held by another");
        let shown = format!("{:?} {events:?}", ticket.status);
        let first = office.ticket("first").expect("a ticket");
        for other in [&second, &first] {
            assert!(!shown.contains(other.metadata.uid.as_deref().expect("a uid")), "{shown}");
        }
        let api = office.api(namespace);
        drop(api.delete(name, &kube::api::DeleteParams::default()).await.expect("deleted"));
        office.until_quiet().await;
        assert_eq!((office.said_in(namespace, name).as_str(), office.airline.live()), ("gone", live.clone()));
    }
    assert_eq!(office.said("second"), BOOKED);
}

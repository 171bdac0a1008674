//! An object takes over the booking of another one.

use std::time::Duration;

use serde_json::json;

use crate::{
    mischief::{POINTS, Plan, REACTIONS},
    office::Office,
};

const BOOKED: &str = "Booked True/Booked True/UpToDate";
const HELD: &str = "Rejected False/BookingHeldByAnother False/NotBooked";
const BOOKING_ID: &str = "flights.com/booking-id";
const ADOPT: &str = "flights.com/adopt-booking";

/// Lets `second` take over the booking of `first`, and waits until nothing happens any more.
async fn adopt(office: &mut Office) {
    office.apply("first", json!({})).await;
    office.until_quiet().await;
    let id = office.ticket("first").and_then(|it| it.status?.booking_id).expect("an id");
    let annotations = json!({BOOKING_ID: id, ADOPT: "true"});
    office.apply_with("default", "second", json!({"rebookPolicy": "Always"}), annotations).await;
    office.until_quiet().await;
    office.pass(Duration::from_mins(6)).await;
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
    if office.airline.live() != [(second.reference(0), 2)] || office.airline.books().bookings.len() != 1 {
        return Err(format!("the provider has {:?}", office.airline.live()));
    }
    match second.annotation(ADOPT) {
        None => Ok(()),
        Some(_) => Err("the annotation is still there".to_owned()),
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
        let shown = format!("{:?}", ticket.status);
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

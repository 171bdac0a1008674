//! Tests of behaviour over minutes and hours.

use std::time::Duration;

use booking_server::ledger::Airline as Act;
use jiff::SignedDuration;
use serde_json::json;

use crate::office::Office;

const HOUR: Duration = Duration::from_hours(1);

async fn booked() -> Office {
    let mut office = Office::open();
    office.apply("ours", json!({})).await;
    office.until_quiet().await;
    assert_eq!(office.said("ours"), "Booked True/Booked True/UpToDate");
    office
}

fn id(office: &Office) -> String {
    office.ticket("ours").and_then(|it| it.status?.booking_id).expect("an id")
}

#[tokio::test(start_paused = true)]
async fn t06_refused_change_succeeds_once_seats_are_free() {
    let mut office = booked().await;
    office.airline.books().set_seats(3);
    office.apply("ours", json!({"number": 4})).await;
    office.until_quiet().await;
    assert_eq!(office.said("ours"), "Booked True/Booked False/ModificationRejected");
    let writes = office.writes();
    office.pass(HOUR).await;
    assert_eq!(office.writes(), writes, "the status does not change");
    office.airline.books().set_seats(4);
    office.pass(Duration::from_mins(6)).await;
    assert_eq!(office.said("ours"), "Booked True/Booked True/UpToDate");
    assert_eq!(office.airline.live()[0].1, 4);
}

#[tokio::test(start_paused = true)]
async fn t12_retry_after_of_the_provider_is_respected() {
    let mut office = Office::open();
    office.airline.books().status = Some((503, Some(7)));
    office.apply("ours", json!({})).await;
    office.pass(Duration::from_secs(2)).await;
    assert_eq!(office.airline.requests(), 1);
    office.airline.books().status = None;
    office.annotate("ours", "flights.com/retry", "now").await; // a user's request does not end the wait either
    office.pass(Duration::from_millis(4_900)).await;
    assert_eq!(office.airline.requests(), 1, "before the time");
    office.pass(Duration::from_secs(2)).await;
    assert_eq!(office.said("ours"), "Booked True/Booked True/UpToDate");
}

#[tokio::test(start_paused = true)]
async fn t09_cancelled_booking_is_not_rebooked_by_polling() {
    let mut office = booked().await;
    let id = id(&office);
    office.airline.act(Act::Cancel, &id);
    office.pass(HOUR).await;
    assert_eq!(office.said("ours"), "Cancelled False/BookingCancelledExternally False/NotBooked");
    assert_eq!(office.airline.books().bookings.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ticket_is_booked_once_seats_are_free() {
    let mut office = Office::new();
    office.airline.books().set_seats(1);
    office.start();
    office.apply("ours", json!({})).await;
    office.pass(HOUR).await;
    assert_eq!(office.said("ours"), "Pending False/InsufficientSeats False/NotBooked");
    let asked = office.airline.requests();
    assert!((11..=13).contains(&asked), "every five minutes: {asked}");
    office.airline.books().set_seats(2);
    office.pass(Duration::from_mins(6)).await;
    assert_eq!(office.said("ours"), "Booked True/Booked True/UpToDate");
}

/// The provider answers 404 for a while after it has booked.
#[tokio::test(start_paused = true)]
async fn x07_lagging_provider_causes_no_double_booking() {
    let mut office = Office::new();
    office.airline.books().hidden.insert("BK-0".to_owned());
    office.flags = vec!["--booking-poll-interval", "10s"];
    office.start();
    office.apply("ours", json!({"rebookPolicy": "Always"})).await;
    for _ in 0..20 {
        office.pass(Duration::from_secs(15)).await;
        office.restart().await;
    }
    office.pass(Duration::from_mins(5)).await; // more than a minute: the operator looks up the reference, which exists
    assert_eq!(office.said("ours"), "Booked True/Booked True/UpToDate");
    office.airline.books().hidden.clear();
    office.pass(Duration::from_mins(5)).await;
    assert_eq!(
        (office.said("ours").as_str(), office.airline.books().bookings.len()),
        ("Booked True/Booked True/UpToDate", 1)
    );
}

#[tokio::test(start_paused = true)]
async fn t12_failing_provider_gets_few_requests_from_500_tickets() {
    let mut office = Office::new();
    office.airline.books().status = Some((500, None));
    office.start();
    for number in 0..500 {
        office.apply(&format!("ticket-{number}"), json!({})).await;
    }
    office.pass(Duration::from_secs(10)).await;
    let before = office.airline.requests();
    office.pass(Duration::from_mins(10)).await;
    let asked = office.airline.requests() - before;
    assert!((15..=25).contains(&asked), "{asked} requests in ten minutes; one each half minute is expected");
    assert_eq!(office.said("ticket-499"), "Pending Unknown/ProviderUnavailable Unknown/ProviderUnavailable");
    office.airline.books().status = None;
    office.airline.books().set_seats(1_000);
    office.pass(Duration::from_mins(10)).await;
    assert_eq!(office.airline.live().len(), 500);
}

#[tokio::test(start_paused = true)]
async fn t14_settled_booking_causes_one_request_per_poll() {
    let mut office = booked().await;
    let (writes, asked) = (office.writes(), office.airline.requests());
    office.pass(HOUR).await;
    assert_eq!(office.writes(), writes);
    // Polls are 4.5 to 5.5 minutes apart.
    let polls = office.airline.requests() - asked;
    assert!((10..=13).contains(&polls), "{polls} requests");
}

/// The look for a late booking has no hurry, also if the provider names a short time in each answer.
#[tokio::test(start_paused = true)]
async fn ticket_of_a_rejected_booking_keeps_to_the_poll_interval_while_the_provider_fails() {
    let mut office = Office::new();
    office.airline.books().confirm_delay = SignedDuration::from_hours(100);
    office.start();
    office.apply("ours", json!({})).await;
    office.pass(Duration::from_secs(10)).await;
    office.airline.act(Act::Reject, &id(&office));
    office.pass(Duration::from_mins(2)).await;
    let rejected = "Rejected False/BookingRejected False/NotBooked";
    assert_eq!(office.said("ours"), rejected);
    office.airline.books().status = Some((503, Some(1)));
    let asked = office.airline.requests();
    office.pass(HOUR).await;
    let polls = office.airline.requests() - asked;
    assert!((10..=13).contains(&polls), "{polls} requests");
    assert_eq!(office.said("ours"), rejected);
}

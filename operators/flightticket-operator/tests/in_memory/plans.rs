//! Repeats a scenario with every possible fault at each of its requests, one fault each time.

use std::time::Duration;

use flightticket_operator::FlightTicket;
use serde_json::json;

use crate::{
    mischief::{POINTS, Plan, REACTIONS},
    office::Office,
};

/// The scenario of two tickets. One is booked, changed and deleted. The airline cancels the booking of the other, and the
/// operator books again. Returns the second ticket.
async fn live(office: &mut Office) -> FlightTicket {
    office.apply("ours", json!({})).await;
    office.until_quiet().await;
    office.apply("ours", json!({"number": 4})).await;
    office.until_quiet().await;
    office.apply("lost", json!({"rebookPolicy": "Always"})).await;
    office.until_quiet().await;
    let lost = office.ticket("lost").expect("a ticket");
    let id = lost.status.as_ref().and_then(|it| it.booking_id.clone()).expect("an id");
    office.airline.act(booking_server::ledger::Airline::Cancel, &id);
    office.pass(Duration::from_mins(6)).await;
    office.until_quiet().await;
    office.delete("ours").await;
    office.until_quiet().await;
    lost
}

/// Runs the scenario with this fault.
///
/// # Errors
///
/// If tickets and bookings are wrong at the end.
async fn lived(plan: Plan) -> Result<(), String> {
    let mut office = Office::open();
    office.mischief.set_plan(plan);
    let lost = live(&mut office).await;
    let mischief = office.mischief.clone();
    let wrong = |what: &str| Err(format!("{plan}: {what}\n{:#?}", mischief.requests()));
    if office.mischief.done().is_empty() {
        return wrong("the fault did not occur");
    }
    if office.airline.live() != [(lost.reference(1), 2)] {
        return wrong(&format!("the provider has {:?}", office.airline.live()));
    }
    let bookings = office.airline.books().bookings.len();
    if bookings != 3 {
        return wrong(&format!("there were {bookings} bookings instead of three"));
    }
    if (office.said("ours").as_str(), office.said("lost").as_str()) != ("gone", "Booked True/Booked True/UpToDate") {
        return wrong(&format!("the tickets report {} and {}", office.said("ours"), office.said("lost")));
    }
    let status = office.ticket("lost").and_then(|it| it.status).expect("a status");
    if (status.attempt, status.number) != (1, Some(2)) {
        return wrong(&format!("{status:?}"));
    }
    // A new process has no memory of its own, and must find nothing to do.
    let writes = office.writes();
    office.restart().await;
    office.until_quiet().await;
    if office.writes() != writes {
        return wrong("a new process writes");
    }
    office.delete("lost").await;
    office.until_quiet().await;
    if !office.airline.live().is_empty() || office.ticket("lost").is_some() {
        return wrong("a ticket or a booking is left");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn any_fault_at_any_request_leaves_one_booking() {
    let begun = std::time::Instant::now();
    let mut office = Office::open();
    live(&mut office).await;
    let requests = office.mischief.requests();
    let (api, provider): (Vec<&String>, Vec<&String>) = requests.iter().partition(|it| it.contains(" ticket"));
    assert!(api.len() > 10 && provider.len() > 8, "{requests:#?}");
    let (mut count, mut failed) = (0, Vec::new());
    for request in 0..requests.len() {
        for point in POINTS {
            for reaction in REACTIONS {
                count += 1;
                failed.extend(lived(Plan { request, point, reaction }).await.err());
            }
        }
    }
    eprintln!(
        "{count} plans: {} requests to the API server and {} to the provider, 3 points, 3 reactions; {} failed, in {:.1} s",
        api.len(),
        provider.len(),
        failed.len(),
        begun.elapsed().as_secs_f64()
    );
    assert!(
        failed.is_empty(),
        "{} of {count} plans failed:\n{}",
        failed.len(),
        failed[..failed.len().min(3)].join("\n")
    );
}

//! A deletion that does not need the provider does not wait for it.

use std::time::Duration;

use serde_json::json;

use crate::{airline::Trouble, office::Office};

const MOMENT: Duration = Duration::from_secs(1);
const BOOKED: &str = "Booked True/Booked True/UpToDate";
const FORCE: &str = "flights.com/force-delete";

/// Returns an office with two booked tickets, one of which keeps its booking.
async fn booked() -> Office {
    let mut office = Office::open();
    office.apply("forced", json!({})).await;
    office.apply("kept", json!({"deletionPolicy": "Retain"})).await;
    office.until_quiet().await;
    assert_eq!((office.said("forced").as_str(), office.said("kept").as_str()), (BOOKED, BOOKED));
    office
}

/// Lets both tickets send a request.
async fn request(office: &mut Office) {
    for name in ["forced", "kept"] {
        office.annotate(name, "flights.com/reconcile-requested-at", "now").await;
    }
    office.pass(MOMENT).await;
}

async fn delete_at_once(office: &mut Office, what: &str) {
    let asked = office.airline.requests();
    office.delete("kept").await;
    office.pass(MOMENT).await;
    assert_eq!(office.said("kept"), "gone", "{what}: Retain");
    office.delete("forced").await;
    office.pass(MOMENT).await;
    assert_ne!(office.said("forced"), "gone", "{what}: its booking is not cancelled");
    office.annotate("forced", FORCE, "true").await;
    office.pass(MOMENT).await;
    assert_eq!(office.said("forced"), "gone", "{what}: force-delete");
    let asked = office.airline.requests() - asked;
    assert!(asked <= 1, "{what}: {asked} requests");
}

#[tokio::test(start_paused = true)]
async fn retained_and_forced_deletions_do_not_wait_for_retry_after() {
    let mut office = booked().await;
    office.airline.books().status = Some((503, Some(3_600)));
    request(&mut office).await;
    delete_at_once(&mut office, "Retry-After").await;
}

#[tokio::test(start_paused = true)]
async fn retained_and_forced_deletions_do_not_wait_for_the_circuit() {
    let mut office = booked().await;
    office.airline.books().status = Some((500, None));
    for number in 0..20 {
        office.apply(&format!("other-{number}"), json!({})).await;
    }
    office.pass(Duration::from_secs(20)).await;
    request(&mut office).await;
    delete_at_once(&mut office, "circuit").await;
}

#[tokio::test(start_paused = true)]
async fn retained_and_forced_deletions_need_no_provider() {
    let mut office = booked().await;
    office.has_provider = false;
    office.restart().await;
    office.pass(MOMENT).await;
    assert!(office.said("kept").contains("ProviderNotConfigured"), "{}", office.said("kept"));
    delete_at_once(&mut office, "no provider").await;
}

/// The user forces the deletion from the start, so the operator tries to cancel the booking once, for at most two seconds.
#[tokio::test(start_paused = true)]
async fn forced_deletion_tries_to_cancel_for_a_moment() {
    let mut office = booked().await;
    office.annotate("forced", FORCE, "true").await;
    office.annotate("kept", FORCE, "true").await;
    office.apply("kept", json!({"deletionPolicy": "Cancel"})).await;
    office.until_quiet().await;
    office.delete("kept").await;
    office.pass(MOMENT).await;
    assert_eq!((office.said("kept").as_str(), office.airline.live().len()), ("gone", 1), "its booking is cancelled");
    office.airline.books().troubles.push(("default/".to_owned(), Trouble::Silence));
    office.delete("forced").await;
    office.pass(MOMENT).await;
    assert_ne!(office.said("forced"), "gone");
    office.pass(MOMENT * 2).await;
    assert_eq!((office.said("forced").as_str(), office.airline.live().len()), ("gone", 1));
}

/// A process has only postponed the deletion, because the provider wanted no request. The next one does not know that, and must
/// not take the phase for a failed attempt.
#[tokio::test(start_paused = true)]
async fn forced_deletion_tries_to_cancel_after_a_postponed_one() {
    let mut office = booked().await;
    office.airline.books().status = Some((503, Some(3_600)));
    request(&mut office).await;
    office.airline.books().status = None;
    let asked = office.airline.requests();
    office.delete("forced").await;
    office.pass(MOMENT).await;
    let said = office.said("forced");
    assert!(said.starts_with("Cancelling False/Cancelling"), "{said}");
    assert_eq!((office.airline.requests() - asked, office.airline.live().len()), (0, 2), "it was only postponed");
    office.stop().await;
    office.annotate("forced", FORCE, "true").await;
    office.start();
    office.until_quiet().await;
    assert_eq!((office.said("forced").as_str(), office.airline.live().len()), ("gone", 1), "its booking is cancelled");
}

/// The age of a deletion counts by the clock of the operator, as do all other times.
#[tokio::test(start_paused = true)]
async fn deletion_counts_as_stuck_after_ten_minutes() {
    let mut office = booked().await;
    office.airline.books().status = Some((503, None));
    office.delete("forced").await;
    let stuck = |office: &Office| {
        let scrape = office.scrape();
        let mut counts = scrape.lines().filter_map(|line| line.strip_prefix("flightticket_operator_stuck_deletions "));
        counts.next().map(str::to_owned)
    };
    office.pass(Duration::from_mins(9)).await;
    assert_eq!(stuck(&office).as_deref(), Some("0"));
    office.pass(Duration::from_mins(2)).await;
    assert_eq!(stuck(&office).as_deref(), Some("1"));
}

/// A final answer is still shown after a time without a provider.
#[tokio::test(start_paused = true)]
async fn lack_of_a_provider_is_not_reported_once_there_is_one() {
    let mut office = Office::new();
    office.has_provider = false;
    office.start();
    office.apply("ours", json!({})).await;
    office.pass(MOMENT).await;
    assert_eq!(office.said("ours"), "Pending False/ProviderNotConfigured False/NotBooked");
    office.has_provider = true;
    office.airline.books().status = Some((503, Some(60)));
    office.restart().await;
    office.pass(MOMENT).await;
    assert_eq!(office.said("ours"), "Pending False/BookingPending False/NotBooked");
}

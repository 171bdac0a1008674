//! Random simulated worlds, each with a provider of bookings.

#[path = "simulation/subject.rs"]
mod subject;

use std::{path::Path, time::Duration};

use fastrand::Rng;
use serde_json::Value;
use simulation::{Act, Campaign, Plan, Played, Subject, is_repeatable_in_other_processes, replay};

use crate::subject::{FlightTicket, confirm_delay, tenants::Refusal};

/// Duration of a usual test run, with worlds from a fresh seed.
const USUAL: Duration = Duration::from_secs(20);

#[test]
fn every_world_ends_as_specified() {
    Campaign::from_env(USUAL).run(&FlightTicket);
}

#[test]
fn regression_worlds_end_as_specified() {
    replay(&FlightTicket, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worlds")));
}

fn spec(seed: u64) -> Value {
    FlightTicket.spec("a", &mut Rng::with_seed(seed))
}

/// The first of these seeds whose ticket buys a booking, and cancels it when it is deleted.
fn buyer(mut seeds: impl Iterator<Item = u64>) -> u64 {
    seeds.find(|seed| buys(*seed)).expect("a seed")
}

/// Whether the ticket of this seed buys a booking of the usual trip, and cancels it when it is deleted.
fn buys(seed: u64) -> bool {
    let spec = spec(seed);
    ["managementPolicy", "deletionPolicy", "cabin", "departureDate"].iter().all(|field| spec[*field].is_null())
}

/// The number of seats of the ticket of this seed.
fn number(seed: u64) -> u64 {
    spec(seed)["number"].as_u64().unwrap_or(1)
}

/// A seed that gives the ticket of `first` another number of seats.
fn other_number(first: u64) -> u64 {
    number_beside(&[number(first)])
}

/// A seed whose spec has another number of seats than these.
fn number_beside(numbers: &[u64]) -> u64 {
    buyer((0..).filter(|seed| spec(*seed)["number"].as_u64().is_some_and(|other| !numbers.contains(&other))))
}

fn count(played: &Played, text: &str) -> usize {
    played.trace.iter().filter(|line| line.text.contains(text)).count()
}

/// The airline rejects a booking that it has accepted. Its reference is free again, and the user changes the ticket.
#[test]
fn ticket_whose_booking_was_rejected_books_again_when_its_user_changes_it() {
    // Not a multiple of four: the check of the memory takes hours.
    let first = buyer((2..).step_by(4).filter(|seed| confirm_delay(*seed).as_secs() == 100));
    let rejects = (0..1_000).find(|seed| Rng::with_seed(*seed).usize(..3) == 1).expect("a seed");
    let acts = [(20, Act::ExternalDecision, rejects), (300, Act::Edit, other_number(first)), (600, Act::Create, 0)];
    let played = Plan::scripted(first, &acts).play(&FlightTicket);
    assert_eq!(played.failure, None);
    assert_eq!(played.effects_of(Act::ExternalDecision), 1);
    assert_eq!(count(&played, "provider ▶ POST /v1/bookings 202"), 2);
}

/// The provider neither changes nor cancels a booking whose flight has left.
#[test]
fn ticket_whose_flight_has_left_keeps_its_number_and_can_be_deleted() {
    let first = buyer((1..).step_by(2));
    let departs = (0..1_000).find(|seed| Rng::with_seed(*seed).u8(..3) == 0).expect("a seed");
    let acts = [(60, Act::ExternalDecision, departs), (120, Act::Edit, other_number(first)), (600, Act::Delete, 0)];
    let played = Plan::scripted(first, &acts).play(&FlightTicket);
    assert_eq!(played.failure, None);
    assert_eq!(played.effects_of(Act::ExternalDecision), 1);
    assert!(count(&played, "ModificationRejected") > 0 && count(&played, "CancelRefused") > 0);
}

/// The provider refuses the credentials for one tenant. That holds up no ticket of another tenant. The tenant's own ticket goes on
/// when the provider accepts them again.
#[test]
fn refusal_of_one_tenant_holds_up_no_other_and_ends() {
    // Odd, so that the airline confirms at once. The second ticket is that of the even seed below it, in the other namespace.
    let first = (1..).step_by(2).find(|seed| buys(*seed) && buys(*seed ^ 1)).expect("a seed");
    let is_long = |it: Refusal| it.status == 401 && it.lasts > Duration::from_mins(5);
    let refusal = (0..10_000).find(|seed| Refusal::draw(&Rng::with_seed(*seed)).is_some_and(is_long)).expect("a seed");
    let refused = number_beside(&[number(first), number(first ^ 1)]);
    let accepted = number_beside(&[number(first), number(first ^ 1), number(refused)]);
    let acts = [
        (60, Act::ExternalService, refusal),
        (120, Act::Edit, refused),
        (120, Act::Edit, accepted),
        (900, Act::Create, 0),
    ];
    let mut plan = Plan { objects: 2, ..Plan::scripted(first, &acts) };
    plan.disturbances[2].object = 1;
    let played = plan.play(&FlightTicket);
    assert_eq!(played.failure, None);
    let modified = |seed: u64| {
        let answer = format!(" 200 OK {{\"number\":{}}}", number(seed));
        let is_it = |text: &str| text.contains("provider ▶ PATCH /v1/bookings/") && text.ends_with(&answer);
        played.trace.iter().find(|line| is_it(&line.text)).expect("the booking is modified").at
    };
    let ends = Duration::from_mins(1) + Refusal::draw(&Rng::with_seed(refusal)).expect("a refusal").lasts;
    assert!(modified(accepted) < Duration::from_secs(130), "{:?}", modified(accepted));
    // The operator sends refused credentials again after a minute.
    let (at, latest) = (modified(refused), ends + Duration::from_secs(100));
    assert!((ends..latest).contains(&at), "{at:?}, the refusal ends at {ends:?}");
    assert!(count(&played, "AuthenticationFailed") > 0 && count(&played, "provider ▶ POST /v1/bookings 201") == 2);
}

/// Guards against iteration over hash maps, random numbers and clocks, which differ from run to run.
#[test]
fn the_same_seed_gives_the_same_trace() {
    Plan::of(fastrand::u64(..1_000_000)).is_repeatable(&FlightTicket);
}

/// Finds any dependency on addresses, hash seeds and the environment, which differ from process to process.
#[test]
fn the_same_seed_gives_the_same_trace_in_other_processes() {
    let test = "the_same_seed_gives_the_same_trace_in_other_processes";
    is_repeatable_in_other_processes(&FlightTicket, test);
}

//! Random simulated worlds, each with a provider of bookings.

#[path = "simulation/subject.rs"]
mod subject;

use std::{path::Path, time::Duration};

use fastrand::Rng;
use serde_json::Value;
use simulation::{Act, Campaign, Plan, Played, Subject, is_repeatable_in_other_processes, replay};

use crate::subject::{FlightTicket, confirm_delay};

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
    let buys = |seed: &u64| spec(*seed)["managementPolicy"].is_null() && spec(*seed)["deletionPolicy"].is_null();
    seeds.find(buys).expect("a seed")
}

/// A seed that gives the ticket of `first` another number of seats.
fn other_number(first: u64) -> u64 {
    let number = spec(first)["number"].as_u64().unwrap_or(1);
    buyer((0..).filter(|seed| spec(*seed)["number"].as_u64().is_some_and(|other| other != number)))
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

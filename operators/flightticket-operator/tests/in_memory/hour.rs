//! An hour of random faults, and an audit of the bookings at its end. `FLIGHTTICKET_SEED` sets the first seed,
//! `FLIGHTTICKET_HOURS` the number of hours, and `FLIGHTTICKET_LIVES` the number of short scenarios.

use std::{collections::BTreeMap, time::Duration};

use booking_server::ledger::Airline as Act;
use fastrand::Rng;
use serde_json::json;

use crate::office::Office;

/// A new process sends requests for all tickets. With more tickets, one of these requests would meet the next crash.
const MOST_TICKETS: usize = 12;
/// One in this many requests meets a fault.
const ONE_IN: u32 = 16;

/// The number of events besides the faults.
#[derive(Debug, Default)]
struct Tally {
    made: u32,
    deleted: u32,
    changed: u32,
    cancelled_by_airline: u32,
    outages: u32,
    lags: u32,
}

/// Lives through random actions of users and of the airline, with random faults; then through 20 minutes without faults.
async fn live(office: &mut Office, seed: u64, steps: u32, step: Duration, one_in: u32) -> Tally {
    let mut chance = Rng::with_seed(seed);
    let mut tally = Tally::default();
    office.airline.books().set_seats(40);
    office.mischief.set_random(Some((Rng::with_seed(seed ^ 1), one_in)));
    for _ in 0..steps {
        let names: Vec<String> = office
            .tickets()
            .iter()
            .filter(|it| it.metadata.deletion_timestamp.is_none())
            .filter_map(|it| it.metadata.name.clone())
            .collect();
        let one = if names.is_empty() { None } else { Some(names[chance.usize(..names.len())].clone()) };
        match (chance.u32(..10), one) {
            (0..=2, _) if names.len() < MOST_TICKETS => {
                let policy = if chance.bool() { "Always" } else { "Never" };
                let spec = json!({"number": chance.u32(1..=4), "rebookPolicy": policy});
                office.apply(&format!("ticket-{}", tally.made), spec).await;
                tally.made += 1;
            }
            (0..=4, Some(name)) if names.len() > 3 => {
                office.delete(&name).await;
                tally.deleted += 1;
            }
            (5, Some(name)) => {
                let policy = office.ticket(&name).map(|it| it.spec.rebook_policy);
                office.apply(&name, json!({"number": chance.u32(1..=6), "rebookPolicy": policy})).await;
                tally.changed += 1;
            }
            (6, Some(name)) => {
                let id = office.ticket(&name).and_then(|it| it.status?.booking_id);
                if let Some(id) = id {
                    office.airline.act(Act::Cancel, &id);
                    tally.cancelled_by_airline += 1;
                }
            }
            (7, _) => {
                tally.outages += 1;
                let retry_after = chance.bool().then_some(7);
                office.airline.books().status = Some((503, retry_after));
                office.pass(Duration::from_secs(chance.u64(5..60))).await;
                office.airline.books().status = None;
            }
            (8, _) => {
                tally.lags += 1;
                let all: Vec<String> = office.airline.books().bookings.iter().map(|it| it.id.clone()).collect();
                office.airline.books().hidden.extend(all);
                office.pass(Duration::from_secs(30)).await;
                office.airline.books().hidden.clear();
            }
            _ => {}
        }
        office.pass(step).await;
    }
    office.mischief.set_random(None);
    // Longer than any back-off plus two polls.
    office.pass(Duration::from_mins(20)).await;
    tally
}

/// Checks that each ticket whose status reports a booking has exactly one live booking with that number of seats, and that there
/// are no other live bookings. Returns how many tickets report which phase and conditions.
fn audit(office: &Office) -> BTreeMap<String, u32> {
    let mut live = office.airline.live();
    let mut said: BTreeMap<String, u32> = BTreeMap::new();
    for ticket in office.tickets() {
        let name = ticket.metadata.name.clone().unwrap_or_default();
        assert_eq!(ticket.metadata.deletion_timestamp, None, "{name} still exists");
        let words = office.said(&name);
        let status = ticket.status.clone().expect("a status");
        let ours: Vec<(String, u8)> =
            live.iter().filter(|(reference, _)| ticket.attempt_of(reference).is_some()).cloned().collect();
        live.retain(|booking| !ours.contains(booking));
        let expected = match words.as_str() {
            "Booked True/Booked True/UpToDate" => {
                vec![(status.reference.clone().expect("a reference"), ticket.spec.number)]
            }
            "Booked True/Booked False/ModificationRejected" => {
                let number = status.number.and_then(|number| i32::try_from(number).ok()).expect("a number");
                vec![(status.reference.clone().expect("a reference"), number)]
            }
            "Pending False/InsufficientSeats False/NotBooked"
            | "Cancelled False/BookingCancelledExternally False/NotBooked" => vec![],
            other => panic!("{name} reports {other}: {ticket:#?}"),
        };
        let ours: Vec<(String, i32)> = ours.into_iter().map(|(reference, number)| (reference, number.into())).collect();
        assert_eq!(ours, expected, "{name} reports {words}");
        *said.entry(words).or_default() += 1;
    }
    assert_eq!(live, [], "bookings that belong to no ticket");
    let seats: u32 = office.airline.live().iter().map(|(_, number)| u32::from(*number)).sum();
    assert!(seats <= 40, "{seats} seats of 40 are sold");
    said
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

#[tokio::test(start_paused = true)]
async fn hour_of_random_faults_leaves_bookings_consistent() {
    let first = number("FLIGHTTICKET_SEED", 9);
    for seed in first..first + number("FLIGHTTICKET_HOURS", 3) {
        let mut office = Office::open();
        let tally = live(&mut office, seed, 360, Duration::from_secs(10), ONE_IN).await;
        let said = audit(&office);
        let bookings = office.airline.books().bookings.len();
        let live = office.airline.live().len();
        let done: u32 = office.mischief.done().values().sum();
        eprintln!(
            "seed {seed}: {tally:?}; {bookings} bookings, {live} live; {} requests, {done} with faults of {} kinds; \
             {} processes\n  {said:?}",
            office.mischief.requests().len(),
            office.mischief.done().len(),
            office.processes(),
        );
        for ticket in office.tickets() {
            office.delete(&ticket.metadata.name.unwrap_or_default()).await;
        }
        office.pass(Duration::from_mins(5)).await;
        assert_eq!((office.tickets().len(), office.airline.live().len()), (0, 0), "seed {seed}");
    }
}

/// Crashes, time-outs, duplicate and late delivery, two processes at once, and deletion.
#[tokio::test(start_paused = true)]
async fn t05_frequent_faults_leave_one_booking_per_ticket() {
    for seed in 0..number("FLIGHTTICKET_LIVES", 200) {
        let mut office = Office::open();
        let mut chance = Rng::with_seed(seed);
        office.mischief.set_random(Some((Rng::with_seed(seed ^ 1), 3)));
        office.apply("ours", json!({"number": chance.u32(1..=4)})).await;
        let is_hasty = chance.u32(..4) == 0;
        if is_hasty {
            office.pass(Duration::from_millis(chance.u64(..60))).await;
        } else {
            office.pass(Duration::from_millis(chance.u64(..4_000))).await;
            office.apply("ours", json!({"number": chance.u32(1..=4)})).await;
            office.pass(Duration::from_millis(chance.u64(..10_000))).await;
        }
        let is_deleted = is_hasty || chance.bool();
        if is_deleted {
            office.delete("ours").await;
            office.pass(Duration::from_millis(chance.u64(..10_000))).await;
        }
        office.mischief.set_random(None);
        office.pass(Duration::from_mins(6)).await;
        office.until_quiet().await;
        audit(&office);
        assert_eq!(
            office.airline.live().len(),
            usize::from(!is_deleted),
            "seed {seed}: {:#?}",
            office.mischief.requests()
        );
    }
}

//! The rules on real tables: any sequence of requests leaves a consistent database, and a repeated request changes nothing.

use std::collections::BTreeMap;

use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use rusqlite::Connection;

use super::*;
use crate::{audit, booking::Cabin, books::Books, books::Filter, clock, file, problem::Code};

/// A request of a client, or an action of the airline. The numbers choose among a few references, routes and bookings.
#[derive(Debug, Clone)]
enum Step {
    Book { reference: u8, route: u8, number: u8 },
    Modify { booking: u8, number: u8, is_informed: bool },
    Cancel { booking: u8 },
    Close { reference: u8 },
    Adopt { booking: u8, reference: u8 },
    Airline { booking: u8, act: Airline },
}

fn step() -> impl Strategy<Value = Step> {
    let act = prop_oneof![Just(Airline::Confirm), Just(Airline::Reject), Just(Airline::Cancel), Just(Airline::Depart)];
    prop_oneof![
        6 => (0..6u8, 0..2u8, 1..=10u8).prop_map(|(reference, route, number)| Step::Book { reference, route, number }),
        3 => (any::<u8>(), 1..=10u8, any::<bool>())
            .prop_map(|(booking, number, is_informed)| Step::Modify { booking, number, is_informed }),
        1 => any::<u8>().prop_map(|booking| Step::Cancel { booking }),
        1 => (0..6u8).prop_map(|reference| Step::Close { reference }),
        1 => (any::<u8>(), 0..6u8).prop_map(|(booking, reference)| Step::Adopt { booking, reference }),
        2 => (any::<u8>(), act).prop_map(|(booking, act)| Step::Airline { booking, act }),
    ]
}

/// The tables, and the closed references, which must stay closed.
struct World {
    connection: Connection,
    policy: Policy,
    drawn: u32,
    /// References that a step has cancelled, closed or moved a booking away from.
    over: Vec<Reference>,
}

/// An answer without the parts that differ when the request is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Booking(Box<Booking>),
    Standing(Standing),
    Refused(Code),
}

const SEATS: u32 = 12;

impl World {
    fn books(&self) -> Books<'_> {
        Books(&self.connection)
    }

    fn all(&self) -> BTreeMap<String, Booking> {
        let all = self.books().list(&Filter::default(), 0, 500).unwrap();
        all.into_iter().map(|(_, booking)| (booking.id.clone(), booking)).collect()
    }

    fn journal(&self) -> u64 {
        audit::of(&self.connection).unwrap().journal
    }

    fn chosen(&self, number: u8) -> Option<Booking> {
        let all = self.books().list(&Filter::default(), 0, 500).unwrap();
        (!all.is_empty()).then(|| all[usize::from(number) % all.len()].1.clone())
    }

    fn carry_out<T>(&self, decided: Result<Decision<T>, Problem>) -> Result<T, Code> {
        let Decision { answer, changes } = decided.map_err(|problem| problem.code)?;
        self.books().apply(&changes, clock::now()).unwrap();
        Ok(answer)
    }

    /// Executes a step; `None` if there is no booking for it.
    fn perform(&mut self, step: &Step) -> Option<Told> {
        let now = clock::now();
        let booked = |result: Result<Booking, Code>| match result {
            Ok(booking) => Told::Booking(Box::new(booking)),
            Err(code) => Told::Refused(code),
        };
        Some(match *step {
            Step::Book { reference, route, number } => {
                let order = order(reference, route, number);
                self.drawn += 1;
                let fresh = Fresh { id: format!("BK-{:010}", self.drawn), confirmation: "ABCDEF".to_owned() };
                let facts = self.books().availability(&order.reference, &order.route()).unwrap();
                let free = SEATS - self.taken(&order.route());
                let result = self.carry_out(book(&order, facts, self.policy, fresh, now));
                match &result {
                    Ok(Booked { is_replay: false, .. }) => assert!(free >= u32::from(number), "sold too many seats"),
                    Err(Code::InsufficientSeats) => assert!(free < u32::from(number), "refused free seats"),
                    _ => {}
                }
                booked(result.map(|booked| booked.booking))
            }
            Step::Modify { booking, number, is_informed } => {
                let booking = self.chosen(booking)?;
                let version = if is_informed { booking.version } else { 0 };
                let expected = Expected::OneOf(vec![version.to_string()]);
                let free = self.books().free(&booking.route()).unwrap();
                booked(self.carry_out(modify(booking, &expected, number, &free, now)))
            }
            Step::Cancel { booking } => booked(self.carry_out(cancel(self.chosen(booking)?, now))),
            Step::Close { reference } => {
                let reference = named(reference);
                let (is_buried, current) =
                    (self.books().is_buried(&reference).unwrap(), self.books().current(&reference).unwrap());
                match self.carry_out(cancel_reference(&reference, is_buried, current, now)) {
                    Ok(standing) => Told::Standing(standing),
                    Err(code) => Told::Refused(code),
                }
            }
            Step::Adopt { booking, reference } => {
                let (booking, new) = (self.chosen(booking)?, named(reference));
                let is_taken = self.books().is_buried(&new).unwrap() || self.books().current(&new).unwrap().is_some();
                let old = booking.order.reference.clone();
                booked(self.carry_out(adopt(booking, &new, &old, None, is_taken, now)))
            }
            Step::Airline { booking, act } => {
                booked(self.carry_out(airline(act, self.chosen(booking)?, "UVWXYZ".to_owned(), now)))
            }
        })
    }

    fn taken(&self, route: &RouteKey) -> u32 {
        let held = |booking: &Booking| booking.route() == *route && booking.state.is_live();
        self.all().values().filter(|booking| held(booking)).map(|booking| u32::from(booking.order.number)).sum()
    }
}

fn named(number: u8) -> Reference {
    Reference::parse(&format!("r{number}")).unwrap()
}

fn order(reference: u8, route: u8, number: u8) -> Order {
    let to = ["Paris", "Rome"][usize::from(route)].to_owned();
    let (from, reference) = ("London".to_owned(), named(reference));
    Order { reference, from, to, number, date: None, cabin: Cabin::Economy, contact: None }
}

fn live(booking: &Booking) -> bool {
    booking.state.is_live()
}

fn check(steps: &[Step], confirm_delay: SignedDuration) {
    let folder = tempfile::tempdir().unwrap();
    let connection = file::for_writing(&folder.path().join("bookings.db")).unwrap();
    connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
    let policy = Policy { default_seats: Some(SEATS), confirm_delay };
    let mut world = World { connection, policy, drawn: 0, over: Vec::new() };
    for step in steps {
        let before = world.all();
        let Some(told) = world.perform(step) else { continue };
        let after = world.all();
        assert_eq!(audit::of(&world.connection).unwrap().violations, Vec::<String>::new(), "after {step:?}");
        // A request touches one booking.
        let touched = after.iter().filter(|(id, booking)| before.get(*id) != Some(*booking)).count();
        assert!(touched <= 1 && before.keys().all(|id| after.contains_key(id)), "{step:?} touched {touched}");
        if let Told::Refused(_) = told {
            assert_eq!(before, after, "{step:?} was refused but changed something");
        }
        if let Told::Booking(told) = &told {
            assert_eq!(after.get(&told.id), Some(&**told), "the answer differs from the stored booking");
        }
        // A booking that has ended stays ended.
        for booking in before.values() {
            let now = &after[&booking.id];
            assert!(live(booking) || !live(now), "{step:?} revived {}", booking.id);
            if booking.state != State::Cancelled && now.state == State::Cancelled
                || booking.order.reference != now.order.reference
            {
                world.over.push(booking.order.reference.clone());
            }
        }
        if let (Step::Close { reference }, Told::Standing(_)) = (step, &told) {
            world.over.push(named(*reference));
        }
        for reference in &world.over {
            let lives =
                after.values().filter(|booking| live(booking)).any(|booking| booking.order.reference == *reference);
            assert!(!lives, "{reference} has a live booking after {step:?}");
        }
        // Repeat the same request: the same answer, and no new entry in the journal.
        if !matches!(step, Step::Modify { .. } | Step::Airline { .. }) {
            let noted = world.journal();
            assert_eq!(world.perform(step), Some(told), "{step:?} repeated");
            assert_eq!(world.journal(), noted, "{step:?} repeated");
        }
    }
}

fn cases() -> u32 {
    std::env::var("BOOKING_SERVER_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(64)
}

proptest! {
    #![proptest_config(Config { cases: cases(), rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..Config::default() })]

    #[test]
    fn any_request_sequence_keeps_invariants(steps in prop::collection::vec(step(), 1..40), is_slow: bool) {
        check(&steps, if is_slow { SignedDuration::from_hours(1) } else { SignedDuration::ZERO });
    }
}

#[test]
fn past_flight_is_not_sold_but_its_booking_is_replayed() {
    let now = clock::now();
    let mut order = order(0, 0, 1);
    order.date = Some(jiff::civil::Date::constant(2020, 1, 1));
    let policy = Policy { default_seats: Some(SEATS), confirm_delay: SignedDuration::ZERO };
    let refused = book(&order, Availability::default(), policy, Fresh::draw(), now).unwrap_err();
    assert_eq!((refused.code, refused.field), (Code::Invalid, Some("departureDate")));
    let long_ago = "2019-06-01T00:00:00Z".parse().unwrap();
    let booked = book(&order, Availability::default(), policy, Fresh::draw(), long_ago).unwrap().answer.booking;
    let facts = Availability { current: Some(booked.clone()), ..Availability::default() };
    assert!(book(&order, facts, policy, Fresh::draw(), now).unwrap().answer.is_replay);
    assert_eq!(cancel(booked, now).unwrap_err().code, Code::NotCancellable);
}

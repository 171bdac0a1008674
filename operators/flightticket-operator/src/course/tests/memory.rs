//! What the status remembers between the steps of a poll, and from one poll to the next.

use super::*;
use crate::api::v1::FlightTicketStatus;

/// Runs a poll to its end, in which the provider gives these answers.
fn polled(ticket: &FlightTicket, answers: impl IntoIterator<Item = Outcome>) -> Course<'_> {
    let mut course = Course::of(ticket, SoFar::default());
    let mut answers = answers.into_iter();
    loop {
        match course.step() {
            Step::Ask(request) => course.handle(request, answers.next().expect("an answer"), now()),
            Step::Note(_) | Step::Remember => {}
            Step::Rest(_) => return course,
        }
    }
}

/// A ticket that has observed the booking of another object.
fn observed() -> FlightTicket {
    let metadata = json!({"annotations": {BOOKING_ID: "BK-1"}});
    let ticket = samples::with(&json!({"metadata": metadata, "spec": {"managementPolicy": "Observe"}}));
    poll(&ticket, [of_another(State::Confirmed, Some("default"))]).stored(&ticket)
}

#[test]
fn next_reference_is_stored_before_the_order_that_uses_it() {
    let more = json!({"spec": {"rebookPolicy": "Always"}, "status": {"fence": {"lease": "a", "epoch": 3}}});
    let ticket = patched(&booked(), &more);
    let mut course = Course::of(&ticket, SoFar::default());
    let mut answers = [Outcome::Booking(booking(State::Cancelled)), closed("BK-1")].into_iter();
    loop {
        match course.step() {
            Step::Ask(request) => course.handle(request, answers.next().expect("two requests"), now()),
            Step::Note(_) => {}
            Step::Remember => break,
            rest @ Step::Rest(_) => panic!("{rest:?}"),
        }
    }
    let FlightTicketStatus { fence, conditions, .. } = ticket.status.clone().expect("a status");
    assert!(fence.is_some() && !conditions.is_empty());
    let reference = Some(format!("{}.1", samples::UID));
    let expected = FlightTicketStatus { reference, attempt: 1, fence, conditions, ..FlightTicketStatus::default() };
    assert_eq!(course.update().status, expected, "of the lost booking, nothing is left");
}

#[test]
fn reference_is_the_own_one_unless_another_object_has_the_booking() {
    let seed = samples::seed();
    let reference = |ticket: &FlightTicket| poll(ticket, [unknown()]).update.status.reference;
    assert_eq!(reference(&seed).as_deref(), Some(samples::UID), "a deletion closes what the request may have booked");
    assert_eq!(reference(&booked()).as_deref(), Some(samples::UID));
    let managing = patched(&observed(), &json!({"spec": {"managementPolicy": "Manage"}}));
    assert_eq!(reference(&managing).as_deref(), Some("other"));
}

#[test]
fn booking_of_a_later_attempt_raises_the_attempt() {
    let ticket = samples::with(&json!({"metadata": {"annotations": {BOOKING_ID: "BK-1"}}}));
    let third = Booking { reference: format!("{}.3", samples::UID), ..booking(State::Confirmed) };
    let found = poll(&ticket, [Outcome::Booking(third)]);
    assert_eq!((found.ops(), found.update.status.attempt), (vec!["get"], 3));
}

#[test]
fn time_of_the_booking_stays_that_of_the_first_confirmation() {
    let mut ticket = booked();
    let before = now() - Duration::from_hours(1);
    ticket.status.as_mut().expect("a status").booked_at = Some(before);
    assert_eq!(poll(&ticket, [confirmed()]).update.status.booked_at, Some(before));
}

#[test]
fn booking_is_acquired_once_and_only_if_it_is_the_tickets_own() {
    let adopting = json!({"metadata": {"annotations": {ADOPT: "true"}}, "spec": {"managementPolicy": "Manage"}});
    let others = || of_another(State::Confirmed, Some("default"));
    for (what, ticket, answers, expected) in [
        ("a new booking", samples::seed(), vec![confirmed()], Some("BK-1")),
        ("no booking yet", samples::seed(), vec![unknown()], None),
        ("a known booking", booked(), vec![confirmed()], None),
        ("an observed booking", observed(), vec![others()], None),
        ("an adopted booking", patched(&observed(), &adopting), vec![others(), confirmed()], Some("BK-1")),
    ] {
        assert_eq!(polled(&ticket, answers).acquired(), expected, "{what}");
    }
}

#[test]
fn booking_that_has_got_another_id_is_read_by_it() {
    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    for state in [State::Confirmed, State::Cancelled] {
        let standing = Outcome::Standing(Standing { state, booking_id: Some("BK-2".to_owned()) });
        let second = Outcome::Booking(Booking { id: "BK-2".to_owned(), ..booking(State::Confirmed) });
        let found = poll_after(&booked(), missing, [refused(Why::Missing), standing.clone(), second]);
        assert_eq!(found.ops(), ["get", "lookup", "get"], "{standing:?}");
        assert_eq!(found.update.status.booking_id.as_deref(), Some("BK-2"));
    }
}

#[test]
fn booking_of_another_object_that_is_over_is_not_adopted() {
    let adopting = json!({"metadata": {"annotations": {BOOKING_ID: "BK-1", ADOPT: "true"}}});
    for state in [State::Cancelled, State::Rejected] {
        let over = poll(&samples::with(&adopting), [of_another(state, Some("default"))]);
        assert_eq!(over.said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
    }
}

/// Another client has removed the conditions. The object is the same, so the rejection still holds.
#[test]
fn lost_conditions_are_restored_without_another_order() {
    let seed = samples::seed();
    let rejected = || Outcome::Booking(booking(State::Rejected));
    let stored = poll(&seed, [rejected()]).stored(&seed);
    let again = poll(&patched(&stored, &json!({"status": {"conditions": []}})), [rejected()]);
    assert_eq!((again.ops(), again.wait()), (vec!["get"], Wait::Poll));
}

#[test]
fn own_booking_is_observed_though_no_annotation_names_it() {
    let mut observing = patched(&booked(), &json!({"spec": {"managementPolicy": "Observe"}}));
    observing.metadata.annotations = None;
    let seen = poll(&observing, [confirmed()]);
    assert_eq!((seen.ops(), seen.update.status.booking_id.as_deref()), (vec!["get"], Some("BK-1")));
}

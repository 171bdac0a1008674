//! Tickets that only observe a booking. They send no request that changes anything.

use super::*;

fn observing(id: Option<&str>) -> FlightTicket {
    let annotations = id.map(|id| json!({BOOKING_ID: id, ADOPT: "true"}));
    samples::with(&json!({
        "metadata": {"annotations": annotations.unwrap_or_default()},
        "spec": {"managementPolicy": "Observe", "rebookPolicy": "Always"},
    }))
}

fn get() -> Step {
    Step::Ask(Request::Get { id: "BK-1".to_owned() })
}

#[test]
fn observed_booking_is_reported_and_nothing_else_happens() {
    let message = |poll: &PollResult| poll.update.external().synced.message;
    for other in [confirmed(), of_another(State::Confirmed, Some("default"))] {
        let ticket = observing(Some("BK-1"));
        let seen = poll(&ticket, [other]);
        assert_eq!(seen.steps, [get(), Step::Rest(Wait::Poll)], "no annotation is written, nothing is adopted");
        assert_eq!(seen.said(), "Booked True/Booked True/UpToDate");
        assert_eq!(seen.update.status.booking_id.as_deref(), Some("BK-1"));
        assert_eq!(seen.events, [Event::normal("Observed", "Booking BK-1 has 2 seat(s): ABC123")]);
    }
    let fewer = Outcome::Booking(Booking { number: 1, ..booking(State::Confirmed) });
    let seen = poll(&observing(Some("BK-1")), [fewer]);
    assert_eq!((seen.steps.len(), seen.said()), (2, "Booked True/Booked False/Diverged".to_owned()));
    assert_eq!(message(&seen), "Booking BK-1 has 1 seat(s); the spec requests 2");
}

/// The ticket neither books nor changes, so no event says so. The trip in the messages is the one of the booking.
#[test]
fn changed_or_other_trip_is_reported_as_observed() {
    let ticket = observing(Some("BK-1"));
    let first = poll(&ticket, [confirmed()]);
    let again = first.stored(&ticket);
    assert_eq!(poll(&again, [confirmed()]).events, []);
    let more = poll(&again, [Outcome::Booking(Booking { number: 3, ..booking(State::Confirmed) })]);
    assert_eq!(more.events, [Event::normal("Observed", "Booking BK-1 changed from 2 to 3 seat(s)")]);
    let elsewhere = poll(&ticket, [Outcome::Booking(Booking { to: "Oslo".to_owned(), ..booking(State::Confirmed) })]);
    assert_eq!(elsewhere.said(), "Booked True/Booked False/Diverged");
    assert_eq!(elsewhere.update.external().ready.message, "2 seat(s) Mumbai -> Oslo: ABC123");
}

#[test]
fn every_answer_has_its_status_and_no_second_request() {
    let seen = |state| poll(&observing(Some("BK-1")), [Outcome::Booking(booking(state))]).said();
    assert_eq!(seen(State::Pending), "Pending False/BookingPending False/NotBooked");
    assert_eq!(seen(State::Rejected), "Rejected False/BookingRejected False/NotBooked");
    assert_eq!(seen(State::Cancelled), "Cancelled False/BookingCancelledExternally False/NotBooked");
    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    let gone = poll_after(&observing(Some("BK-1")), missing, [refused(Why::Missing)]);
    assert_eq!((gone.ops(), gone.wait()), (vec!["get"], Wait::Poll));
    assert_eq!(gone.said(), "Cancelled False/BookingNotFound False/NotBooked");
    let lags = poll(&observing(Some("BK-1")), [refused(Why::Missing)]);
    assert_eq!((lags.wait(), lags.said()), (Wait::Missing, "Pending False/BookingPending False/NotBooked".to_owned()));
    for namespace in [Some("victim"), None] {
        let hidden = poll(&observing(Some("BK-1")), [of_another(State::Confirmed, namespace)]);
        assert_eq!(hidden.said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
        assert_eq!(hidden.update.status.booking_id, None);
    }
}

#[test]
fn without_a_named_booking_only_the_own_reference_is_looked_up() {
    let lookup = Step::Ask(Request::Lookup { reference: samples::UID.to_owned() });
    let none = poll(&observing(None), [refused(Why::Missing)]);
    assert_eq!(none.steps, [lookup.clone(), Step::Rest(Wait::Poll)]);
    assert_eq!(none.said(), "Pending False/NothingToObserve False/NotBooked");
    // The ticket has booked earlier, and the answer was lost.
    let standing = Outcome::Standing(Standing { state: State::Confirmed, booking_id: Some("BK-1".to_owned()) });
    let own = poll(&observing(None), [standing, confirmed()]);
    assert_eq!(own.steps, [lookup, get(), Step::Rest(Wait::Poll)]);
    assert_eq!(own.said(), "Booked True/Booked True/UpToDate");
}

/// A booking of another object does not become the ticket's own because the ticket has observed it.
#[test]
fn observed_booking_is_neither_replaced_nor_cancelled_later() {
    let ticket = observing(Some("BK-1"));
    let seen = poll(&ticket, [of_another(State::Confirmed, Some("default"))]).stored(&ticket);
    let managing = patched(
        &seen,
        &json!({
            "metadata": {"generation": 2, "annotations": {ADOPT: "false"}}, "spec": {"managementPolicy": "Manage"},
        }),
    );
    let refused_to = poll(&managing, [of_another(State::Confirmed, Some("default"))]);
    assert_eq!(refused_to.said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    let lost = poll_after(&managing, missing, [refused(Why::Missing), refused(Why::Missing)]);
    assert_eq!(lost.ops(), ["get", "lookup"]);
}

/// Whatever the polls in between have found.
#[test]
fn observed_booking_that_is_lost_later_is_not_replaced() {
    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    let ticket = observing(Some("BK-1"));
    let seen = poll(&ticket, [of_another(State::Confirmed, Some("default"))]).stored(&ticket);
    for (so_far, answer) in [
        (SoFar::default(), unknown()),
        (SoFar::default(), refused(Why::Forbidden)),
        (SoFar::default(), refused(Why::Missing)),
        (missing, refused(Why::Missing)),
    ] {
        let later = poll_after(&seen, so_far, [answer.clone()]).stored(&seen);
        let spec = json!({"metadata": {"generation": 2}, "spec": {"managementPolicy": "Manage"}});
        let managing = patched(&later, &spec);
        for between in [None, Some(unknown())] {
            let managing = between.map_or(managing.clone(), |answer| poll(&managing, [answer]).stored(&managing));
            let lost = poll_after(&managing, missing, [refused(Why::Missing), refused(Why::Missing)]);
            assert_eq!(lost.ops(), ["get", "lookup"], "{answer:?}");
            assert_eq!(lost.said(), "Cancelled False/BookingNotFound False/NotBooked for good", "{answer:?}");
        }
    }
}

#[test]
fn ticket_follows_the_annotation_to_another_booking() {
    let ticket = observing(Some("BK-1"));
    let seen = poll(&ticket, [of_another(State::Confirmed, Some("default"))]).stored(&ticket);
    let named =
        |ticket: &FlightTicket, id: &str| patched(ticket, &json!({"metadata": {"annotations": {BOOKING_ID: id}}}));

    let mistyped = named(&seen, "BK-9");
    assert_ne!(mistyped.intent(), seen.intent(), "the change ends the wait at once");
    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    let gone = poll_after(&mistyped, missing, [refused(Why::Missing)]);
    assert_eq!(gone.update.external().ready.message, "Booking BK-9 does not exist at the provider");
    assert_eq!(gone.update.status.booking_id, None, "the other booking is not shown any more");

    let hidden = poll(&mistyped, [of_another(State::Confirmed, Some("victim"))]).stored(&mistyped);
    assert_eq!(poll(&hidden, []).wait(), Wait::Change);
    let corrected = named(&hidden, "BK-1");
    assert_ne!(corrected.intent(), hidden.intent());
    assert_eq!(
        poll(&corrected, [of_another(State::Confirmed, Some("default"))]).said(),
        "Booked True/Booked True/UpToDate"
    );
}

#[test]
fn own_booking_is_managed_again_after_it_was_observed() {
    let observing = patched(&booked(), &json!({"spec": {"managementPolicy": "Observe", "number": 3}}));
    let seen = poll(&observing, [confirmed()]);
    assert_eq!((seen.ops(), seen.said()), (vec!["get"], "Booked True/Booked False/Diverged".to_owned()));
    let managing = patched(&seen.stored(&observing), &json!({"spec": {"managementPolicy": "Manage"}}));
    let more = Outcome::Booking(Booking { number: 3, ..booking(State::Confirmed) });
    assert_eq!(poll(&managing, [confirmed(), more]).ops(), ["get", "modify"]);
}

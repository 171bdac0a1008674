//! Tickets that name a booking of another object, or one that does not exist.

use bytes::Bytes;

use super::*;
use crate::booking::wire;

/// A ticket that names a booking of another object, and wants to take it over.
fn adopting() -> FlightTicket {
    samples::with(&json!({"metadata": {"annotations": {BOOKING_ID: "BK-1", ADOPT: "true"}}}))
}

#[test]
fn adoption_is_consumed_before_the_status_is_written() {
    let adopting = adopting();
    let adopted = poll(&adopting, [of_another(State::Confirmed, Some("default")), confirmed()]);
    let (id, expect, reference) = ("BK-1".to_owned(), "other".to_owned(), samples::UID.to_owned());
    let adopt = Request::Adopt { id: id.clone(), expect, reference, contact: contact() };
    let steps = [Step::Ask(Request::Get { id }), Step::Ask(adopt), noted(Some("BK-1")), Step::Rest(Wait::Poll)];
    assert_eq!(adopted.steps, steps);
    assert_eq!(adopted.said(), "Booked True/Booked True/UpToDate");
    // If the process dies after the adoption, the next one finds the ticket's own booking, and removes the annotation.
    let again = poll(&adopting, [confirmed()]);
    assert_eq!(again.steps[1..], [noted(Some("BK-1")), Step::Rest(Wait::Poll)]);
    // Also if the process dies between the two writes: then the status is missing, but not the annotation.
    let noted_only = FlightTicket { status: adopting.status.clone(), ..adopted.stored(&adopting) };
    assert_eq!(poll(&noted_only, [confirmed()]).said(), "Booked True/Booked True/UpToDate");
    // A copy of the object does not take the booking over.
    let copy = patched(&noted_only, &json!({"metadata": {"uid": "copy"}}));
    assert_eq!(poll(&copy, [confirmed()]).said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
}

#[test]
fn only_the_named_booking_is_adopted() {
    let spec = json!({"spec": {"managementPolicy": "Observe"}, "metadata": {"annotations": {BOOKING_ID: "BK-1"}}});
    let observing = samples::with(&spec);
    let seen = poll(&observing, [of_another(State::Confirmed, Some("default"))]).stored(&observing);
    let patch = json!({
        "metadata": {"generation": 2, "annotations": {BOOKING_ID: "BK-2", ADOPT: "true"}},
        "spec": {"managementPolicy": "Manage"},
    });
    let step = Course::of(&patched(&seen, &patch), SoFar::default()).step();
    assert_eq!(step, Step::Ask(Request::Get { id: "BK-2".to_owned() }));

    // A ticket with a booking of its own keeps it, and says so.
    let other = patched(&booked(), &json!({"metadata": {"annotations": {BOOKING_ID: "BK-2", ADOPT: "true"}}}));
    let kept = poll(&other, [confirmed()]);
    assert_eq!(kept.steps[1..], [noted(Some("BK-1")), Step::Rest(Wait::Poll)]);
    let words = "Booking BK-2 is not taken over, because the ticket has booking BK-1";
    assert_eq!(kept.events, [Event::warning("AdoptionRefused", words)]);
}

/// A ticket keeps the booking that it has. Its user did not ask to take the other one over.
#[test]
fn name_of_another_booking_is_reverted_with_a_warning() {
    let named = |id: &str| patched(&booked(), &json!({"metadata": {"annotations": {BOOKING_ID: id}}}));
    for (name, shown) in [("BK-2", "BK-2"), ("../admin", "../admin"), ("BK\n2", "BK 2"), ("", "")] {
        let renamed = named(name);
        let kept = poll(&renamed, [confirmed()]);
        assert_eq!(kept.steps[1..], [noted(Some("BK-1")), Step::Rest(Wait::Poll)], "{name:?}");
        let words = format!(
            "Reverted annotation flights.com/booking-id from \"{shown}\" to \"BK-1\", the booking of this FlightTicket; another \
             trip needs a FlightTicket of its own"
        );
        assert_eq!(kept.events, [Event::warning("BookingIdReverted", words)]);
        assert_eq!(poll(&kept.stored(&renamed), [confirmed()]).events, [], "the name is the ticket's own again");
    }
    let asking = patched(&named("../admin"), &json!({"metadata": {"annotations": {ADOPT: "true"}}}));
    assert_eq!(
        poll(&asking, [confirmed()]).reasons(),
        ["BookingIdReverted"],
        "there is no booking of this name to take over"
    );
    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    // Also a name under which the provider knows no booking, if the ticket turns out to have one.
    let mistyped = samples::with(&json!({"metadata": {"annotations": {BOOKING_ID: "BK-9"}}}));
    let standing = Outcome::Standing(Standing { state: State::Confirmed, booking_id: Some("BK-1".to_owned()) });
    let found = poll_after(&mistyped, missing, [refused(Why::Missing), standing, confirmed()]);
    assert_eq!(found.reasons(), ["BookingIdReverted", "Booked"]);

    // An id that the status shows too is a note of the operator, and a removed annotation names nothing.
    let second = Outcome::Booking(Booking { id: "BK-2".to_owned(), ..booking(State::Confirmed) });
    let now_second = Outcome::Standing(Standing { state: State::Confirmed, booking_id: Some("BK-2".to_owned()) });
    let changed = poll_after(&booked(), missing, [refused(Why::Missing), now_second, second]);
    assert_eq!(changed.reasons(), ["Booked"]);
    let unnamed = FlightTicket { status: booked().status, ..samples::seed() };
    let noted_again = poll(&unnamed, [confirmed()]);
    assert_eq!((noted_again.steps.len(), noted_again.events), (3, vec![]));
}

/// The ticket has no booking that it keeps: the operator buys another one, or leaves the decision to the user.
#[test]
fn name_that_replaces_a_cancelled_booking_is_not_reported_as_reverted() {
    let cancelled = || Outcome::Booking(booking(State::Cancelled));
    let named = json!({"metadata": {"annotations": {BOOKING_ID: "BK-2"}}});
    let never = patched(&booked(), &named);
    assert_eq!(poll(&never, [cancelled()]).reasons(), ["BookingCancelledExternally"]);
    let always = patched(&never, &json!({"spec": {"rebookPolicy": "Always"}}));
    let next = Booking { id: "BK-3".to_owned(), reference: format!("{}.1", samples::UID), ..booking(State::Confirmed) };
    let anew = poll(&always, [cancelled(), closed("BK-1"), Outcome::Booking(next)]);
    assert_eq!(
        (anew.ops(), anew.reasons()),
        (vec!["get", "cancel", "create"], vec!["BookingCancelledExternally", "Booked"])
    );
    // The ticket keeps a booking that the provider has not confirmed.
    for state in [State::Pending, State::Other("ON_HOLD".to_owned())] {
        let kept = poll(&never, [Outcome::Booking(booking(state))]);
        assert!(kept.reasons().contains(&"BookingIdReverted"), "{:?}", kept.reasons());
    }
    // A request to take a booking over has an answer in any case.
    let adopting = patched(&never, &json!({"metadata": {"annotations": {ADOPT: "true"}}}));
    assert!(poll(&adopting, [cancelled()]).reasons().contains(&"AdoptionRefused"));
}

/// Neither the uid of the other object nor its namespace is shown.
#[test]
fn booking_of_another_namespace_is_not_adopted() {
    for namespace in [Some("victim"), Some(""), None] {
        let refused = poll(&adopting(), [of_another(State::Confirmed, namespace)]);
        assert_eq!(refused.ops(), ["get"], "{namespace:?}");
        assert_eq!(refused.said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
        let words = "Booking BK-1 belongs to no FlightTicket of this namespace, and cannot be taken over from here";
        assert_eq!(refused.update.external().ready.message, words);
        assert_eq!(poll(&refused.stored(&adopting()), []).wait(), Wait::Change);
    }
}

#[test]
fn refused_adoption_shows_only_the_code_of_the_provider() {
    for why in [Why::Taken, Why::Fixed, Why::Invalid] {
        // A lookup finds nothing under the ticket's reference, which is closed.
        let lookup =
            (why == Why::Taken).then_some(Outcome::Standing(Standing { state: State::Cancelled, booking_id: None }));
        let answers = [of_another(State::Confirmed, Some("default")), refused(why)];
        let taken = poll(&adopting(), answers.into_iter().chain(lookup));
        assert_eq!(taken.said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
        let words = "Booking BK-1 cannot be taken over: the provider answers CODE";
        assert_eq!(taken.update.external().ready.message, words);
    }
    let over = poll(&adopting(), [of_another(State::Cancelled, Some("default"))]);
    assert_eq!(over.update.external().ready.message, "Booking BK-1 belongs to another FlightTicket, and is cancelled");
}

/// The provider's words about a booking that a user names may be for another tenant.
#[test]
fn forbidden_request_shows_the_words_of_the_provider_only_for_an_own_booking() {
    let named = json!({"metadata": {"annotations": {BOOKING_ID: "BK-1"}}});
    let observed = json!({"metadata": named["metadata"], "spec": {"managementPolicy": "Observe"}});
    let looked_up = Outcome::Standing(Standing { state: State::Confirmed, booking_id: Some("BK-1".to_owned()) });
    let observing = samples::with(&json!({"spec": {"managementPolicy": "Observe"}}));
    let forbidden = || refused(Why::Forbidden);
    for (ticket, answers, op, words) in [
        (samples::seed(), vec![forbidden()], "create", "CODE: words"),
        (booked(), vec![forbidden()], "get", "CODE: words"),
        (observing.clone(), vec![forbidden()], "lookup", "CODE: words"),
        (observing, vec![looked_up, forbidden()], "get", "CODE"),
        (samples::with(&named), vec![forbidden()], "get", "CODE"),
        (samples::with(&observed), vec![forbidden()], "get", "CODE"),
        (adopting(), vec![of_another(State::Confirmed, Some("default")), forbidden()], "adopt", "CODE"),
    ] {
        let poll = poll(&ticket, answers);
        let shown = poll.update.external().ready.message;
        let message =
            format!("The provider forbids the operation {op} for this ticket: {words}; trying again every 5m");
        assert_eq!((&shown, poll.wait()), (&message, Wait::Forbidden));
        assert_eq!(poll.events, [Event::warning("BookingForbidden", message)]);
    }
}

/// The same for answers that decide nothing: to an error of the server, to a code that the API lacks, and about another booking.
#[test]
fn answer_that_is_not_understood_shows_the_words_of_the_provider_only_for_an_own_booking() {
    let named = json!({"metadata": {"annotations": {BOOKING_ID: "BK-1"}}});
    let observed = json!({"metadata": named["metadata"], "spec": {"managementPolicy": "Observe"}});
    let problem = json!({"code": "OTHER", "detail": "words"});
    let other =
        json!({"id": "words", "reference": "a", "from": "a", "to": "b", "number": 1, "state": "a", "version": 1});
    let so_far = SoFar { failures: FAILURES_TO_REPORT, ..SoFar::default() };
    for (status, body, why, words) in [
        (409_u16, &problem, "the answer is 409", ": OTHER: words"),
        (500, &problem, "the answer is 500", ": OTHER: words"),
        (200, &other, "cannot read the answer with status 200", ": it describes booking words"),
    ] {
        let answered = || {
            let body = Bytes::from(body.to_string());
            let answer = http::Response::builder().status(status).body(body).expect("an answer");
            wire::outcome(&Request::Get { id: "BK-1".to_owned() }, &answer, now())
        };
        for (ticket, answers, op, words) in [
            (booked(), vec![answered()], "get", words),
            (samples::with(&named), vec![answered()], "get", ""),
            (samples::with(&observed), vec![answered()], "get", ""),
            (adopting(), vec![of_another(State::Confirmed, Some("default")), answered()], "adopt", ""),
        ] {
            let poll = poll_after(&ticket, so_far, answers);
            let External { ready, synced, .. } = poll.update.external();
            let message = format!("{op}: {why}{words}");
            assert_eq!((&ready.message, &synced.message), (&message, &message));
            assert!(poll.events.iter().all(|event| !format!("{event:?}").contains("words") || !words.is_empty()));
        }
    }
}

/// A user may annotate any id, also with `rebookPolicy: Always`.
#[test]
fn annotated_booking_that_is_missing_is_never_replaced() {
    let named = json!({"metadata": {"annotations": {BOOKING_ID: "BK-1"}}, "spec": {"rebookPolicy": "Always"}});
    let ticket = samples::with(&named);
    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    let cancelled = Outcome::Standing(Standing { state: State::Cancelled, booking_id: None });
    for answer in [refused(Why::Missing), cancelled] {
        let poll = poll_after(&ticket, missing, [refused(Why::Missing), answer]);
        assert_eq!(poll.ops(), ["get", "lookup"]);
        assert_eq!(poll.said(), "Cancelled False/BookingNotFound False/NotBooked for good");
    }
}

/// The provider says that the booking was the ticket's own, but the status does not. The user decides.
#[test]
fn annotated_booking_that_is_cancelled_is_replaced_only_at_request() {
    let named = json!({"metadata": {"annotations": {BOOKING_ID: "BK-1"}}, "spec": {"rebookPolicy": "Always"}});
    let ticket = samples::with(&named);
    let cancelled = || Outcome::Booking(booking(State::Cancelled));
    let own = poll(&ticket, [cancelled()]);
    assert_eq!(own.said(), "Cancelled False/BookingCancelledExternally False/NotBooked for good");
    let shown = own.stored(&ticket);
    assert_eq!(poll(&shown, []).wait(), Wait::Change);
    let requested = patched(&shown, &json!({"metadata": {"annotations": {RETRY: "1"}}}));
    let next = Booking { id: "BK-2".to_owned(), reference: format!("{}.1", samples::UID), ..booking(State::Confirmed) };
    let anew = poll(&requested, [cancelled(), closed("BK-1"), Outcome::Booking(next)]);
    assert_eq!(anew.ops(), ["get", "cancel", "create"]);
    // After an adoption whose answer was lost, the status shows no booking of the ticket's own either.
    let adopting = patched(&adopting(), &json!({"spec": {"rebookPolicy": "Always"}}));
    let adopted = poll(&adopting, [of_another(State::Confirmed, Some("default")), cancelled()]);
    assert_eq!(adopted.ops(), ["get", "adopt"]);
    // A new value of `retry` is for the status as it was.
    let held = poll(&ticket, [of_another(State::Confirmed, Some("default"))]).stored(&ticket);
    let retried = patched(&held, &json!({"metadata": {"annotations": {RETRY: "1"}}}));
    assert_eq!(poll(&retried, [Outcome::Booking(booking(State::Rejected))]).ops(), ["get"]);
}

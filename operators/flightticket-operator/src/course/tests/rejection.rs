//! Bookings that the airline has rejected, and references under which another trip is booked.

use super::*;

fn rejected() -> Outcome {
    Outcome::Booking(booking(State::Rejected))
}

/// A ticket whose booking the airline has rejected.
fn ticket() -> FlightTicket {
    let seed = samples::seed();
    poll(&seed, [rejected()]).stored(&seed)
}

fn standing(state: State, id: &str) -> Outcome {
    Outcome::Standing(Standing { state, booking_id: Some(id.to_owned()) })
}

fn second(state: State) -> Booking {
    Booking { id: "BK-2".to_owned(), ..booking(state) }
}

/// The ids and the requests to adopt that a poll has written to the annotations.
fn notes(poll: &PollResult) -> Vec<&Claim> {
    poll.steps.iter().filter_map(|step| if let Step::Note(claim) = step { Some(claim) } else { None }).collect()
}

/// The reference of its rejected booking is free.
#[test]
fn rejected_ticket_takes_over_the_booking_that_its_user_names_and_buys_none() {
    let named = json!({"metadata": {"annotations": {BOOKING_ID: "BK-2", ADOPT: "true"}}});
    let theirs = || Outcome::Booking(Booking { reference: "other".to_owned(), ..second(State::Confirmed) });
    let asking = patched(&ticket(), &named);
    let adopted = poll(&asking, [rejected(), theirs(), Outcome::Booking(second(State::Confirmed))]);
    assert_eq!(
        (adopted.ops(), adopted.said().as_str()),
        (vec!["get", "get", "adopt"], "Booked True/Booked True/UpToDate")
    );
    // Only the write that records the booking removes the request.
    assert_eq!(notes(&adopted), [&Claim { id: Some("BK-2".to_owned()), adopt: None }]);
    let lost = poll(&asking, [rejected(), theirs(), unknown()]);
    assert_eq!((notes(&lost), lost.wait()), (vec![], Wait::Trouble(None)));
    let found = poll(&lost.stored(&asking), [Outcome::Booking(second(State::Confirmed))]);
    assert_eq!(found.said(), "Booked True/Booked True/UpToDate");

    // The airline rejects the booking while the user names the other one.
    let seed = samples::seed();
    let pending = poll(&seed, [Outcome::Booking(booking(State::Pending))]).stored(&seed);
    let meanwhile =
        poll(&patched(&pending, &named), [rejected(), theirs(), Outcome::Booking(second(State::Confirmed))]);
    assert_eq!(meanwhile.ops(), ["get", "get", "adopt"]);

    // To name a booking is not to take it over, and not to buy one either.
    let only_named = json!({"metadata": {"generation": 2, "annotations": {BOOKING_ID: "BK-2"}}});
    let held = poll(&patched(&ticket(), &only_named), [rejected(), theirs()]);
    assert_eq!((held.ops(), notes(&held)), (vec!["get", "get"], vec![]));
    assert_eq!(held.said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
}

/// A poll that meets a booking which the user names buys none, whatever has become of that booking. Nor does a later poll.
#[test]
fn rejected_ticket_that_names_an_ended_booking_buys_none() {
    let named = |ticket: &FlightTicket, id: &str| {
        patched(ticket, &json!({"metadata": {"annotations": {BOOKING_ID: id, ADOPT: "true"}}}))
    };
    let seed = samples::with(&json!({"spec": {"rebookPolicy": "Always"}}));
    let kept = |ticket: &FlightTicket, answers: Vec<Outcome>, said: &str| {
        let count = answers.len();
        let kept = poll(ticket, answers);
        assert_eq!((kept.ops(), kept.said().as_str()), (vec!["get"; count], said));
        kept.stored(ticket)
    };
    let replaced = "Cancelled False/BookingCancelledExternally False/NotBooked for good";

    // The one of an earlier attempt, which was lost.
    let reference = format!("{}.1", samples::UID);
    let waiting = patched(&seed, &json!({"status": {"attempt": 1, "reference": reference.clone()}}));
    let third = || {
        let booking = booking(State::Rejected);
        Outcome::Booking(Booking { id: "BK-3".to_owned(), reference: reference.clone(), ..booking })
    };
    let lost = || Outcome::Booking(booking(State::Cancelled));
    let after_third = poll(&waiting, [third()]).stored(&waiting);
    let shown = kept(&named(&after_third, "BK-1"), vec![third(), lost()], replaced);
    kept(&patched(&shown, &json!({"metadata": {"annotations": {RETRY: "1"}}})), vec![lost()], replaced);
    // Also after another one, which is not taken over.
    let theirs =
        Outcome::Booking(Booking { id: "BK-9".to_owned(), reference: "other".to_owned(), ..booking(State::Cancelled) });
    let held = "Rejected False/BookingHeldByAnother False/NotBooked for good";
    let shown = kept(&named(&after_third, "BK-9"), vec![third(), theirs], held);
    kept(&named(&shown, "BK-1"), vec![lost()], replaced);

    // One that the airline has rejected before.
    let after_second = poll(&seed, [Outcome::Booking(second(State::Rejected))]).stored(&seed);
    let answers = vec![Outcome::Booking(second(State::Rejected)), rejected()];
    kept(&named(&after_second, "BK-1"), answers, "Rejected False/BookingRejected False/NotBooked for good");

    // One that a late request has made, and that the airline has cancelled.
    let after_first = poll(&seed, [rejected()]).stored(&seed);
    kept(&named(&after_first, "BK-2"), vec![rejected(), Outcome::Booking(second(State::Cancelled))], replaced);
}

/// The user asks to adopt before naming a booking. That is no request to buy one.
#[test]
fn rejected_ticket_that_asks_to_adopt_without_a_name_buys_none() {
    let asking = patched(&ticket(), &json!({"metadata": {"annotations": {ADOPT: "true"}}}));
    let told = poll(&asking, [rejected()]);
    assert_eq!(
        (told.ops(), told.said().as_str()),
        (vec!["get"], "Rejected False/BookingRejected False/NotBooked for good")
    );
    assert_eq!(notes(&told), [&Claim { id: Some("BK-1".to_owned()), adopt: None }]);
    let words = "flights.com/booking-id names no other booking to take over";
    assert_eq!(told.events, [Event::warning("AdoptionRefused", words)]);
    let later =
        patched(&told.stored(&asking), &json!({"metadata": {"annotations": {BOOKING_ID: "BK-2", ADOPT: "true"}}}));
    let theirs = Outcome::Booking(Booking { reference: "other".to_owned(), ..second(State::Confirmed) });
    let adopted = poll(&later, [rejected(), theirs, Outcome::Booking(second(State::Confirmed))]);
    assert_eq!((adopted.ops(), adopted.events.len()), (vec!["get", "get", "adopt"], 1));
}

/// The airline rejects the booking while the annotation names another one, or the ticket was paused when its user named that.
#[test]
fn rejected_ticket_keeps_the_name_of_another_booking() {
    let only_named = json!({"metadata": {"annotations": {BOOKING_ID: "BK-2"}}});
    let seed = samples::seed();
    let pending = poll(&seed, [Outcome::Booking(booking(State::Pending))]).stored(&seed);
    let resumed = patched(&ticket(), &json!({"status": {"conditions": []}}));
    for ticket in [pending, resumed] {
        let theirs = Outcome::Booking(Booking { reference: "other".to_owned(), ..second(State::Confirmed) });
        let held = poll(&patched(&ticket, &only_named), [rejected(), theirs]);
        assert_eq!((held.ops(), notes(&held)), (vec!["get", "get"], vec![]));
        assert_eq!(held.said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
    }
}

/// A named booking that does not exist leads to no purchase, and to no endless search.
#[test]
fn rejected_ticket_that_names_a_missing_booking_buys_none() {
    let named = json!({"metadata": {"annotations": {BOOKING_ID: "BK-2", ADOPT: "true"}}});
    let asking = patched(&ticket(), &named);
    let soon = poll(&asking, [rejected(), refused(Why::Missing)]);
    assert_eq!((soon.ops(), soon.wait()), (vec!["get", "get"], Wait::Missing));
    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    let answers = [refused(Why::Missing), standing(State::Rejected, "BK-1")];
    let later = poll_after(&soon.stored(&asking), missing, answers);
    assert_eq!(later.ops(), ["get", "lookup"]);
    assert_eq!(later.said(), "Cancelled False/BookingNotFound False/NotBooked for good");
}

/// A late request has booked under the reference after the rejection.
#[test]
fn rejected_ticket_finds_a_booking_that_a_late_request_has_made() {
    let ticket = ticket();
    let found = poll(&ticket, [standing(State::Confirmed, "BK-2"), Outcome::Booking(second(State::Confirmed))]);
    assert_eq!((found.ops(), found.said().as_str()), (vec!["lookup", "get"], "Booked True/Booked True/UpToDate"));
    assert_eq!(notes(&found), [&Claim { id: Some("BK-2".to_owned()), adopt: None }]);

    // Any other answer leaves the status as it is.
    let (why, words) = ("the answer is 503".to_owned(), String::new());
    let busy = Outcome::Unknown(Unknown { why, words, retry_after: Some(Duration::from_secs(1)), answered: false });
    for (answers, wait) in [
        (vec![standing(State::Rejected, "BK-1")], Wait::Poll),
        (vec![standing(State::Cancelled, "BK-2")], Wait::Poll),
        (vec![refused(Why::Missing)], Wait::Poll),
        (vec![refused(Why::Credentials)], Wait::Poll),
        (vec![unknown()], Wait::Poll),
        (vec![busy], Wait::PollNotBefore(Duration::from_secs(1))),
        (vec![standing(State::Pending, "BK-2"), refused(Why::Missing)], Wait::Poll),
        (vec![standing(State::Pending, "BK-2"), of_another(State::Confirmed, Some("default"))], Wait::Poll),
    ] {
        let polled = poll_after(&ticket, SoFar { failures: 5, ..SoFar::default() }, answers.clone());
        assert_eq!((&polled.update, polled.wait()), (&StatusUpdate::stored(&ticket), wait), "{answers:?}");
        assert_eq!((notes(&polled), polled.reasons()), (vec![], vec![]), "{answers:?}");
    }
}

/// The user names another booking meanwhile, which cannot get a reference that has one.
#[test]
fn ticket_that_cannot_take_over_a_booking_finds_the_one_that_a_late_request_has_made() {
    let named = json!({"metadata": {"annotations": {BOOKING_ID: "BK-9", ADOPT: "true"}}});
    let asking = patched(&ticket(), &named);
    let refused_adoption = || {
        let theirs = Booking { id: "BK-9".to_owned(), reference: "other".to_owned(), ..booking(State::Confirmed) };
        vec![rejected(), Outcome::Booking(theirs), refused(Why::Taken)]
    };
    let late = [standing(State::Confirmed, "BK-2"), Outcome::Booking(second(State::Confirmed))];
    let found = poll(&asking, refused_adoption().into_iter().chain(late));
    assert_eq!(found.ops(), ["get", "get", "adopt", "lookup", "get"]);
    assert_eq!(found.said(), "Booked True/Booked True/UpToDate");
    assert_eq!(found.reasons(), ["AdoptionRefused", "Booked"]);
    for answer in
        [standing(State::Cancelled, "BK-2"), standing(State::Rejected, "BK-1"), refused(Why::Missing), unknown()]
    {
        let held = poll(&asking, refused_adoption().into_iter().chain([answer.clone()]));
        assert_eq!(held.said(), "Rejected False/BookingHeldByAnother False/NotBooked for good", "{answer:?}");
        assert_eq!(poll(&held.stored(&asking), []).wait(), Wait::Change, "{answer:?}");
    }
}

/// A ticket that only observes looks there too, unless a user names the rejected booking.
#[test]
fn observed_rejected_booking_gives_way_to_a_later_one() {
    let mut observing =
        patched(&ticket(), &json!({"metadata": {"generation": 2}, "spec": {"managementPolicy": "Observe"}}));
    let named = poll(&observing, [rejected()]);
    assert_eq!((named.ops(), named.wait()), (vec!["get"], Wait::Poll));
    observing.metadata.annotations = None;
    let later = [standing(State::Confirmed, "BK-2"), Outcome::Booking(second(State::Confirmed))];
    let found = poll(&observing, [rejected()].into_iter().chain(later));
    assert_eq!((found.ops(), found.update.status.booking_id.as_deref()), (vec!["get", "lookup", "get"], Some("BK-2")));
    for answers in
        [vec![rejected(), standing(State::Rejected, "BK-1"), rejected()], vec![rejected(), refused(Why::Missing)]]
    {
        assert_eq!(poll(&observing, answers).said(), "Rejected False/BookingRejected False/NotBooked");
    }
    // An outage hides no answer that the provider has given.
    let failed =
        poll_after(&observing, SoFar { failures: FAILURES_TO_REPORT, ..SoFar::default() }, [rejected(), unknown()]);
    assert_eq!((failed.said().as_str(), failed.wait()), ("Rejected False/BookingRejected False/NotBooked", Wait::Poll));
}

/// The provider loses the booking of a retry. The annotation still names it, but as the operator has noted it, not as its user has.
#[test]
fn rejected_ticket_whose_later_booking_is_lost_can_be_retried() {
    let retry =
        |ticket: &FlightTicket, value: &str| patched(ticket, &json!({"metadata": {"annotations": {RETRY: value}}}));
    let first = retry(&ticket(), "1");
    let booked = poll(&first, [rejected(), Outcome::Booking(second(State::Confirmed))]);
    assert_eq!(booked.ops(), ["get", "create"]);
    let booked = booked.stored(&first);
    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    let lost = poll_after(&booked, missing, [refused(Why::Missing), standing(State::Rejected, "BK-1"), rejected()]);
    assert_eq!(
        (lost.ops(), lost.said().as_str()),
        (vec!["get", "lookup", "get"], "Rejected False/BookingRejected False/NotBooked for good")
    );
    let again = poll(&retry(&lost.stored(&booked), "2"), [rejected(), Outcome::Booking(second(State::Confirmed))]);
    assert_eq!(again.ops(), ["get", "create"]);
}

/// The ticket has taken over a booking for another trip, has got no answer, and names nothing any more.
#[test]
fn purchase_whose_reference_has_a_booking_of_another_trip_finds_that_booking() {
    let seed = samples::seed();
    let elsewhere = Outcome::Booking(Booking { to: "Oslo".to_owned(), ..booking(State::Confirmed) });
    let found = poll(&seed, [refused(Why::Taken), standing(State::Confirmed, "BK-1"), elsewhere]);
    assert_eq!(
        (found.ops(), found.said().as_str()),
        (vec!["create", "lookup", "get"], "Booked True/Booked False/Diverged")
    );
    assert_eq!(notes(&found), [&Claim { id: Some("BK-1".to_owned()), adopt: None }]);
    // The data of the provider lags: the next poll tries again.
    for answers in [
        vec![refused(Why::Taken), refused(Why::Missing)],
        vec![refused(Why::Taken), standing(State::Confirmed, "BK-1"), refused(Why::Missing)],
    ] {
        let lags = poll(&seed, answers);
        assert_eq!((lags.said().as_str(), lags.wait()), ("Rejected False/BookingRejected False/NotBooked", Wait::Poll));
        assert_eq!(Course::of(&lags.stored(&seed), SoFar::default()).step(), lags.steps[0]);
    }
}

/// The same for the purchase that replaces a lost booking, while the data of the provider lags: the purchase is not refused, so a
/// later poll finds the booking although the annotation names the lost one.
#[test]
fn purchase_whose_reference_has_a_booking_is_not_refused() {
    let reference = format!("{}.1", samples::UID);
    let waiting = samples::with(&json!({"status": {"attempt": 1, "reference": reference.clone()}}));
    let lags = poll(&waiting, [refused(Why::Taken), refused(Why::Missing)]).stored(&waiting);
    let named = patched(&lags, &json!({"metadata": {"annotations": {BOOKING_ID: "BK-1"}}}));
    let answers = [
        Outcome::Booking(booking(State::Cancelled)),
        closed("BK-1"),
        refused(Why::Taken),
        standing(State::Confirmed, "BK-2"),
        Outcome::Booking(Booking { reference, ..second(State::Confirmed) }),
    ];
    let found = poll(&named, answers);
    assert_eq!(found.ops(), ["get", "cancel", "create", "lookup", "get"]);
    assert_eq!(found.said(), "Booked True/Booked True/UpToDate");
}

#[test]
fn failed_request_does_not_lose_the_retry_of_a_rejected_booking() {
    let ticket = ticket();
    let retried = patched(&ticket, &json!({"metadata": {"annotations": {RETRY: "1"}}}));
    for failure in [unknown(), refused(Why::Credentials), refused(Why::Forbidden), refused(Why::Missing)] {
        let failed = poll(&retried, [failure.clone()]);
        assert!(!failed.update.external().stalled, "{failure:?}");
        let failed = failed.stored(&retried);
        assert_eq!(poll(&failed, [rejected(), confirmed()]).ops(), ["get", "create"], "{failure:?}");
        let adopting = patched(&failed, &json!({"metadata": {"annotations": {BOOKING_ID: "BK-2", ADOPT: "true"}}}));
        assert_eq!(poll(&adopting, [rejected(), refused(Why::Missing)]).ops(), ["get", "get"], "{failure:?}");
        // The user takes the retry back. The answer that was final is not so any more.
        let back = FlightTicket { metadata: ticket.metadata.clone(), ..failed };
        assert_eq!(Course::of(&back, SoFar::default()).step(), Step::Ask(Request::Get { id: "BK-1".to_owned() }));
    }
}

#[test]
fn retry_that_the_airline_rejects_at_once_is_the_only_one() {
    let seed = samples::seed();
    let refused = poll(&seed, [refused(Why::Invalid)]).stored(&seed);
    for (ticket, answers, ops) in
        [(refused, vec![rejected()], vec!["create"]), (ticket(), vec![rejected(), rejected()], vec!["get", "create"])]
    {
        let retried = patched(&ticket, &json!({"metadata": {"annotations": {RETRY: "1"}}}));
        let again = poll(&retried, answers);
        assert_eq!(
            (again.ops(), again.said().as_str()),
            (ops, "Rejected False/BookingRejected False/NotBooked for good")
        );
        let later = poll(&again.stored(&retried), [unknown()]);
        assert_eq!(later.ops(), ["lookup"]);
    }
}

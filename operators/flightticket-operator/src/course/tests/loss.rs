//! Bookings that are missing, cancelled or replaced.

use super::*;

#[test]
fn lost_booking_is_rebooked_only_by_policy() {
    let cancelled = || Outcome::Booking(booking(State::Cancelled));
    let never = poll(&booked(), [cancelled()]);
    assert_eq!(never.said(), "Cancelled False/BookingCancelledExternally False/NotBooked for good");
    assert_eq!(never.update.external().ready.message, "Booking BK-1 was cancelled by the provider");

    let always = patched(&booked(), &json!({"spec": {"rebookPolicy": "Always"}}));
    let next = Booking { id: "BK-2".to_owned(), reference: format!("{}.1", samples::UID), ..booking(State::Confirmed) };
    let anew = poll(&always, [cancelled(), closed("BK-1"), Outcome::Booking(next)]);
    // The operator closes the old reference, and stores the new one before it uses it.
    let [Step::Ask(Request::Get { .. }), Step::Ask(Request::Close { reference }), rest @ ..] = anew.steps.as_slice()
    else {
        panic!("{:?}", anew.steps)
    };
    assert_eq!(reference, samples::UID);
    let [forget, Step::Remember, Step::Ask(Request::Book(order)), note, Step::Rest(_)] = rest else {
        panic!("{rest:?}")
    };
    assert_eq!((forget, note), (&noted(None), &noted(Some("BK-2"))));
    assert_eq!(order.reference, format!("{}.1", samples::UID));
    assert_eq!(anew.update.status.attempt, 1);
    assert_eq!(anew.reasons(), ["BookingCancelledExternally", "Booked"]);

    // If the provider does not say that the reference is closed, there is no new booking.
    let open = Outcome::Standing(Standing { state: State::Confirmed, booking_id: Some("BK-1".to_owned()) });
    for (answer, wait) in [
        (unknown(), Wait::Trouble(None)),
        (open, Wait::Trouble(None)),
        (refused(Why::Forbidden), Wait::Forbidden),
        (refused(Why::Fixed), Wait::Change),
        (refused(Why::Missing), Wait::Change),
    ] {
        let kept = poll(&always, [cancelled(), answer.clone()]);
        assert_eq!((kept.ops(), kept.wait()), (vec!["get", "cancel"], wait), "{answer:?}");
        assert_eq!(kept.update.status.attempt, 0, "{answer:?}");
    }
    let fixed = poll(&always, [cancelled(), refused(Why::Fixed)]);
    assert_eq!(fixed.said(), "Cancelled False/BookingCancelledExternally False/NotBooked for good");
    let words = "Booking BK-1 was cancelled by the provider; not booked again, because the provider refuses to close \
                 its reference, under which a booking may still exist: CODE: words";
    assert_eq!(fixed.events, [Event::warning("BookingCancelledExternally", words)]);
    assert_eq!(poll(&fixed.stored(&always), []).wait(), Wait::Change);

    let often = patched(&always, &json!({"status": {"attempt": 10, "reference": format!("{}.10", samples::UID)}}));
    let last = Booking { reference: format!("{}.10", samples::UID), ..booking(State::Cancelled) };
    let end = poll(&often, [Outcome::Booking(last)]);
    assert_eq!(end.said(), "Cancelled False/BookingCancelledExternally False/NotBooked for good");
}

#[test]
fn missing_booking_is_tolerated_for_the_lag_period() {
    let ticket = booked();
    let standing = |state, id: Option<&str>| Outcome::Standing(Standing { state, booking_id: id.map(str::to_owned) });
    let missing = |seconds| SoFar { missing: Some(Duration::from_secs(seconds)), ..SoFar::default() };
    for so_far in [SoFar::default(), missing(59)] {
        let poll = poll_after(&ticket, so_far, [refused(Why::Missing)]);
        assert_eq!((poll.said().as_str(), poll.wait()), ("Booked True/Booked True/UpToDate", Wait::Missing));
    }
    for (found, said, wait) in [
        (standing(State::Confirmed, Some("BK-1")), "Booked True/Booked True/UpToDate", Wait::Missing),
        (
            standing(State::Cancelled, Some("BK-1")),
            "Cancelled False/BookingCancelledExternally False/NotBooked for good",
            Wait::Change,
        ),
        (standing(State::Cancelled, None), "Cancelled False/BookingNotFound False/NotBooked for good", Wait::Change),
        (refused(Why::Missing), "Cancelled False/BookingNotFound False/NotBooked for good", Wait::Change),
        (unknown(), "Booked True/Booked True/UpToDate", Wait::Trouble(None)),
    ] {
        let poll = poll_after(&ticket, missing(60), [refused(Why::Missing), found.clone()]);
        assert_eq!((poll.said().as_str(), poll.wait()), (said, wait), "{found:?}");
    }
}

/// A late request has written the annotation again. The purchase that the status stores may have happened, so it is repeated.
#[test]
fn stale_booking_annotation_skips_no_attempt() {
    let status = json!({"status": {"attempt": 1, "reference": format!("{}.1", samples::UID)}});
    let ticket = samples::with(&json!({"metadata": {"annotations": {BOOKING_ID: "BK-1"}}, "status": status["status"]}));
    let old = || Outcome::Booking(booking(State::Cancelled));
    let next = Booking { id: "BK-2".to_owned(), reference: format!("{}.1", samples::UID), ..booking(State::Confirmed) };
    let booked = poll(&ticket, [old(), closed("BK-1"), Outcome::Booking(next)]);
    assert_eq!((booked.ops(), booked.update.status.attempt), (vec!["get", "cancel", "create"], 1));
    let kept = poll(&ticket, [old(), refused(Why::Fixed)]);
    assert_eq!(kept.said(), "Rejected False/BookingRejected False/NotBooked for good");
}

/// The purchase that the status stores was refused, so the ticket names a booking and has nothing to repeat.
#[test]
fn stale_booking_annotation_repeats_no_refused_purchase() {
    let reference = format!("{}.1", samples::UID);
    let next = || {
        let booking = booking(State::Confirmed);
        Outcome::Booking(Booking { id: "BK-2".to_owned(), reference: reference.clone(), ..booking })
    };
    let old = || Outcome::Booking(booking(State::Cancelled));
    let named = |ticket: &FlightTicket| patched(ticket, &json!({"metadata": {"annotations": {BOOKING_ID: "BK-1"}}}));
    let waiting = samples::with(&json!({"status": {"attempt": 1, "reference": reference.clone()}}));
    let full = poll(&waiting, [refused(Why::NoSeats)]).stored(&waiting);

    let kept = poll(&named(&full), [old()]);
    assert_eq!(kept.ops(), ["get"]);
    assert_eq!(kept.said(), "Cancelled False/BookingCancelledExternally False/NotBooked for good");
    let mut free = kept.stored(&named(&full));
    assert_eq!(poll(&free, []).wait(), Wait::Change);
    free.metadata.annotations = None;
    assert_eq!(poll(&free, [next()]).ops(), ["create"], "without the annotation, the operator may book");

    let unsure = poll(&full, [unknown()]).stored(&full);
    let found = poll(&named(&unsure), [old(), closed("BK-1"), next()]);
    assert_eq!((found.ops(), found.update.status.attempt), (vec!["get", "cancel", "create"], 1), "it may have booked");
    assert!(!found.update.status.purchase_refused);
}

#[test]
fn booking_adopted_by_another_object_is_not_rebooked() {
    let moved = Outcome::Booking(Booking { reference: "other".to_owned(), ..booking(State::Confirmed) });
    assert_eq!(poll(&booked(), [moved]).said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
}

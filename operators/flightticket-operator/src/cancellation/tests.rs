use serde_json::{Value, json};

use super::*;
use crate::{
    booking::{State, Unknown},
    samples::{self, UID},
    ticket::FORCE_DELETE,
};

fn ticket(patch: &Value) -> FlightTicket {
    let mut whole = json!({"status": {"phase": "Booked", "bookingId": "BK-1", "reference": UID}});
    for (key, value) in patch.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    samples::with(&whole)
}

fn closed(id: Option<&str>) -> Outcome {
    Outcome::Standing(Standing { state: State::Cancelled, booking_id: id.map(str::to_owned) })
}

fn refused(why: Why) -> Outcome {
    Outcome::Refused(Refusal {
        why,
        code: "CODE".to_owned(),
        detail: "flown".to_owned(),
        status: 401,
        anonymous: false,
    })
}

fn unknown() -> Outcome {
    let words = String::new();
    Outcome::Unknown(Unknown { why: "no answer".to_owned(), words, retry_after: None, answered: false })
}

/// Runs a poll. Returns the references that it closed, and its result.
fn end(ticket: &FlightTicket, failures: u32, mut answer: impl FnMut(&str) -> Outcome) -> (Vec<String>, End) {
    let mut cancellation = Cancellation::of(ticket, SoFar { failures, missing: None }, None);
    let mut asked = Vec::new();
    while let Some(request) = cancellation.request() {
        let Request::Close { reference } = &request else { panic!("{request:?}") };
        asked.push(reference.clone());
        cancellation.handle(&request, answer(reference));
    }
    (asked, cancellation.end())
}

fn said(end: &End) -> String {
    match end {
        End::Finished(events) => events.iter().map(|event| event.message.as_str()).collect::<Vec<_>>().join("; "),
        End::Waiting(update, wait) => {
            let ready = update.external().ready;
            format!("{} {:?}/{} {wait:?}", update.status.phase, ready.status, ready.reason)
        }
    }
}

/// Every possible answer to the cancellation of a deleted ticket.
#[test]
fn every_cancellation_answer_has_its_result() {
    let of = |patch: Value, answer: Outcome| said(&end(&ticket(&patch), 2, |_| answer.clone()).1);
    assert_eq!(of(json!({}), closed(Some("BK-1"))), "Booking BK-1 cancelled");
    assert_eq!(of(json!({}), closed(None)), "", "there was none");
    assert_eq!(of(json!({}), refused(Why::Missing)), "Cancelling Some(false)/Cancelling Trouble(None)", "not closed");
    assert_eq!(of(json!({}), refused(Why::Fixed)), "Booking BK-1 cannot be cancelled: flown");
    assert_eq!(of(json!({}), refused(Why::Credentials)), "Cancelling Some(false)/AuthenticationFailed Credentials");
    assert_eq!(of(json!({}), refused(Why::Forbidden)), "Cancelling Some(false)/BookingForbidden Forbidden");
    let open = Outcome::Standing(Standing { state: State::Confirmed, booking_id: Some("BK-1".to_owned()) });
    assert_eq!(of(json!({}), open), "Cancelling Some(false)/Cancelling Trouble(None)", "it is not cancelled");
    assert_eq!(of(json!({}), unknown()), "Cancelling None/ProviderUnavailable Trouble(None)");
    let forced = json!({"annotations": {FORCE_DELETE: "true"}});
    assert_eq!(of(json!({"metadata": forced}), unknown()), "Booking BK-1 was left at the provider by force-delete");
    assert_eq!(of(json!({"metadata": forced}), refused(Why::Credentials)).split(' ').nth(2), Some("was"));
    assert_eq!(of(json!({"metadata": forced}), closed(Some("BK-1"))), "Booking BK-1 cancelled", "it tries first");
    let status = json!({"phase": "Cancelling", "bookingId": "BK-1", "reference": UID});
    let waiting = json!({"metadata": forced, "status": status});
    assert_eq!(of(waiting, closed(Some("BK-1"))), "Booking BK-1 cancelled", "the phase is no proof of a request");
    let first = end(&ticket(&json!({})), 0, |_| unknown()).1;
    assert_eq!(said(&first), "Cancelling Some(false)/Cancelling Trouble(None)");
}

#[test]
fn every_possibly_used_reference_is_closed() {
    let count = |patch: Value| end(&ticket(&patch), 0, |_| closed(None)).0.len();
    let third = json!({"phase": "Booked", "bookingId": "BK-1", "attempt": 2, "reference": format!("{UID}.2")});
    let (asked, _) = end(&ticket(&json!({"status": third})), 0, |_| closed(None));
    assert_eq!(asked, [format!("{UID}.2"), format!("{UID}.1"), UID.to_owned()]);
    assert_eq!(count(json!({})), 1);
    let wiped = json!({"phase": "Pending", "bookingId": null, "reference": null});
    assert_eq!(count(json!({"status": wiped})), 1, "with Never, only one reference was used");
    let noted = json!({"annotations": {BOOKING_ID: "BK-1"}});
    assert_eq!(count(json!({"status": wiped, "metadata": noted})), 11, "the status was wiped");
    assert_eq!(count(json!({"status": wiped, "spec": {"rebookPolicy": "Always"}})), 11);
    let forged = json!({"phase": "Booked", "attempt": 100_000, "reference": UID});
    assert_eq!(count(json!({"status": forged})), 11, "there are no more attempts");
    // An unknown outcome ends the poll. The next one closes all references.
    assert_eq!(end(&ticket(&json!({"status": third})), 0, |_| unknown()).0.len(), 1);
}

/// The cluster may have been restored from a backup that is older than the last purchases.
#[test]
fn attempts_after_the_known_one_are_closed_until_one_has_no_booking() {
    let always = |attempt: u32| {
        let reference = if attempt == 0 { UID.to_owned() } else { format!("{UID}.{attempt}") };
        let status = json!({"phase": "Booked", "bookingId": "BK-0", "attempt": attempt, "reference": reference});
        ticket(&json!({"spec": {"rebookPolicy": "Always"}, "status": status}))
    };
    let (asked, result) = end(&always(0), 0, |reference| match reference.strip_prefix(UID) {
        Some("") => closed(Some("BK-0")),
        Some(".1") => closed(Some("BK-1")),
        _ => closed(None),
    });
    assert_eq!(asked, [UID.to_owned(), format!("{UID}.1"), format!("{UID}.2")]);
    assert_eq!(said(&result), "Booking BK-1 cancelled", "the other one was lost before");
    // The provider may have lost the first booking.
    assert_eq!(end(&always(0), 0, |_| closed(None)).0.len(), 2);
    assert_eq!(end(&always(10), 0, |_| closed(Some("BK-0"))).0.len(), 11, "there is no later attempt");
    for (generation, closes, what) in
        [(2, 1, "with Never, there is none"), (3, 2, "an edit may have changed the policy after the restore")]
    {
        let never = ticket(&json!({"metadata": {"generation": generation}}));
        assert_eq!(end(&never, 0, |_| closed(None)).0.len(), closes, "{what}");
    }
}

#[test]
fn retained_booking_causes_no_request() {
    let kept = ticket(&json!({"spec": {"deletionPolicy": "Retain"}}));
    let (asked, end) = end(&kept, 0, |_| panic!("asked"));
    assert_eq!((asked.len(), said(&end).as_str()), (0, "Booking BK-1 kept"));
}

#[test]
fn ticket_without_provider_stays_unless_force_deleted() {
    let without = |patch: Value| said(&Cancellation::of(&ticket(&patch), SoFar::default(), Some("none")).end());
    assert_eq!(without(json!({})), "Cancelling Some(false)/ProviderNotConfigured Change");
    let forced = json!({"metadata": {"annotations": {FORCE_DELETE: "true"}}});
    assert!(without(forced).contains("was left"));
    assert_eq!(without(json!({"spec": {"deletionPolicy": "Retain"}})), "Booking BK-1 kept");
}

/// The booking may belong to another object, or to a time when the ticket managed it. Only the latter is kept, because
/// nothing else would cancel it.
#[test]
fn ticket_that_observes_cancels_nothing() {
    for deletion_policy in ["Cancel", "Retain"] {
        let spec = json!({"managementPolicy": "Observe", "deletionPolicy": deletion_policy});
        for (reference, words) in [(UID, "Booking BK-1 kept"), ("other", "")] {
            let status = json!({"phase": "Booked", "bookingId": "BK-1", "reference": reference});
            let (asked, end) = end(&ticket(&json!({"spec": spec, "status": status})), 0, |_| closed(Some("BK-1")));
            assert_eq!((asked, said(&end).as_str()), (Vec::new(), words), "{deletion_policy} {reference}");
        }
    }
}

#[test]
fn postponed_deletion_keeps_what_an_earlier_poll_has_reported() {
    let postponed = |patch: Value| {
        let ticket = ticket(&patch);
        let cancellation = Cancellation::of(&ticket, SoFar::default(), None);
        assert!(cancellation.needs_provider());
        let update = cancellation.postponed();
        assert_eq!(update.status.settled, None);
        said(&End::Waiting(Box::new(update), Wait::Poll))
    };
    assert_eq!(postponed(json!({})), "Cancelling Some(false)/Cancelling Poll");
    let rejected = json!({"phase": "Rejected", "settled": "1-a"});
    assert_eq!(postponed(json!({"status": rejected})), "Cancelling Some(false)/Cancelling Poll");
    let ready = json!({
        "type": "Ready", "status": "Unknown", "reason": "ProviderUnavailable", "message": "",
        "lastTransitionTime": "2026-11-21T12:00:00Z",
    });
    let cancelling = json!({"phase": "Cancelling", "bookingId": "BK-1", "reference": UID, "conditions": [ready]});
    assert_eq!(postponed(json!({"status": cancelling})), "Cancelling None/ProviderUnavailable Poll");
    let kept = ticket(&json!({"spec": {"deletionPolicy": "Retain"}}));
    assert!(!Cancellation::of(&kept, SoFar::default(), None).needs_provider());
}

#[test]
fn booking_that_cannot_be_cancelled_is_told_instead_of_an_earlier_one() {
    let status = json!({"phase": "Booked", "bookingId": "BK-2", "attempt": 1, "reference": format!("{UID}.1")});
    let answer = |reference: &str| if reference == UID { closed(Some("BK-1")) } else { refused(Why::Fixed) };
    let (asked, end) = end(&ticket(&json!({"status": status})), 0, answer);
    assert_eq!((asked.len(), said(&end).as_str()), (2, "Booking BK-2 cannot be cancelled: flown"));
}

/// Without a booking of its own in the status, only an annotation names one, and only if the status shows none at all.
#[test]
fn annotation_names_the_booking_of_a_ticket_whose_status_was_wiped() {
    let wiped = json!({"phase": "Pending", "bookingId": null, "reference": null});
    let of_another = json!({"phase": "Booked", "bookingId": "BK-1", "reference": "other"});
    for (status, policy, words) in
        [(&wiped, "Manage", "Booking BK-9 kept"), (&wiped, "Observe", ""), (&of_another, "Manage", "")]
    {
        let spec = json!({"managementPolicy": policy, "deletionPolicy": "Retain"});
        let annotated = json!({"annotations": {BOOKING_ID: "BK-9"}});
        let ticket = ticket(&json!({"spec": spec, "status": status, "metadata": annotated}));
        assert_eq!(said(&end(&ticket, 0, |_| panic!("asked")).1), words, "{policy} {status}");
    }
}

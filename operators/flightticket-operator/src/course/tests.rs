//! Each test, or each line of a table in a test, is one situation with its required steps and status.

use manager::External;
use serde_json::{Value, json};

use super::{loss::LAG, *};
use crate::{
    booking::{Contact, Order},
    samples,
    ticket::{BOOKING_ID, RETRY},
};

mod adoption;
mod loss;
mod memory;
mod observation;
mod rejection;

fn booking(state: State) -> Booking {
    Booking {
        id: "BK-1".to_owned(),
        reference: samples::UID.to_owned(),
        from: "Mumbai".to_owned(),
        to: "London".to_owned(),
        number: 2,
        departure_date: None,
        cabin: Some("Economy".to_owned()),
        state,
        confirmation_code: Some("ABC123".to_owned()),
        version: 1,
        message: None,
        namespace: Some("default".to_owned()),
    }
}

fn contact() -> Contact {
    Contact { namespace: "default".to_owned(), name: "my-flight-ticket".to_owned() }
}

/// Returns the step that writes this id, and removes the annotation that adopts.
fn noted(id: Option<&str>) -> Step {
    Step::Note(Claim { id: id.map(str::to_owned), adopt: None })
}

/// A closed reference, whose booking had this id.
fn closed(id: &str) -> Outcome {
    Outcome::Standing(Standing { state: State::Cancelled, booking_id: Some(id.to_owned()) })
}

fn of_another(state: State, namespace: Option<&str>) -> Outcome {
    let namespace = namespace.map(str::to_owned);
    Outcome::Booking(Booking { reference: "other".to_owned(), namespace, ..booking(state) })
}

fn confirmed() -> Outcome {
    Outcome::Booking(booking(State::Confirmed))
}

fn refused(why: Why) -> Outcome {
    Outcome::Refused(Refusal {
        why,
        code: "CODE".to_owned(),
        detail: "words".to_owned(),
        status: 409,
        anonymous: false,
    })
}

fn unknown() -> Outcome {
    let words = String::new();
    Outcome::Unknown(Unknown { why: "no answer".to_owned(), words, retry_after: None, answered: false })
}

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().expect("a time")
}

/// The result of a poll.
#[derive(Debug)]
struct PollResult {
    steps: Vec<Step>,
    update: StatusUpdate,
    events: Vec<Event>,
}

impl PollResult {
    fn wait(&self) -> Wait {
        match self.steps.last() {
            Some(Step::Rest(wait)) => *wait,
            other => panic!("no rest: {other:?}"),
        }
    }

    /// Formats phase, `Ready` and `Synced`.
    fn said(&self) -> String {
        let External { ready, synced, stalled } = self.update.external();
        let word = |finding: &Finding| {
            let status = finding.status.map_or("Unknown", |status| if status { "True" } else { "False" });
            format!("{status}/{}", finding.reason)
        };
        let end = if stalled { " for good" } else { "" };
        format!("{} {} {}{end}", self.update.status.phase, word(&ready), word(&synced))
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.events.iter().map(|event| event.reason).collect()
    }

    /// Returns the operations that were requested, by their names in metrics.
    fn ops(&self) -> Vec<&'static str> {
        let op = |step: &Step| if let Step::Ask(request) = step { Some(request.op()) } else { None };
        self.steps.iter().filter_map(op).collect()
    }

    /// Returns the object as stored after the poll.
    fn stored(&self, ticket: &FlightTicket) -> FlightTicket {
        let mut status = self.update.status.clone();
        let External { ready, synced, .. } = self.update.external();
        status.conditions = [("Ready", ready), ("Synced", synced)]
            .map(|(type_, finding)| {
                let status = finding.status.map_or("Unknown", |it| if it { "True" } else { "False" });
                let condition = json!({
                    "type": type_, "status": status, "reason": finding.reason, "message": finding.message,
                    "lastTransitionTime": "2026-11-21T12:00:00Z",
                });
                serde_json::from_value(condition).expect("a condition")
            })
            .to_vec();
        let mut ticket = ticket.clone();
        for step in &self.steps {
            if let Step::Note(Claim { id, adopt }) = step {
                let annotations = ticket.metadata.annotations.get_or_insert_default();
                for (name, value) in [(BOOKING_ID, id), (ADOPT, adopt)] {
                    annotations.remove(name);
                    annotations.extend(value.clone().map(|value| (name.to_owned(), value)));
                }
            }
        }
        FlightTicket { status: Some(status), ..ticket }
    }
}

/// Runs a poll in which the provider gives these answers, one after the other.
fn poll_after(ticket: &FlightTicket, so_far: SoFar, answers: impl IntoIterator<Item = Outcome>) -> PollResult {
    let mut course = Course::of(ticket, so_far);
    let (mut answers, mut steps) = (answers.into_iter(), Vec::new());
    loop {
        let step = course.step();
        steps.push(step.clone());
        match step {
            Step::Ask(request) => {
                let answer = answers.next().unwrap_or_else(|| panic!("one request too many: {request:?}"));
                course.handle(request, answer, now());
            }
            Step::Note(_) | Step::Remember => {}
            Step::Rest(_) => break,
        }
    }
    assert_eq!(answers.next(), None, "{steps:?}");
    PollResult { steps, update: course.update().clone(), events: course.events() }
}

fn poll(ticket: &FlightTicket, answers: impl IntoIterator<Item = Outcome>) -> PollResult {
    poll_after(ticket, SoFar::default(), answers)
}

fn booked() -> FlightTicket {
    let seed = samples::seed();
    poll(&seed, [confirmed()]).stored(&seed)
}

fn patched(ticket: &FlightTicket, patch: &Value) -> FlightTicket {
    let mut object = serde_json::to_value(ticket).expect("JSON");
    json_patch(&mut object, patch);
    serde_json::from_value(object).expect("a FlightTicket")
}

fn json_patch(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                json_patch(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

#[test]
fn booking_uses_the_uid_and_is_annotated_before_the_status() {
    let poll = poll(&samples::seed(), [confirmed()]);
    let order = Order {
        reference: samples::UID.to_owned(),
        from: "Mumbai".to_owned(),
        to: "London".to_owned(),
        number: 2,
        departure_date: None,
        cabin: "Economy".to_owned(),
        contact: contact(),
    };
    assert_eq!(poll.steps, [Step::Ask(Request::Book(order)), noted(Some("BK-1")), Step::Rest(Wait::Poll)]);
    assert_eq!(poll.said(), "Booked True/Booked True/UpToDate");
    let status = &poll.update.status;
    assert_eq!((status.number, status.attempt, status.booked_at), (Some(2), 0, Some(now())));
    assert_eq!(poll.events, [Event::normal("Booked", "Booked 2 seat(s) Mumbai -> London: ABC123 (BK-1)")]);
}

/// Every possible answer to an order.
#[test]
fn every_order_answer_has_its_status_and_wait() {
    let seed = samples::seed();
    for (answer, said, wait, events) in [
        (
            refused(Why::Invalid),
            "Rejected False/BookingRejected False/NotBooked for good",
            Wait::Change,
            "BookingRejected",
        ),
        (
            refused(Why::Closed),
            "Cancelled False/BookingRejected False/NotBooked for good",
            Wait::Change,
            "BookingRejected",
        ),
        (refused(Why::NoSeats), "Pending False/InsufficientSeats False/NotBooked", Wait::Seats, "InsufficientSeats"),
        (
            refused(Why::Credentials),
            "Pending False/AuthenticationFailed Unknown/ProviderUnavailable",
            Wait::Credentials,
            "AuthenticationFailed",
        ),
        (
            refused(Why::Forbidden),
            "Pending False/BookingForbidden Unknown/ProviderUnavailable",
            Wait::Forbidden,
            "BookingForbidden",
        ),
        (unknown(), "Pending False/BookingPending False/NotBooked", Wait::Trouble(None), ""),
        (
            Outcome::Booking(booking(State::Pending)),
            "Pending False/BookingPending False/NotBooked",
            Wait::Unconfirmed,
            "",
        ),
        (
            Outcome::Booking(booking(State::Other("ON_HOLD".to_owned()))),
            "Pending False/BookingPending False/NotBooked",
            Wait::Unconfirmed,
            "",
        ),
        (
            Outcome::Booking(booking(State::Rejected)),
            "Rejected False/BookingRejected False/NotBooked for good",
            Wait::Poll,
            "BookingRejected",
        ),
        (
            Outcome::Booking(booking(State::Cancelled)),
            "Cancelled False/BookingCancelledExternally False/NotBooked for good",
            Wait::Change,
            "BookingCancelledExternally",
        ),
        (
            Outcome::Booking(Booking { reference: "other".to_owned(), ..booking(State::Confirmed) }),
            "Pending False/BookingPending False/NotBooked",
            Wait::Trouble(None),
            "",
        ),
    ] {
        let poll = poll(&seed, [answer.clone()]);
        assert_eq!((poll.said().as_str(), poll.wait()), (said, wait), "{answer:?}");
        assert_eq!(poll.reasons().join(" "), events, "{answer:?}");
        // The next poll repeats nothing.
        let again = poll.stored(&seed);
        if wait == Wait::Change {
            assert_eq!(Course::of(&again, SoFar::default()).step(), Step::Rest(Wait::Change));
        }
    }
}

#[test]
fn unknown_booking_state_is_reported() {
    let seed = samples::seed();
    let poll = poll(&seed, [Outcome::Booking(booking(State::Other("ON_HOLD".to_owned())))]);
    assert_eq!(poll.update.external().ready.message, "Booking BK-1 has the state ON_HOLD at the provider");
    let ticket = booked();
    let held = self::poll(&ticket, [Outcome::Booking(booking(State::Other("ON_HOLD".to_owned())))]);
    assert_eq!(held.said(), "Booked Unknown/ProviderUnavailable Unknown/ProviderUnavailable");
    assert_eq!(held.update.status.booking_id.as_deref(), Some("BK-1"));
}

#[test]
fn provider_outage_is_reported_at_the_third_failure() {
    let ticket = booked();
    for (failures, said) in [
        (0, "Booked True/Booked True/UpToDate"),
        (1, "Booked True/Booked True/UpToDate"),
        (2, "Booked Unknown/ProviderUnavailable Unknown/ProviderUnavailable"),
        (70, "Booked Unknown/ProviderUnavailable Unknown/ProviderUnavailable"),
    ] {
        let so_far = SoFar { failures, ..SoFar::default() };
        let poll = poll_after(&ticket, so_far, [unknown()]);
        assert_eq!((poll.said().as_str(), poll.wait()), (said, Wait::Trouble(None)), "{failures}");
        assert_eq!(poll.update.status.booking_id.as_deref(), Some("BK-1"));
        assert_eq!(poll.reasons(), if failures < 2 { vec![] } else { vec!["ProviderUnavailable"] });
        if failures > 2 {
            let back = self::poll(&poll.stored(&ticket), [confirmed()]);
            assert_eq!(back.said(), "Booked True/Booked True/UpToDate");
            assert_eq!(back.reasons(), Vec::<&str>::new(), "it was booked all the time, so there is no second event");
        }
    }
}

/// Every answer when the spec requests another number of seats.
#[test]
fn booked_seats_follow_the_spec() {
    let ticket = patched(&booked(), &json!({"metadata": {"generation": 2}, "spec": {"number": 4}}));
    let four = || Outcome::Booking(Booking { number: 4, version: 2, ..booking(State::Confirmed) });
    let done = poll(&ticket, [confirmed(), four()]);
    let modify = Request::Modify { id: "BK-1".to_owned(), version: 1, number: 4 };
    assert_eq!(done.steps[1], Step::Ask(modify));
    assert_eq!((done.said().as_str(), done.update.status.number), ("Booked True/Booked True/UpToDate", Some(4)));
    assert_eq!(done.events, [Event::normal("Modified", "Booking BK-1 changed from 2 to 4 seat(s)")]);

    let refusal = poll(&ticket, [confirmed(), refused(Why::NoSeats)]);
    assert_eq!(
        (refusal.said().as_str(), refusal.wait()),
        ("Booked True/Booked False/ModificationRejected", Wait::Seats)
    );
    assert_eq!(refusal.update.status.number, Some(2));
    let words = "Booking BK-1 stays at 2 seat(s): CODE: words";
    assert_eq!(refusal.events, [Event::warning("ModificationRejected", words)]);
    let again = poll(&refusal.stored(&ticket), [confirmed(), refused(Why::NoSeats)]);
    assert_eq!(again.update.external(), refusal.update.external(), "nothing to write");
    assert_eq!(again.events, []);

    let forbidden = poll(&ticket, [confirmed(), refused(Why::Forbidden)]);
    assert_eq!(
        (forbidden.said().as_str(), forbidden.wait()),
        ("Booked True/Booked False/ModificationRejected", Wait::Seats)
    );

    let fixed = poll(&ticket, [confirmed(), refused(Why::Fixed)]);
    assert_eq!((fixed.said().as_str(), fixed.wait()), ("Booked True/Booked False/ModificationRejected", Wait::Poll));

    let lost = poll(&ticket, [confirmed(), unknown()]);
    assert_eq!(lost.said(), "Modifying True/Booked False/ModificationPending");
    let found = poll(&lost.stored(&ticket), [four()]);
    assert_eq!(found.said(), "Booked True/Booked True/UpToDate");
    assert_eq!(found.reasons(), ["Modified"], "also when its answer was lost");

    let stale = poll(&ticket, [confirmed(), refused(Why::Stale), four()]);
    assert_eq!((stale.ops(), stale.wait()), (vec!["get", "modify", "get"], Wait::Poll));
}

#[test]
fn modification_loop_with_the_provider_is_bounded() {
    let ticket = patched(&booked(), &json!({"spec": {"number": 4}}));
    let poll = poll(&ticket, vec![confirmed(); MOST_REQUESTS as usize]);
    assert_eq!(poll.wait(), Wait::Trouble(None));
}

#[test]
fn diverged_booking_is_reported_and_never_changed() {
    let ticket = booked();
    for (theirs, words) in [
        (Booking { to: "Lisbon".to_owned(), ..booking(State::Confirmed) }, "Booking BK-1 is Mumbai -> Lisbon"),
        (
            Booking { departure_date: Some("2030-01-01".to_owned()), ..booking(State::Confirmed) },
            "Booking BK-1 is on 2030-01-01",
        ),
        (Booking { cabin: Some("First".to_owned()), ..booking(State::Confirmed) }, "Booking BK-1 is in First"),
    ] {
        let poll = poll(&ticket, [Outcome::Booking(theirs)]);
        assert_eq!((poll.said().as_str(), poll.wait()), ("Booked True/Booked False/Diverged", Wait::Poll));
        assert_eq!(poll.update.external().synced.message, words);
    }
    let same = Booking { from: "MUMBAI".to_owned(), cabin: None, ..booking(State::Confirmed) };
    assert_eq!(poll(&ticket, [Outcome::Booking(same)]).said(), "Booked True/Booked True/UpToDate");
}

/// The annotation survives a backup and restore that loses the status and changes the uid.
#[test]
fn annotated_object_finds_its_booking_and_buys_none() {
    let annotated = |more: Value| {
        let ticket = samples::with(&json!({"metadata": {"annotations": {BOOKING_ID: "BK-1"}}}));
        patched(&ticket, &json!({"metadata": {"annotations": more}}))
    };

    let ours = poll(&annotated(json!({})), [confirmed()]);
    assert_eq!((ours.ops(), ours.said().as_str()), (vec!["get"], "Booked True/Booked True/UpToDate"));
    assert_eq!(ours.reasons(), ["Booked"]);

    let held = poll(&annotated(json!({})), [of_another(State::Confirmed, Some("default"))]);
    assert_eq!(held.said(), "Rejected False/BookingHeldByAnother False/NotBooked for good");
    let words =
        "Booking BK-1 belongs to another FlightTicket; set annotation flights.com/adopt-booking=true to take it over";
    assert_eq!(held.update.external().ready.message, words);
    assert_eq!(held.update.status.booking_id, None);

    let missing = SoFar { missing: Some(LAG), ..SoFar::default() };
    let gone = poll_after(&annotated(json!({})), missing, [refused(Why::Missing), refused(Why::Missing)]);
    assert_eq!(gone.said(), "Cancelled False/BookingNotFound False/NotBooked for good");
    let mut free = gone.stored(&annotated(json!({})));
    free.metadata.annotations = None;
    assert_eq!(poll(&free, [confirmed()]).ops(), ["create"], "without the annotation, the operator may book");

    let odd = poll(&annotated(json!({BOOKING_ID: "../admin"})), []);
    assert_eq!(odd.said(), "Rejected False/BookingNotFound False/NotBooked for good");
}

/// The operator had no provider for a while.
#[test]
fn lack_of_a_provider_is_not_reported_once_there_is_one() {
    let without = |ticket: &FlightTicket| {
        let update = status::without_provider(ticket, "set --booking-url");
        PollResult { steps: Vec::new(), update, events: Vec::new() }.stored(ticket)
    };
    let pending = without(&samples::seed());
    assert_eq!(poll(&pending, [unknown()]).said(), "Pending False/BookingPending False/NotBooked");
    let held = without(&booked());
    assert_eq!(poll(&held, [unknown()]).said(), "Booked Unknown/ProviderUnavailable True/UpToDate");
    assert_eq!(poll(&held, [refused(Why::Missing)]).said(), "Booked Unknown/ProviderUnavailable True/UpToDate");
    assert_eq!(poll(&held, [confirmed()]).said(), "Booked True/Booked True/UpToDate");
    // A final answer stays final, and is still shown.
    let seed = samples::seed();
    let rejected = poll(&seed, [refused(Why::Invalid)]).stored(&seed);
    assert_eq!(without(&rejected).status, rejected.status);
    // An earlier version overwrote it.
    let not_configured = status::not_configured(&rejected, "set --booking-url");
    let overwritten = PollResult { steps: Vec::new(), update: not_configured, events: Vec::new() }.stored(&rejected);
    let again = poll(&overwritten, [refused(Why::Invalid)]);
    assert_eq!(again.said(), "Rejected False/BookingRejected False/NotBooked for good");
}

#[test]
fn rejected_order_is_retried_when_the_object_changes() {
    let seed = samples::seed();
    let rejected = poll(&seed, [refused(Why::Invalid)]).stored(&seed);
    assert_eq!(poll(&rejected, []).wait(), Wait::Change);
    for change in [
        json!({"metadata": {"generation": 2}}),
        json!({"metadata": {"annotations": {RETRY: "1"}}}),
        json!({"status": {"conditions": []}}),
    ] {
        assert_eq!(poll(&patched(&rejected, &change), [confirmed()]).ops(), ["create"], "{change}");
    }

    // The reference of a booking that the airline has rejected is free again.
    let refused_later = poll(&seed, [Outcome::Booking(booking(State::Rejected))]).stored(&seed);
    let retried = patched(&refused_later, &json!({"metadata": {"annotations": {RETRY: "1"}}}));
    let poll = poll(&retried, [Outcome::Booking(booking(State::Rejected)), confirmed()]);
    assert_eq!((poll.ops(), poll.said().as_str()), (vec!["get", "create"], "Booked True/Booked True/UpToDate"));
}

//! Decides the next step for a ticket from the provider's answers. Pure: the controller carries the steps out.
//!
//! Five rules give each ticket exactly one booking. A request is repeated until its outcome is known, always under the same reference. The
//! id of a booking is noted on the object before any step relies on it. A lost booking is replaced only when its reference is
//! closed and the next one is stored. A ticket that names a booking, and has none in its status, decides on no purchase; it only
//! repeats one that its status stores, unless that was refused. An answer that the API does not define decides nothing.

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;
use manager::{Event, Finding};

use crate::{
    FlightTicket,
    api::v1::Phase,
    booking::{Booking, Outcome, Refusal, Request, Standing, State, Unknown, Why},
    status::{self, StatusUpdate},
    ticket::{ADOPT, BOOKING_ID, Claim},
};

mod aim;
mod loss;
mod observation;
mod record;
mod rejection;

use aim::Aim;

/// A step that the controller carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send the request to the provider, and pass its outcome to [`Course::handle`].
    Ask(Request),
    /// Write the claim to the annotations of the object, in one request; `None` removes an annotation.
    Note(Claim),
    /// Write the status before the next step.
    Remember,
    /// Write the status, and end the poll. The wait determines the next one.
    Rest(Wait),
}

/// When the next poll is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// At the usual interval: nothing is left to do.
    Poll,
    /// The same, but not before this duration has passed: the provider has named it.
    PollNotBefore(Duration),
    /// Soon: the provider has not confirmed the booking yet.
    Unconfirmed,
    /// Later: seats may become free.
    Seats,
    /// Later: the administrator must correct the credentials.
    Credentials,
    /// Later: the provider may allow the request.
    Forbidden,
    /// After a back-off: the outcome of a request is unknown. Contains the provider's `Retry-After`, if any.
    Trouble(Option<Duration>),
    /// Soon: the provider does not find a known booking, perhaps because its data lags.
    Missing,
    /// When the user changes the object: the answer is final.
    Change,
}

/// What earlier polls in this process have counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoFar {
    /// Requests in a row with an unknown outcome.
    pub failures: u32,
    /// Since how long the provider has not found the booking.
    pub missing: Option<Duration>,
}

/// Failures in a row after which the conditions report the provider as unavailable.
pub const FAILURES_TO_REPORT: u32 = 3;
/// Maximum number of requests in one poll. More means that the provider undoes each change.
const MOST_REQUESTS: u32 = 12;

/// One poll of the provider for one ticket: the requests and writes of one reconcile.
#[derive(Debug)]
pub struct Course<'a> {
    ticket: &'a FlightTicket,
    so_far: SoFar,
    update: StatusUpdate,
    steps: VecDeque<Step>,
    events: Vec<Event>,
    requests: u32,
    /// The annotations about the booking after the steps so far.
    claim: Claim,
    /// Why the booking is lost, while the operator closes its reference to book again.
    loss: Option<Finding>,
    /// What this poll may do, and what it looks for.
    aim: Aim,
    /// Whether the booking in the status is the ticket's own, and not one that the ticket has only observed.
    is_own: bool,
}

impl<'a> Course<'a> {
    /// Begins a poll.
    pub fn of(ticket: &'a FlightTicket, so_far: SoFar) -> Self {
        let mut update = StatusUpdate::stored(ticket);
        update.forget_lack_of_provider();
        let mut course = Self {
            ticket,
            so_far,
            update,
            steps: VecDeque::new(),
            events: Vec::new(),
            requests: 0,
            claim: ticket.claim(),
            loss: None,
            aim: Aim::of(ticket),
            is_own: false,
        };
        if ticket.is_settled() && course.update.ready.is_some() {
            course.stay_settled();
            return course;
        }
        course.is_own = ticket.own_booking().is_some();
        if course.shows_another_than_named() {
            course.forget();
            (course.update.ready, course.update.synced) = (None, Some(status::not_booked()));
        } else if course.is_own || course.update.status.booking_id.is_none() {
            course.update.status.reference = Some(ticket.reference(course.update.status.attempt));
        }
        let tries_again = !ticket.observes() && ticket.is_retried();
        course.update.status.settled = tries_again.then(|| status::TRYING_AGAIN.to_owned());
        if ticket.observes() {
            course.observe();
        } else {
            course.begin();
        }
        course
    }

    /// Asks for the booking that the status shows, or else for the one that the ticket names. Buys one if there is neither.
    fn begin(&mut self) {
        let id = self.update.status.booking_id.clone().or_else(|| self.claim.booking().map(str::to_owned));
        match (id, self.claim.id.clone()) {
            (Some(id), _) => self.ask(Request::Get { id }),
            (None, Some(invalid)) => self.settle(Phase::Rejected, not_found(&invalid)),
            (None, None) => self.book(),
        }
    }

    /// Whether the status shows a booking that the annotation does not name any more. A ticket that manages a booking of its own
    /// keeps it, whatever the annotation says.
    fn shows_another_than_named(&self) -> bool {
        let (shown, named) = (self.update.status.booking_id.as_deref(), self.claim.booking());
        let follows_annotation = !self.is_own || (self.ticket.observes() && named.is_some());
        shown.is_some() && shown != named && follows_annotation
    }

    /// Returns the next step. The last one is a [`Step::Rest`].
    pub fn step(&mut self) -> Step {
        self.steps.pop_front().unwrap_or(Step::Rest(Wait::Poll))
    }

    /// Returns the status to write now.
    pub fn update(&self) -> &StatusUpdate {
        &self.update
    }

    /// Returns the events to emit after the status is written.
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.events.clone();
        events.extend(self.update.events(&StatusUpdate::stored(self.ticket), self.ticket));
        events
    }

    /// Returns the id of the ticket's own booking, if the stored status does not show it as the ticket's own yet.
    pub fn acquired(&self) -> Option<&str> {
        let is_ours = |reference: &String| self.ticket.attempt_of(reference).is_some();
        let stored = self.ticket.status.as_ref().filter(|it| it.reference.as_ref().is_some_and(is_ours));
        let id = self.update.status.booking_id.as_deref().filter(|_| self.is_own)?;
        (stored.and_then(|it| it.booking_id.as_deref()) != Some(id)).then_some(id)
    }

    /// Takes the outcome of a request, and adds the steps that follow from it.
    pub fn handle(&mut self, request: Request, outcome: Outcome, now: Timestamp) {
        match self.aim {
            Aim::Observe => self.observed(&request, outcome, now),
            Aim::SeekLaterBooking => self.later_booking_looked_up(outcome, now),
            Aim::LookAgain(_) => self.looked_again(outcome, now),
            Aim::Manage(_) | Aim::FindHolder(..) => self.managed(request, outcome, now),
        }
    }

    /// Handles an answer for a ticket that manages a booking.
    fn managed(&mut self, request: Request, outcome: Outcome, now: Timestamp) {
        match (request, outcome) {
            (request, Outcome::Unknown(unknown)) => self.trouble(&request, &unknown),
            (_, Outcome::Refused(refusal)) if refusal.why == Why::Credentials => self.no_credentials(&refusal),
            (Request::Modify { .. }, Outcome::Refused(refusal)) if refusal.why == Why::Forbidden => {
                self.not_modified(&refusal);
            }
            (request, Outcome::Refused(refusal)) if refusal.why == Why::Forbidden => self.forbidden(&request, &refusal),
            (Request::Close { reference }, Outcome::Standing(Standing { state: State::Cancelled, .. })) => {
                if self.update.status.reference.as_ref() == Some(&reference) {
                    self.book_again();
                } else {
                    self.forget_and_book();
                }
            }
            (Request::Close { .. }, Outcome::Refused(refusal)) => self.not_closed(&refusal),
            (_, Outcome::Standing(standing)) if self.seeks_holder() => self.holder_looked_up(standing),
            (_, Outcome::Refused(Refusal { why: Why::Missing, .. })) if self.seeks_holder() => self.still_taken(),
            (Request::Lookup { .. }, Outcome::Standing(standing)) => self.looked_up(standing),
            (Request::Lookup { .. }, Outcome::Refused(_)) => self.lost(not_found(&self.shown_id())),
            (request @ Request::Book(_), Outcome::Booking(booking)) => match self.ticket.attempt_of(&booking.reference)
            {
                Some(_) => self.found(&booking, now),
                None => self.misunderstood(&request),
            },
            (Request::Book(_), Outcome::Refused(refusal)) => self.not_booked(&refusal),
            (_, Outcome::Booking(booking)) => self.found(&booking, now),
            (_, Outcome::Refused(Refusal { why: Why::Missing, .. })) => self.missing(),
            (
                Request::Modify { id, .. } | Request::Adopt { id, .. },
                Outcome::Refused(Refusal { why: Why::Stale, .. }),
            ) => {
                self.ask(Request::Get { id });
            }
            (Request::Modify { .. }, Outcome::Refused(refusal)) => self.not_modified(&refusal),
            (Request::Adopt { .. }, Outcome::Refused(refusal)) => self.not_adopted(&refusal),
            (request, _) => self.misunderstood(&request),
        }
    }

    fn ask(&mut self, request: Request) {
        self.requests += 1;
        if self.requests > MOST_REQUESTS {
            self.misunderstood(&request);
        } else {
            self.steps.push_back(Step::Ask(request));
        }
    }

    fn book(&mut self) {
        self.aim = self.aim.purchasing();
        self.update.status.settled = None;
        self.update.status.purchase_refused = false; // until the answer, the outcome is unknown
        let order = self.ticket.order(self.update.status.attempt);
        self.ask(Request::Book(order));
    }

    fn rest(&mut self, wait: Wait) {
        self.steps.push_back(Step::Rest(wait));
    }

    /// Ends the poll with a final answer: the operator tries nothing more until the user changes the object.
    fn settle(&mut self, phase: Phase, ready: Finding) {
        self.settle_until(phase, ready, Wait::Change);
    }

    /// The same, with this wait for the next poll.
    fn settle_until(&mut self, phase: Phase, ready: Finding, wait: Wait) {
        self.conclude(phase, ready);
        self.rest(wait);
    }

    /// Stores a final answer.
    fn conclude(&mut self, phase: Phase, ready: Finding) {
        let status = &mut self.update.status;
        status.phase = phase;
        status.settled = Some(self.ticket.fingerprint(&self.claim, self.is_own));
        (self.update.ready, self.update.synced) = (Some(ready), Some(status::not_booked()));
    }

    /// Handles a request whose outcome is unknown.
    fn trouble(&mut self, request: &Request, unknown: &Unknown) {
        let message = format!("{}: {}", request.op(), unknown.message(self.is_about_own(request)));
        if self.so_far.failures + 1 >= FAILURES_TO_REPORT {
            self.update.ready = Some(status::unavailable(message.clone()));
            self.update.synced = Some(status::unavailable(message));
        } else {
            self.report_if_silent(message);
        }
        self.rest(Wait::Trouble(unknown.retry_after));
    }

    /// Reports this if the stored status reports nothing about the booking.
    fn report_if_silent(&mut self, message: String) {
        let is_booked = self.update.status.booking_id.is_some();
        let finding = if is_booked { status::unavailable(message) } else { status::pending(message) };
        self.update.ready.get_or_insert(finding);
    }

    /// Handles an answer that the API does not define for this request: it decides nothing.
    fn misunderstood(&mut self, request: &Request) {
        let why = "the provider's answer does not match the request".to_owned();
        self.trouble(request, &Unknown { why, words: String::new(), retry_after: None, answered: true });
    }

    fn no_credentials(&mut self, refusal: &Refusal) {
        let finding = status::authentication_failed(refusal);
        self.update.synced = Some(status::unavailable(finding.message.clone()));
        self.update.ready = Some(finding);
        self.rest(Wait::Credentials);
    }

    fn forbidden(&mut self, request: &Request, refusal: &Refusal) {
        let finding = status::forbidden(request, refusal, self.is_about_own(request));
        self.update.synced = Some(status::unavailable(finding.message.clone()));
        self.update.ready = Some(finding);
        self.rest(Wait::Forbidden);
    }

    /// Whether the request is about a booking of the ticket itself. An id that the ticket names may be that of any booking. All references
    /// are its own.
    fn is_about_own(&self, request: &Request) -> bool {
        self.is_own || !matches!(request, Request::Get { .. } | Request::Adopt { .. })
    }

    /// Handles a booking that the provider has returned.
    fn found(&mut self, booking: &Booking, now: Timestamp) {
        let Some(attempt) = self.ticket.attempt_of(&booking.reference) else { return self.of_another(booking) };
        if attempt < self.update.status.attempt {
            // The annotation names a booking that the operator has already given up, for example because a late request has written
            // it again.
            if self.update.status.purchase_refused {
                return self.settle(Phase::Cancelled, lost_before(booking));
            }
            // The purchase that the status stores may have happened, and nothing else finds it.
            return self.ask(Request::Close { reference: booking.reference.clone() });
        }
        match &booking.state {
            State::Confirmed => self.confirmed(booking, attempt, now),
            State::Pending => {
                self.record(booking, attempt);
                self.unconfirmed(format!("Booking {} awaits confirmation", booking.id));
            }
            State::Other(state) => {
                self.record(booking, attempt);
                let message = format!("Booking {} has the state {state} at the provider", booking.id);
                if matches!(self.update.status.phase, Phase::Booked | Phase::Modifying) {
                    self.update.ready = Some(status::unavailable(message.clone()));
                    self.update.synced = Some(status::unavailable(message));
                    self.rest(Wait::Unconfirmed);
                } else {
                    self.unconfirmed(message);
                }
            }
            State::Rejected => self.rejected(booking, attempt),
            State::Cancelled => {
                self.record(booking, attempt);
                let message = format!("Booking {} was cancelled by the provider", booking.id);
                self.lost(status::no("BookingCancelledExternally", message));
            }
        }
    }

    fn unconfirmed(&mut self, message: String) {
        self.update.status.phase = Phase::Pending;
        self.update.ready = Some(status::pending(message));
        self.update.synced = Some(status::not_booked());
        self.rest(Wait::Unconfirmed);
    }

    fn confirmed(&mut self, booking: &Booking, attempt: u32, now: Timestamp) {
        self.record(booking, attempt);
        let status = &mut self.update.status;
        status.phase = Phase::Booked;
        status.booked_at = status.booked_at.or_else(|| Timestamp::from_second(now.as_second()).ok());
        self.update.ready = Some(status::booked(booking));
        let wanted = self.ticket.spec.number;
        if let Some(difference) = difference(self.ticket, booking) {
            self.update.synced = Some(status::diverged(difference));
            self.rest(Wait::Poll);
        } else if booking.number == i64::from(wanted) {
            self.update.synced = Some(status::up_to_date());
            self.rest(Wait::Poll);
        } else {
            let message = format!("Booking {} has {} seat(s); the spec requests {wanted}", booking.id, booking.number);
            self.update.status.phase = Phase::Modifying;
            self.update.synced = Some(status::no("ModificationPending", message));
            self.ask(Request::Modify { id: booking.id.clone(), version: booking.version, number: wanted });
        }
    }

    /// Handles a refused modification: the booking stays unchanged.
    fn not_modified(&mut self, refusal: &Refusal) {
        let (id, number) = (self.shown_id(), self.update.status.number.unwrap_or_default());
        self.update.status.phase = Phase::Booked;
        let message = format!("Booking {id} stays at {number} seat(s): {}", refusal.words());
        self.update.synced = Some(status::no("ModificationRejected", message));
        self.rest(if refusal.why == Why::Fixed { Wait::Poll } else { Wait::Seats });
    }

    /// Handles a booking of another object. Only an object of the namespace that the booking belongs to may take it over. The
    /// messages name neither the other object nor its reference: both may be of another tenant.
    fn of_another(&mut self, booking: &Booking) {
        let contact = self.ticket.contact();
        let is_over = matches!(booking.state, State::Cancelled | State::Rejected);
        let why = if booking.namespace.as_ref() != Some(&contact.namespace) {
            "belongs to no FlightTicket of this namespace, and cannot be taken over from here".to_owned()
        } else if is_over {
            "belongs to another FlightTicket, and is cancelled".to_owned()
        } else if self.claim.adopts() {
            let reference = self.ticket.reference(self.update.status.attempt);
            let (id, expect) = (booking.id.clone(), booking.reference.clone());
            return self.ask(Request::Adopt { id, expect, reference, contact });
        } else {
            format!("belongs to another FlightTicket; set annotation {ADOPT}=true to take it over")
        };
        self.settle(Phase::Rejected, held_by_another(format!("Booking {} {why}", booking.id)));
    }

    /// Returns the id of the booking that the status shows, or else of the one that the annotation names.
    fn shown_id(&self) -> String {
        self.update.status.booking_id.as_deref().or(self.claim.booking()).unwrap_or_default().to_owned()
    }
}

fn not_found(id: &str) -> Finding {
    status::no("BookingNotFound", format!("Booking {} does not exist at the provider", crate::booking::plain(id)))
}

/// The ticket names a booking that the operator has given up, and the provider has refused the next one.
fn lost_before(booking: &Booking) -> Finding {
    let message = format!(
        "Booking {} was lost before, and the provider has refused to book again; remove the annotation {BOOKING_ID} to try \
         once more",
        booking.id
    );
    status::no("BookingCancelledExternally", message)
}

fn held_by_another(message: String) -> Finding {
    status::no("BookingHeldByAnother", message)
}

/// Returns how the booking differs from the ticket, apart from the number of seats. The provider cannot change any of it.
fn difference(ticket: &FlightTicket, booking: &Booking) -> Option<String> {
    let spec = &ticket.spec;
    let differs = |ours: &str, theirs: &str| ours.to_lowercase() != theirs.to_lowercase();
    let date = spec.departure_date.map(|date| date.to_string());
    let mut wrong = Vec::new();
    if differs(&spec.from, &booking.from) || differs(&spec.to, &booking.to) {
        wrong.push(format!("{} -> {}", booking.from, booking.to));
    }
    if date != booking.departure_date {
        wrong.push(format!("on {}", booking.departure_date.as_deref().unwrap_or("any day")));
    }
    if let Some(cabin) = booking.cabin.as_ref().filter(|cabin| differs(cabin, &spec.cabin.to_string())) {
        wrong.push(format!("in {cabin}"));
    }
    (!wrong.is_empty()).then(|| format!("Booking {} is {}", booking.id, wrong.join(", ")))
}

#[cfg(test)]
mod tests;

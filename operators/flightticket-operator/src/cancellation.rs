//! Decides the requests for a ticket that is being deleted, so that no booking remains at the provider. Pure, like
//! [`crate::course`].
//!
//! Closing a reference covers all cases: there is a booking, there is none, or a request for one is still under way.
//!
//! With `rebookPolicy: Always`, the operator may have booked after a backup from which the cluster was restored since. So it closes
//! one attempt more than the status knows, and the next one as long as it finds bookings: each attempt follows a lost booking. The
//! same holds if a user may have changed the policy to `Never` after the restore.

use std::collections::VecDeque;

use manager::Event;

use crate::{
    FlightTicket,
    api::v1::{DeletionPolicy, Phase, RebookPolicy},
    booking::{Outcome, Refusal, Request, Standing, State, Why},
    course::{FAILURES_TO_REPORT, SoFar, Wait},
    status::{self, StatusUpdate},
    ticket::{BOOKING_ID, MOST_ATTEMPTS},
};

/// One poll of the provider for a ticket that is being deleted.
#[derive(Debug)]
pub struct Cancellation<'a> {
    ticket: &'a FlightTicket,
    so_far: SoFar,
    references: VecDeque<String>,
    update: StatusUpdate,
    events: Vec<Event>,
    cancelled: Option<String>,
    wait: Option<Wait>,
}

/// The result of a poll.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// No booking is left: the finalizer can be removed.
    Finished(Vec<Event>),
    /// A booking may be left: write the status, and try again.
    Waiting(Box<StatusUpdate>, Wait),
}

impl<'a> Cancellation<'a> {
    /// Begins a poll. `lack` says why the operator has no provider; `None` if it has one.
    ///
    /// A ticket that keeps its booking, or only observes one, needs no request. A ticket that is deleted by force needs one, also
    /// in the phase `Cancelling`: its deletion may only have been postponed.
    pub fn of(ticket: &'a FlightTicket, so_far: SoFar, lack: Option<&str>) -> Self {
        let update = StatusUpdate::stored(ticket);
        let mut cancellation = Self {
            ticket,
            so_far,
            references: VecDeque::new(),
            update,
            events: Vec::new(),
            cancelled: None,
            wait: None,
        };
        if ticket.spec.deletion_policy == DeletionPolicy::Retain || ticket.observes() {
            if let Some(id) = cancellation.id() {
                cancellation.events.push(Event::normal("Retained", format!("Booking {id} kept")));
            }
        } else if let Some(lack) = lack {
            cancellation.update = status::not_configured(ticket, lack);
            cancellation.give_up();
        } else {
            cancellation.references =
                (0..=cancellation.last_attempt()).rev().map(|attempt| ticket.reference(attempt)).collect();
            cancellation.also_close(cancellation.last_attempt() + 1);
        }
        cancellation
    }

    /// Whether the poll has a request to send.
    pub fn needs_provider(&self) -> bool {
        !self.references.is_empty()
    }

    /// Sends no more requests: there is no provider, or the ticket is deleted by force and the provider does not answer in time.
    pub fn give_up(&mut self) {
        self.stop_and_wait(Wait::Change);
    }

    /// Returns the status while the provider wants no request.
    pub fn postponed(&self) -> StatusUpdate {
        let mut update = self.update.clone();
        if update.status.phase != Phase::Cancelling {
            update.status.phase = Phase::Cancelling;
            update.status.settled = None;
            update.ready = Some(status::no(
                "Cancelling",
                "the operator cancels the booking later, because the provider has asked it to wait",
            ));
        }
        update
    }

    /// Returns the next request, if any.
    pub fn request(&mut self) -> Option<Request> {
        let reference = self.references.pop_front()?;
        Some(Request::Close { reference })
    }

    /// Takes the outcome of the request.
    pub fn handle(&mut self, request: &Request, outcome: Outcome) {
        match outcome {
            Outcome::Standing(Standing { state: State::Cancelled, booking_id }) => {
                match (booking_id, self.later_attempt(request)) {
                    (Some(id), Some(attempt)) => {
                        self.cancelled = Some(id);
                        self.also_close(attempt + 1);
                    }
                    (id, _) => self.cancelled = self.cancelled.take().or(id),
                }
            }
            Outcome::Refused(Refusal { why: Why::Fixed, detail, .. }) => {
                let id = self.id().unwrap_or_default();
                self.events
                    .push(Event::warning("CancelRefused", format!("Booking {id} cannot be cancelled: {detail}")));
            }
            Outcome::Refused(refusal) if refusal.why == Why::Credentials => {
                self.update.ready = Some(status::authentication_failed(&refusal));
                self.stop_and_wait(Wait::Credentials);
            }
            Outcome::Refused(refusal) if refusal.why == Why::Forbidden => {
                self.update.ready = Some(status::forbidden(request, &refusal, true));
                self.stop_and_wait(Wait::Forbidden);
            }
            Outcome::Unknown(unknown) => {
                let message = format!("{}: {}", request.op(), unknown.message(true));
                self.update.ready = Some(if self.so_far.failures + 1 >= FAILURES_TO_REPORT {
                    status::unavailable(message)
                } else {
                    status::no("Cancelling", message)
                });
                self.stop_and_wait(Wait::Trouble(unknown.retry_after));
            }
            Outcome::Booking(_) | Outcome::Standing(_) | Outcome::Refused(_) => {
                self.update.ready = Some(status::no("Cancelling", "the provider's answer does not match the request"));
                self.stop_and_wait(Wait::Trouble(None));
            }
        }
    }

    /// Returns the result, after the last request.
    pub fn end(mut self) -> End {
        if let Some(wait) = self.wait.take() {
            if self.ticket.is_forced() {
                let id = self.id().unwrap_or_else(|| self.ticket.reference(self.update.status.attempt));
                let message = format!("Booking {id} was left at the provider by force-delete");
                self.events.push(Event::warning("BookingAbandoned", message));
                return End::Finished(self.events);
            }
            self.update.status.phase = Phase::Cancelling;
            self.update.status.settled = None;
            return End::Waiting(Box::new(self.update), wait);
        }
        let id = self.cancelled.take();
        if !self.events.iter().any(|event| event.reason == "CancelRefused") {
            self.events.extend(id.map(|id| Event::normal("Cancelled", format!("Booking {id} cancelled"))));
        }
        End::Finished(self.events)
    }

    /// Adds the reference of an attempt of which the status does not know, if the operator may have made it.
    fn also_close(&mut self, attempt: u32) {
        // A new object has generation 1, its deletion raises that by one, and so does each edit. Most tickets are never edited: they
        // need only the request for the reference that they know.
        let is_edited = self.ticket.metadata.generation.is_none_or(|generation| generation > 2);
        let may_have_rebooked = self.ticket.spec.rebook_policy == RebookPolicy::Always || is_edited;
        if may_have_rebooked && attempt <= MOST_ATTEMPTS {
            self.references.push_back(self.ticket.reference(attempt));
        }
    }

    /// The attempt whose reference this request closes, if the status does not know of it.
    fn later_attempt(&self, request: &Request) -> Option<u32> {
        let Request::Close { reference } = request else { return None };
        self.ticket.attempt_of(reference).filter(|attempt| *attempt > self.last_attempt())
    }

    /// Ends the poll without its other requests. A booking may be left, so the object stays, unless it is deleted by force.
    fn stop_and_wait(&mut self, wait: Wait) {
        self.references.clear();
        self.wait = Some(wait);
    }

    /// The ticket's own booking. If a client has wiped the status, only the annotation names it. A ticket that observes the booking
    /// of another one has none.
    fn id(&self) -> Option<String> {
        let claim = self.ticket.claim();
        let named = claim.booking().filter(|_| self.update.status.booking_id.is_none() && !self.ticket.observes());
        self.ticket.own_booking().or(named).map(str::to_owned)
    }

    /// Returns the highest attempt that may have been used. If a client has wiped the status, that is unknown, and all references
    /// are closed. No attempt is later than [`MOST_ATTEMPTS`], whatever a client has written.
    fn last_attempt(&self) -> u32 {
        let may_have_more =
            self.ticket.spec.rebook_policy == RebookPolicy::Always || self.ticket.annotation(BOOKING_ID).is_some();
        match &self.update.status.reference {
            Some(_) => self.update.status.attempt.min(MOST_ATTEMPTS),
            None if may_have_more => MOST_ATTEMPTS,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests;

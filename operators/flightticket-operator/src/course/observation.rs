//! What a ticket with `managementPolicy: Observe` does: it reads one booking, and reports it. This module sends no other requests.

use jiff::Timestamp;
use manager::Finding;

use super::{Course, Wait, aim::Aim, difference, held_by_another, not_found};
use crate::{
    api::v1::Phase,
    booking::{Booking, Outcome, Refusal, Request, Standing, State, Unknown, Why},
    status,
    ticket::BOOKING_ID,
};

/// The reason while no booking is named.
const NOTHING_NAMED: &str = "NothingToObserve";

impl Course<'_> {
    /// Begins the poll of a ticket that only observes. Without a named booking it looks for the one of its own reference: the ticket
    /// may have booked earlier, and have got no answer.
    pub(super) fn observe(&mut self) {
        match self.claim.booking().map(str::to_owned).or_else(|| self.update.status.booking_id.clone()) {
            Some(id) => self.ask(Request::Get { id }),
            None => self.ask(Request::Lookup { reference: self.ticket.reference(self.update.status.attempt) }),
        }
    }

    /// Reports the answer.
    pub(super) fn observed(&mut self, request: &Request, outcome: Outcome, now: Timestamp) {
        match outcome {
            Outcome::Unknown(unknown) => self.trouble(request, &unknown),
            Outcome::Refused(refusal) if refusal.why == Why::Credentials => self.no_credentials(&refusal),
            Outcome::Refused(refusal) if refusal.why == Why::Forbidden => self.forbidden(request, &refusal),
            Outcome::Booking(booking) => self.report(&booking, now),
            Outcome::Standing(Standing { booking_id: Some(id), .. }) => self.ask(Request::Get { id }),
            Outcome::Standing(_) | Outcome::Refused(_) if matches!(request, Request::Lookup { .. }) => {
                let message = format!("set annotation {BOOKING_ID} to the ID of the booking to report");
                self.set_state_and_rest(Phase::Pending, status::no(NOTHING_NAMED, message), status::not_booked());
            }
            Outcome::Refused(Refusal { why: Why::Missing, .. }) => {
                if self.is_missing_for_long() {
                    self.set_state_and_rest(Phase::Cancelled, not_found(&self.shown_id()), status::not_booked());
                } else {
                    self.tolerate_lag();
                }
            }
            Outcome::Refused(_) | Outcome::Standing(_) => self.misunderstood(request),
        }
    }

    /// Reports a later booking under the reference of a rejected one. Any other answer changes nothing: that about the rejected booking
    /// is reported already, and there is no hurry.
    pub(super) fn later_booking_looked_up(&mut self, outcome: Outcome, now: Timestamp) {
        match outcome {
            Outcome::Booking(booking) => self.report(&booking, now),
            Outcome::Standing(Standing { booking_id: Some(id), .. }) => self.ask(Request::Get { id }),
            Outcome::Unknown(Unknown { retry_after: Some(pause), .. }) => self.rest(Wait::PollNotBefore(pause)),
            Outcome::Standing(_) | Outcome::Refused(_) | Outcome::Unknown(_) => self.rest(Wait::Poll),
        }
    }

    fn report(&mut self, booking: &Booking, now: Timestamp) {
        let is_own = self.ticket.attempt_of(&booking.reference).is_some();
        if !is_own && booking.namespace.as_ref() != Some(&self.ticket.contact().namespace) {
            let why = "belongs to no FlightTicket of this namespace, and cannot be observed from here";
            return self.settle(Phase::Rejected, held_by_another(format!("Booking {} {why}", booking.id)));
        }
        self.show(booking);
        let id = &booking.id;
        match &booking.state {
            State::Confirmed => {
                let status = &mut self.update.status;
                status.booked_at = status.booked_at.or_else(|| Timestamp::from_second(now.as_second()).ok());
                let wanted = i64::from(self.ticket.spec.number);
                let seats = (booking.number != wanted)
                    .then(|| format!("Booking {id} has {} seat(s); the spec requests {wanted}", booking.number));
                let synced =
                    difference(self.ticket, booking).or(seats).map_or_else(status::up_to_date, status::diverged);
                self.set_state_and_rest(Phase::Booked, status::booked(booking), synced);
            }
            State::Pending => self.unconfirmed(format!("Booking {id} awaits confirmation")),
            State::Other(state) => self.unconfirmed(format!("Booking {id} has the state {state} at the provider")),
            State::Rejected => {
                let message = booking.message.as_deref().unwrap_or("the airline refused");
                let ready = status::no("BookingRejected", format!("REJECTED: {message}"));
                self.set_state(Phase::Rejected, ready, status::not_booked());
                if is_own && self.claim.booking().is_none() && self.aim == Aim::Observe {
                    // A late request may have booked under its reference since.
                    self.aim = self.aim.looking_again();
                    self.ask(Request::Lookup { reference: booking.reference.clone() });
                } else {
                    self.rest(Wait::Poll);
                }
            }
            State::Cancelled => {
                let ready =
                    status::no("BookingCancelledExternally", format!("Booking {id} was cancelled by the provider"));
                self.set_state_and_rest(Phase::Cancelled, ready, status::not_booked());
            }
        }
    }

    /// Ends the poll with what the provider has answered. It may change, so polls go on.
    fn set_state_and_rest(&mut self, phase: Phase, ready: Finding, synced: Finding) {
        self.set_state(phase, ready, synced);
        self.rest(Wait::Poll);
    }

    /// Sets what the status reports.
    fn set_state(&mut self, phase: Phase, ready: Finding, synced: Finding) {
        self.update.status.phase = phase;
        self.update.ready = Some(ready);
        self.update.synced = Some(synced);
    }
}

//! Bookings that the airline has rejected, and purchases that the provider refuses.
//!
//! The reference of a rejected booking is free again: the ticket can book under it, or take another booking over. So can a late
//! request, and then the ticket has a booking that it does not know of. That is why polls go on after a rejection.

use jiff::Timestamp;
use manager::Event;

use super::{Course, Wait, aim::Aim, held_by_another};
use crate::{
    api::v1::Phase,
    booking::{Booking, Outcome, Refusal, Request, Standing, State, Unknown, Why},
    status,
    ticket::{BOOKING_ID, Claim},
};

/// The reason of `Ready` if the airline has rejected the booking, or the provider refuses the purchase.
const REJECTED: &str = "BookingRejected";

impl Course<'_> {
    /// Handles a final answer that is for the object as it is now. The status stays.
    pub(super) fn stay_settled(&mut self) {
        let is_rejected = self.update.ready.as_ref().is_some_and(|ready| ready.reason == REJECTED);
        if is_rejected && self.ticket.own_booking().is_some() && !self.ticket.observes() {
            self.look_again();
        } else {
            self.rest(Wait::Change);
        }
    }

    /// Looks for a booking under the ticket's reference. If there is no valid one, the status stays as it is.
    fn look_again(&mut self) {
        self.aim = self.aim.looking_again();
        self.ask(Request::Lookup { reference: self.ticket.reference(self.update.status.attempt) });
    }

    /// Handles a booking of another object that the provider does not give to the ticket.
    pub(super) fn not_adopted(&mut self, refusal: &Refusal) {
        // The provider's words may name the other object.
        let words = format!("cannot be taken over: the provider answers {}", refusal.name());
        self.conclude(Phase::Rejected, held_by_another(format!("Booking {} {words}", self.shown_id())));
        if refusal.why == Why::Taken {
            self.look_again(); // the ticket may have a booking that it does not know of
        } else {
            self.rest(Wait::Change);
        }
    }

    /// Handles what the provider answers about this reference. A valid booking is the ticket's own.
    pub(super) fn looked_again(&mut self, outcome: Outcome, now: Timestamp) {
        let is_valid = |state: &State| !matches!(state, State::Rejected | State::Cancelled);
        match outcome {
            Outcome::Standing(Standing { state, booking_id: Some(id) }) if is_valid(&state) => {
                self.ask(Request::Get { id });
            }
            Outcome::Booking(booking)
                if is_valid(&booking.state) && self.ticket.attempt_of(&booking.reference).is_some() =>
            {
                self.aim = self.aim.managing();
                self.found(&booking, now);
            }
            // There is no hurry, so an outage leads to no repetitions.
            Outcome::Unknown(Unknown { retry_after: Some(pause), .. }) => self.rest(Wait::PollNotBefore(pause)),
            Outcome::Standing(_) | Outcome::Booking(_) | Outcome::Refused(_) | Outcome::Unknown(_) => {
                self.rest(Wait::Poll);
            }
        }
    }

    /// Handles a booking of the ticket that the airline has rejected. The ticket then has the booking that its annotation names, or
    /// buys another one at request of the user, unless the user asks to take one over.
    pub(super) fn rejected(&mut self, booking: &Booking, attempt: u32) {
        // A name that the status shows too is a note of the operator, about a booking that the provider does not find any more.
        let names_another = self.claim.id.as_ref().is_some_and(|id| *id != booking.id)
            && self.claim.booking() != self.ticket.own_booking();
        if self.is_own && names_another {
            self.follow_name();
        } else if self.aim.may_replace_rejected() && !self.claim.adopts() {
            self.forget_and_book();
        } else {
            if self.is_own && self.claim.adopts() {
                let message = format!("{BOOKING_ID} names no other booking to take over");
                self.events.push(Event::warning("AdoptionRefused", message));
            }
            self.record(booking, attempt);
            let message = booking.message.as_deref().unwrap_or("the airline refused");
            let ready = status::no(REJECTED, format!("REJECTED: {message}"));
            self.settle_until(Phase::Rejected, ready, Wait::Poll);
        }
    }

    /// Forgets the rejected booking: the user names the one that the ticket shall have. So no poll buys until the name is removed.
    fn follow_name(&mut self) {
        self.forget();
        self.aim = Aim::only_named();
        self.mark_purchase_refused(); // the airline has rejected the booking that it led to
        (self.update.ready, self.update.synced) = (None, Some(status::not_booked()));
        self.begin();
    }

    /// Stores that the purchase is not to be repeated. The first purchase of a ticket replaces no lost booking, so nothing repeats it
    /// while the annotation names a booking, and it needs no mark.
    fn mark_purchase_refused(&mut self) {
        self.update.status.purchase_refused = self.update.status.attempt > 0;
    }

    /// Forgets a booking of the ticket that has ended, and books under a reference that is free.
    pub(super) fn forget_and_book(&mut self) {
        // Only the write that records an adopted booking removes the request to adopt.
        self.write(Claim { id: None, ..self.claim.clone() });
        self.forget();
        self.book();
    }

    pub(super) fn not_booked(&mut self, refusal: &Refusal) {
        let rejected = status::no(REJECTED, refusal.words());
        if refusal.why == Why::Taken {
            // The reference has a booking: the purchase is not refused for good.
            self.aim = self.aim.finding_holder(rejected);
            return self.ask(Request::Lookup { reference: self.ticket.reference(self.update.status.attempt) });
        }
        self.mark_purchase_refused();
        match refusal.why {
            Why::NoSeats => {
                self.update.status.phase = Phase::Pending;
                self.update.ready = Some(status::insufficient_seats(self.ticket));
                self.update.synced = Some(status::not_booked());
                self.rest(Wait::Seats);
            }
            Why::Closed => self.settle(Phase::Cancelled, rejected),
            _ => self.settle(Phase::Rejected, rejected),
        }
    }

    pub(super) fn seeks_holder(&self) -> bool {
        matches!(self.aim, Aim::FindHolder(..))
    }

    /// Handles the state of a reference under which the provider refuses a purchase, because another trip is booked under it. The
    /// ticket may have taken that booking over, and have got no answer.
    pub(super) fn holder_looked_up(&mut self, standing: Standing) {
        match standing {
            Standing { state, booking_id: Some(id) } if state != State::Rejected => self.ask(Request::Get { id }),
            _ => self.still_taken(),
        }
    }

    /// Handles a reference that the provider refuses for a purchase, and under which it shows no valid booking.
    pub(super) fn still_taken(&mut self) {
        if let Aim::FindHolder(_, refused) = &self.aim {
            self.update.ready = Some(refused.clone());
        }
        self.update.status.phase = Phase::Rejected;
        self.update.synced = Some(status::not_booked());
        self.rest(Wait::Poll);
    }
}

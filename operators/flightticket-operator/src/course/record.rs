//! What the object records of a booking: the status shows it, and an annotation names it.

use manager::Event;

use super::{Course, Step};
use crate::{
    FlightTicket,
    api::v1::FlightTicketStatus,
    booking::{Booking, State, plain},
    ticket::{BOOKING_ID, Claim},
};

impl Course<'_> {
    /// Records the ticket's own booking in the status and in the annotation.
    pub(super) fn record(&mut self, booking: &Booking, attempt: u32) {
        self.update.status.attempt = attempt;
        self.update.status.purchase_refused = false;
        self.update.status.settled = None;
        self.aim = self.aim.managing();
        self.is_own = true;
        self.show(booking);
        self.note(booking);
    }

    /// Shows a booking in the status.
    pub(super) fn show(&mut self, booking: &Booking) {
        let status = &mut self.update.status;
        status.reference = Some(booking.reference.clone());
        status.booking_id = Some(booking.id.clone());
        status.confirmation_code.clone_from(&booking.confirmation_code);
        status.number = Some(booking.number);
        status.provider_message.clone_from(&booking.message);
    }

    /// Removes the booking from the status, and keeps the number of attempts.
    pub(super) fn forget(&mut self) {
        self.is_own = false;
        let FlightTicketStatus { attempt, conditions, fence, .. } = std::mem::take(&mut self.update.status);
        let reference = Some(self.ticket.reference(attempt));
        self.update.status =
            FlightTicketStatus { reference, attempt, fence, conditions, ..FlightTicketStatus::default() };
    }

    /// Notes the id of the ticket's own booking on the object. A request to adopt is done, or no longer has an object.
    fn note(&mut self, booking: &Booking) {
        self.events.extend(replaced_name(self.ticket, &self.claim, booking));
        self.write(Claim { id: Some(booking.id.clone()), adopt: None });
    }

    /// Writes the annotations, if they are not so already.
    pub(super) fn write(&mut self, claim: Claim) {
        if self.claim != claim {
            self.claim = claim.clone();
            self.steps.push_back(Step::Note(claim));
        }
    }
}

/// Returns the event about another booking in the annotation, which the note of the ticket's own booking replaces. Usually a user has
/// named it, and without the event the name would disappear without an answer.
///
/// The name can also be an earlier note of the operator: a former leader has written it late, or the provider has given the booking
/// another id before the status stored the first one. Nothing in the object tells these cases from a name by a user. So the message
/// only says what has happened.
///
/// The event is emitted after the status is written. It is lost if the process dies between the note and then: the next poll finds
/// the name replaced. That is rare, and the annotation itself shows the booking.
fn replaced_name(ticket: &FlightTicket, claim: &Claim, booking: &Booking) -> Option<Event> {
    let own = &booking.id;
    let named = claim.id.as_deref().filter(|named| *named != own.as_str())?;
    if claim.adopts() && claim.booking().is_some() {
        let message = format!("Booking {named} is not taken over, because the ticket has booking {own}");
        return Some(Event::warning("AdoptionRefused", message));
    }
    if ticket.own_booking() == Some(named) {
        return None; // the status shows it too: the provider has given the booking another id since
    }
    if matches!(booking.state, State::Cancelled) {
        return None; // the ticket has no valid booking; what follows depends on its `rebookPolicy`, and has an event of its own
    }
    let message = format!(
        "Reverted annotation {BOOKING_ID} from \"{}\" to \"{own}\", the booking of this FlightTicket; another trip needs a \
         FlightTicket of its own",
        plain(named)
    );
    Some(Event::warning("BookingIdReverted", message))
}

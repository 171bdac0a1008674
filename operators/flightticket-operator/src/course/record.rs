//! What the object records of a booking: the status shows it, and an annotation names it.

use manager::Event;

use super::{Course, Step};
use crate::{
    FlightTicket,
    api::v1::FlightTicketStatus,
    booking::{Booking, plain},
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
        self.note(&booking.id);
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
    fn note(&mut self, id: &str) {
        self.events.extend(replaced_name(self.ticket, &self.claim, id));
        self.write(Claim { id: Some(id.to_owned()), adopt: None });
    }

    /// Writes the annotations, if they are not so already.
    pub(super) fn write(&mut self, claim: Claim) {
        if self.claim != claim {
            self.claim = claim.clone();
            self.steps.push_back(Step::Note(claim));
        }
    }
}

/// Returns the event for the user who has named another booking in the annotation, which the note of the ticket's own booking replaces.
/// Without it, the name would disappear without an answer.
fn replaced_name(ticket: &FlightTicket, claim: &Claim, own: &str) -> Option<Event> {
    let named = claim.id.as_deref().filter(|named| *named != own)?;
    if claim.adopts() && claim.booking().is_some() {
        let message = format!("Booking {named} is not taken over, because the ticket has booking {own}");
        return Some(Event::warning("AdoptionRefused", message));
    }
    if ticket.own_booking() == Some(named) {
        return None; // the operator itself has noted it, before the provider gave the booking another id
    }
    let message = format!(
        "Reverted annotation {BOOKING_ID} from \"{}\" to \"{own}\", the booking of this FlightTicket; name the other booking in \
         another FlightTicket instead",
        plain(named)
    );
    Some(Event::warning("BookingIdReverted", message))
}

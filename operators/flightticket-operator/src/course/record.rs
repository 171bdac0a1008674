//! What the object records of a booking: the status shows it, and an annotation names it.

use manager::Event;

use super::{Course, Step};
use crate::{api::v1::FlightTicketStatus, booking::Booking, ticket::Claim};

impl Course<'_> {
    /// Records the ticket's own booking in the status and in the annotation.
    pub(super) fn record(&mut self, booking: &Booking, attempt: u32) {
        self.update.status.attempt = attempt;
        self.update.status.purchase_refused = false;
        self.update.status.settled = None;
        self.aim = self.aim.managing();
        self.is_own = true;
        self.show(booking);
        self.note(Some(booking.id.clone()));
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

    /// Forgets what the status shows of a booking.
    pub(super) fn forget(&mut self) {
        self.is_own = false;
        let FlightTicketStatus { attempt, conditions, fence, .. } = std::mem::take(&mut self.update.status);
        let reference = Some(self.ticket.reference(attempt));
        self.update.status =
            FlightTicketStatus { reference, attempt, fence, conditions, ..FlightTicketStatus::default() };
    }

    /// Notes the id of the booking on the object. A request to adopt is done, or no longer has an object.
    pub(super) fn note(&mut self, id: Option<String>) {
        if let (Some(id), Some(named)) = (&id, self.claim.booking().filter(|_| self.claim.adopts()))
            && id != named
        {
            let message = format!("Booking {named} is not taken over, because the ticket has booking {id}");
            self.events.push(Event::warning("AdoptionRefused", message));
        }
        self.write(Claim { id, adopt: None });
    }

    /// Writes the annotations, if they are not so already.
    pub(super) fn write(&mut self, claim: Claim) {
        if self.claim != claim {
            self.claim = claim.clone();
            self.steps.push_back(Step::Note(claim));
        }
    }
}

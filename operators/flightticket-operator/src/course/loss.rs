//! Bookings that are missing, cancelled or to be replaced.

use std::time::Duration;

use manager::{Event, Finding};

use super::{Course, Step, Wait, not_found};
use crate::{
    api::v1::{Phase, RebookPolicy},
    booking::{Refusal, Request, Standing, State},
    status,
    ticket::{Claim, MOST_ATTEMPTS},
};

/// How long a booking must be missing before the operator looks it up by its reference.
pub(super) const LAG: Duration = Duration::from_mins(1);

impl Course<'_> {
    /// Handles a known booking that the provider does not find.
    pub(super) fn missing(&mut self) {
        if self.is_missing_for_long() {
            let reference = self.ticket.reference(self.update.status.attempt);
            self.ask(Request::Lookup { reference });
        } else {
            self.tolerate_lag();
        }
    }

    /// Whether the provider has not found the booking for so long that its data does not only lag.
    pub(super) fn is_missing_for_long(&self) -> bool {
        self.so_far.missing.is_some_and(|missing| missing >= LAG)
    }

    pub(super) fn tolerate_lag(&mut self) {
        self.report_if_silent(format!("The provider does not find booking {} yet", self.shown_id()));
        self.rest(Wait::Missing);
    }

    /// Handles the state of the reference of a booking that the provider does not find by its id.
    pub(super) fn looked_up(&mut self, standing: Standing) {
        let missed = self.shown_id();
        match standing {
            Standing { state: State::Cancelled, booking_id: Some(id) } if id == missed => {
                let message = format!("Booking {id} was cancelled by the provider");
                self.lost(status::no("BookingCancelledExternally", message));
            }
            Standing { booking_id: Some(id), .. } if id == missed => self.rest(Wait::Missing), // the provider lags
            // Not the booking that the ticket names.
            Standing { state: State::Rejected, .. } if !self.is_own => self.lost(not_found(&missed)),
            Standing { booking_id: Some(id), .. } => self.ask(Request::Get { id }),
            Standing { booking_id: None, .. } => self.lost(not_found(&missed)),
        }
    }

    /// Handles a booking that is cancelled or does not exist any more. Only one that the status has shown as the ticket's own is
    /// replaced: a user may have annotated any id.
    pub(super) fn lost(&mut self, ready: Finding) {
        let is_known = self.is_own && self.aim.may_replace_lost();
        let may_rebook = self.ticket.spec.rebook_policy == RebookPolicy::Always && is_known;
        if may_rebook && self.update.status.attempt < MOST_ATTEMPTS {
            self.loss = Some(ready);
            // Closed, so that neither a late request nor a booking that reappears leads to a second booking.
            self.ask(Request::Close { reference: self.ticket.reference(self.update.status.attempt) });
        } else {
            self.settle(Phase::Cancelled, ready);
        }
    }

    /// Books again under the next reference, after the old one is closed. The status stores the new reference before the request.
    pub(super) fn book_again(&mut self) {
        self.events.extend(self.loss.take().map(|loss| Event::warning(loss.reason, loss.message)));
        self.update.status.attempt += 1;
        self.write(Claim { id: None, adopt: None });
        self.forget();
        let message = format!("the booking was lost; booking again, attempt {}", self.update.status.attempt);
        self.update.ready = Some(status::pending(message));
        self.update.synced = Some(status::not_booked());
        self.steps.push_back(Step::Remember);
        self.book();
    }

    /// Handles a reference that the provider does not close: its booking may still be valid, so there is no other one.
    pub(super) fn not_closed(&mut self, refusal: &Refusal) {
        let refused = format!(
            "the provider refuses to close its reference, under which a booking may still exist: {}",
            refusal.words()
        );
        if let Some(loss) = self.loss.take() {
            let message = format!("{}; not booked again, because {refused}", loss.message);
            self.settle(Phase::Cancelled, Finding { message, ..loss });
        } else {
            let message = format!("Booking {} was made by an earlier attempt; {refused}", self.shown_id());
            self.settle(Phase::Rejected, status::no("BookingRejected", message));
        }
    }
}

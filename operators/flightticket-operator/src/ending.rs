//! Decides the requests for a ticket that is being deleted, so that no booking remains at the provider. Pure, like
//! [`crate::course`].
//!
//! Closing a reference covers all cases: there is a booking, there is none, or a request for one is still under way.

use std::collections::VecDeque;

use crate::{
    FlightTicket,
    api::v1::{DeletionPolicy, Phase, RebookPolicy},
    booking::{Outcome, Refusal, Request, Standing, Why},
    course::{SoFar, TELLING, Wait},
    status::{self, News, Told},
    ticket::{BOOKING_ID, FORCE_DELETE, MOST_ATTEMPTS},
};

/// One visit of a ticket that is being deleted.
#[derive(Debug)]
pub struct Ending<'a> {
    ticket: &'a FlightTicket,
    so_far: SoFar,
    references: VecDeque<String>,
    told: Told,
    news: Vec<News>,
    cancelled: Option<String>,
    wait: Option<Wait>,
}

/// The result of a visit.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// No booking is left: the finalizer can be removed.
    Finished(Vec<News>),
    /// A booking may be left: write the status, and try again.
    Waiting(Box<Told>, Wait),
}

impl<'a> Ending<'a> {
    /// Begins a visit. `has_provider` is false if the operator has no `--booking-url`.
    pub fn of(ticket: &'a FlightTicket, so_far: SoFar, has_provider: bool) -> Self {
        let told = Told::stored(ticket);
        let mut ending =
            Self { ticket, so_far, references: VecDeque::new(), told, news: Vec::new(), cancelled: None, wait: None };
        if ticket.spec.deletion_policy == DeletionPolicy::Retain {
            if let Some(id) = ending.id() {
                ending.news.push(News::normal("Retained", format!("Booking {id} kept")));
            }
        } else if has_provider {
            ending.references = (0..=ending.last_attempt()).rev().map(|attempt| ticket.reference(attempt)).collect();
        } else {
            ending.told = status::not_configured(ticket);
            ending.stay(Wait::Change);
        }
        ending
    }

    /// Returns the next request, if any.
    pub fn request(&mut self) -> Option<Request> {
        let reference = self.references.pop_front()?;
        Some(Request::Close { reference })
    }

    /// Takes the outcome of the request.
    pub fn hear(&mut self, request: &Request, outcome: Outcome) {
        match outcome {
            Outcome::Standing(Standing { booking_id, .. }) => self.cancelled = self.cancelled.take().or(booking_id),
            Outcome::Refused(Refusal { why: Why::Fixed, detail, .. }) => {
                let id = self.id().unwrap_or_default();
                self.news.push(News::warning("CancelRefused", format!("Booking {id} cannot be cancelled: {detail}")));
            }
            Outcome::Refused(refusal) if refusal.why == Why::Credentials => {
                self.told.ready = Some(status::authentication_failed(&refusal));
                self.stay(Wait::Credentials);
            }
            Outcome::Refused(_) => {} // the provider does not know the reference
            Outcome::Unknown(unknown) => {
                let message = format!("{}: {}", request.op(), unknown.why);
                self.told.ready = Some(if self.so_far.failures + 1 >= TELLING {
                    status::unavailable(message)
                } else {
                    status::no("Cancelling", message)
                });
                self.stay(Wait::Trouble(unknown.retry_after));
            }
            Outcome::Booking(_) => {
                self.told.ready = Some(status::no("Cancelling", "the provider's answer does not match the request"));
                self.stay(Wait::Trouble(None));
            }
        }
    }

    /// Returns the result, after the last request.
    pub fn end(mut self) -> End {
        if let Some(wait) = self.wait.take() {
            if self.ticket.is_annotated(FORCE_DELETE) {
                let id = self.id().unwrap_or_else(|| self.ticket.reference(self.told.status.attempt));
                let message = format!("Booking {id} was left at the provider by force-delete");
                self.news.push(News::warning("BookingAbandoned", message));
                return End::Finished(self.news);
            }
            self.told.status.phase = Phase::Cancelling;
            self.told.status.settled = None;
            return End::Waiting(Box::new(self.told), wait);
        }
        let id = self.cancelled.take();
        if !self.news.iter().any(|news| news.reason == "CancelRefused") {
            self.news.extend(id.map(|id| News::normal("Cancelled", format!("Booking {id} cancelled"))));
        }
        End::Finished(self.news)
    }

    fn stay(&mut self, wait: Wait) {
        self.references.clear();
        self.wait = Some(wait);
    }

    fn id(&self) -> Option<String> {
        self.told.status.booking_id.as_deref().or(self.ticket.claimed_id()).map(str::to_owned)
    }

    /// Returns the highest attempt that may have been used. If a client has wiped the status, that is unknown, and all references
    /// are closed.
    fn last_attempt(&self) -> u32 {
        let may_have_more =
            self.ticket.spec.rebook_policy == RebookPolicy::Always || self.ticket.annotation(BOOKING_ID).is_some();
        match &self.told.status.reference {
            Some(_) => self.told.status.attempt,
            None if may_have_more => MOST_ATTEMPTS,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests;

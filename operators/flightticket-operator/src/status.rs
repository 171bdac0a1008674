//! The status, the conditions and the events of a ticket.

use manager::{Event, External, Finding};

use crate::{
    FlightTicket,
    api::v1::{FlightTicketStatus, Phase},
    booking::{Booking, Refusal, Request},
};

manager::standard_status!(FlightTicketStatus, fenced);

/// Every reason that the operator sets in `Ready` or `Synced`, except `Diverged`. Other stored reasons come from the runtime
/// (`Paused`) or from other clients; the operator ignores them.
const REASONS: [&str; 17] = [
    "Booked",
    NOT_CONFIGURED,
    "BookingPending",
    "BookingRejected",
    "InsufficientSeats",
    "BookingCancelledExternally",
    "BookingNotFound",
    "BookingHeldByAnother",
    "NothingToObserve",
    "AuthenticationFailed",
    FORBIDDEN,
    "Cancelling",
    "ProviderUnavailable",
    "UpToDate",
    "ModificationRejected",
    "ModificationPending",
    "NotBooked",
];
const DIVERGED: &str = "Diverged";
const NOT_CONFIGURED: &str = "ProviderNotConfigured";
const FORBIDDEN: &str = "BookingForbidden";
/// The value of `status.settled` while the operator tries again after a final answer: no object has this fingerprint. It stays until
/// the provider answers, so that a failed request does not lose the retry.
pub(crate) const TRYING_AGAIN: &str = "retry";
const NO_CODE: &str = "no confirmation code";

/// Reasons of `Ready` that come with a Warning event. It has the same reason and message, and is emitted when the reason appears.
const WARNINGS: [&str; 8] = [
    "BookingRejected",
    "InsufficientSeats",
    "BookingCancelledExternally",
    "BookingNotFound",
    "BookingHeldByAnother",
    "ProviderUnavailable",
    "AuthenticationFailed",
    FORBIDDEN,
];

/// A status with its two conditions: the stored one, or the one to write.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusUpdate {
    /// The fields. Its conditions are the stored ones.
    pub status: FlightTicketStatus,
    /// `Ready`; `None` if the operator has not set it yet.
    pub ready: Option<Finding>,
    /// `Synced`.
    pub synced: Option<Finding>,
}

impl StatusUpdate {
    /// Returns the event about the provider's failure, if `Ready` reports one. This event is emitted repeatedly.
    pub fn trouble(&self) -> Option<Event> {
        let is_trouble =
            |ready: &&Finding| ["ProviderUnavailable", "AuthenticationFailed", FORBIDDEN].contains(&ready.reason);
        self.ready.as_ref().filter(is_trouble).map(|ready| Event::warning(ready.reason, ready.message.clone()))
    }

    /// Forgets a condition from the time without a provider: there is one now.
    pub(crate) fn forget_lack_of_provider(&mut self) {
        self.ready.take_if(|ready| ready.reason == NOT_CONFIGURED);
    }

    /// Reads the stored status and conditions of the object.
    pub fn stored(ticket: &FlightTicket) -> Self {
        let status = ticket.status.clone().unwrap_or_default();
        let (ready, synced) = (finding(&status, "Ready"), finding(&status, "Synced"));
        Self { status, ready, synced }
    }

    /// Returns the conditions in the runtime's type.
    pub fn external(&self) -> External {
        External {
            ready: self.ready.clone().unwrap_or_else(|| pending("the operator has not contacted the provider yet")),
            synced: self.synced.clone().unwrap_or_else(not_booked),
            stalled: self.status.settled.as_deref().is_some_and(|settled| settled != TRYING_AGAIN),
        }
    }

    /// Returns the events about what has changed since `before`.
    pub fn events(&self, before: &Self, ticket: &FlightTicket) -> Vec<Event> {
        let mut events = Vec::new();
        let (is, was) = (&self.status, &before.status);
        let is_held = |status: &FlightTicketStatus| matches!(status.phase, Phase::Booked | Phase::Modifying);
        if let (Some(id), Some(number)) = (is.booking_id.as_deref().filter(|_| is_held(is)), is.number) {
            // A ticket that observes has neither booked nor changed anything.
            let code = is.confirmation_code.as_deref().unwrap_or(NO_CODE);
            if !is_held(was) || was.booking_id.as_deref() != Some(id) {
                let (from, to) = (&ticket.spec.from, &ticket.spec.to);
                events.push(if ticket.observes() {
                    Event::normal("Observed", format!("Booking {id} has {number} seat(s): {code}"))
                } else {
                    Event::normal("Booked", format!("Booked {number} seat(s) {from} -> {to}: {code} ({id})"))
                });
            } else if let Some(earlier) = was.number.filter(|earlier| *earlier != number) {
                let reason = if ticket.observes() { "Observed" } else { "Modified" };
                let words = format!("Booking {id} changed from {earlier} to {number} seat(s)");
                events.push(Event::normal(reason, words));
            }
        }
        let ready = (&self.ready, &before.ready, WARNINGS.as_slice());
        for (now, then, warnings) in [ready, (&self.synced, &before.synced, &["ModificationRejected"])] {
            let is_known = |now: &Finding| then.as_ref().is_some_and(|then| then.reason == now.reason);
            let fresh = now.as_ref().filter(|now| warnings.contains(&now.reason) && !is_known(now));
            events.extend(fresh.map(|now| Event::warning(now.reason, now.message.clone())));
        }
        events
    }
}

fn finding(status: &FlightTicketStatus, type_: &str) -> Option<Finding> {
    let stored = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    let reason = REASONS.into_iter().chain([DIVERGED]).find(|reason| *reason == stored.reason)?;
    let holds = match stored.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    };
    Some(Finding { status: holds, reason, message: stored.message.clone() })
}

fn yes(reason: &'static str, message: impl Into<String>) -> Finding {
    Finding { status: Some(true), reason, message: message.into() }
}

/// Returns a condition with the status False.
pub fn no(reason: &'static str, message: impl Into<String>) -> Finding {
    Finding { status: Some(false), reason, message: message.into() }
}

/// Returns a condition with the status Unknown: the provider does not answer.
pub fn unavailable(message: impl Into<String>) -> Finding {
    Finding { status: None, reason: "ProviderUnavailable", message: message.into() }
}

/// Returns `Ready` of a confirmed booking, with the trip as the provider knows it.
pub fn booked(booking: &Booking) -> Finding {
    let code = booking.confirmation_code.as_deref().unwrap_or(NO_CODE);
    yes("Booked", format!("{} seat(s) {} -> {}: {code}", booking.number, booking.from, booking.to))
}

/// Returns `Ready` of a booking that is not confirmed yet.
pub fn pending(message: impl Into<String>) -> Finding {
    no("BookingPending", message)
}

/// Returns `Synced` without a confirmed booking.
pub fn not_booked() -> Finding {
    no("NotBooked", "there is no confirmed booking")
}

/// Returns `Synced` of a booking that matches the spec.
pub fn up_to_date() -> Finding {
    yes("UpToDate", "")
}

/// Returns `Synced` of a booking for another trip.
pub fn diverged(difference: impl Into<String>) -> Finding {
    no(DIVERGED, difference)
}

/// Returns `Ready` if there are too few free seats. The event has the same message.
pub fn insufficient_seats(ticket: &FlightTicket) -> Finding {
    let spec = &ticket.spec;
    let message = format!("{} -> {} has too few seats for {}; trying again every 5m", spec.from, spec.to, spec.number);
    no("InsufficientSeats", message)
}

/// Returns `Ready` if the provider refuses the token, or requires one. The event has the same message.
pub fn authentication_failed(refusal: &Refusal) -> Finding {
    let (what, cure) = if refusal.anonymous {
        ("requires a token, and the operator has none", "set --booking-token-file or --booking-token-secret")
    } else {
        ("refused the token of the operator", "replace it")
    };
    let status = refusal.status;
    no(
        "AuthenticationFailed",
        format!("The provider {what} ({status}); an administrator of the operator has to {cure}"),
    )
}

/// Returns `Ready` if the provider forbids this request, but not all requests. The event has the same message. `is_own`: the
/// request is about a booking of the ticket itself. The provider's words about any other one may be for another tenant.
pub fn forbidden(request: &Request, refusal: &Refusal, is_own: bool) -> Finding {
    let (op, words) = (request.op(), if is_own { refusal.words() } else { refusal.name() });
    no(FORBIDDEN, format!("The provider forbids the operation {op} for this ticket: {words}; trying again every 5m"))
}

/// Returns the status of a ticket if the operator has no provider. A final answer stays: without a change of the object, there is
/// nothing to request from a provider.
pub fn without_provider(ticket: &FlightTicket, lack: &str) -> StatusUpdate {
    let stored = StatusUpdate::stored(ticket);
    if ticket.is_settled() && stored.ready.is_some() { stored } else { not_configured(ticket, lack) }
}

/// Returns the status of a ticket that needs a provider, if the operator has none. `lack` says why.
pub fn not_configured(ticket: &FlightTicket, lack: &str) -> StatusUpdate {
    let stored = StatusUpdate::stored(ticket);
    StatusUpdate {
        ready: Some(no(NOT_CONFIGURED, lack)),
        synced: stored.synced.or_else(|| Some(not_booked())),
        ..stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::booking::Why;

    #[test]
    fn refusal_of_a_request_without_a_token_blames_no_token() {
        let told = |anonymous| {
            let (code, detail) = ("UNAUTHENTICATED".to_owned(), String::new());
            authentication_failed(&Refusal { why: Why::Credentials, code, detail, status: 401, anonymous }).message
        };
        assert_eq!(
            told(true),
            "The provider requires a token, and the operator has none (401); an administrator of the operator has to set \
             --booking-token-file or --booking-token-secret"
        );
        assert_eq!(
            told(false),
            "The provider refused the token of the operator (401); an administrator of the operator has to replace it"
        );
    }

    #[test]
    fn readme_explains_every_reason_and_the_event_of_each_warning() {
        let (reasons, events) = include_str!("../README.md").split_once("| Event | Type | Meaning |").expect("a table");
        for reason in REASONS.into_iter().chain([DIVERGED]) {
            assert!(reasons.contains(&format!("\n| `{reason}` | ")), "no row of a table in README.md for {reason}");
        }
        for reason in WARNINGS.into_iter().chain(["ModificationRejected"]) {
            assert!(events.contains(&format!("\n| `{reason}` | Warning | ")), "no event in README.md for {reason}");
        }
    }
}

//! What users are told of a ticket, in the words of the API.

use manager::{EventType, External, Finding};

use crate::{
    FlightTicket,
    api::v1::{FlightTicketStatus, Phase},
    booking::{Booking, Refusal},
};

manager::standard_status!(FlightTicketStatus, fenced);

/// Every reason that `Ready` or `Synced` can have. Others are the runtime's (`Paused`), or somebody's joke.
const REASONS: [&str; 15] = [
    "Booked",
    "ProviderNotConfigured",
    "BookingPending",
    "BookingRejected",
    "InsufficientSeats",
    "BookingCancelledExternally",
    "BookingNotFound",
    "BookingHeldByAnother",
    "AuthenticationFailed",
    "Cancelling",
    "ProviderUnavailable",
    "UpToDate",
    "ModificationRejected",
    "ModificationPending",
    "NotBooked",
];
const DIVERGED: &str = "Diverged";

/// Reasons of `Ready` that come with an event of the same name and words when they appear.
const WARNINGS: [&str; 7] = [
    "BookingRejected",
    "InsufficientSeats",
    "BookingCancelledExternally",
    "BookingNotFound",
    "BookingHeldByAnother",
    "ProviderUnavailable",
    "AuthenticationFailed",
];

/// A status with its two conditions, as it is stored or is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The fields; conditions in it are those that were stored.
    pub status: FlightTicketStatus,
    /// `Ready`; `None` when nobody has said anything yet.
    pub ready: Option<Finding>,
    /// `Synced`.
    pub synced: Option<Finding>,
}

/// Something that people are told once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// How serious it is.
    pub type_: EventType,
    /// The event's reason.
    pub reason: &'static str,
    /// In words.
    pub message: String,
}

impl News {
    /// Something that went well.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_: EventType::Normal, reason, message: message.into() }
    }

    /// Something that did not.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_: EventType::Warning, reason, message: message.into() }
    }
}

impl Told {
    /// What is wrong with the provider, if that is what it says: worth telling more than once.
    pub fn trouble(&self) -> Option<News> {
        let is_trouble = |ready: &&Finding| ["ProviderUnavailable", "AuthenticationFailed"].contains(&ready.reason);
        self.ready.as_ref().filter(is_trouble).map(|ready| News::warning(ready.reason, ready.message.clone()))
    }

    /// What the object says.
    pub fn stored(ticket: &FlightTicket) -> Self {
        let status = ticket.status.clone().unwrap_or_default();
        let (ready, synced) = (finding(&status, "Ready"), finding(&status, "Synced"));
        Self { status, ready, synced }
    }

    /// As the runtime takes it.
    pub fn external(&self) -> External {
        External {
            ready: self.ready.clone().unwrap_or_else(|| pending("the provider has not been asked yet")),
            synced: self.synced.clone().unwrap_or_else(not_booked),
            stalled: self.status.settled.is_some(),
        }
    }

    /// What is new compared with `before`, as events.
    pub fn news(&self, before: &Self, ticket: &FlightTicket) -> Vec<News> {
        let mut news = Vec::new();
        let (is, was) = (&self.status, &before.status);
        let is_held = |status: &FlightTicketStatus| matches!(status.phase, Phase::Booked | Phase::Modifying);
        if let (Some(id), Some(number)) = (is.booking_id.as_deref().filter(|_| is_held(is)), is.number) {
            if !is_held(was) || was.booking_id.as_deref() != Some(id) {
                news.push(News::normal("Booked", booked_words(ticket, number, is, id)));
            } else if let Some(earlier) = was.number.filter(|earlier| *earlier != number) {
                news.push(News::normal("Modified", format!("Booking {id} changed from {earlier} to {number} seat(s)")));
            }
        }
        let ready = (&self.ready, &before.ready, WARNINGS.as_slice());
        for (now, then, warnings) in [ready, (&self.synced, &before.synced, &["ModificationRejected"])] {
            let is_known = |now: &Finding| then.as_ref().is_some_and(|then| then.reason == now.reason);
            let fresh = now.as_ref().filter(|now| warnings.contains(&now.reason) && !is_known(now));
            news.extend(fresh.map(|now| News::warning(now.reason, now.message.clone())));
        }
        news
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

fn booked_words(ticket: &FlightTicket, number: i64, status: &FlightTicketStatus, id: &str) -> String {
    let code = status.confirmation_code.as_deref().unwrap_or("no confirmation code");
    format!("Booked {number} seat(s) {} -> {}: {code} ({id})", ticket.spec.from, ticket.spec.to)
}

fn yes(reason: &'static str, message: impl Into<String>) -> Finding {
    Finding { status: Some(true), reason, message: message.into() }
}

/// A condition that does not hold.
pub fn no(reason: &'static str, message: impl Into<String>) -> Finding {
    Finding { status: Some(false), reason, message: message.into() }
}

/// Nobody knows: the provider does not answer.
pub fn unavailable(message: impl Into<String>) -> Finding {
    Finding { status: None, reason: "ProviderUnavailable", message: message.into() }
}

/// `Ready` of a confirmed booking.
pub fn booked(ticket: &FlightTicket, booking: &Booking) -> Finding {
    let code = booking.confirmation_code.as_deref().unwrap_or("no confirmation code");
    yes("Booked", format!("{} seat(s) {} -> {}: {code}", booking.number, ticket.spec.from, ticket.spec.to))
}

/// `Ready` of what is under way.
pub fn pending(message: impl Into<String>) -> Finding {
    no("BookingPending", message)
}

/// `Synced` of what is not booked.
pub fn not_booked() -> Finding {
    no("NotBooked", "there is no confirmed booking")
}

/// `Synced` of a booking that is as the spec says.
pub fn up_to_date() -> Finding {
    yes("UpToDate", "")
}

/// `Synced` of a booking of another trip.
pub fn diverged(difference: impl Into<String>) -> Finding {
    no(DIVERGED, difference)
}

/// `Ready` and the event when there are too few seats.
pub fn insufficient_seats(ticket: &FlightTicket) -> Finding {
    let spec = &ticket.spec;
    let message = format!("{} -> {} has too few seats for {}; trying again every 5m", spec.from, spec.to, spec.number);
    no("InsufficientSeats", message)
}

/// `Ready` and the event when a token is not accepted.
pub fn authentication_failed(refusal: &Refusal) -> Finding {
    no("AuthenticationFailed", format!("The provider refused the credentials ({})", refusal.status))
}

/// The status of a ticket when there is nobody to ask.
pub fn not_configured(ticket: &FlightTicket) -> Told {
    let finding = |reason| no(reason, "the operator has no booking provider; set --booking-url");
    let stored = Told::stored(ticket);
    Told {
        ready: Some(finding("ProviderNotConfigured")),
        synced: stored.synced.or_else(|| Some(not_booked())),
        ..stored
    }
}

//! The booking provider: the requests to it and their outcomes, as values. No Kubernetes.
//!
//! [`wire`] translates these values to HTTP and back, and `client` sends them. [`admission`] gives each namespace its share, so
//! that none can harm another, and [`circuit`] limits the requests of a namespace while they fail.

use std::time::Duration;

use jiff::civil::Date;

pub(crate) mod admission;
pub(crate) mod circuit;
mod client;
mod transport;
pub(crate) mod wire;

pub use client::{Client, Place, Settings, Token};
pub use transport::{Failure, Https, Transport, Trust};

/// A request to the provider. Each one is idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Make this booking, or return the one that already exists under the reference.
    Book(Order),
    /// Return this booking.
    Get {
        /// The provider's ID of the booking.
        id: String,
    },
    /// Change the number of seats, if the booking still has this version.
    Modify {
        /// The provider's ID of the booking.
        id: String,
        /// The version that the operator has read.
        version: u64,
        /// The new number of seats.
        number: i32,
    },
    /// Move the booking to another reference.
    Adopt {
        /// The provider's ID of the booking.
        id: String,
        /// The current reference.
        expect: String,
        /// The new reference.
        reference: String,
        /// The object that the booking is for from then on.
        contact: Contact,
    },
    /// Cancel the booking of this reference, if any, and close the reference: a late request can no longer book under it.
    Close {
        /// The operator's name of the booking.
        reference: String,
    },
    /// Return the state of this reference.
    Lookup {
        /// The operator's name of the booking.
        reference: String,
    },
}

/// The booking to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The operator's name of the booking; also the idempotency key.
    pub reference: String,
    /// The departure city.
    pub from: String,
    /// The destination city.
    pub to: String,
    /// The number of seats.
    pub number: i32,
    /// The departure date; `None` for any day.
    pub departure_date: Option<Date>,
    /// The cabin class.
    pub cabin: String,
    /// The FlightTicket.
    pub contact: Contact,
}

/// The FlightTicket that a booking is for, as the operator has told the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    /// Its namespace. The booking belongs to this namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The outcome of a [`Request`]: done, not done, or unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done, with the current booking.
    Booking(Booking),
    /// Done, with the current state of the reference.
    Standing(Standing),
    /// Not done, for a reason that the API defines.
    Refused(Refusal),
    /// Done or not done: there was no answer, or none that the API defines. Repeat the request, and conclude nothing.
    Unknown(Unknown),
}

/// A booking as the provider describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The provider's ID of it, which is safe in a URL path.
    pub id: String,
    /// The operator's name of it.
    pub reference: String,
    /// The departure city.
    pub from: String,
    /// The destination city.
    pub to: String,
    /// The number of seats.
    pub number: i64,
    /// The departure date.
    pub departure_date: Option<String>,
    /// The cabin class.
    pub cabin: Option<String>,
    /// The state.
    pub state: State,
    /// The confirmation code, which the passengers show.
    pub confirmation_code: Option<String>,
    /// Grows by one with each change.
    pub version: u64,
    /// The airline's message about it.
    pub message: Option<String>,
    /// The namespace that it belongs to; `None` if the provider does not say.
    pub namespace: Option<String>,
}

/// The state of a booking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Recorded, not yet confirmed.
    Pending,
    /// Confirmed.
    Confirmed,
    /// Refused by the airline.
    Rejected,
    /// Cancelled.
    Cancelled,
    /// A state that the API does not define. The operator shows it and does not interpret it.
    Other(String),
}

/// The state of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The state of its booking. A closed reference that never had a booking is also cancelled.
    pub state: State,
    /// The booking that has this reference, or had it.
    pub booking_id: Option<String>,
}

/// Why the provider did not carry out a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for decisions.
    pub why: Why,
    /// The provider's error code.
    pub code: String,
    /// The provider's message.
    pub detail: String,
    /// The HTTP status of the answer.
    pub status: u16,
    /// Whether the request was sent without a token. [`Client`] sets it.
    pub anonymous: bool,
}

/// The reasons that the API defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The request itself is invalid: a repetition does not help.
    Invalid,
    /// Too few seats are free.
    NoSeats,
    /// The reference was closed.
    Closed,
    /// Another booking has the reference.
    Taken,
    /// There is no such booking or reference.
    Missing,
    /// The booking has changed since it was read.
    Stale,
    /// The booking cannot be changed or cancelled any more.
    Fixed,
    /// The token is not accepted, or a token is required, whatever the request.
    Credentials,
    /// The token is accepted, but not for this request.
    Forbidden,
}

/// Why the outcome of a request is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The error, or the status of the answer that is not understood.
    pub why: String,
    /// What the provider says about it; empty if there is no answer, or it says nothing.
    pub words: String,
    /// The provider's `Retry-After`, or the rest of the pause while the circuit of the namespace is open.
    pub retry_after: Option<Duration>,
    /// Whether there was an answer other than 429 and 5xx: then the provider is neither down nor overloaded.
    pub answered: bool,
}

impl Refusal {
    /// Returns the provider's reason for users.
    pub fn words(&self) -> String {
        let Self { code, detail, status, .. } = self;
        if code.is_empty() { format!("the answer is {status}") } else { format!("{code}: {detail}") }
    }

    /// Returns the name of the reason, without the provider's words.
    pub fn name(&self) -> String {
        if self.code.is_empty() { self.status.to_string() } else { self.code.clone() }
    }
}

impl Unknown {
    /// Returns the reason for users. `is_own`: the request is about a booking of the ticket itself. The provider's words about any
    /// other one may be for another tenant.
    pub fn message(&self, is_own: bool) -> String {
        let Self { why, words, .. } = self;
        if is_own && !words.is_empty() { format!("{why}: {words}") } else { why.clone() }
    }
}

impl Request {
    /// All values of [`op`](Self::op).
    pub(crate) const OPS: [&str; 6] = ["create", "get", "modify", "adopt", "cancel", "lookup"];

    /// Returns the name of the operation in metrics and messages.
    pub fn op(&self) -> &'static str {
        match self {
            Self::Book(_) => "create",
            Self::Get { .. } => "get",
            Self::Modify { .. } => "modify",
            Self::Adopt { .. } => "adopt",
            Self::Close { .. } => "cancel",
            Self::Lookup { .. } => "lookup",
        }
    }
}

/// Whether the text is safe in a URL path. All ids and references must be such words.
pub(crate) fn is_word(text: &str, longest: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=longest).contains(&text.len()) && text.bytes().all(is_allowed) && !text.bytes().all(|byte| byte == b'.')
}

/// Makes a provider's text safe to show to users: one line, no control characters, at most [`LONGEST`] characters.
pub(crate) fn plain(text: &str) -> String {
    // Also characters that reverse the text direction, and characters of zero width.
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).take(LONGEST).collect::<String>().trim().to_owned()
}

/// How many characters of a provider's text are kept.
const LONGEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_word_accepts_only_path_safe_text() {
        for good in ["BK-0123456789", "a", "c0ffee00-0000-4000-8000-000000000001.10"] {
            assert!(is_word(good, 64), "{good}");
        }
        for bad in ["", "..", ".", "a/b", "a b", "a\n", "é", "a?b", "%2e", &"x".repeat(65)] {
            assert!(!is_word(bad, 64), "{bad:?}");
        }
    }

    #[test]
    fn provider_text_is_shortened_and_loses_control_characters() {
        assert_eq!(plain("a\u{1b}[31mb\r\nc\u{202e}d "), "a [31mb  c d");
        assert_eq!(plain(&"é".repeat(1_000)).chars().count(), 256);
    }
}

//! A booking provider, as its client sees it: what can be asked, and what can come of it. No Kubernetes in it.
//!
//! These are values. [`wire`] turns them into HTTP and back, `client` sends, [`circuit`] keeps a provider that is down from
//! being asked all the time.

use std::time::Duration;

use jiff::civil::Date;

pub(crate) mod circuit;
mod client;
mod transport;
pub(crate) mod wire;

pub use client::{Client, Settings, Token};
pub use transport::{Failure, Https, Transport};

/// A question or an order. Each can be repeated without doing it twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Make this booking, or find the one that was made under the reference before.
    Book(Order),
    /// Say how this booking is.
    Get {
        /// The provider's name of it.
        id: String,
    },
    /// Change the number of seats of the booking that is still in this version.
    Modify {
        /// The provider's name of it.
        id: String,
        /// As it was read.
        version: u64,
        /// As it is to be.
        number: i32,
    },
    /// Put the booking under another reference.
    Adopt {
        /// The provider's name of it.
        id: String,
        /// The reference that it has so far.
        expect: String,
        /// The one that it is to have.
        reference: String,
    },
    /// Cancel what was booked under this reference, and close it: no late request can book under it any more.
    Close {
        /// Our name of the booking.
        reference: String,
    },
    /// Say where this reference stands.
    Lookup {
        /// Our name of the booking.
        reference: String,
    },
}

/// What is to be booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Our name of the booking; the key that makes repeating safe.
    pub reference: String,
    /// City at the start.
    pub from: String,
    /// City at the end.
    pub to: String,
    /// Seats.
    pub number: i32,
    /// The day, where it matters.
    pub departure_date: Option<Date>,
    /// Where one sits.
    pub cabin: String,
    /// Whom it is for: namespace and name.
    pub contact: (String, String),
}

/// What became of a [`Request`]. It was done, it was not done, or nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done: this is the booking now.
    Booking(Booking),
    /// Done: this is how the reference stands now.
    Standing(Standing),
    /// Not done, for a reason that both sides know.
    Refused(Refusal),
    /// It may have been done. There was no answer, or none that both sides understand: ask again, and decide nothing.
    Unknown(Unknown),
}

/// A booking as the provider describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// The provider's name of it: a plain word.
    pub id: String,
    /// Our name of it.
    pub reference: String,
    /// City at the start.
    pub from: String,
    /// City at the end.
    pub to: String,
    /// Seats.
    pub number: i64,
    /// The day.
    pub departure_date: Option<String>,
    /// Where one sits.
    pub cabin: Option<String>,
    /// Where it stands.
    pub state: State,
    /// What the passengers show.
    pub confirmation_code: Option<String>,
    /// One more with each change.
    pub version: u64,
    /// What the airline says about it.
    pub message: Option<String>,
}

/// Where a booking stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Taken down, not yet confirmed.
    Pending,
    /// Bought.
    Confirmed,
    /// Refused by the airline.
    Rejected,
    /// Over.
    Cancelled,
    /// A word that we do not know: shown, never guessed.
    Other(String),
}

/// Where a reference stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Where its booking stands; cancelled also when it never had one and is closed.
    pub state: State,
    /// The booking that has it, or had it.
    pub booking_id: Option<String>,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For deciding.
    pub why: Why,
    /// The provider's word for it.
    pub code: String,
    /// The provider's sentence.
    pub detail: String,
    /// The status of the answer.
    pub status: u16,
}

/// The reasons that both sides know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The request itself is at fault: repeating it does not help.
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
    /// The token is not accepted.
    Credentials,
}

/// No answer that says what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// What came instead.
    pub why: String,
    /// When the provider wants to be asked again.
    pub retry_after: Option<Duration>,
    /// Whether there was an answer: a provider that answers is not down.
    pub answered: bool,
}

impl Request {
    /// What [`op`](Self::op) can say.
    pub(crate) const OPS: [&str; 6] = ["create", "get", "modify", "adopt", "cancel", "lookup"];

    /// The word for it in metrics and messages.
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

/// Whether the text is a plain word that can stand in a path: the shape of ids and references.
pub(crate) fn is_word(text: &str, longest: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=longest).contains(&text.len()) && text.bytes().all(is_allowed) && !text.bytes().all(|byte| byte == b'.')
}

/// A text of the provider for people's eyes: on one line, without control characters, and not long.
pub(crate) fn plain(text: &str) -> String {
    // Also what turns the direction of writing around, and what has no width.
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).take(LONGEST).collect::<String>().trim().to_owned()
}

/// Characters of a provider's text that are kept.
const LONGEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_can_stand_in_a_path() {
        for good in ["BK-0123456789", "a", "c0ffee00-0000-4000-8000-000000000001.10"] {
            assert!(is_word(good, 64), "{good}");
        }
        for bad in ["", "..", ".", "a/b", "a b", "a\n", "é", "a?b", "%2e", &"x".repeat(65)] {
            assert!(!is_word(bad, 64), "{bad:?}");
        }
    }

    #[test]
    fn texts_of_a_provider_cannot_forge_lines_or_hide_words() {
        assert_eq!(plain("a\u{1b}[31mb\r\nc\u{202e}d "), "a [31mb  c d");
        assert_eq!(plain(&"é".repeat(1_000)).chars().count(), 256);
    }
}

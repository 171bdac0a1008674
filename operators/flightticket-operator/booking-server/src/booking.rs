//! The domain types: booking, order, route, seat. Values only: nothing here reads a clock, a file or a socket.

use std::fmt;

use jiff::{Timestamp, civil::Date};
use unicode_normalization::UnicodeNormalization as _;

use crate::problem::{Code, Problem};

/// Most seats of one booking.
pub const MOST_SEATS: u8 = 10;

/// Most seats of one route. Limited, because each booking scans the taken seats of its route.
pub const LARGEST_ROUTE: u32 = 10_000;

/// The client's own name for a booking. It is the idempotency key that makes repeated requests safe.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference(String);

impl Reference {
    /// Accepts 1 to 128 ASCII letters, digits, dots, underscores and hyphens.
    pub fn parse(text: &str) -> Option<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        ((1..=128).contains(&text.len()) && text.bytes().all(is_allowed)).then(|| Self(text.to_owned()))
    }

    /// A reference that no client can have: the empty text.
    pub(crate) fn of_nobody() -> Self {
        Self(String::new())
    }

    /// As the client wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The state of a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Accepted; holds seats; not yet confirmed.
    Pending,
    /// Bought.
    Confirmed,
    /// Refused by the airline after acceptance. Its reference is free again.
    Rejected,
    /// Cancelled for ever, by the client or by the airline.
    Cancelled,
}

impl State {
    /// All states, in the order of the status page.
    pub const ALL: [Self; 4] = [Self::Confirmed, Self::Pending, Self::Cancelled, Self::Rejected];

    /// The name in the API and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Confirmed => "CONFIRMED",
            Self::Rejected => "REJECTED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The state with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether a booking in this state holds seats.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Pending | Self::Confirmed)
    }
}

/// The class of a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cabin {
    /// At the back.
    #[default]
    Economy,
    /// In the middle.
    Business,
    /// In front.
    First,
}

impl Cabin {
    /// The name in the API and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Economy => "Economy",
            Self::Business => "Business",
            Self::First => "First",
        }
    }

    /// The cabin with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Economy, Self::Business, Self::First].into_iter().find(|cabin| cabin.name() == name)
    }
}

/// A seat of a route, counted from zero. A row has six seats, A to F.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(pub u32);

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = ["A", "B", "C", "D", "E", "F"][(self.0 % 6) as usize];
        write!(f, "{}{letter}", self.0 / 6 + 1)
    }
}

/// The key of a stock of seats: a pair of cities, and a day if the order has one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// The departure city, normalised by [`folded`].
    pub from: String,
    /// The destination city, normalised by [`folded`].
    pub to: String,
    /// The day; `None` for "any day".
    pub date: Option<Date>,
}

impl RouteKey {
    /// The key of a trip. Cities that differ only in case or in Unicode composition have the same key.
    pub fn new(from: &str, to: &str, date: Option<Date>) -> Self {
        Self { from: folded(from), to: folded(to), date }
    }

    /// The same cities without a day. A new day starts with the number of seats of this key.
    pub fn any_day(&self) -> Self {
        Self { date: None, ..self.clone() }
    }
}

/// Normalises the name of a city for comparison: Unicode NFC, lower case.
pub fn folded(city: &str) -> String {
    city.nfc().collect::<String>().to_lowercase().nfc().collect()
}

/// Validates the name of a city: 1 to 64 characters, no white space at the ends, no control characters.
pub fn check_city(field: &'static str, name: &str) -> Result<(), Problem> {
    let length = name.chars().count();
    if !(1..=64).contains(&length) {
        return Err(Problem::invalid(field, format!("{field} must have 1 to 64 characters, not {length}")));
    }
    if name.trim() != name {
        return Err(Problem::invalid(field, format!("{field} must not begin or end with a blank")));
    }
    if name.chars().any(char::is_control) {
        return Err(Problem::invalid(field, format!("{field} must not contain control characters")));
    }
    Ok(())
}

/// The object that a booking is for, as the client names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    /// Such as a Kubernetes namespace.
    pub namespace: String,
    /// Such as the name of a `FlightTicket`.
    pub name: String,
}

/// A client's order of seats for a trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The idempotency key of the request.
    pub reference: Reference,
    /// Departure city, as the client wrote it.
    pub from: String,
    /// Destination city, as the client wrote it.
    pub to: String,
    /// How many seats.
    pub number: u8,
    /// The day of the trip, if the client gave one.
    pub date: Option<Date>,
    /// Which class.
    pub cabin: Cabin,
    /// The object that the booking is for. A client reads it to decide who may take over the booking.
    pub contact: Option<Contact>,
}

impl Order {
    /// The stock that the order takes seats from.
    pub fn route(&self) -> RouteKey {
        RouteKey::new(&self.from, &self.to, self.date)
    }
}

/// A booking as the database stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// "BK-" and ten letters or digits.
    pub id: String,
    /// The first order, with the reference and the number of seats that the booking has now. The number stays when the booking is
    /// cancelled or rejected.
    pub order: Order,
    /// Its state.
    pub state: State,
    /// The code that the passenger shows; `None` before confirmation.
    pub confirmation: Option<String>,
    /// The seats that it holds; empty unless the booking is live.
    pub seats: Vec<Seat>,
    /// Starts at 1; each change adds one.
    pub version: u32,
    /// A message from the airline.
    pub message: Option<String>,
    /// When the server will confirm a pending booking.
    pub confirm_at: Option<Timestamp>,
    /// Whether the airline has reported the departure.
    pub departed: bool,
    /// When the booking was made.
    pub created_at: Timestamp,
    /// When the booking last changed.
    pub updated_at: Timestamp,
}

impl Booking {
    /// The stock that its seats belong to.
    pub fn route(&self) -> RouteKey {
        self.order.route()
    }

    /// Whether the order is for the same trip. The number of seats may differ: clients can change the number, but not the trip.
    pub fn is_same_trip(&self, order: &Order) -> bool {
        self.route() == order.route() && self.order.cabin == order.cabin
    }

    /// Whether the flight has left.
    pub fn has_flown(&self, now: Timestamp) -> bool {
        self.departed || self.order.date.is_some_and(|date| is_past(date, now))
    }
}

/// Whether the day is over everywhere on Earth.
pub fn is_past(date: Date, now: Timestamp) -> bool {
    let westernmost = jiff::tz::TimeZone::fixed(jiff::tz::offset(-12));
    date < now.to_zoned(westernmost).date()
}

/// Random identifiers for a new booking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh {
    /// The id.
    pub id: String,
    /// The confirmation code.
    pub confirmation: String,
}

impl Fresh {
    /// Draws identifiers from the operating system's random numbers: a client must not be able to guess the ids and codes of
    /// other bookings from its own. A unique index refuses an id that already exists.
    ///
    /// # Panics
    ///
    /// When the operating system has no random numbers.
    pub fn draw() -> Self {
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("the operating system has random numbers");
        Self::of(random)
    }

    /// Writes 16 random bytes as identifiers of 10 and 6 characters. Each character holds five bits of its byte.
    pub fn of(random: [u8; 16]) -> Self {
        const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
        let characters = random.map(|byte| char::from(CROCKFORD[usize::from(byte % 32)]));
        let (id, confirmation) = characters.split_at(10);
        Self { id: format!("BK-{}", String::from_iter(id)), confirmation: String::from_iter(confirmation) }
    }
}

/// The refusal of an unknown id. The id comes from a client, so only 40 characters of it are shown, without control characters.
pub fn no_such_booking(id: &str) -> Problem {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(40).collect();
    Problem::new(Code::BookingNotFound, format!("there is no booking {shown:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_plain_words() {
        for good in ["a", "5f0e.1", "A_b-C.9", &"x".repeat(128)] {
            assert_eq!(Reference::parse(good).map(|it| it.to_string()).as_deref(), Some(good));
        }
        for bad in ["", "a b", "a/b", "é", "\"a\"", "a\n", &"x".repeat(129)] {
            assert_eq!(Reference::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn city_comparison_ignores_case_and_unicode_form() {
        // "é" as one character and as two, and a Greek capital.
        assert_eq!(RouteKey::new("Orl\u{e9}ans", "ΑΘΉΝΑ", None), RouteKey::new("ORLE\u{301}ANS", "αθήνα", None));
        assert_ne!(RouteKey::new("a", "b", None), RouteKey::new("b", "a", None));
    }

    #[test]
    fn cities_have_no_blank_at_the_ends_and_no_control_characters() {
        for good in ["London", "São Paulo", "東京", &"ü".repeat(64)] {
            assert_eq!(check_city("from", good), Ok(()), "{good}");
        }
        for bad in ["", " ", " a", "a ", "a\u{a0}", "a\u{1b}[0m", "a\nb", &"ü".repeat(65)] {
            assert_eq!(check_city("from", bad).unwrap_err().code, Code::Invalid, "{bad:?}");
        }
    }

    #[test]
    fn seat_row_has_six_seats() {
        assert_eq!([0, 5, 6, 66].map(|seat| Seat(seat).to_string()), ["1A", "1F", "2A", "12A"]);
    }

    #[test]
    fn date_is_past_once_over_in_all_time_zones() {
        let date = Date::constant(2026, 3, 1);
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(!is_past(date, at("2026-03-02T11:59:59Z")));
        assert!(is_past(date, at("2026-03-02T12:00:00Z")));
    }

    #[test]
    fn generated_ids_have_expected_format() {
        let fresh = Fresh::draw();
        let is_crockford =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase() && !b"ILOU".contains(&b));
        assert!(fresh.id.starts_with("BK-") && fresh.id.len() == 13 && is_crockford(&fresh.id[3..]), "{fresh:?}");
        assert!(fresh.confirmation.len() == 6 && is_crockford(&fresh.confirmation), "{fresh:?}");
    }

    #[test]
    fn identifiers_do_not_follow_from_a_seed() {
        let drawn = || {
            fastrand::seed(7);
            Fresh::draw()
        };
        assert_ne!(drawn(), drawn());
    }

    #[test]
    fn each_byte_becomes_one_character_of_the_ids() {
        let counted = std::array::from_fn(|place| u8::try_from(place).unwrap() + 240);
        assert_eq!(Fresh::of(counted), Fresh { id: "BK-GHJKMNPQRS".to_owned(), confirmation: "TVWXYZ".to_owned() });
    }
}

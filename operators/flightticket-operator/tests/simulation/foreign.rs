//! Users who work with the provider without the operator: they make bookings under references of their own, and let tickets name
//! bookings. Such a booking is foreign until a ticket takes it over.

use bytes::Bytes;
use fastrand::Rng;
use http::Request;
use serde_json::{Value, json};

use super::{Provider, trip};

/// The annotation that names a booking.
const BOOKING_ID: &str = "flights.com/booking-id";
/// The annotation with which a ticket takes over the booking that it names.
const ADOPT: &str = "flights.com/adopt-booking";
/// The references under which users book begin with this. Those of the operator begin with a uid.
const DESK: &str = "desk-";
/// An id that no booking has.
const ABSENT: &str = "BK-ABSENT";
/// Not the form of an id: in a path, it leads to something else.
const INVALID: &str = "../references/desk-0";
/// A namespace that has bookings and no tickets.
const ELSEWHERE: &str = "elsewhere";

/// Whether users have made the booking with this reference, and no ticket has taken it over.
pub(crate) fn is_foreign(reference: &str) -> bool {
    reference.starts_with(DESK)
}

/// Whether the text has the form of an id, and so can name a booking.
pub(crate) fn is_id(text: &str) -> bool {
    text != INVALID
}

/// The booking that the annotation of a ticket names.
pub(crate) fn named(ticket: &Value) -> Option<&str> {
    ticket["metadata"]["annotations"][BOOKING_ID].as_str()
}

/// Whether the ticket takes over the booking that it names.
pub(crate) fn adopts(ticket: &Value) -> bool {
    ticket["metadata"]["annotations"][ADOPT] == "true" && !observes(ticket)
}

/// Whether the operator only reports the booking of the ticket.
pub(crate) fn observes(ticket: &Value) -> bool {
    ticket["spec"]["managementPolicy"] == "Observe"
}

impl Provider {
    /// Draws a merge patch that lets the ticket of this name adopt, observe or only name a booking. Often a user has just made
    /// the booking. It may also be any other one, such as that of another ticket, or not exist. If the ticket names a booking
    /// already, this corrects or removes the name.
    pub(crate) fn draw_import(&self, namespace: &str, name: &str, rng: &mut Rng) -> Value {
        let id = match rng.u8(..10) {
            0..=4 => self.book_directly(namespace, name, rng).or(Some(ABSENT.to_owned())),
            5 | 6 => self.draw_booking(rng).or(Some(ABSENT.to_owned())),
            7 => Some(ABSENT.to_owned()),
            8 => Some(INVALID.to_owned()),
            _ => None,
        };
        let adopt = (rng.u8(..3) > 0).then_some("true");
        let policy = if rng.u8(..3) == 0 { "Observe" } else { "Manage" };
        json!({
            "metadata": {"annotations": {BOOKING_ID: id, ADOPT: adopt}}, "spec": {"managementPolicy": policy},
        })
    }

    /// Makes a booking as a user does: for the trip of the ticket or another one, and for its namespace, another one or none.
    /// Returns the id, or `None` if the provider refuses it.
    fn book_directly(&self, namespace: &str, name: &str, rng: &mut Rng) -> Option<String> {
        let reference = format!("{DESK}{}", self.0.airline.books().bookings.len());
        let contact = match rng.u8(..6) {
            0 => Value::Null,
            1 => json!({"namespace": ELSEWHERE, "name": name}),
            _ => json!({"namespace": namespace, "name": "desk"}),
        };
        let to = if rng.u8(..4) == 0 { "Oslo" } else { "London" };
        let mut order = json!({
            "reference": reference, "from": format!("City {name}"), "to": to, "number": rng.u8(1..=10), "cabin": "Economy",
            "contact": contact,
        });
        trip::draw(rng).into_iter().for_each(|(field, value)| order[field] = value);
        let request = Request::post("/v1/bookings").body(Bytes::from(order.to_string())).expect("a request");
        let answer: Value = serde_json::from_slice(self.handle(&request).body()).unwrap_or_default();
        answer["id"].as_str().map(str::to_owned)
    }

    /// Draws one of all bookings.
    fn draw_booking(&self, rng: &mut Rng) -> Option<String> {
        let books = self.0.airline.books();
        rng.choice(&books.bookings).map(|booking| booking.id.clone())
    }
}

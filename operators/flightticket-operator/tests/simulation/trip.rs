//! The trip of a ticket: where from and to, when, and in which cabin. Section 5.1 of the specification says that it never changes,
//! and section 6.1 that the provider makes no booking of another trip under its reference. So whatever the operator orders is this
//! trip.

use std::collections::BTreeMap;

use booking_server::booking::Booking;
use fastrand::Rng;
use model_apiserver::Change;
use serde_json::{Map, Value, json};

use super::{audit::uid, foreign::is_foreign, uid_of};

/// The fields of a spec that no user can change.
pub(crate) const IMMUTABLE: [&str; 2] = ["cabin", "departureDate"];
/// Makes the draw of a trip independent of the other draws. With this value, the specs of the world in `tests/worlds` stay as they
/// were when it found something.
const TRIPS: u64 = 0x0074_7269_716b;
const CABINS: [Option<&str>; 5] = [None, None, Some("Economy"), Some("Business"), Some("First")];
/// A day for which the provider sells seats.
const DAY: &str = "2030-05-04";
/// A day that is over when the world begins: the clock of the provider begins with the year 1970.
const PAST: &str = "1969-12-30";

/// The trip in a spec, an order or a booking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trip {
    from: String,
    to: String,
    date: Option<String>,
    cabin: String,
}

impl Trip {
    /// Reads the trip in a spec or in the body of an order, which have the same fields.
    pub(crate) fn of(fields: &Value) -> Self {
        let text = |field: &str| fields[field].as_str().map(str::to_owned);
        Self {
            from: text("from").unwrap_or_default(),
            to: text("to").unwrap_or_default(),
            date: text("departureDate"),
            cabin: text("cabin").unwrap_or_else(|| "Economy".to_owned()),
        }
    }

    pub(crate) fn booked(booking: &Booking) -> Self {
        let order = &booking.order;
        Self {
            from: order.from.clone(),
            to: order.to.clone(),
            date: order.date.map(|date| date.to_string()),
            cabin: order.cabin.name().to_owned(),
        }
    }

    /// Whether the flight has left before the world begins, so that the provider sells no seat.
    pub(crate) fn has_left(&self) -> bool {
        self.date.as_deref() == Some(PAST)
    }
}

/// Draws the cabin and the day of a trip, each of which is absent in some. This takes nothing from the generator.
pub(crate) fn draw(rng: &Rng) -> Map<String, Value> {
    let mut apart = Rng::with_seed(rng.get_seed() ^ TRIPS);
    let cabin = CABINS[usize::from(apart.u8(..5))];
    let date = match apart.u8(..12) {
        0 => Some(PAST),
        1..=4 => Some(DAY),
        _ => None,
    };
    let fields = [("cabin", cabin), ("departureDate", date)];
    fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), json!(value?)))).collect()
}

/// The trips of all tickets, and what the operator has ordered.
#[derive(Default)]
pub(crate) struct Trips {
    /// The trip of each ticket, by its uid.
    wanted: BTreeMap<String, Trip>,
    /// Orders that are not checked yet, because the changes of tickets arrive later: the uid of the ticket, and the trip.
    ordered: Vec<(String, Trip)>,
    wrong: Option<String>,
}

impl Trips {
    /// Takes in a change of a ticket.
    pub(crate) fn changed(&mut self, change: &Change) {
        if let Some(ticket) = &change.after {
            self.knows(ticket);
        }
    }

    /// Takes in that a ticket exists.
    pub(crate) fn knows(&mut self, ticket: &Value) {
        let trip = Trip::of(&ticket["spec"]);
        let known = self.wanted.entry(uid(ticket).to_owned()).or_insert_with(|| trip.clone());
        if *known != trip {
            let why = format!("the trip of {} has changed from {known:?} to {trip:?}", uid(ticket));
            self.wrong.get_or_insert(why);
        }
    }

    /// Takes in that a booking was ordered with this body.
    pub(crate) fn orders(&mut self, body: &Value) {
        let reference = body["reference"].as_str().unwrap_or_default();
        if !is_foreign(reference) {
            self.ordered.push((uid_of(reference).to_owned(), Trip::of(body)));
        }
    }

    /// Checks everything since the last call.
    ///
    /// # Errors
    ///
    /// If a ticket has another trip than before, or the operator has ordered another one.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        for (uid, ordered) in std::mem::take(&mut self.ordered) {
            // A ticket that a restore has removed may never have been shown.
            if let Some(wanted) = self.wanted.get(&uid).filter(|wanted| **wanted != ordered) {
                return Err(format!("the operator has ordered {ordered:?} for {uid}, which wants {wanted:?}"));
            }
        }
        self.wrong.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(more: &[(&str, &str)]) -> Value {
        let mut spec = json!({"from": "City a", "to": "London", "number": 2});
        for (field, value) in more {
            spec[*field] = json!(value);
        }
        json!({"metadata": {"uid": "uid"}, "spec": spec})
    }

    #[test]
    fn order_of_another_trip_is_found() {
        let business = [("cabin", "Business"), ("departureDate", DAY)];
        let check = |reference: &str, ordered: &[(&str, &str)]| {
            let mut trips = Trips::default();
            let mut body = ticket(ordered)["spec"].clone();
            body["reference"] = json!(reference);
            trips.orders(&body);
            trips.knows(&ticket(&business));
            trips.check()
        };
        for reference in ["uid", "uid.1"] {
            assert_eq!(check(reference, &business), Ok(()));
            for wrong in [
                &business[..1],
                &business[1..],
                &[],
                &[("cabin", "First"), business[1]],
                &[business[0], ("to", "Oslo")],
            ] {
                assert!(check(reference, wrong).is_err(), "{wrong:?}");
            }
        }
        assert_eq!(check("other", &[]), Ok(()), "the ticket is not known");
        assert_eq!(check("desk-0", &[]), Ok(()), "a user has ordered it");
    }

    #[test]
    fn trip_that_changes_is_found() {
        let mut trips = Trips::default();
        trips.knows(&ticket(&[]));
        trips.knows(&ticket(&[("cabin", "Economy")]));
        assert_eq!(trips.check(), Ok(()), "Economy is the default");
        trips.knows(&ticket(&[("departureDate", DAY)]));
        assert!(trips.check().is_err());
    }
}

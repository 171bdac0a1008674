//! Converts between JSON and the domain types. Parsing refuses unknown fields: a misspelt one would change what a client buys.

use http::{HeaderMap, HeaderValue, header};
use jiff::civil::Date;
use serde_json::{Map, Value, json};

use crate::{
    booking::{Booking, Cabin, Contact, MOST_SEATS, Order, Reference, Seat, check_city, folded},
    ledger::{Expected, Standing},
    problem::{Code, Problem},
};

/// The fields of a JSON object. Each method takes one field out; `end` refuses the fields that are left, which are unknown.
struct Fields(Map<String, Value>);

impl Fields {
    fn of(value: Value) -> Result<Self, Problem> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(Problem::new(Code::Invalid, "the body must be a JSON object")),
        }
    }

    /// Takes an optional field; null is the same as missing.
    fn optional(&mut self, name: &'static str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn optional_text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        match self.optional(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::invalid(name, format!("{name} must be a string"))),
        }
    }

    fn text(&mut self, name: &'static str) -> Result<String, Problem> {
        self.optional_text(name)?.ok_or_else(|| Problem::invalid(name, format!("{name} is missing")))
    }

    fn reference(&mut self, name: &'static str) -> Result<Reference, Problem> {
        Reference::parse(&self.text(name)?).ok_or_else(|| Problem::invalid(name, shape_of_reference(name)))
    }

    fn city(&mut self, name: &'static str) -> Result<String, Problem> {
        let city = self.text(name)?;
        check_city(name, &city).map(|()| city)
    }

    fn date(&mut self, name: &'static str) -> Result<Option<Date>, Problem> {
        let Some(text) = self.optional_text(name)? else { return Ok(None) };
        // Only the form of RFC 3339: the parser accepts more forms.
        let date = text.parse::<Date>().ok().filter(|date| date.to_string() == text);
        date.map(Some).ok_or_else(|| Problem::invalid(name, format!("{name} must be a day like 2027-01-31")))
    }

    fn whole(&mut self, name: &'static str, least: u32, most: u32) -> Result<u32, Problem> {
        let value = self.0.remove(name).ok_or_else(|| Problem::invalid(name, format!("{name} is missing")))?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| Problem::invalid(name, format!("{name} must be a whole number from {least} to {most}")))
    }

    fn number(&mut self) -> Result<u8, Problem> {
        let number = self.whole("number", 1, u32::from(MOST_SEATS))?;
        Ok(u8::try_from(number).unwrap_or(MOST_SEATS))
    }

    fn end(self) -> Result<(), Problem> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => {
                let shown: String = name.chars().take(40).collect();
                Err(Problem::new(Code::Invalid, format!("there is no field {shown:?}")))
            }
        }
    }
}

fn shape_of_reference(name: &str) -> String {
    format!("{name} must have 1 to 128 letters, digits, dots, underscores and hyphens")
}

/// Parses the reference in a header or a path.
pub(crate) fn reference(name: &'static str, text: &str) -> Result<Reference, Problem> {
    let malformed = || Problem { field: Some(name), ..Problem::new(Code::Malformed, shape_of_reference(name)) };
    Reference::parse(text).ok_or_else(malformed)
}

/// Parses the header that makes a booking repeatable. It must occur exactly once.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Reference, Problem> {
    const NAME: &str = "Idempotency-Key";
    let mut values = headers.get_all(NAME).iter();
    match (values.next(), values.next()) {
        (None, _) => {
            let detail = "send the reference of the booking as Idempotency-Key, the same with each repetition";
            Err(Problem { field: Some(NAME), ..Problem::new(Code::IdempotencyKeyMissing, detail) })
        }
        (Some(value), None) => reference(NAME, value.to_str().unwrap_or_default()),
        (Some(_), Some(_)) => {
            Err(Problem { field: Some(NAME), ..Problem::new(Code::Malformed, "send one Idempotency-Key, not several") })
        }
    }
}

/// Parses the body of a booking request. Its reference must equal the idempotency key.
pub(crate) fn order(body: Value, key: &Reference) -> Result<Order, Problem> {
    let mut fields = Fields::of(body)?;
    let reference = fields.reference("reference")?;
    if reference != *key {
        let detail = format!("the Idempotency-Key is {key}, the reference in the body {reference}");
        return Err(Problem { field: Some("reference"), ..Problem::new(Code::ReferenceMismatch, detail) });
    }
    let (from, to) = (fields.city("from")?, fields.city("to")?);
    if folded(&from) == folded(&to) {
        return Err(Problem::invalid("to", "from and to must differ"));
    }
    let number = fields.number()?;
    let date = fields.date("departureDate")?;
    let cabin = match fields.optional_text("cabin")? {
        None => Cabin::default(),
        Some(name) => {
            Cabin::parse(&name).ok_or_else(|| Problem::invalid("cabin", "cabin must be Economy, Business or First"))?
        }
    };
    let contact = fields.optional("contact").map(contact).transpose()?;
    fields.end()?;
    Ok(Order { reference, from, to, number, date, cabin, contact })
}

fn contact(value: Value) -> Result<Contact, Problem> {
    let invalid = || Problem::invalid("contact", "contact must have a namespace and a name of 1 to 253 characters");
    let mut fields = Fields::of(value).map_err(|_| invalid())?;
    let mut name = |field| match fields.optional_text(field) {
        Ok(Some(text)) if (1..=253).contains(&text.len()) && !text.chars().any(char::is_control) => Ok(text),
        _ => Err(invalid()),
    };
    let contact = Contact { namespace: name("namespace")?, name: name("name")? };
    fields.end().map_err(|_| invalid())?;
    Ok(contact)
}

/// Parses the new number of seats of a booking.
pub(crate) fn new_number(body: Value) -> Result<u8, Problem> {
    let mut fields = Fields::of(body)?;
    let number = fields.number()?;
    fields.end().map(|()| number)
}

/// A request to move a booking to another reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) to: Reference,
    pub(crate) expected: Reference,
    pub(crate) contact: Option<Contact>,
}

/// Parses the new reference of a booking, its current one, and the object that it is for from then on.
pub(crate) fn new_reference(body: Value) -> Result<Move, Problem> {
    let mut fields = Fields::of(body)?;
    let (to, expected) = (fields.reference("reference")?, fields.reference("expect")?);
    let contact = fields.optional("contact").map(contact).transpose()?;
    fields.end().map(|()| Move { to, expected, contact })
}

/// The number of seats of a route, on one day or on any day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seats {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) date: Option<Date>,
    pub(crate) total: u32,
}

/// Parses the seats of a route, as the airline sets them or a routes file lists them.
pub(crate) fn seats(body: Value) -> Result<Seats, Problem> {
    let mut fields = Fields::of(body)?;
    let (from, to) = (fields.city("from")?, fields.city("to")?);
    let date = fields.date("departureDate")?;
    let seats = fields.whole("seats", 0, crate::booking::LARGEST_ROUTE)?;
    fields.end().map(|()| Seats { from, to, date, total: seats })
}

/// Parses `If-Match` or `If-None-Match`; `None` without such a header. Weak tags count only with `weak_too`.
pub(crate) fn tags(headers: &HeaderMap, name: header::HeaderName, weak_too: bool) -> Option<Expected> {
    let mut versions = Vec::new();
    let mut is_there = false;
    for value in headers.get_all(name) {
        is_there = true;
        for tag in value.to_str().unwrap_or_default().split(',').map(str::trim) {
            if tag == "*" {
                return Some(Expected::Any);
            }
            let tag = if weak_too { tag.strip_prefix("W/").unwrap_or(tag) } else { tag };
            versions.extend(tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).map(str::to_owned));
        }
    }
    is_there.then_some(Expected::OneOf(versions))
}

/// The `ETag` of the current version of a booking.
pub(crate) fn tag(booking: &Booking) -> HeaderValue {
    let quoted = HeaderValue::try_from(format!("\"{}\"", booking.version));
    quoted.unwrap_or_else(|_| HeaderValue::from_static("\"0\"")) // digits are always a valid value
}

/// A booking in the JSON of the API.
pub(crate) fn booking(booking: &Booking) -> Value {
    let order = &booking.order;
    let mut document = json!({
        "id": booking.id,
        "reference": order.reference.as_str(),
        "from": order.from,
        "to": order.to,
        "number": order.number,
        "cabin": order.cabin.name(),
        "state": booking.state.name(),
        "confirmationCode": booking.confirmation,
        "seats": booking.seats.iter().map(Seat::to_string).collect::<Vec<_>>(),
        "version": booking.version,
        "createdAt": booking.created_at.to_string(),
        "updatedAt": booking.updated_at.to_string(),
    });
    if let Some(date) = order.date {
        document["departureDate"] = json!(date.to_string());
    }
    if let Some(message) = &booking.message {
        document["message"] = json!(message);
    }
    if let Some(Contact { namespace, name }) = &order.contact {
        document["contact"] = json!({"namespace": namespace, "name": name});
    }
    document
}

/// The state of a reference in the JSON of the API.
pub(crate) fn standing(standing: &Standing) -> Value {
    json!({
        "reference": standing.reference.as_str(),
        "state": standing.state.name(),
        "bookingId": standing.booking,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Reference {
        Reference::parse("r").unwrap()
    }

    fn refused(body: Value) -> (Code, Option<&'static str>) {
        let problem = order(body, &key()).unwrap_err();
        (problem.code, problem.field)
    }

    #[test]
    fn order_parses_all_fields() {
        let order = order(
            json!({"reference": "r", "from": "London", "to": "東京", "number": 10, "departureDate": "2030-02-28",
                   "cabin": "First", "contact": {"namespace": "a", "name": "b"}}),
            &key(),
        )
        .unwrap();
        assert_eq!(order.date, Some(Date::constant(2030, 2, 28)));
        assert_eq!((order.cabin, order.number, order.to.as_str()), (Cabin::First, 10, "東京"));
        assert_eq!(order.contact.unwrap().name, "b");
    }

    #[test]
    fn invalid_field_is_named_in_error() {
        let with = |name: &str, value: Value| {
            let mut body = json!({"reference": "r", "from": "a", "to": "b", "number": 1});
            body[name] = value;
            body
        };
        let cases = [
            ("number", json!(0)),
            ("number", json!(11)),
            ("number", json!(-1)),
            ("number", json!("1")),
            ("number", json!(1.5)),
            ("number", Value::Null),
            ("from", json!("")),
            ("from", json!(1)),
            ("from", json!(" a")),
            ("to", json!("A")),
            ("reference", json!("a b")),
            ("departureDate", json!("tomorrow")),
            ("departureDate", json!("2030-02-30")),
            ("departureDate", json!("20300228")),
            ("departureDate", json!("2030-02-28T10:00:00")),
            ("cabin", json!("economy")),
            ("contact", json!({"namespace": "a"})),
            ("contact", json!({"namespace": "a", "name": "b", "phone": "c"})),
            ("contact", json!("a/b")),
        ];
        for (field, value) in cases {
            assert_eq!(refused(with(field, value.clone())), (Code::Invalid, Some(field)), "{field}: {value}");
        }
        assert_eq!(refused(with("seats", json!(1))), (Code::Invalid, None));
        assert_eq!(refused(json!([])), (Code::Invalid, None));
        assert_eq!(refused(with("reference", json!("other"))), (Code::ReferenceMismatch, Some("reference")));
    }

    #[test]
    fn idempotency_key_is_one_plain_word() {
        let with = |values: &[&'static str]| {
            let headers = values
                .iter()
                .map(|value| (header::HeaderName::from_static("idempotency-key"), HeaderValue::from_static(value)));
            idempotency_key(&headers.collect()).map_err(|problem| problem.code)
        };
        assert_eq!(with(&["r"]), Ok(key()));
        assert_eq!(with(&[]), Err(Code::IdempotencyKeyMissing));
        assert_eq!(with(&["\"r\""]), Err(Code::Malformed));
        assert_eq!(with(&[""]), Err(Code::Malformed));
    }

    #[test]
    fn if_match_etags_are_parsed() {
        let read = |value: &'static str, weak_too| {
            tags(
                &HeaderMap::from_iter([(header::IF_MATCH, HeaderValue::from_static(value))]),
                header::IF_MATCH,
                weak_too,
            )
        };
        let of = |tags: &[&str]| Some(Expected::OneOf(tags.iter().map(ToString::to_string).collect()));
        assert_eq!(read("\"1\"", false), of(&["1"]));
        assert_eq!(read("\"1\", \"2\"", false), of(&["1", "2"]));
        assert_eq!(read("W/\"1\"", false), of(&[]));
        assert_eq!(read("W/\"1\"", true), of(&["1"]));
        assert_eq!(read("1", false), of(&[]));
        assert_eq!(read("*", false), Some(Expected::Any));
        assert_eq!(tags(&HeaderMap::new(), header::IF_MATCH, false), None);
    }
}

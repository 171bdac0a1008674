//! Translates requests to HTTP, and HTTP answers to outcomes. Pure.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::{Booking, Contact, Order, Outcome, Refusal, Request, Standing, State, Unknown, Why, is_word, plain};

/// The maximum length of the provider's ids and codes, in characters.
const LONGEST_WORD: usize = 64;
/// The maximum wait for `Retry-After`. A longer one counts as this.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// Returns the HTTP request for a provider at the address `base`, without credentials.
pub(crate) fn request(base: &Uri, request: &Request) -> Result<http::Request<Bytes>, http::Error> {
    let (method, path, body) = match request {
        Request::Book(order) => (Method::POST, "/v1/bookings".to_owned(), Some(document(order))),
        Request::Get { id } => (Method::GET, format!("/v1/bookings/{id}"), None),
        Request::Modify { id, number, .. } => {
            (Method::PATCH, format!("/v1/bookings/{id}"), Some(json!({"number": number})))
        }
        Request::Adopt { id, expect, reference, contact: Contact { namespace, name } } => {
            let contact = json!({"namespace": namespace, "name": name});
            let body = json!({"reference": reference, "expect": expect, "contact": contact});
            (Method::PUT, format!("/v1/bookings/{id}/reference"), Some(body))
        }
        Request::Close { reference } => (Method::DELETE, format!("/v1/references/{reference}"), None),
        Request::Lookup { reference } => (Method::GET, format!("/v1/references/{reference}"), None),
    };
    let address = format!("{}{path}", base.to_string().trim_end_matches('/'));
    let mut builder = http::Request::builder()
        .method(method)
        .uri(address)
        .header(header::ACCEPT, "application/json")
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::USER_AGENT, concat!("flightticket-operator/", env!("CARGO_PKG_VERSION")));
    match request {
        Request::Book(order) => builder = builder.header("Idempotency-Key", &order.reference),
        Request::Modify { version, .. } => builder = builder.header(header::IF_MATCH, format!("\"{version}\"")),
        _ => {}
    }
    let body = match body {
        Some(body) => {
            builder = builder.header(header::CONTENT_TYPE, "application/json");
            Bytes::from(body.to_string())
        }
        None => Bytes::new(),
    };
    builder.body(body)
}

fn document(order: &Order) -> serde_json::Value {
    let Order { reference, from, to, number, departure_date, cabin, contact } = order;
    let Contact { namespace, name } = contact;
    let mut document = json!({
        "reference": reference, "from": from, "to": to, "number": number, "cabin": cabin,
        "contact": {"namespace": namespace, "name": name},
    });
    if let Some(date) = departure_date {
        document["departureDate"] = json!(date.to_string());
    }
    document
}

/// Returns the outcome of `request` after this HTTP answer.
pub(crate) fn outcome(request: &Request, answer: &http::Response<Bytes>, now: Timestamp) -> Outcome {
    let (status, body) = (answer.status(), answer.body());
    if status.is_success() {
        return match done(request, status, body) {
            Ok(outcome) => outcome,
            Err(problem) => Outcome::Unknown(Unknown {
                why: format!("cannot read the answer with status {}", status.as_u16()),
                words: plain(&problem),
                retry_after: None,
                answered: true,
            }),
        };
    }
    let problem: Problem = serde_json::from_slice(body).unwrap_or_default();
    let (code, detail) = (plain(&problem.code), plain(&problem.detail));
    if let Some(why) = why(request, status, &problem.code) {
        return Outcome::Refused(Refusal { why, code, detail, status: status.as_u16(), anonymous: false });
    }
    let words = [code, detail].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(": ");
    let what = if status.is_redirection() { ", a redirect, which is not followed" } else { "" };
    Outcome::Unknown(Unknown {
        why: format!("the answer is {}{what}", status.as_u16()),
        words,
        retry_after: retry_after(answer.headers(), now),
        answered: !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS,
    })
}

/// Returns the reason of a certain refusal; `None` if the outcome is uncertain.
fn why(request: &Request, status: StatusCode, code: &str) -> Option<Why> {
    Some(match (request, status.as_u16(), code) {
        (_, 401, _) => Why::Credentials,
        (_, 403, _) => Why::Forbidden,
        (Request::Book(_), 422, "REFERENCE_REUSED") | (Request::Adopt { .. }, 409, "REFERENCE_TAKEN") => Why::Taken,
        (Request::Book(_) | Request::Modify { .. } | Request::Adopt { .. }, 400 | 422, _)
        | (Request::Book(_), 404, "ROUTE_NOT_FOUND") => Why::Invalid,
        (Request::Book(_) | Request::Modify { .. }, 409, "INSUFFICIENT_SEATS") => Why::NoSeats,
        (Request::Book(_), 410, _) => Why::Closed,
        (Request::Modify { .. } | Request::Adopt { .. }, 409, "NOT_MODIFIABLE")
        | (Request::Close { .. }, 409, "NOT_CANCELLABLE") => Why::Fixed,
        (Request::Modify { .. } | Request::Adopt { .. }, 412, _) => Why::Stale,
        // A server at a wrong `--booking-url` also answers 404. That must not count as a lost booking, so the code must match.
        (Request::Get { .. } | Request::Modify { .. } | Request::Adopt { .. }, 404, "BOOKING_NOT_FOUND")
        | (Request::Lookup { .. }, 404, "REFERENCE_NOT_FOUND") => Why::Missing,
        // To close a reference, the provider must remember it. So no 404 says that it is closed.
        _ => return None,
    })
}

fn done(request: &Request, status: StatusCode, body: &[u8]) -> Result<Outcome, String> {
    if matches!(request, Request::Close { .. } | Request::Lookup { .. }) {
        if status == StatusCode::NO_CONTENT && matches!(request, Request::Close { .. }) {
            return Ok(Outcome::Standing(Standing { state: State::Cancelled, booking_id: None }));
        }
        let read: WireStanding = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let booking_id = read.booking_id.map(word).transpose()?;
        return Ok(Outcome::Standing(Standing { state: state(&read.state), booking_id }));
    }
    let read: WireBooking = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if let Request::Get { id } | Request::Modify { id, .. } | Request::Adopt { id, .. } = request
        && *id != read.id
    {
        return Err(format!("it describes booking {}", read.id));
    }
    Ok(Outcome::Booking(Booking {
        id: word(read.id)?,
        reference: if is_word(&read.reference, 128) {
            read.reference
        } else {
            return Err("its reference is invalid".into());
        },
        from: plain(&read.from),
        to: plain(&read.to),
        number: read.number,
        departure_date: read.departure_date.as_deref().map(plain),
        cabin: read.cabin.as_deref().map(plain),
        state: state(&read.state),
        confirmation_code: read.confirmation_code.map(|code| plain(&code).chars().take(LONGEST_WORD).collect()),
        version: read.version,
        message: read.message.as_deref().map(plain).filter(|message| !message.is_empty()),
        namespace: read.contact.map(|contact| contact.namespace),
    }))
}

fn word(id: String) -> Result<String, String> {
    if is_word(&id, LONGEST_WORD) { Ok(id) } else { Err("its id is invalid".to_owned()) }
}

fn state(name: &str) -> State {
    match name {
        "PENDING" => State::Pending,
        "CONFIRMED" => State::Confirmed,
        "REJECTED" => State::Rejected,
        "CANCELLED" => State::Cancelled,
        other => State::Other(plain(other)),
    }
}

/// Reads `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if let Ok(seconds) = text.parse() {
        Duration::from_secs(seconds)
    } else {
        let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Duration::try_from(date.duration_since(now)).unwrap_or_default()
    };
    Some(wait.min(LONGEST_PAUSE))
}

/// A booking in an answer. Unknown fields are ignored, so that a provider may add fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBooking {
    id: String,
    reference: String,
    from: String,
    to: String,
    number: i64,
    departure_date: Option<String>,
    cabin: Option<String>,
    state: String,
    confirmation_code: Option<String>,
    version: u64,
    message: Option<String>,
    contact: Option<WireContact>,
}

#[derive(Deserialize)]
struct WireContact {
    namespace: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStanding {
    state: String,
    booking_id: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Problem {
    code: String,
    detail: String,
}

#[cfg(test)]
mod tests;

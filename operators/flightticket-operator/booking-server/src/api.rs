//! The public API: one handler per route. Each handler parses its request, lets [`crate::ledger`] decide within a transaction,
//! and writes the answer.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{Path, Query, Request, State, rejection::QueryRejection},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::{get, put},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    app::{App, json as respond},
    body,
    booking::{self, Booking, Fresh, State as BookingState},
    books::{Books, Filter},
    clock, guard,
    ledger::{self, Decision},
    problem::{Code, Problem},
    store::Failure,
    wire,
};

type Answer = Result<Response, Problem>;

/// The document that describes this API.
pub const DOCUMENT: &str = include_str!("../booking-api.yaml");

/// Every route of the API.
pub(crate) fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/bookings", get(list).post(create))
        .route("/v1/bookings/{id}", get(read).patch(modify).delete(cancel))
        .route("/v1/bookings/{id}/reference", put(adopt))
        .route("/v1/references/{reference}", get(lookup).delete(close))
        .fallback(nothing)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(Arc::clone(&app), guard::guard))
        .route("/booking-api.yaml", get(document))
        .with_state(app)
}

/// Serves the contract. It needs no token, so that developers can read it before they have one.
pub(crate) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/yaml")], DOCUMENT)
}

pub(crate) async fn nothing() -> Problem {
    Problem::new(Code::NotFound, "there is nothing at this path; /booking-api.yaml lists the paths")
}

async fn no_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "see /booking-api.yaml for the methods of this address")
}

async fn create(State(app): State<Arc<App>>, request: Request) -> Answer {
    let key = wire::idempotency_key(request.headers())?;
    let order = wire::order(body::json(request).await?, &key)?;
    let policy = app.policy;
    let decide = move |books: Books<'_>| {
        let facts = books.availability(&order.reference, &order.route())?;
        Ok(ledger::book(&order, facts, policy, Fresh::draw(), clock::now())?)
    };
    let booked = app.store.write(decide).await?;
    let status = match (booked.booking.state, booked.is_replay) {
        (BookingState::Pending, _) => StatusCode::ACCEPTED,
        (_, true) => StatusCode::OK,
        (_, false) => StatusCode::CREATED,
    };
    let mut response = shown(status, &booked.booking);
    if booked.is_replay {
        app.metrics.replays.inc();
        response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
    if let Ok(location) = HeaderValue::try_from(format!("/v1/bookings/{}", booked.booking.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Answers with a booking, and with its version as `ETag`.
fn shown(status: StatusCode, booking: &Booking) -> Response {
    let mut response = respond(status, &wire::booking(booking));
    response.headers_mut().insert(header::ETAG, wire::tag(booking));
    response
}

fn known(books: Books<'_>, id: &str) -> Result<Booking, Failure> {
    Ok(books.booking(id)?.ok_or_else(|| booking::no_such_booking(id))?)
}

async fn read(State(app): State<Arc<App>>, Path(id): Path<String>, headers: HeaderMap) -> Answer {
    let booking = app.store.read(move |books| known(books, &id)).await?;
    let cached = wire::tags(&headers, header::IF_NONE_MATCH, true);
    if cached.is_some_and(|cached| cached.holds(&booking)) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, wire::tag(&booking))]).into_response());
    }
    Ok(shown(StatusCode::OK, &booking))
}

async fn modify(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Answer {
    let expected = wire::tags(request.headers(), header::IF_MATCH, false).ok_or_else(|| {
        let detail = "read the booking and send its ETag as If-Match, so that no other change is lost";
        Problem { field: Some("If-Match"), ..Problem::new(Code::IfMatchRequired, detail) }
    })?;
    let number = wire::new_number(body::json(request).await?)?;
    let decide = move |books: Books<'_>| {
        let booking = known(books, &id)?;
        let free = books.free(&booking.route())?;
        Ok(ledger::modify(booking, &expected, number, &free, clock::now())?)
    };
    Ok(shown(StatusCode::OK, &app.store.write(decide).await?))
}

async fn cancel(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer {
    let decide = move |books: Books<'_>| Ok(ledger::cancel(known(books, &id)?, clock::now())?);
    Ok(shown(StatusCode::OK, &app.store.write(decide).await?))
}

async fn adopt(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Answer {
    let wire::Move { to: new, expected, contact } = wire::new_reference(body::json(request).await?)?;
    let decide = move |books: Books<'_>| -> Result<Decision<Booking>, Failure> {
        let booking = known(books, &id)?;
        let is_taken = books.is_buried(&new)? || books.current(&new)?.is_some();
        Ok(ledger::adopt(booking, &new, &expected, contact, is_taken, clock::now())?)
    };
    Ok(shown(StatusCode::OK, &app.store.write(decide).await?))
}

async fn lookup(State(app): State<Arc<App>>, Path(reference): Path<String>) -> Answer {
    let reference = wire::reference("reference", &reference)?;
    let ask = move |books: Books<'_>| {
        let latest = books.latest(&reference)?;
        Ok(ledger::standing(&reference, books.is_buried(&reference)?, latest.as_ref())?)
    };
    Ok(respond(StatusCode::OK, &wire::standing(&app.store.read(ask).await?)))
}

async fn close(State(app): State<Arc<App>>, Path(reference): Path<String>) -> Answer {
    let reference = wire::reference("reference", &reference)?;
    let decide = move |books: Books<'_>| {
        let (is_buried, current) = (books.is_buried(&reference)?, books.current(&reference)?);
        Ok(ledger::cancel_reference(&reference, is_buried, current, clock::now())?)
    };
    Ok(respond(StatusCode::OK, &wire::standing(&app.store.write(decide).await?)))
}

async fn list(State(app): State<Arc<App>>, query: Result<Query<Parameters>, QueryRejection>) -> Answer {
    let Query(parameters) = query.map_err(|_| Problem::new(Code::Malformed, "the query cannot be read"))?;
    let page = Page::of(parameters)?;
    let limit = page.limit;
    let mut found = app.store.read(move |books| Ok(books.list(&page.filter, page.after, limit + 1)?)).await?;
    let is_last = found.len() <= limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| !is_last).map(|(place, _)| format!("{place:x}"));
    let items: Vec<Value> = found.iter().map(|(_, booking)| wire::booking(booking)).collect();
    Ok(respond(StatusCode::OK, &json!({"items": items, "nextCursor": next})))
}

type Parameters = BTreeMap<String, String>;

/// The parsed query of a list request.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    filter: Filter,
    after: i64,
    limit: u32,
}

impl Page {
    fn of(mut parameters: Parameters) -> Result<Self, Problem> {
        let filter = filter(&mut parameters)?;
        let limit = match parameters.remove("limit").map(|text| text.parse::<u32>()) {
            None => 100,
            Some(Ok(limit @ 1..=500)) => limit,
            Some(_) => return Err(Problem::invalid("limit", "limit must be a whole number from 1 to 500")),
        };
        // A cursor is the sequence number of the previous page's last booking. New bookings sort last, so no page misses one.
        let after = match parameters.remove("cursor").map(|text| i64::from_str_radix(&text, 16)) {
            None => 0,
            Some(Ok(after @ 1..)) => after,
            Some(_) => return Err(Problem::invalid("cursor", "cursor must be the nextCursor of the previous page")),
        };
        match parameters.keys().next() {
            None => Ok(Self { filter, after, limit }),
            Some(_) => {
                Err(Problem::new(Code::Invalid, "the parameters are reference, state, from, to, limit and cursor"))
            }
        }
    }
}

fn filter(parameters: &mut Parameters) -> Result<Filter, Problem> {
    let state = parameters.remove("state").map(|name| {
        let invalid = || Problem::invalid("state", "state must be PENDING, CONFIRMED, REJECTED or CANCELLED");
        BookingState::parse(&name).ok_or_else(invalid)
    });
    Ok(Filter {
        reference: parameters.remove("reference").map(|text| wire::reference("reference", &text)).transpose()?,
        state: state.transpose()?,
        from: parameters.remove("from").map(|city| booking::folded(&city)),
        to: parameters.remove("to").map(|city| booking::folded(&city)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &str) -> Result<Page, Option<&'static str>> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let parameters = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Page::of(parameters).map_err(|problem| problem.field)
    }

    #[test]
    fn list_parameters_are_parsed_strictly() {
        assert_eq!(page(""), Ok(Page { filter: Filter::default(), after: 0, limit: 100 }));
        let filter = Filter { from: Some("ulm".to_owned()), state: Some(BookingState::Pending), ..Filter::default() };
        assert_eq!(page("from=ULM&state=PENDING&limit=500&cursor=ff"), Ok(Page { filter, after: 255, limit: 500 }));
        for (query, field) in [
            ("limit=0", Some("limit")),
            ("limit=501", Some("limit")),
            ("limit=x", Some("limit")),
            ("cursor=0", Some("cursor")),
            ("cursor=-1", Some("cursor")),
            ("cursor=zz", Some("cursor")),
            ("state=pending", Some("state")),
            ("reference=a b", Some("reference")),
            ("order=from", None),
        ] {
            assert_eq!(page(query), Err(field), "{query}");
        }
    }
}

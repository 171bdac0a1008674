//! A model of a provider: the rules of the reference server (`booking-server`) on tables in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use booking_server::{
    booking::{Booking, Cabin, Contact, Fresh, MOST_SEATS, Order, Reference, RouteKey, Seat, State, check_city},
    ledger::{self, Airline as Act, Availability, Change, Decision, Expected, Policy},
    problem::{Code, Problem},
};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

/// A provider. Clones share its data.
#[derive(Clone, Default)]
pub(crate) struct Airline(Arc<Mutex<Books>>);

#[derive(Default)]
pub(crate) struct Books {
    /// When the clock of the provider was at the beginning of 1970. It shows tokio's time, which tests pause.
    begun: Option<Instant>,
    /// How long a booking stays pending; zero confirms it at once.
    pub(crate) confirm_delay: SignedDuration,
    pub(crate) bookings: Vec<Booking>,
    buried: BTreeSet<Reference>,
    seats: BTreeMap<RouteKey, u32>,
    /// Seats of a route that has no booking yet.
    pub(crate) usual_seats: u32,
    /// Number of handled requests, by method and path without ids.
    pub(crate) handled: BTreeMap<String, u64>,
    /// Ids of bookings that `GET` does not find, as on a replica that lags.
    pub(crate) hidden: BTreeSet<String>,
    /// If set, every answer has this status and this `Retry-After` in seconds.
    pub(crate) status: Option<(u16, Option<u64>)>,
    /// What happens to requests for tickets whose `<namespace>/<name>` begins with this text.
    pub(crate) troubles: Vec<(String, Trouble)>,
}

/// What happens to the requests for some tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Every answer has this status and this `Retry-After` in seconds.
    Status(u16, Option<u64>),
    /// Every answer has the status 200 and is not JSON.
    Garbage,
    /// There is no answer.
    Silence,
}

impl Airline {
    pub(crate) fn new() -> Self {
        let airline = Self::default();
        let mut books = airline.books();
        (books.begun, books.usual_seats) = (Some(Instant::now()), 1_000);
        drop(books);
        airline
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().expect("the lock is not poisoned")
    }

    /// Carries out a request.
    pub(crate) fn handle(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let mut books = self.books();
        books.confirm_due();
        let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        let kind: Vec<&str> = path.iter().enumerate().map(|(at, part)| if at == 2 { "*" } else { part }).collect();
        *books.handled.entry(format!("{} {}", request.method(), kind.join("/"))).or_default() += 1;
        let trouble = books.status.map(|(status, retry_after)| Trouble::Status(status, retry_after));
        match trouble.or(books.trouble(request, &path)) {
            Some(Trouble::Status(status, retry_after)) => return failure(status, retry_after),
            Some(Trouble::Garbage) => return Response::new(Bytes::from("<html>")),
            Some(Trouble::Silence) => panic!("the transport gives no answer"),
            None => {}
        }
        books.route(request, &path).unwrap_or_else(|Problem { code, detail, .. }| {
            answer(code.status(), &json!({"code": code.name(), "detail": detail}))
        })
    }

    /// Whether the request gets no answer.
    pub(crate) fn is_silent(&self, request: &Request<Bytes>) -> bool {
        let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        self.books().trouble(request, &path) == Some(Trouble::Silence)
    }

    /// Acts as the airline, for example cancels a booking.
    pub(crate) fn act(&self, act: Act, id: &str) {
        let mut books = self.books();
        let (booking, now) = (books.booking(id).expect("a booking"), books.now());
        if let Ok(decision) = ledger::airline(act, booking, "NEWCODE".to_owned(), now) {
            books.apply(decision.changes);
        }
    }

    /// Returns reference and number of each live booking.
    pub(crate) fn live(&self) -> Vec<(String, u8)> {
        let books = self.books();
        let live = books.bookings.iter().filter(|booking| booking.state.is_live());
        live.map(|booking| (booking.order.reference.to_string(), booking.order.number)).collect()
    }

    /// Returns the number of all handled requests.
    pub(crate) fn requests(&self) -> u64 {
        self.books().handled.values().sum()
    }
}

impl Books {
    /// Returns what happens to the request, by the ticket that it is for.
    fn trouble(&self, request: &Request<Bytes>, path: &[&str]) -> Option<Trouble> {
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let contact = contact(&body["contact"]).or_else(|| match path {
            ["v1", "bookings", id, ..] => self.booking(id)?.order.contact,
            ["v1", "references", name] => self.current(&Reference::parse(name)?)?.order.contact,
            _ => None,
        })?;
        let name = format!("{}/{}", contact.namespace, contact.name);
        self.troubles.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, trouble)| *trouble)
    }

    /// Confirms the pending bookings whose time has come.
    pub(crate) fn confirm_due(&mut self) {
        let now = self.now();
        let due = self.bookings.iter().filter(|it| it.confirm_at.is_some_and(|time| time <= now)).cloned();
        for booking in due.collect::<Vec<_>>() {
            if let Ok(decision) = ledger::airline(Act::Confirm, booking, "CODE".to_owned(), now) {
                self.apply(decision.changes);
            }
        }
    }

    fn now(&self) -> Timestamp {
        let passed = self.begun.map(|begun| begun.elapsed()).unwrap_or_default();
        Timestamp::UNIX_EPOCH + passed
    }

    fn route(&mut self, request: &Request<Bytes>, path: &[&str]) -> Result<Response<Bytes>, Problem> {
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let (method, now) = (request.method(), self.now());
        match (method, path) {
            (&Method::POST, ["v1", "bookings"]) => {
                let booked = self.book(&body);
                booked.map(|it| {
                    let status = match it.booking.state {
                        State::Pending => StatusCode::ACCEPTED,
                        _ if it.is_replay => StatusCode::OK,
                        _ => StatusCode::CREATED,
                    };
                    answer(status, &shown(&it.booking))
                })
            }
            (&Method::GET, ["v1", "bookings", id]) if self.hidden.contains(*id) => Err(missing()),
            (_, ["v1", "bookings", id]) => {
                let booking = self.booking(id).ok_or_else(missing)?;
                let decided = if method == Method::PATCH {
                    let tag = request.headers().get("if-match").and_then(|it| it.to_str().ok()).unwrap_or_default();
                    let expected = Expected::OneOf(vec![tag.trim_matches('"').to_owned()]);
                    let free = self.free(&booking.route());
                    ledger::modify(booking, &expected, number(&body)?, &free, now)?
                } else {
                    Decision { answer: booking, changes: Vec::new() }
                };
                self.apply(decided.changes);
                Ok(answer(StatusCode::OK, &shown(&decided.answer)))
            }
            (&Method::PUT, ["v1", "bookings", id, "reference"]) => {
                let booking = self.booking(id).ok_or_else(missing)?;
                let (new, old) = (reference(&body["reference"]), reference(&body["expect"]));
                let is_taken = self.buried.contains(&new) || self.current(&new).is_some();
                let decided = ledger::adopt(booking, &new, &old, contact(&body["contact"]), is_taken, now)?;
                self.apply(decided.changes);
                Ok(answer(StatusCode::OK, &shown(&decided.answer)))
            }
            (_, ["v1", "references", name]) => {
                let reference = Reference::parse(name).expect("a reference");
                let is_buried = self.buried.contains(&reference);
                let standing = if method == Method::DELETE {
                    let current = self.current(&reference);
                    let decided = ledger::cancel_reference(&reference, is_buried, current, now)?;
                    self.apply(decided.changes);
                    decided.answer
                } else {
                    ledger::standing(&reference, is_buried, self.latest(&reference).as_ref())?
                };
                let body = json!({"reference": name, "state": standing.state.name(), "bookingId": standing.booking});
                Ok(answer(StatusCode::OK, &body))
            }
            _ => panic!("the API has no {method} {path:?}"),
        }
    }

    fn book(&mut self, body: &Value) -> Result<ledger::Booked, Problem> {
        let order = order(body)?;
        let route = order.route();
        let facts = Availability {
            is_buried: self.buried.contains(&order.reference),
            current: self.current(&order.reference),
            seats: self.seats.get(&route).copied(),
            usual_seats: Some(self.usual_seats),
            free: self.free(&route),
        };
        let policy = Policy { default_seats: None, confirm_delay: self.confirm_delay };
        let fresh = Fresh { id: format!("BK-{}", self.bookings.len()), confirmation: "CODE".to_owned() };
        let decided = ledger::book(&order, facts, policy, fresh, self.now())?;
        self.apply(decided.changes);
        Ok(decided.answer)
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Open(route, seats) => drop(self.seats.insert(route, seats)),
                Change::Insert(booking) => self.bookings.push(booking),
                Change::Update(_, booking) => {
                    let place = self.bookings.iter_mut().find(|it| it.id == booking.id).expect("a booking");
                    *place = booking;
                }
                Change::Bury(reference) => drop(self.buried.insert(reference)),
            }
        }
    }

    fn booking(&self, id: &str) -> Option<Booking> {
        self.bookings.iter().find(|booking| booking.id == id).cloned()
    }

    fn current(&self, reference: &Reference) -> Option<Booking> {
        let has_it = |booking: &&Booking| booking.order.reference == *reference && booking.state != State::Rejected;
        self.bookings.iter().rev().find(has_it).cloned()
    }

    /// The booking that a lookup shows: a rejected one only if there is no other.
    fn latest(&self, reference: &Reference) -> Option<Booking> {
        let has_had_it = |booking: &&Booking| booking.order.reference == *reference;
        self.current(reference).or_else(|| self.bookings.iter().rev().find(has_had_it).cloned())
    }

    fn free(&self, route: &RouteKey) -> Vec<Seat> {
        let taken: BTreeSet<Seat> =
            self.bookings.iter().filter(|it| it.route() == *route).flat_map(|it| it.seats.iter().copied()).collect();
        let all = (0..self.seats.get(route).copied().unwrap_or_default()).map(Seat);
        all.filter(|seat| !taken.contains(seat)).take(usize::from(MOST_SEATS)).collect()
    }

    /// Sets the seats of all routes.
    pub(crate) fn set_seats(&mut self, seats: u32) {
        self.seats.values_mut().for_each(|all| *all = seats);
        self.usual_seats = seats;
    }
}

/// The order in a body. The operator writes each field, but takes the values from a spec, so any of them may be refused.
fn order(body: &Value) -> Result<Order, Problem> {
    let text = |field: &'static str| body[field].as_str().ok_or_else(|| invalid(field));
    let city = |field| text(field).and_then(|city| check_city(field, city).map(|()| city.to_owned()));
    let date = body["departureDate"].as_str().map(|date| date.parse().map_err(|_| invalid("departureDate")));
    Ok(Order {
        reference: reference(&body["reference"]),
        from: city("from")?,
        to: city("to")?,
        number: number(body)?,
        date: date.transpose()?,
        cabin: Cabin::parse(text("cabin")?).ok_or_else(|| invalid("cabin"))?,
        contact: contact(&body["contact"]),
    })
}

/// The number of seats in a body.
fn number(body: &Value) -> Result<u8, Problem> {
    let number = body["number"].as_u64().and_then(|number| u8::try_from(number).ok());
    number.filter(|number| (1..=MOST_SEATS).contains(number)).ok_or_else(|| invalid("number"))
}

fn invalid(field: &'static str) -> Problem {
    Problem::invalid(field, format!("{field} is not valid"))
}

fn reference(value: &Value) -> Reference {
    Reference::parse(value.as_str().expect("a reference")).expect("a reference")
}

fn contact(value: &Value) -> Option<Contact> {
    let text = |field: &str| value[field].as_str().map(str::to_owned);
    Some(Contact { namespace: text("namespace")?, name: text("name")? })
}

fn failure(status: u16, retry_after: Option<u64>) -> Response<Bytes> {
    let mut answer = answer(StatusCode::from_u16(status).expect("a status"), &json!({}));
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert("retry-after", seconds.to_string().parse().expect("a header"));
    }
    answer
}

fn missing() -> Problem {
    Problem::new(Code::BookingNotFound, "there is no such booking")
}

fn shown(booking: &Booking) -> Value {
    let order = &booking.order;
    let contact = order.contact.as_ref().map(|it| json!({"namespace": it.namespace, "name": it.name}));
    let mut shown = json!({
        "contact": contact, "id": booking.id, "reference": order.reference.as_str(), "from": order.from, "to": order.to,
        "number": order.number, "cabin": order.cabin.name(), "state": booking.state.name(),
        "confirmationCode": booking.confirmation, "version": booking.version, "message": booking.message,
    });
    if let Some(date) = order.date {
        shown["departureDate"] = json!(date.to_string());
    }
    shown
}

fn answer(status: StatusCode, body: &Value) -> Response<Bytes> {
    Response::builder().status(status).body(Bytes::from(body.to_string())).expect("an answer")
}

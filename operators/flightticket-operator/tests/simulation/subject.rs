//! What random worlds must know about `FlightTicket`: its specs, its provider, and its promise: one booking for each ticket, and
//! none left behind. The judge checks it at the end of each world. At every moment, an audit checks that the operator touches no
//! booking that is not its own. Judge and audit follow the specification and use none of the operator's code.

#[path = "../in_memory/airline.rs"]
#[expect(dead_code, reason = "another test program uses the rest of it")]
mod airline;
mod audit;
mod foreign;
mod judge;
mod line;
pub(crate) mod tenants;
mod trip;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use booking_server::{
    booking::{Booking, State as Stage},
    ledger::Airline as Act,
};
use bytes::Bytes;
use fastrand::Rng;
use flightticket_operator::FlightTicketOperator;
use http::{Method, Request, Response};
use jiff::SignedDuration;
use manager::Operator;
use model_apiserver::{Change, Model};
use serde_json::{Value, json};
use simulation::{Caller, ExternalService, Note, Subject};
use tokio::time::Instant;

use self::{
    airline::Airline,
    audit::{Audit, uid},
    foreign::is_foreign,
    line::Clerk,
    tenants::{Refusal, Tenants},
    trip::{IMMUTABLE, Trips},
};

/// The operator, as its specification describes it.
pub(crate) struct FlightTicket;

/// Seats of each route without disturbances.
const SEATS: u32 = 1_000;

impl Subject for FlightTicket {
    fn operator(&self) -> &'static dyn Operator {
        &FlightTicketOperator
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("flights.com/v1", "FlightTicket")
    }

    fn resource(&self) -> &'static str {
        "flighttickets.flights.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &[]
    }

    fn has_finalizers(&self) -> bool {
        true
    }

    fn immutable(&self) -> &'static [&'static str] {
        &IMMUTABLE
    }

    fn spec(&self, name: &str, rng: &mut Rng) -> Value {
        let mut spec = json!({"from": format!("City {name}"), "to": "London"});
        trip::draw(rng).into_iter().for_each(|(field, value)| spec[field] = value);
        if rng.u8(..3) > 0 {
            spec["number"] = json!(rng.u8(1..=10));
        }
        if rng.u8(..4) == 0 {
            spec["deletionPolicy"] = json!("Retain");
        }
        if rng.u8(..6) == 0 {
            spec["managementPolicy"] = json!("Observe");
        }
        if rng.bool() {
            spec["rebookPolicy"] = json!("Always");
        }
        spec
    }

    fn damage(&self, _: &str, _: &mut Rng) -> Option<Value> {
        None
    }

    fn outside(&self, seed: u64, note: Note) -> Option<Arc<dyn ExternalService>> {
        let airline = Airline::new();
        let state = State {
            rng: Rng::with_seed(seed),
            troubled_until: None,
            loss: Loss::Broken,
            lagging_until: None,
            cancelled: BTreeMap::new(),
            unseen: BTreeSet::new(),
            rejected: BTreeSet::new(),
            tenants: Tenants::default(),
            trips: Trips::default(),
            audit: Audit::default(),
        };
        let provider = Provider(Arc::new(Inner { airline, note, state: Mutex::new(state) }));
        let mut books = provider.0.airline.books();
        books.set_seats(SEATS);
        books.confirm_delay = confirm_delay(seed);
        drop(books);
        Some(Arc::new(provider))
    }

    fn may_leave_something(&self, object: &Value) -> bool {
        object["spec"]["deletionPolicy"] == "Retain" || object["spec"]["managementPolicy"] == "Observe"
    }

    /// Checks nothing here: [`ExternalService::judge`] and [`ExternalService::judge_claim`] of the provider do, because it knows
    /// the bookings.
    fn judge(&self, _: &Value, _: &Model) -> Result<(), String> {
        Ok(())
    }
}

/// How long the airline of this world takes to confirm a booking: in every second world no time.
pub(crate) fn confirm_delay(seed: u64) -> SignedDuration {
    const SECONDS: [i64; 3] = [5, 30, 100];
    let seconds = if seed.is_multiple_of(2) { SECONDS[Rng::with_seed(seed).usize(..SECONDS.len())] } else { 0 };
    SignedDuration::from_secs(seconds)
}

/// The provider of one world. Clones share its state.
#[derive(Clone)]
struct Provider(Arc<Inner>);

struct Inner {
    airline: Airline,
    note: Note,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    /// Until then, requests and answers are lost or late at random.
    troubled_until: Option<Instant>,
    /// What the client notices of it.
    loss: Loss,
    /// Until then, `GET` does not find bookings.
    lagging_until: Option<Instant>,
    /// How many bookings the airline has cancelled, by the uid of the ticket.
    cancelled: BTreeMap<String, usize>,
    /// The uids of tickets whose booking the airline has cancelled before the status showed it. They need not buy another one.
    unseen: BTreeSet<String>,
    /// The uids of tickets of which the airline has rejected a booking. Its reference is free again.
    rejected: BTreeSet<String>,
    /// Refuses one tenant for a while.
    tenants: Tenants,
    /// Checks what the operator orders.
    trips: Trips,
    /// Checks what the operator does to bookings.
    audit: Audit,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    Lost,
    Late,
    AnswerLost,
}

/// What the client notices if a request or its answer is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// The connection breaks.
    Broken,
    /// Nothing, until it gives the request up.
    Silence,
    /// A proxy answers with a page of its own, and the status of a success.
    Page,
}

impl Provider {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("the lock is not poisoned")
    }

    fn fate(&self) -> Fate {
        let mut state = self.state();
        let now = Instant::now();
        if state.lagging_until.is_some_and(|until| now >= until) {
            state.lagging_until = None;
            self.0.airline.books().hidden.clear();
        }
        if state.troubled_until.is_none_or(|until| now >= until) {
            state.troubled_until = None;
            self.0.airline.books().status = None;
            return Fate::Answered;
        }
        [Fate::Answered, Fate::Lost, Fate::Late, Fate::AnswerLost][state.rng.usize(..4)]
    }

    fn handle(&self, request: &Request<Bytes>) -> Response<Bytes> {
        if request.method() == Method::POST {
            self.state().trips.orders(&serde_json::from_slice(request.body()).unwrap_or_default());
        }
        let refusal = self.state().tenants.answer(request, &self.0.airline.books().bookings, Instant::now());
        let answer = refusal.unwrap_or_else(|| self.0.airline.handle(request));
        self.state().audit.record(&self.0.airline.books().bookings);
        let (method, path) = (request.method(), request.uri().path());
        (self.0.note)(format!("provider ▶ {method} {path} {} {}", answer.status(), text(request.body())));
        answer
    }

    /// Returns the booking with this id.
    fn booking(&self, id: &str) -> Option<Booking> {
        let books = self.0.airline.books();
        books.bookings.iter().find(|booking| booking.id == id).cloned()
    }

    /// Sets the seats of each route. Returns whether that changed anything.
    fn set_seats(&self, seats: u32) -> bool {
        let mut books = self.0.airline.books();
        let is_other = books.usual_seats != seats;
        books.set_seats(seats);
        is_other
    }

    /// Cancels a booking as the airline does. Returns whether it was valid until then.
    fn cancel(&self, id: &str) -> bool {
        let Some(booking) = self.booking(id).filter(|booking| booking.state.is_live()) else { return false };
        self.0.airline.act(Act::Cancel, id);
        let uid = uid_of(booking.order.reference.as_str()).to_owned();
        let mut state = self.state();
        if !state.audit.is_shown(&uid, &booking) {
            state.unseen.insert(uid.clone());
        }
        *state.cancelled.entry(uid).or_default() += 1;
        true
    }
}

/// Returns the uid in a reference, which has the form `<uid>` or `<uid>.<attempt>`.
fn uid_of(reference: &str) -> &str {
    reference.split('.').next().unwrap_or_default()
}

fn text(body: &Bytes) -> String {
    String::from_utf8_lossy(body).into_owned()
}

impl ExternalService for Provider {
    fn operator(&self, caller: Caller) -> Box<dyn Operator> {
        Box::new(Clerk { provider: self.clone(), caller })
    }

    fn act(&self, object: &Value, time: Duration, rng: &mut Rng) -> bool {
        if let Some(refusal) = Refusal::draw(rng) {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            self.state().tenants.refuse(namespace, refusal, Instant::now());
            return true;
        }
        let until = Instant::now() + time;
        let airline = &self.0.airline;
        match rng.u8(..6) {
            0 => object["status"]["bookingId"].as_str().is_some_and(|id| self.cancel(id)),
            1 => self.set_seats(rng.u32(..20)),
            2 => self.set_seats(SEATS),
            3 => {
                let all: Vec<String> = airline.books().bookings.iter().map(|booking| booking.id.clone()).collect();
                let mut state = self.state();
                state.audit.miss(&all);
                state.lagging_until = Some(until);
                let has_bookings = !all.is_empty();
                airline.books().hidden.extend(all);
                has_bookings
            }
            what => {
                let mut state = self.state();
                if what == 4 {
                    let status = [429, 500, 502, 503, 401, 403][rng.usize(..6)];
                    airline.books().status = Some((status, rng.bool().then_some(7)));
                    if status == 401 || status == 403 {
                        state.tenants.refuse_all();
                    }
                }
                state.troubled_until = Some(until);
                state.loss = [Loss::Broken, Loss::Silence, Loss::Page][rng.usize(..3)];
                true
            }
        }
    }

    /// The airline confirms or rejects the pending booking of a ticket, or reports that its flight has left.
    fn decide(&self, object: &Value, rng: &mut Rng) -> bool {
        let Some(booking) = object["status"]["bookingId"].as_str().and_then(|id| self.booking(id)) else {
            return false;
        };
        let act = match booking.state {
            Stage::Pending => [Act::Confirm, Act::Reject, Act::Depart][rng.usize(..3)],
            Stage::Confirmed if rng.u8(..3) == 0 => Act::Depart,
            _ => return false,
        };
        if act == Act::Depart && booking.departed {
            return false;
        }
        self.0.airline.act(act, &booking.id);
        if act == Act::Reject {
            self.state().rejected.insert(uid_of(booking.order.reference.as_str()).to_owned());
        }
        true
    }

    fn decides(&self) -> bool {
        true
    }

    fn import(&self, namespace: &str, name: &str, rng: &mut Rng) -> Option<Value> {
        let patch = self.draw_import(namespace, name, rng);
        self.state().tenants.names(namespace, &patch);
        Some(patch)
    }

    fn changed(&self, change: &Change, by_operator: bool) {
        let mut state = self.state();
        state.tenants.changed(change, by_operator);
        state.trips.changed(change);
        state.audit.changed(change, by_operator);
    }

    fn restored(&self, objects: &[Value]) {
        let mut state = self.state();
        for ticket in objects {
            state.tenants.knows(ticket);
            state.trips.knows(ticket);
        }
        state.audit.restored(objects);
    }

    fn heal(&self) {
        let mut state = self.state();
        (state.troubled_until, state.lagging_until) = (None, None);
        state.tenants.accept();
        let mut books = self.0.airline.books();
        books.status = None;
        books.hidden.clear();
        books.set_seats(SEATS);
    }

    /// No ticket ever has two live bookings, and a ticket has required whatever the operator does to a booking.
    fn check(&self, has_silent_watch: bool) -> Result<(), String> {
        self.state().audit.pass(Instant::now(), has_silent_watch);
        self.0.airline.books().confirm_due();
        let mut count: BTreeMap<String, usize> = BTreeMap::new();
        for (reference, _) in self.0.airline.live() {
            *count.entry(uid_of(&reference).to_owned()).or_default() += 1;
        }
        if let Some((uid, count)) = count.into_iter().find(|(_, count)| *count > 1) {
            return Err(format!("{uid} has {count} live bookings"));
        }
        let mut state = self.state();
        state.tenants.check()?;
        state.trips.check()?;
        state.audit.check()
    }

    fn judge_claim(&self, ticket: &Value) -> Result<(), String> {
        self.judge_booked(ticket)
    }

    fn judge(&self, objects: &[Value], is_excused: &dyn Fn(&str) -> bool) -> Result<(), String> {
        for object in objects {
            if object["metadata"]["annotations"]["flights.com/paused"] != "true" {
                self.judge_one(object, is_excused(uid(object)))?;
            }
        }
        let is_anybodys =
            |reference: &str| is_foreign(reference) || objects.iter().any(|object| uid(object) == uid_of(reference));
        // Nothing ends a booking whose flight has left.
        let books = self.0.airline.books();
        let live = books.bookings.iter().filter(|booking| booking.state.is_live() && !booking.departed);
        let mut references = live.map(|booking| booking.order.reference.as_str());
        match references.find(|reference| !is_anybodys(reference) && !is_excused(uid_of(reference))) {
            Some(reference) => Err(format!("the booking {reference} was left behind")),
            None => Ok(()),
        }
    }
}

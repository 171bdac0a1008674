//! The rules: pure functions from facts to a [`Decision`], which is an answer and the changes to write. [`crate::books`] reads
//! the facts and writes the changes in one transaction. The server sends the answer after the commit.
//!
//! Three rules make booking exactly-once. A reference that has a booking returns that booking again, so clients can repeat
//! requests. A closed reference stays closed, even if it never had a booking, so a delayed request cannot book. And refusals are
//! not stored, so the same request may succeed later.

use jiff::{SignedDuration, Timestamp};

use crate::{
    booking::{Booking, Contact, Fresh, Order, Reference, RouteKey, Seat, State, is_past},
    problem::{Code, Problem},
};

/// How the airline sells seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Seats of a route that is not listed; `None` refuses such routes.
    pub default_seats: Option<u32>,
    /// How long a booking stays pending; zero confirms it at once.
    pub confirm_delay: SignedDuration,
}

/// A change to write to the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Opens a route with this number of seats.
    Open(RouteKey, u32),
    /// Inserts a new booking.
    Insert(Booking),
    /// Replaces a booking, and writes the event to the journal.
    Update(Event, Booking),
    /// Closes a reference for ever.
    Bury(Reference),
}

/// What happened to a booking, for the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The airline confirmed.
    Confirmed,
    /// The airline refused.
    Rejected,
    /// The number of seats changed.
    Modified,
    /// The client cancelled.
    Cancelled,
    /// The airline cancelled.
    CancelledByAirline,
    /// The booking moved to another reference.
    Moved,
    /// The flight has left.
    Departed,
}

impl Event {
    /// The name in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "CONFIRMED",
            Self::Rejected => "REJECTED",
            Self::Modified => "MODIFIED",
            Self::Cancelled => "CANCELLED",
            Self::CancelledByAirline => "CANCELLED_BY_AIRLINE",
            Self::Moved => "MOVED",
            Self::Departed => "DEPARTED",
        }
    }
}

/// An answer, and the changes to commit before it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<T> {
    /// The answer to the client.
    pub answer: T,
    /// The changes to write first; empty for a read or a repeated request.
    pub changes: Vec<Change>,
}

impl<T> Decision<T> {
    fn unchanged(answer: T) -> Self {
        Self { answer, changes: Vec::new() }
    }
}

/// The facts that a new booking depends on.
#[derive(Debug, Clone, Default)]
pub struct Availability {
    /// Whether the reference is closed.
    pub is_buried: bool,
    /// The booking that has the reference; rejected ones do not count.
    pub current: Option<Booking>,
    /// Seats of the route on that day; `None` if the route is not open yet.
    pub seats: Option<u32>,
    /// Seats of the route without a day, which a new day starts with.
    pub usual_seats: Option<u32>,
    /// The first free seats of the open route.
    pub free: Vec<Seat>,
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booked {
    /// The current booking.
    pub booking: Booking,
    /// Whether the booking existed before this request.
    pub is_replay: bool,
}

/// Makes a booking, or returns the one that the reference already has.
pub fn book(
    order: &Order,
    facts: Availability,
    policy: Policy,
    fresh: Fresh,
    now: Timestamp,
) -> Result<Decision<Booked>, Problem> {
    if facts.is_buried || facts.current.as_ref().is_some_and(|booking| booking.state == State::Cancelled) {
        let detail = format!("reference {} was cancelled; book under another one", order.reference);
        return Err(Problem::new(Code::ReferenceCancelled, detail));
    }
    if let Some(booking) = facts.current {
        if !booking.is_same_trip(order) {
            let detail = format!("reference {} belongs to booking {} of another trip", order.reference, booking.id);
            return Err(Problem::new(Code::ReferenceReused, detail));
        }
        return Ok(Decision::unchanged(Booked { booking, is_replay: true }));
    }
    if order.date.is_some_and(|date| is_past(date, now)) {
        return Err(Problem::invalid("departureDate", "departureDate is in the past"));
    }
    let mut changes = Vec::new();
    let free = if facts.seats.is_some() {
        facts.free
    } else {
        let Some(seats) = facts.usual_seats.or(policy.default_seats) else {
            let detail = format!("there is no route from {:?} to {:?}", order.from, order.to);
            return Err(Problem::new(Code::RouteNotFound, detail));
        };
        changes.push(Change::Open(order.route(), seats));
        (0..seats.min(u32::from(order.number))).map(Seat).collect()
    };
    let seats = take(&free, usize::from(order.number))?;
    let is_pending = policy.confirm_delay > SignedDuration::ZERO;
    let booking = Booking {
        id: fresh.id,
        order: order.clone(),
        state: if is_pending { State::Pending } else { State::Confirmed },
        confirmation: (!is_pending).then_some(fresh.confirmation),
        seats,
        version: 1,
        message: None,
        confirm_at: is_pending.then(|| now.saturating_add(policy.confirm_delay).unwrap_or(now)),
        departed: false,
        created_at: now,
        updated_at: now,
    };
    changes.push(Change::Insert(booking.clone()));
    Ok(Decision { answer: Booked { booking, is_replay: false }, changes })
}

fn take(free: &[Seat], number: usize) -> Result<Vec<Seat>, Problem> {
    free.get(..number).map(<[Seat]>::to_vec).ok_or_else(|| {
        Problem::new(Code::InsufficientSeats, format!("{number} seats are needed and {} are free", free.len()))
    })
}

/// The versions that the client expects, from `If-Match` or `If-None-Match`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// `*`: any version.
    Any,
    /// One of these versions.
    OneOf(Vec<String>),
}

impl Expected {
    /// Whether the booking has an expected version.
    pub fn holds(&self, booking: &Booking) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(tags) => tags.iter().any(|tag| *tag == booking.version.to_string()),
        }
    }
}

/// Sets the number of seats. `free` are the first free seats of the route.
pub fn modify(
    mut booking: Booking,
    expected: &Expected,
    number: u8,
    free: &[Seat],
    now: Timestamp,
) -> Result<Decision<Booking>, Problem> {
    if !expected.holds(&booking) {
        let detail = format!("booking {} has version {} now; read it and decide again", booking.id, booking.version);
        return Err(Problem::new(Code::VersionMismatch, detail));
    }
    ensure_modifiable(&booking, now)?;
    if number == booking.order.number {
        return Ok(Decision::unchanged(booking));
    }
    if let Some(more) = number.checked_sub(booking.order.number) {
        booking.seats.extend(take(free, usize::from(more))?);
        booking.seats.sort_unstable();
    } else {
        booking.seats.truncate(usize::from(number));
    }
    booking.order.number = number;
    Ok(changed(Event::Modified, booking, now))
}

fn ensure_modifiable(booking: &Booking, now: Timestamp) -> Result<(), Problem> {
    let why = match booking.state {
        state if !state.is_live() => format!("booking {} is {}", booking.id, state.name()),
        _ if booking.has_flown(now) => format!("the flight of booking {} has left", booking.id),
        _ => return Ok(()),
    };
    Err(Problem::new(Code::NotModifiable, why))
}

fn changed(event: Event, mut booking: Booking, now: Timestamp) -> Decision<Booking> {
    booking.version += 1;
    booking.updated_at = now;
    Decision { answer: booking.clone(), changes: vec![Change::Update(event, booking)] }
}

/// Cancels a booking. A cancelled or rejected booking stays unchanged.
pub fn cancel(booking: Booking, now: Timestamp) -> Result<Decision<Booking>, Problem> {
    if !booking.state.is_live() {
        return Ok(Decision::unchanged(booking));
    }
    if booking.has_flown(now) {
        let detail = format!("the flight of booking {} has left", booking.id);
        return Err(Problem::new(Code::NotCancellable, detail));
    }
    Ok(ended(Event::Cancelled, State::Cancelled, None, booking, now))
}

fn ended(event: Event, state: State, message: Option<&str>, mut booking: Booking, now: Timestamp) -> Decision<Booking> {
    booking.state = state;
    booking.seats.clear();
    booking.confirm_at = None;
    booking.message = message.map(str::to_owned);
    changed(event, booking, now)
}

/// The state of a reference, as the API reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The reference.
    pub reference: Reference,
    /// Its state.
    pub state: State,
    /// The id of the booking that has or had the reference.
    pub booking: Option<String>,
}

/// Cancels the booking under a reference, if there is one, and closes the reference, so that a delayed request cannot book.
pub fn cancel_reference(
    reference: &Reference,
    is_buried: bool,
    current: Option<Booking>,
    now: Timestamp,
) -> Result<Decision<Standing>, Problem> {
    let booking = current.as_ref().map(|booking| booking.id.clone());
    let mut changes = match current {
        Some(booking) => cancel(booking, now)?.changes,
        None => Vec::new(),
    };
    if !is_buried {
        changes.push(Change::Bury(reference.clone()));
    }
    Ok(Decision { answer: Standing { reference: reference.clone(), state: State::Cancelled, booking }, changes })
}

/// Returns the state of a reference. `latest` is the booking that has it, or else the latest rejected one under it.
pub fn standing(reference: &Reference, is_buried: bool, latest: Option<&Booking>) -> Result<Standing, Problem> {
    let state = match latest {
        _ if is_buried => State::Cancelled,
        Some(booking) => booking.state,
        None => {
            let detail = format!("reference {reference} is unknown");
            return Err(Problem::new(Code::ReferenceNotFound, detail));
        }
    };
    Ok(Standing { reference: reference.clone(), state, booking: latest.map(|booking| booking.id.clone()) })
}

/// Moves a booking to another reference, and to another contact if the client names one. Closes the old reference, so that a
/// client that still uses it cannot book a second time.
pub fn adopt(
    mut booking: Booking,
    new: &Reference,
    expected: &Reference,
    contact: Option<Contact>,
    is_new_taken: bool,
    now: Timestamp,
) -> Result<Decision<Booking>, Problem> {
    if booking.order.reference == *new {
        return Ok(Decision::unchanged(booking));
    }
    if booking.order.reference != *expected {
        let detail = format!("booking {} is not under reference {expected}", booking.id);
        return Err(Problem::new(Code::VersionMismatch, detail));
    }
    ensure_modifiable(&booking, now)?;
    if is_new_taken {
        let detail = format!("reference {new} is closed or has a booking");
        return Err(Problem::new(Code::ReferenceTaken, detail));
    }
    let old = std::mem::replace(&mut booking.order.reference, new.clone());
    booking.order.contact = contact.or(booking.order.contact);
    let mut decision = changed(Event::Moved, booking, now);
    decision.changes.push(Change::Bury(old));
    Ok(decision)
}

/// The actions of the airline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Airline {
    /// Confirms a pending booking.
    Confirm,
    /// Refuses a pending booking.
    Reject,
    /// Cancels a live booking.
    Cancel,
    /// Reports that the flight has left.
    Depart,
}

/// Carries out an action of the airline. `code` becomes the confirmation code of a booking that it confirms.
pub fn airline(act: Airline, mut booking: Booking, code: String, now: Timestamp) -> Result<Decision<Booking>, Problem> {
    let needed = if matches!(act, Airline::Confirm | Airline::Reject) {
        booking.state == State::Pending
    } else {
        booking.state.is_live()
    };
    if !needed {
        let detail = format!("booking {} is {}", booking.id, booking.state.name());
        return Err(Problem::new(Code::NotModifiable, detail));
    }
    Ok(match act {
        Airline::Confirm => {
            booking.state = State::Confirmed;
            booking.confirmation = Some(code);
            booking.confirm_at = None;
            changed(Event::Confirmed, booking, now)
        }
        Airline::Reject => ended(Event::Rejected, State::Rejected, Some("rejected by the airline"), booking, now),
        Airline::Cancel => {
            ended(Event::CancelledByAirline, State::Cancelled, Some("cancelled by the airline"), booking, now)
        }
        Airline::Depart => {
            booking.departed = true;
            changed(Event::Departed, booking, now)
        }
    })
}

#[cfg(test)]
mod tests;

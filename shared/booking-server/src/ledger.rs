//! The rules: what an answer is and what it changes, given the facts. Pure; [`crate::books`] reads the facts and carries
//! the changes out, both in one transaction, and the answer is sent after that has been committed.
//!
//! Exactly once follows from three of them. A reference that has a booking gives that booking again, so repeating is safe.
//! A reference that was cancelled stays so, also if it never had a booking: a late request cannot make one. And a refusal
//! is not remembered, so the same request may succeed later.

use jiff::{SignedDuration, Timestamp};

use crate::{
    booking::{Booking, Fresh, Order, Reference, RouteKey, Seat, State, is_past},
    problem::{Code, Problem},
};

/// How generous the airline is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Seats of a route that nobody has listed; none refuses such routes.
    pub default_seats: Option<u32>,
    /// How long a booking stays pending.
    pub confirm_delay: SignedDuration,
}

/// A change of the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A route that has seats from now on.
    Open(RouteKey, u32),
    /// A new booking.
    Insert(Booking),
    /// A booking as it is from now on, and what happened.
    Update(Event, Booking),
    /// A reference that can never be booked again.
    Bury(Reference),
}

/// What the journal calls a change of a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The airline confirmed.
    Confirmed,
    /// The airline refused.
    Rejected,
    /// Another number of seats.
    Modified,
    /// Given back by the client.
    Cancelled,
    /// Taken away by the airline.
    CancelledByAirline,
    /// Under another reference.
    Moved,
    /// The flight has left.
    Departed,
}

impl Event {
    /// As the journal writes it.
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

/// An answer, and what has to be true before it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<T> {
    /// What is told.
    pub answer: T,
    /// What is written first; nothing for a question or a repetition.
    pub changes: Vec<Change>,
}

impl<T> Decision<T> {
    fn unchanged(answer: T) -> Self {
        Self { answer, changes: Vec::new() }
    }
}

/// What a new booking depends on.
#[derive(Debug, Clone, Default)]
pub struct Availability {
    /// Whether the reference was cancelled or given up.
    pub is_buried: bool,
    /// The booking that has the reference; rejected ones do not count.
    pub current: Option<Booking>,
    /// Seats of the route on that day, if it is open.
    pub seats: Option<u32>,
    /// Seats of the route on a day without its own.
    pub usual_seats: Option<u32>,
    /// The first free seats of the open route.
    pub free: Vec<Seat>,
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booked {
    /// As it is now.
    pub booking: Booking,
    /// Whether it was there before.
    pub is_replay: bool,
}

/// Books, or finds what was booked under the same reference.
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
            let detail = format!("nobody flies from {:?} to {:?}", order.from, order.to);
            return Err(Problem::new(Code::RouteNotFound, detail));
        };
        changes.push(Change::Open(order.route(), seats));
        (0..seats.min(u32::from(order.number))).map(Seat).collect()
    };
    let seats = take(&free, usize::from(order.number))?;
    let is_pending = policy.confirm_delay > SignedDuration::ZERO;
    let booking = Booking {
        id: fresh.id,
        reference: order.reference.clone(),
        from: order.from.clone(),
        to: order.to.clone(),
        number: order.number,
        date: order.date,
        cabin: order.cabin,
        state: if is_pending { State::Pending } else { State::Confirmed },
        confirmation: (!is_pending).then_some(fresh.confirmation),
        seats,
        version: 1,
        contact: order.contact.clone(),
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

/// What the caller says that it knows: versions in `If-Match`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// `*`: whatever it is.
    Any,
    /// One of these.
    OneOf(Vec<String>),
}

impl Expected {
    /// Whether the caller knows the booking as it is.
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
    if number == booking.number {
        return Ok(Decision::unchanged(booking));
    }
    if let Some(more) = number.checked_sub(booking.number) {
        booking.seats.extend(take(free, usize::from(more))?);
        booking.seats.sort_unstable();
    } else {
        booking.seats.truncate(usize::from(number));
    }
    booking.number = number;
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

/// Gives a booking back. One that is over already stays as it is.
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

/// What is told about a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The reference.
    pub reference: Reference,
    /// Where it stands.
    pub state: State,
    /// The booking that has it, or had it.
    pub booking: Option<String>,
}

/// Gives back whatever a reference has, and closes it, so that a request that is still on its way cannot book.
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

/// Where a reference stands. `latest` is the last booking under it, also a rejected one.
pub fn standing(reference: &Reference, is_buried: bool, latest: Option<&Booking>) -> Result<Standing, Problem> {
    let state = match latest {
        _ if is_buried => State::Cancelled,
        Some(booking) => booking.state,
        None => {
            let detail = format!("nothing was ever asked under reference {reference}");
            return Err(Problem::new(Code::ReferenceNotFound, detail));
        }
    };
    Ok(Standing { reference: reference.clone(), state, booking: latest.map(|booking| booking.id.clone()) })
}

/// Puts a booking under another reference. The old one is closed: who still uses it must not book a second time.
pub fn adopt(
    mut booking: Booking,
    new: &Reference,
    expected: &Reference,
    is_new_taken: bool,
    now: Timestamp,
) -> Result<Decision<Booking>, Problem> {
    if booking.reference == *new {
        return Ok(Decision::unchanged(booking));
    }
    if booking.reference != *expected {
        let detail = format!("booking {} is not under reference {expected}", booking.id);
        return Err(Problem::new(Code::VersionMismatch, detail));
    }
    ensure_modifiable(&booking, now)?;
    if is_new_taken {
        let detail = format!("reference {new} has, or had, a booking of its own");
        return Err(Problem::new(Code::ReferenceTaken, detail));
    }
    let old = std::mem::replace(&mut booking.reference, new.clone());
    let mut decision = changed(Event::Moved, booking, now);
    decision.changes.push(Change::Bury(old));
    Ok(decision)
}

/// What the airline does on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Airline {
    /// Confirms what is pending.
    Confirm,
    /// Refuses what is pending.
    Reject,
    /// Takes away what is live.
    Cancel,
    /// Flies.
    Depart,
}

/// Does what the airline decides. `code` is the confirmation code, where there is none yet.
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

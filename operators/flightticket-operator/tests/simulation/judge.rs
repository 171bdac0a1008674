//! Judges tickets at the end of a world: what each one reports must agree with the provider's books.

use booking_server::booking::{Booking, State};
use serde_json::Value;
use simulation::oracle::say;

use super::{
    Provider,
    audit::uid,
    foreign::{adopts, is_id, named, observes},
    trip::Trip,
    uid_of,
};

/// How many times `rebookPolicy: Always` replaces a lost booking.
const MOST_ATTEMPTS: usize = 10;

/// A status and a reason.
type Told = (&'static str, &'static str);

const BOOKED: Told = ("True", "Booked");
const UP_TO_DATE: Told = ("True", "UpToDate");
const DIVERGED: Told = ("False", "Diverged");
const HELD: Told = ("False", "BookingHeldByAnother");
const NOT_FOUND: Told = ("False", "BookingNotFound");
const CANCELLED: Told = ("False", "BookingCancelledExternally");
const REJECTED: Told = ("False", "BookingRejected");
const NOT_BOOKED: Told = ("False", "NotBooked");
const NOT_MODIFIED: Told = ("False", "ModificationRejected");

impl Provider {
    /// Judges a ticket that is not paused. `is_excused`: its booking may be missing, because the operator cannot know about it any
    /// more.
    pub(crate) fn judge_one(&self, ticket: &Value, is_excused: bool) -> Result<(), String> {
        if observes(ticket) {
            return self.judge_observing(ticket, is_excused);
        }
        match named(ticket).filter(|id| !self.is_of(ticket, id)) {
            Some(id) => self.judge_naming(ticket, id, is_excused),
            None => self.judge_owning(ticket, is_excused),
        }
    }

    /// Judges what a ticket tells of the booking that it shows: the booking exists, and the operator has not cancelled the ticket's
    /// own one. The airline may have done so, and another ticket may have taken it over, since the operator last looked.
    pub(crate) fn judge_booked(&self, ticket: &Value) -> Result<(), String> {
        let status = &ticket["status"];
        if status["phase"] != "Booked" {
            return Ok(());
        }
        let id = status["bookingId"].as_str().unwrap_or_default();
        let Some(booking) = self.booking(id) else { return Err(format!("there is no booking {id:?}: {status}")) };
        if booking.state == State::Pending {
            return Err(format!("the airline has not confirmed {id}: {status}"));
        }
        let is_excused = booking.state.is_live() || booking.message.is_some() || observes(ticket);
        if self.is_of(ticket, id) && !is_excused {
            return Err(format!("the operator has cancelled {id}: {status}"));
        }
        Ok(())
    }

    /// Judges a ticket that manages a booking of its own.
    fn judge_owning(&self, ticket: &Value, is_excused: bool) -> Result<(), String> {
        let (spec, status) = (&ticket["spec"], &ticket["status"]);
        let Some(booking) = self.own(uid(ticket)) else { return self.judge_without(ticket, is_excused) };
        if !is_trip_of(spec, &booking) {
            return judge_other_trip(ticket, &booking);
        }
        if !has_wanted_number(spec, &booking) {
            if !booking.departed {
                return Err(format!("{} has {} seats in {spec}", booking.order.reference, booking.order.number));
            }
            // The airline changes no booking whose flight has left.
            shows(status, &booking)?;
            say(status, &[("Ready", BOOKED), ("Synced", NOT_MODIFIED)])?;
            return is_noted(ticket, &booking);
        }
        shows(status, &booking)?;
        say(status, &[("Ready", BOOKED), ("Synced", UP_TO_DATE)])?;
        is_noted(ticket, &booking)
    }

    /// Judges a ticket without a valid booking of its own.
    fn judge_without(&self, ticket: &Value, is_excused: bool) -> Result<(), String> {
        let (spec, status, uid) = (&ticket["spec"], &ticket["status"], uid(ticket));
        // What the provider has refused, the operator does not try again while the ticket names the lost booking.
        if status["purchaseRefused"] == true && named(ticket).is_some() {
            return has_phase(status, &["Cancelled", "Rejected"]);
        }
        let state = self.state();
        let cancelled = state.cancelled.get(uid).copied().unwrap_or(0);
        // A ticket replaces only a booking that its status shows.
        let may_replace = spec["rebookPolicy"] == "Always" && !state.unseen.contains(uid);
        let is_rejected = state.rejected.contains(uid);
        let is_refused = is_rejected || Trip::of(spec).has_left();
        let is_final = (cancelled > 0 && !may_replace) || cancelled > MOST_ATTEMPTS || is_refused;
        if !is_final && !is_excused && !state.audit.has_given(uid) {
            return Err(format!("{uid} has no booking, although only {cancelled} were cancelled: {status}"));
        }
        has_phase(status, &["Cancelled", "Rejected"])
    }

    /// Judges a ticket that names a booking which is not its own. It may also have one of its own, which it bought before and does
    /// not know of.
    fn judge_naming(&self, ticket: &Value, id: &str, is_excused: bool) -> Result<(), String> {
        let told = self.tells_of(ticket, id, is_excused);
        let uid = uid(ticket);
        // A ticket keeps its own booking whatever it names, also one that is cancelled.
        let keeps_lost = self.own(uid).is_none() && self.state().audit.has_held_any(uid);
        if keeps_lost { told.or_else(|why| self.judge_without(ticket, is_excused).map_err(|_| why)) } else { told }
    }

    /// Checks that a ticket tells why it does not have the booking that it names, and that it may not have it.
    fn tells_of(&self, ticket: &Value, id: &str, is_excused: bool) -> Result<(), String> {
        let status = &ticket["status"];
        let not_found = say(status, &[("Ready", NOT_FOUND), ("Synced", NOT_BOOKED)]);
        let Some(booking) = self.booking(id) else { return not_found };
        // The answer that a booking does not exist is final, even if the provider finds it again later.
        if self.state().audit.has_missed(id) && not_found.is_ok() {
            return Ok(());
        }
        // A booking moves only to a reference that is free.
        let has_free_reference = !is_excused && self.state().audit.has_free_reference(uid(ticket));
        let is_movable = booking.state.is_live() && !booking.departed;
        let may_move = is_movable && is_of_tenant(ticket, &booking) && has_free_reference;
        if adopts(ticket) && may_move {
            return Err(format!("{} has not taken over {id}: {status}", uid(ticket)));
        }
        keeps_tenants_apart(ticket, &booking)?;
        say(status, &[("Ready", HELD), ("Synced", NOT_BOOKED)])
    }

    /// Judges a ticket that reports the booking that it names.
    fn judge_observing(&self, ticket: &Value, is_excused: bool) -> Result<(), String> {
        let (spec, status) = (&ticket["spec"], &ticket["status"]);
        let Some(id) = named(ticket).filter(|id| is_id(id)) else {
            return self.judge_observing_own(ticket, is_excused);
        };
        let Some(booking) = self.booking(id) else {
            return say(status, &[("Ready", NOT_FOUND), ("Synced", NOT_BOOKED)]);
        };
        if !self.is_of(ticket, id) && !is_of_tenant(ticket, &booking) {
            keeps_tenants_apart(ticket, &booking)?;
            return say(status, &[("Ready", HELD), ("Synced", NOT_BOOKED)]);
        }
        if !booking.state.is_live() {
            let ready = if booking.state == State::Rejected { REJECTED } else { CANCELLED };
            return say(status, &[("Ready", ready), ("Synced", NOT_BOOKED)]);
        }
        shows(status, &booking)?;
        let agrees = is_trip_of(spec, &booking) && has_wanted_number(spec, &booking);
        say(status, &[("Ready", BOOKED), ("Synced", if agrees { UP_TO_DATE } else { DIVERGED })])
    }

    /// Judges a ticket that observes and names nothing: it reports the booking that it has made before, if any.
    fn judge_observing_own(&self, ticket: &Value, is_excused: bool) -> Result<(), String> {
        let (spec, status) = (&ticket["spec"], &ticket["status"]);
        match self.own(uid(ticket)) {
            Some(booking) if !is_excused || status["bookingId"] == *booking.id => {
                shows(status, &booking)?;
                let agrees = is_trip_of(spec, &booking) && has_wanted_number(spec, &booking);
                say(status, &[("Ready", BOOKED), ("Synced", if agrees { UP_TO_DATE } else { DIVERGED })])
            }
            _ => has_phase(status, &["Pending", "Cancelled", "Rejected"]),
        }
    }

    /// Returns the valid booking of the ticket with this uid.
    fn own(&self, uid: &str) -> Option<Booking> {
        let books = self.0.airline.books();
        let is_own = |it: &&Booking| it.state.is_live() && uid_of(it.order.reference.as_str()) == uid;
        books.bookings.iter().find(is_own).cloned()
    }

    /// Whether this booking is, or was until it was cancelled, the ticket's own.
    fn is_of(&self, ticket: &Value, id: &str) -> bool {
        self.booking(id).is_some_and(|booking| uid_of(booking.order.reference.as_str()) == uid(ticket))
    }
}

/// Judges a ticket with a booking for another trip, which it has taken over. The operator leaves the booking as it is.
fn judge_other_trip(ticket: &Value, booking: &Booking) -> Result<(), String> {
    let status = &ticket["status"];
    shows(status, booking)?;
    say(status, &[("Ready", BOOKED), ("Synced", DIVERGED)])?;
    is_noted(ticket, booking)
}

/// Checks that the status shows this booking as confirmed.
fn shows(status: &Value, booking: &Booking) -> Result<(), String> {
    let (reference, number) = (booking.order.reference.as_str(), booking.order.number);
    let is_shown = status["phase"] == "Booked"
        && status["bookingId"] == *booking.id
        && status["number"] == number
        && status["reference"] == *reference;
    if is_shown { Ok(()) } else { Err(format!("{reference} has {number} seats, but the status is {status}")) }
}

/// Checks that the annotations name the ticket's own booking, and do not ask for a takeover any more: a copy of the object must
/// neither buy nor take over anything.
fn is_noted(ticket: &Value, booking: &Booking) -> Result<(), String> {
    let annotations = &ticket["metadata"]["annotations"];
    if named(ticket) == Some(booking.id.as_str()) && !adopts(ticket) {
        return Ok(());
    }
    Err(format!("{} has the booking {}, but the annotations {annotations}", booking.order.reference, booking.id))
}

/// Checks that the ticket of one tenant does not show to whom a booking of another tenant belongs.
fn keeps_tenants_apart(ticket: &Value, booking: &Booking) -> Result<(), String> {
    let owner = uid_of(booking.order.reference.as_str());
    let status = ticket["status"].to_string();
    if is_of_tenant(ticket, booking) || !status.contains(owner) {
        return Ok(());
    }
    Err(format!("{owner} belongs to another tenant than the ticket, which shows it: {status}"))
}

/// Whether the booking belongs to the namespace of the ticket.
fn is_of_tenant(ticket: &Value, booking: &Booking) -> bool {
    let contact = booking.order.contact.as_ref();
    contact.is_some_and(|contact| ticket["metadata"]["namespace"] == *contact.namespace)
}

fn is_trip_of(spec: &Value, booking: &Booking) -> bool {
    Trip::of(spec) == Trip::booked(booking)
}

fn has_wanted_number(spec: &Value, booking: &Booking) -> bool {
    spec["number"].as_u64().unwrap_or(1) == u64::from(booking.order.number)
}

fn has_phase(status: &Value, phases: &[&str]) -> Result<(), String> {
    if phases.iter().any(|phase| status["phase"] == *phase) {
        return Ok(());
    }
    Err(format!("the ticket has no booking, but the status {status}"))
}

//! Audits the provider's books: a ticket must have required each booking that the operator makes, changes, cancels or takes over.
//! The rules follow the README of the operator.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use booking_server::booking::{Booking, State};
use model_apiserver::Change;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    foreign::{adopts, is_foreign, named, observes},
    uid_of,
};

/// For this time after a change of a ticket, requests may still follow from what the ticket was before: watches lag, requests
/// are slow or late, and the operator repeats them after a back-off. The time in which a watch of tickets is silent does not count.
const STALE: Duration = Duration::from_mins(5);

/// A ticket as the API server has stored it since this time of [`Audit::followed`].
struct Version {
    since: Duration,
    ticket: Arc<Value>,
    /// The booking that users let the ticket name. It stays if the operator removes the annotation: otherwise, the operator could
    /// remove what forbids it to buy, and then buy.
    named: Option<String>,
    /// The bookings of its own that its status has shown so far, the last one at the end.
    shown: Vec<String>,
}

/// A change of one booking. There was nothing before a new one.
struct Entry {
    before: Option<Booking>,
    after: Booking,
}

/// What the tickets have required, and what has happened to the bookings.
#[derive(Default)]
pub(crate) struct Audit {
    /// Recent versions of each ticket, by uid. Also of those that are gone, for which late requests may still arrive.
    tickets: BTreeMap<String, Vec<Version>>,
    /// The bookings after the last entry, in the order in which they were made.
    bookings: Vec<Booking>,
    /// Changes of bookings that are not checked yet, because the changes of tickets arrive later.
    entries: Vec<Entry>,
    /// The ids of all bookings that each ticket has ever had, by its uid.
    held: BTreeMap<String, BTreeSet<String>>,
    /// Ids of bookings that the provider did not find for a while. Tickets may have given them up.
    missed: BTreeSet<String>,
    /// For how long the operator could follow the tickets: no watch of them was silent.
    followed: Duration,
    /// When `followed` was last advanced.
    passed: Option<Instant>,
    /// Until then, by `followed`, requests may follow from tickets that a restore has removed or changed.
    unsure_until: Option<Duration>,
}

impl Audit {
    /// Takes in that it is now this time. `has_silent_watch` tells whether a watch of tickets is silent.
    pub(crate) fn pass(&mut self, now: Instant, has_silent_watch: bool) {
        let last = self.passed.replace(now).unwrap_or(now);
        if !has_silent_watch {
            self.followed += now.duration_since(last);
        }
    }

    /// Takes in a change of a ticket, and whether the operator has made it.
    pub(crate) fn changed(&mut self, change: &Change, by_operator: bool) {
        let Some(ticket) = &change.after else { return };
        let is_removed = !by_operator && change.before.as_deref().and_then(named).is_some();
        let versions = self.tickets.entry(uid(ticket).to_owned()).or_default();
        let earlier = versions.last().and_then(|version| version.named.clone()).filter(|_| !is_removed);
        let named = named(ticket).map(str::to_owned).or(earlier);
        let mut shown = versions.last().map(|version| version.shown.clone()).unwrap_or_default();
        let fresh = own_in_status(ticket).filter(|id| shown.last() != Some(id));
        shown.extend(fresh);
        versions.push(Version { since: self.followed, ticket: ticket.clone(), named, shown });
        let old = versions.len() - recent(versions, self.followed).len();
        versions.drain(..old);
    }

    /// Starts over with these tickets after a restore, which does not change the bookings.
    pub(crate) fn restored(&mut self, tickets: &[Value]) {
        let since = self.followed;
        self.unsure_until = Some(since + STALE);
        self.entries.clear();
        self.tickets.clear();
        for ticket in tickets {
            let held = self.held.get(uid(ticket)).into_iter().flatten().cloned();
            let shown = held.chain(own_in_status(ticket)).collect();
            let named = named(ticket).map(str::to_owned);
            let version = Version { since, ticket: Arc::new(ticket.clone()), named, shown };
            self.tickets.insert(uid(ticket).to_owned(), vec![version]);
        }
    }

    /// Takes in what a request has changed. These are all bookings.
    pub(crate) fn record(&mut self, bookings: &[Booking]) {
        for (place, booking) in bookings.iter().enumerate() {
            let before = self.bookings.get(place);
            if before.is_some_and(|before| before.version == booking.version) {
                continue;
            }
            self.entries.push(Entry { before: before.cloned(), after: booking.clone() });
            self.held.entry(owner(booking).to_owned()).or_default().insert(booking.id.clone());
            match self.bookings.get_mut(place) {
                Some(known) => known.clone_from(booking),
                None => self.bookings.push(booking.clone()),
            }
        }
    }

    /// Takes in that the provider does not find these bookings for a while.
    pub(crate) fn miss(&mut self, ids: &[String]) {
        self.missed.extend(ids.iter().cloned());
    }

    /// Whether the provider did not find this booking for a while.
    pub(crate) fn has_missed(&self, id: &str) -> bool {
        self.missed.contains(id)
    }

    /// Whether the ticket has ever had a booking of its own.
    pub(crate) fn has_held_any(&self, uid: &str) -> bool {
        self.held.contains_key(uid)
    }

    /// Whether a booking can move to the reference of the ticket: it has had no booking, or only one that the airline has rejected.
    pub(crate) fn has_free_reference(&self, uid: &str) -> bool {
        self.held.get(uid).is_none_or(|held| held.len() == 1 && held.iter().all(|id| self.is_rejected(uid, id)))
    }

    /// Whether the status of the ticket shows this booking as its own.
    pub(crate) fn is_shown(&self, uid: &str, booking: &Booking) -> bool {
        let last = self.tickets.get(uid).and_then(|versions| versions.last());
        last.is_some_and(|version| {
            let status = &version.ticket["status"];
            status["bookingId"] == *booking.id && status["reference"] == *booking.order.reference.as_str()
        })
    }

    /// Whether another ticket has taken over a booking of this one.
    pub(crate) fn has_given(&self, uid: &str) -> bool {
        let has_gone = |id: &String| !self.is_of(uid, id);
        self.held.get(uid).is_some_and(|held| held.iter().any(has_gone))
    }

    /// Checks everything that has happened to bookings since the last call.
    ///
    /// # Errors
    ///
    /// Describes what no ticket has required.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        for Entry { before, after } in std::mem::take(&mut self.entries) {
            let checked = match &before {
                None => self.check_purchase(&after),
                Some(before) if owner(before) != owner(&after) => self.check_takeover(before, &after),
                Some(before) => self.check_change(before, &after),
            };
            checked.map_err(|why| format!("booking {} of {}: {why}", after.id, after.order.reference))?;
        }
        Ok(())
    }

    /// The operator buys nothing for a ticket that only observes, or that names a booking. It replaces only the own booking that the
    /// status has shown last, and only while the status shows it, or after the operator has removed its name. Besides, it repeats a
    /// purchase that the status stores, if the ticket names a booking that its status has shown before.
    fn check_purchase(&self, booking: &Booking) -> Result<(), String> {
        let uid = owner(booking);
        let may_buy = |version: &Version| {
            let status = &version.ticket["status"];
            let shows_none = status["bookingId"].is_null();
            let may_replace = |id: &String| {
                let is_only_named = shows_none && named(&version.ticket).is_some();
                let has_attempt = status["attempt"].as_u64().is_some_and(|attempt| attempt > 0);
                let repeats =
                    shows_none && has_attempt && status["purchaseRefused"] != true && version.shown.contains(id);
                let replaces_shown = version.shown.last() == Some(id) && !is_only_named;
                self.was_of(uid, id) && (repeats || replaces_shown)
            };
            !observes(&version.ticket) && version.named.as_ref().is_none_or(may_replace)
        };
        if is_foreign(uid) || self.was(uid, may_buy) {
            return Ok(());
        }
        Err("it was bought for a ticket that names another booking, or only observes".to_owned())
    }

    /// A booking moves only to a ticket of its namespace that asks for it.
    fn check_takeover(&self, before: &Booking, after: &Booking) -> Result<(), String> {
        let namespace = before.order.contact.as_ref().map(|contact| contact.namespace.as_str());
        let asks = |version: &Version| {
            let ticket = &version.ticket;
            let is_its_tenant = namespace.is_some() && ticket["metadata"]["namespace"].as_str() == namespace;
            is_its_tenant && adopts(ticket) && named(ticket) == Some(before.id.as_str())
        };
        if self.was(owner(after), asks) {
            return Ok(());
        }
        Err(format!("it was taken over from {}, and the ticket has not asked for it", before.order.reference))
    }

    /// A booking has only the numbers of seats that its ticket requires, and ends only with its ticket.
    fn check_change(&self, before: &Booking, after: &Booking) -> Result<(), String> {
        let uid = owner(after);
        // The airline leaves a message when it cancels a booking.
        let is_cancelled = before.state.is_live() && !after.state.is_live() && after.message.is_none();
        let is_modified = before.order.number != after.order.number;
        let wants_number = |version: &Version| {
            let wanted = version.ticket["spec"]["number"].as_u64().unwrap_or(1);
            wanted == u64::from(after.order.number) && !observes(&version.ticket)
        };
        if is_foreign(uid) && (is_cancelled || is_modified) {
            return Err("the operator has changed it, although no ticket has taken it over".to_owned());
        }
        if is_cancelled && !self.was(uid, |version| cancels(&version.ticket)) {
            return Err("it was cancelled, although its ticket is not being deleted, or keeps it".to_owned());
        }
        if is_modified && !self.was(uid, wants_number) {
            return Err(format!("it has {} seats now, which its ticket does not require", after.order.number));
        }
        Ok(())
    }

    /// Whether this was so for a version of the ticket that requests may still follow from. If the versions are not known, it may
    /// have been.
    fn was(&self, uid: &str, is_so: impl Fn(&Version) -> bool) -> bool {
        let is_unsure = self.unsure_until.is_some_and(|until| self.followed < until);
        let Some(versions) = self.tickets.get(uid).filter(|_| !is_unsure) else { return true };
        recent(versions, self.followed).iter().any(is_so)
    }

    /// Whether this booking is the ticket's own, or was until the provider lost it.
    fn was_of(&self, uid: &str, id: &str) -> bool {
        let was_own = self.held.get(uid).is_some_and(|held| held.contains(id));
        self.is_of(uid, id) || (was_own && self.has_missed(id))
    }

    /// Whether this booking is the ticket's own, and the airline has rejected it.
    fn is_rejected(&self, uid: &str, id: &str) -> bool {
        let is_it = |booking: &Booking| booking.id == id && owner(booking) == uid;
        self.bookings.iter().any(|booking| is_it(booking) && booking.state == State::Rejected)
    }

    /// Whether this booking is the ticket's own.
    fn is_of(&self, uid: &str, id: &str) -> bool {
        self.bookings.iter().any(|booking| booking.id == id && owner(booking) == uid)
    }
}

/// The versions that were current within the time in which requests may follow from them. `followed` is that of the audit.
fn recent(versions: &[Version], followed: Duration) -> &[Version] {
    let old = versions.iter().take_while(|version| followed.saturating_sub(version.since) > STALE).count();
    // The last one of the old ones was current when this time began.
    &versions[old.saturating_sub(1)..]
}

/// Whether the ticket is being deleted, and its booking ends with it.
fn cancels(ticket: &Value) -> bool {
    let is_deleted = !ticket["metadata"]["deletionTimestamp"].is_null();
    is_deleted && ticket["spec"]["deletionPolicy"] != "Retain" && !observes(ticket)
}

/// The booking that the status of a ticket shows, if it is the ticket's own.
fn own_in_status(ticket: &Value) -> Option<String> {
    let status = &ticket["status"];
    let is_own = status["reference"].as_str().is_some_and(|reference| uid_of(reference) == uid(ticket));
    status["bookingId"].as_str().filter(|_| is_own).map(str::to_owned)
}

/// The uid of the ticket that has the booking. For a foreign booking, its reference.
fn owner(booking: &Booking) -> &str {
    uid_of(booking.order.reference.as_str())
}

/// The uid of a ticket.
pub(crate) fn uid(ticket: &Value) -> &str {
    ticket["metadata"]["uid"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use booking_server::booking::{Cabin, Contact, Order, Reference};
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    /// The uid of the ticket of these tests.
    const TICKET: &str = "ticket";
    const FOREIGN: &str = "desk-0";

    fn booking(reference: &str) -> Booking {
        let contact = Some(Contact { namespace: "shop".to_owned(), name: "a".to_owned() });
        Booking {
            id: "BK-0".to_owned(),
            order: Order {
                reference: Reference::parse(reference).expect("a reference"),
                from: "City a".to_owned(),
                to: "London".to_owned(),
                number: 1,
                date: None,
                cabin: Cabin::Economy,
                contact,
            },
            state: State::Confirmed,
            confirmation: None,
            seats: Vec::new(),
            version: 1,
            message: None,
            confirm_at: None,
            departed: false,
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// The booking after this change.
    fn changed(booking: &Booking, change: impl FnOnce(&mut Booking)) -> Booking {
        let mut changed = Booking { version: booking.version + 1, ..booking.clone() };
        change(&mut changed);
        changed
    }

    fn cancelled(booking: &Booking) -> Booking {
        changed(booking, |it| it.state = State::Cancelled)
    }

    /// A user has written this ticket.
    fn written(ticket: Value) -> Change {
        let (resource, key, writer) = ("flighttickets.flights.com".into(), "shop/a".into(), "user".into());
        Change { version: 1, resource, key, before: None, after: Some(Arc::new(ticket)), writer }
    }

    /// Whether a ticket of this namespace, with these annotations and this spec, allows what happens to a booking.
    fn allows(namespace: &str, annotations: &Value, spec: &Value, states: &[Booking]) -> bool {
        let metadata = json!({"uid": TICKET, "namespace": namespace, "annotations": annotations});
        let mut audit = Audit::default();
        audit.changed(&written(json!({"metadata": metadata, "spec": spec})), false);
        for state in states {
            audit.record(std::slice::from_ref(state));
        }
        audit.check().is_ok()
    }

    #[test]
    fn requests_follow_from_an_earlier_ticket_for_a_while_and_for_longer_while_a_watch_is_silent() {
        // The ticket has wanted three seats, and wants one. After so many minutes, the operator asks for three.
        let is_allowed = |silent: u64, followed: u64| {
            let (begun, own, mut audit) = (Instant::now(), booking(TICKET), Audit::default());
            audit.pass(begun, false);
            for number in [3, 1] {
                let metadata = json!({"uid": TICKET, "namespace": "shop"});
                audit.changed(&written(json!({"metadata": metadata, "spec": {"number": number}})), false);
            }
            audit.record(std::slice::from_ref(&own));
            audit.pass(begun + Duration::from_mins(silent), true);
            audit.pass(begun + Duration::from_mins(silent + followed), false);
            audit.record(&[changed(&own, |it| it.order.number = 3)]);
            audit.check().is_ok()
        };
        assert!(is_allowed(0, 5) && !is_allowed(0, 6));
        assert!(is_allowed(4, 5) && !is_allowed(4, 6));
    }

    #[test]
    fn only_a_ticket_that_names_no_booking_buys() {
        let bought = [booking(TICKET)];
        assert!(allows("shop", &json!({}), &json!({}), &bought));
        assert!(!allows("shop", &json!({}), &json!({"managementPolicy": "Observe"}), &bought));
        for named in ["BK-0", "BK-1", "../references/desk-0"] {
            assert!(!allows("shop", &json!({"flights.com/booking-id": named}), &json!({}), &bought), "{named}");
        }
    }

    /// The writes of a ticket in their order, and whether the operator made them.
    type Writes<'a> = &'a [(bool, Change)];

    /// A ticket replaces the booking that its status shows, and no other one that its user names.
    #[test]
    fn only_the_booking_that_the_status_shows_is_replaced() {
        let of = |id: &str, state| Booking { id: id.to_owned(), state, ..booking(TICKET) };
        let ticket = |named: Option<&str>, mut status: Value| {
            status["reference"] = json!(TICKET);
            let annotations = named.map_or_else(|| json!({}), |named| json!({"flights.com/booking-id": named}));
            let metadata = json!({"uid": TICKET, "namespace": "shop", "annotations": annotations});
            written(json!({"metadata": metadata, "spec": {}, "status": status}))
        };
        let shows = |id: &str| json!({"bookingId": id});
        let (stores, refused) = (json!({"attempt": 1}), json!({"attempt": 1, "purchaseRefused": true}));
        // What the ticket names, its writes, and whether the operator may buy after the last one.
        let cases: [(&str, Writes<'_>, bool); 10] = [
            ("its own", &[(true, ticket(Some("BK-0"), shows("BK-0")))], true),
            ("an unknown one", &[(true, ticket(Some("BK-9"), shows("BK-0")))], false),
            (
                "a former one",
                &[(true, ticket(Some("BK-0"), shows("BK-0"))), (false, ticket(Some("BK-0"), shows("BK-1")))],
                false,
            ),
            (
                "a former one, and the operator removes the name",
                &[
                    (true, ticket(Some("BK-0"), shows("BK-0"))),
                    (false, ticket(Some("BK-0"), shows("BK-1"))),
                    (true, ticket(None, shows("BK-1"))),
                ],
                false,
            ),
            (
                "one that it has never shown, and stores a purchase",
                &[
                    (true, ticket(Some("BK-0"), shows("BK-0"))),
                    (false, ticket(Some("BK-1"), shows("BK-0"))),
                    (true, ticket(None, stores.clone())),
                ],
                false,
            ),
            (
                "only by the annotation",
                &[(true, ticket(Some("BK-0"), shows("BK-0"))), (true, ticket(Some("BK-0"), json!({})))],
                false,
            ),
            (
                "its own, until the operator removes the name",
                &[(true, ticket(Some("BK-0"), shows("BK-0"))), (true, ticket(None, json!({})))],
                true,
            ),
            (
                "a former one, and stores a purchase",
                &[(true, ticket(Some("BK-0"), shows("BK-0"))), (false, ticket(Some("BK-0"), stores))],
                true,
            ),
            (
                "a former one, and the purchase was refused",
                &[(true, ticket(Some("BK-0"), shows("BK-0"))), (false, ticket(Some("BK-0"), refused.clone()))],
                false,
            ),
            (
                "none any more, and the purchase was refused",
                &[(true, ticket(Some("BK-0"), shows("BK-0"))), (true, ticket(None, refused))],
                true,
            ),
        ];
        for (what, changes, is_allowed) in cases {
            let (begun, mut audit) = (Instant::now(), Audit::default());
            audit.record(&[of("BK-0", State::Rejected), of("BK-1", State::Rejected)]);
            audit.entries.clear();
            for (number, (by_operator, change)) in changes.iter().enumerate() {
                // Nothing follows from the earlier ones any more.
                audit.pass(begun + 2 * STALE * u32::try_from(number).expect("a small number"), false);
                audit.changed(change, *by_operator);
            }
            audit.pass(begun + 100 * STALE, false);
            audit.record(&[of("BK-0", State::Rejected), of("BK-1", State::Rejected), of("BK-2", State::Confirmed)]);
            assert_eq!(audit.check().is_ok(), is_allowed, "{what}");
        }
        let again = of("BK-2", State::Confirmed);
        assert!(!allows("shop", &json!({}), &json!({"managementPolicy": "Observe"}), &[again]), "it only observes");
    }

    #[test]
    fn booking_moves_only_to_a_ticket_of_its_namespace_that_asks() {
        let foreign = booking(FOREIGN);
        let moved = [foreign.clone(), changed(&foreign, |it| it.order.reference = booking(TICKET).order.reference)];
        let asks = json!({"flights.com/booking-id": "BK-0", "flights.com/adopt-booking": "true"});
        assert!(allows("shop", &asks, &json!({}), &moved));
        assert!(!allows("depot", &asks, &json!({}), &moved));
        assert!(!allows("shop", &asks, &json!({"managementPolicy": "Observe"}), &moved));
        assert!(!allows("shop", &json!({"flights.com/booking-id": "BK-0"}), &json!({}), &moved));
    }

    #[test]
    fn booking_without_a_ticket_stays_as_it_is() {
        let foreign = booking(FOREIGN);
        let more = changed(&foreign, |it| it.order.number = 2);
        let by_airline = changed(&cancelled(&foreign), |it| it.message = Some("cancelled by the airline".to_owned()));
        for (state, is_allowed) in [(more, false), (cancelled(&foreign), false), (by_airline, true)] {
            let states = [foreign.clone(), state];
            assert_eq!(allows("shop", &json!({}), &json!({"number": 2}), &states), is_allowed, "{states:?}");
        }
    }

    #[test]
    fn booking_of_a_ticket_has_its_number_and_ends_with_it() {
        let own = booking(TICKET);
        let more = [own.clone(), changed(&own, |it| it.order.number = 2)];
        assert!(allows("shop", &json!({}), &json!({"number": 2}), &more));
        assert!(!allows("shop", &json!({}), &json!({"number": 3}), &more));
        assert!(!allows("shop", &json!({}), &json!({"number": 1}), &[own.clone(), cancelled(&own)]));
    }
}

//! A provider that refuses one tenant for a while: it answers 401 or 403 to each request about it. All tenants have the same
//! credentials, those of the operator, so the provider can tell them apart only by what a request is about.
//!
//! No ticket of another tenant may say that the provider has refused it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use booking_server::booking::Booking;
use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response};
use model_apiserver::Change;
use serde_json::{Value, json};
use simulation::condition;
use tokio::time::Instant;

use super::{audit::uid, foreign::named, uid_of};

/// Makes the draw of a refusal independent of the other draws. With this value, the world in `tests/worlds` has none.
const REFUSALS: u64 = 0x0074_656e_616e_7401;
/// How long a refusal lasts, in seconds. After a 403, the operator tries again after five minutes.
const LASTS: Range<u64> = 60..400;
/// What `Ready` of a ticket says when the provider has refused the credentials, or a request about this ticket.
const REASONS: [&str; 2] = ["AuthenticationFailed", "BookingForbidden"];

/// The refusal of one tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    /// The status of the answers.
    pub(crate) status: u16,
    pub(crate) lasts: Duration,
}

impl Refusal {
    /// Draws whether the act of this generator is a refusal. This takes nothing from the generator.
    pub(crate) fn draw(rng: &Rng) -> Option<Self> {
        let mut apart = Rng::with_seed(rng.get_seed() ^ REFUSALS);
        let is_refusal = apart.u8(..6) == 0;
        let status = if apart.bool() { 401 } else { 403 };
        let lasts = Duration::from_secs(apart.u64(LASTS));
        is_refusal.then_some(Self { status, lasts })
    }
}

/// What the provider knows of the tenants, and what the tickets say of its refusals.
#[derive(Default)]
pub(crate) struct Tenants {
    /// The namespace whose requests get this status until this time.
    refused: Option<(String, u16, Instant)>,
    /// The namespaces that were ever refused. A ticket may say so long afterwards, for example while it is paused.
    met: BTreeSet<String>,
    /// Whether all tenants were ever refused at once.
    met_all: bool,
    /// The namespaces of the tickets, by uid.
    namespaces: BTreeMap<String, String>,
    /// The bookings that tickets may name, each with the namespace of such a ticket.
    named: BTreeSet<(String, String)>,
    wrong: Option<String>,
}

impl Tenants {
    /// Refuses the requests of this namespace from now on.
    pub(crate) fn refuse(&mut self, namespace: &str, refusal: Refusal, now: Instant) {
        self.refused = Some((namespace.to_owned(), refusal.status, now + refusal.lasts));
    }

    /// Takes in that the provider refuses all tenants, for another reason.
    pub(crate) fn refuse_all(&mut self) {
        self.met_all = true;
    }

    /// Accepts all requests again.
    pub(crate) fn accept(&mut self) {
        self.refused = None;
    }

    /// Takes in that a user lets a ticket of this namespace have this merge patch, before it is written.
    pub(crate) fn names(&mut self, namespace: &str, patch: &Value) {
        self.named.extend(named(patch).map(|id| (namespace.to_owned(), id.to_owned())));
    }

    /// Takes in a change of a ticket, and checks what the operator has let it say.
    pub(crate) fn changed(&mut self, change: &Change, by_operator: bool) {
        let Some(ticket) = &change.after else { return };
        self.knows(ticket);
        let namespace = ticket["metadata"]["namespace"].as_str().unwrap_or_default();
        let reason = condition(&ticket["status"], "Ready")["reason"].as_str().unwrap_or_default();
        if by_operator && REASONS.contains(&reason) && !self.met_all && !self.met.contains(namespace) {
            let why = format!("{} says {reason}, and the provider has refused only {:?}", change.key, self.met);
            self.wrong.get_or_insert(why);
        }
    }

    /// Takes in that a ticket exists.
    pub(crate) fn knows(&mut self, ticket: &Value) {
        let namespace = ticket["metadata"]["namespace"].as_str().unwrap_or_default();
        self.namespaces.insert(uid(ticket).to_owned(), namespace.to_owned());
    }

    /// Returns what the provider answers if it refuses the request.
    pub(crate) fn answer(
        &mut self,
        request: &Request<Bytes>,
        bookings: &[Booking],
        now: Instant,
    ) -> Option<Response<Bytes>> {
        self.refused.take_if(|(_, _, until)| now >= *until);
        let (namespace, status, _) = self.refused.as_ref()?;
        if self.tenant(request, bookings).as_ref() != Some(namespace) {
            return None;
        }
        self.met.insert(namespace.clone());
        let body = json!({"code": "REFUSED", "detail": "this tenant is refused"}).to_string();
        Some(Response::builder().status(*status).body(Bytes::from(body)).expect("an answer"))
    }

    /// The tenant whose ticket has sent the request. `None` if that is not certain: a ticket of another tenant may name the same
    /// booking, and the operator cannot know that the refusal is not about its own tenant.
    fn tenant(&self, request: &Request<Bytes>, bookings: &[Booking]) -> Option<String> {
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        if let Some(namespace) = body["contact"]["namespace"].as_str() {
            return Some(namespace.to_owned());
        }
        let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        match path.as_slice() {
            ["v1", "references", reference] => self.namespaces.get(uid_of(reference)).cloned(),
            ["v1", "bookings", id, ..] => {
                let booking = bookings.iter().find(|booking| booking.id == *id)?;
                let namespace = &booking.order.contact.as_ref()?.namespace;
                let is_named_elsewhere = self.named.iter().any(|(other, it)| it == id && other != namespace);
                (!is_named_elsewhere).then(|| namespace.clone())
            }
            _ => None,
        }
    }

    /// Checks what the tickets have said so far.
    ///
    /// # Errors
    ///
    /// If a ticket has said that the provider has refused its tenant, and it has not.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use booking_server::booking::{Cabin, Contact, Order, Reference, State};
    use jiff::Timestamp;

    use super::*;

    /// A provider that refuses the namespace `shop` for a minute from now on. Both namespaces have a ticket.
    fn refusing(now: Instant) -> Tenants {
        let mut tenants = Tenants::default();
        tenants.refuse("shop", Refusal { status: 401, lasts: Duration::from_mins(1) }, now);
        for namespace in ["shop", "depot"] {
            says(&mut tenants, namespace, "Booked");
        }
        tenants
    }

    /// The operator has written this status of a ticket.
    fn says(tenants: &mut Tenants, namespace: &str, reason: &str) {
        let ticket = json!({
            "metadata": {"uid": format!("uid-{namespace}"), "namespace": namespace},
            "status": {"conditions": [{"type": "Ready", "reason": reason}]},
        });
        let (resource, key, writer) = ("flighttickets.flights.com".into(), namespace.into(), "operator-0".into());
        let change = Change { version: 1, resource, key, before: None, after: Some(Arc::new(ticket)), writer };
        tenants.changed(&change, true);
    }

    /// Whether the provider refuses this request.
    fn refuses(tenants: &mut Tenants, path: &str, body: &Value, bookings: &[Booking], now: Instant) -> bool {
        let request = Request::post(path).body(Bytes::from(body.to_string())).expect("a request");
        tenants.answer(&request, bookings, now).is_some_and(|answer| answer.status() == 401)
    }

    #[test]
    fn only_requests_of_one_tenant_are_refused_and_only_for_a_while() {
        let begun = Instant::now();
        let mut tenants = refusing(begun);
        let of = |namespace: &str| json!({"contact": {"namespace": namespace}});
        assert!(refuses(&mut tenants, "/v1/bookings", &of("shop"), &[], begun));
        assert!(!refuses(&mut tenants, "/v1/bookings", &of("depot"), &[], begun));
        assert!(refuses(&mut tenants, "/v1/references/uid-shop.1", &Value::Null, &[], begun));
        assert!(!refuses(&mut tenants, "/v1/references/uid-depot", &Value::Null, &[], begun));
        assert!(!refuses(&mut tenants, "/v1/bookings", &of("shop"), &[], begun + Duration::from_mins(1)));
    }

    /// The operator could not know that the answer is about another tenant than that of its ticket.
    #[test]
    fn booking_that_a_ticket_of_another_tenant_names_is_shown() {
        let begun = Instant::now();
        let bookings = [booking("uid-shop", "shop"), booking("uid-depot", "depot")];
        let mut tenants = refusing(begun);
        let is_refused = |tenants: &mut Tenants, id: &str| {
            refuses(tenants, &format!("/v1/bookings/{id}"), &Value::Null, &bookings, begun)
        };
        assert!(is_refused(&mut tenants, "BK-uid-shop") && !is_refused(&mut tenants, "BK-uid-depot"));
        let names = json!({"metadata": {"annotations": {"flights.com/booking-id": "BK-uid-shop"}}});
        tenants.names("shop", &names);
        assert!(is_refused(&mut tenants, "BK-uid-shop"));
        tenants.names("depot", &names);
        assert!(!is_refused(&mut tenants, "BK-uid-shop"));
    }

    #[test]
    fn ticket_of_another_tenant_that_says_it_was_refused_is_found() {
        for reason in REASONS {
            let begun = Instant::now();
            let mut tenants = refusing(begun);
            assert!(refuses(&mut tenants, "/v1/references/uid-shop", &Value::Null, &[], begun));
            says(&mut tenants, "shop", reason);
            assert_eq!(tenants.check(), Ok(()));
            says(&mut tenants, "depot", reason);
            assert!(tenants.check().is_err(), "{reason}");
        }
        let mut tenants = refusing(Instant::now());
        tenants.refuse_all();
        says(&mut tenants, "depot", REASONS[0]);
        assert_eq!(tenants.check(), Ok(()), "the provider has refused all");
    }

    /// A booking of this reference, for a ticket of this namespace.
    fn booking(reference: &str, namespace: &str) -> Booking {
        Booking {
            id: format!("BK-{reference}"),
            order: Order {
                reference: Reference::parse(reference).expect("a reference"),
                from: "City a".to_owned(),
                to: "London".to_owned(),
                number: 1,
                date: None,
                cabin: Cabin::Economy,
                contact: Some(Contact { namespace: namespace.to_owned(), name: "a".to_owned() }),
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
}

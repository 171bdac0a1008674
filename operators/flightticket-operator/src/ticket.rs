//! Reads a ticket: its references, its annotations, and its order.

use kube::ResourceExt;
use manager::ObjectKey;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    FlightTicket,
    api::v1::ManagementPolicy,
    booking::{Contact, Order, is_word},
};

/// The finalizer, which stays until no booking is left at the provider.
pub const FINALIZER: &str = "flights.com/booking";
/// Annotation with the id of the object's booking. It survives a backup and restore, which loses the status and changes the uid.
pub const BOOKING_ID: &str = "flights.com/booking-id";
/// Annotation: `true` takes over a booking that belongs to another object of the same namespace. The operator removes it when
/// the booking is taken over: a copy of the object must not take the booking over again.
pub const ADOPT: &str = "flights.com/adopt-booking";
/// Annotation: any new value repeats the request after a final refusal.
pub const RETRY: &str = "flights.com/retry";
/// Annotation: `true` lets the object be deleted although its booking could not be cancelled.
pub const FORCE_DELETE: &str = "flights.com/force-delete";

/// What the annotations say about the object's booking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The value of [`BOOKING_ID`].
    pub id: Option<String>,
    /// The value of [`ADOPT`].
    pub adopt: Option<String>,
}

/// How many times the operator replaces a lost booking.
pub const MOST_ATTEMPTS: u32 = 10;

impl FlightTicket {
    /// Returns the booking that the status shows, if it is the ticket's own, and not one that the ticket only observes or names.
    pub fn own_booking(&self) -> Option<&str> {
        let status = self.status.as_ref()?;
        let is_own = status.reference.as_ref().is_none_or(|reference| self.attempt_of(reference).is_some());
        status.booking_id.as_deref().filter(|_| is_own)
    }

    /// Returns namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace().unwrap_or_default(), self.name_any())
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether the object is to be deleted although its booking is not cancelled.
    pub fn is_forced(&self) -> bool {
        self.annotation(FORCE_DELETE) == Some("true")
    }

    /// Whether the operator only reports a booking, and neither books nor changes nor cancels.
    pub fn observes(&self) -> bool {
        self.spec.management_policy == ManagementPolicy::Observe
    }

    /// Returns our name for the booking of this attempt. It depends only on the object, so that after a crash any replica repeats
    /// the same request.
    pub fn reference(&self, attempt: u32) -> String {
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        if attempt == 0 { uid.to_owned() } else { format!("{uid}.{attempt}") }
    }

    /// Returns the attempt that has this reference; `None` if it belongs to another object.
    pub fn attempt_of(&self, reference: &str) -> Option<u32> {
        (0..=MOST_ATTEMPTS).find(|attempt| self.reference(*attempt) == reference)
    }

    /// Returns what the annotations say about the booking.
    pub fn claim(&self) -> Claim {
        let value = |name| self.annotation(name).map(str::to_owned);
        Claim { id: value(BOOKING_ID), adopt: value(ADOPT) }
    }

    /// Returns the object as the provider knows it.
    pub fn contact(&self) -> Contact {
        Contact { namespace: self.namespace().unwrap_or_default(), name: self.name_any() }
    }

    /// Returns the order for this ticket.
    pub fn order(&self, attempt: u32) -> Order {
        let spec = &self.spec;
        Order {
            reference: self.reference(attempt),
            from: spec.from.clone(),
            to: spec.to.clone(),
            number: spec.number,
            departure_date: spec.departure_date,
            cabin: spec.cabin.to_string(),
            contact: self.contact(),
        }
    }

    /// Returns a fingerprint of everything in the object that a final answer depends on, with this claim. When it changes, the
    /// operator tries again. While the ticket manages a booking of its own (`has_own`), [`BOOKING_ID`] does not count, because the
    /// operator itself writes it.
    pub fn fingerprint(&self, claim: &Claim, has_own: bool) -> String {
        let claimed = if has_own && !self.observes() { None } else { claim.id.as_deref() };
        let generation = self.metadata.generation.unwrap_or_default();
        let texts = format!("{:?}", [claimed, self.annotation(RETRY), claim.adopt.as_deref()]);
        format!("{generation}-{:016x}", xxh3_64(texts.as_bytes()))
    }

    /// Whether the answer that the status stores as final is for the object as it is now.
    pub fn is_settled(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.settled.as_deref() == Some(&*self.fingerprint(&self.claim(), self.own_booking().is_some()))
        })
    }

    /// Whether the object has changed since a final answer, and the provider has not answered since.
    pub fn is_retried(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.settled.is_some()) && !self.is_settled()
    }

    /// Returns the parts of the ticket whose change ends a wait at once: the user's requests, and whether the status reports
    /// `Ready`. Other changes wait for the next poll, so that they cause no request to the provider.
    pub fn intent(&self) -> (String, Option<String>, bool) {
        let status = self.status.as_ref();
        let is_reported = status.is_some_and(|status| status.conditions.iter().any(|it| it.type_ == "Ready"));
        let forced = self.annotation(FORCE_DELETE).map(str::to_owned);
        (self.fingerprint(&self.claim(), self.own_booking().is_some()), forced, is_reported)
    }
}

impl Claim {
    /// Returns the booking id, if it has the form of an id.
    pub fn booking(&self) -> Option<&str> {
        self.id.as_deref().filter(|id| is_word(id, 64))
    }

    /// Whether the user wants to take the booking over.
    pub fn adopts(&self) -> bool {
        self.adopt.as_deref() == Some("true")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples::{self, UID};

    #[test]
    fn references_derive_from_the_uid_and_the_attempt() {
        let ticket = samples::seed();
        assert_eq!(ticket.reference(0), UID);
        assert_eq!(ticket.reference(10), format!("{UID}.10"));
        for attempt in 0..=MOST_ATTEMPTS {
            assert_eq!(ticket.attempt_of(&ticket.reference(attempt)), Some(attempt));
        }
        for other in ["", "other", &format!("{UID}.0"), &format!("{UID}.11"), &format!("{UID}."), &format!("{UID}.1.1")]
        {
            assert_eq!(ticket.attempt_of(other), None, "{other}");
        }
    }

    #[test]
    fn fingerprint_changes_with_spec_and_user_annotations() {
        let annotated = |name: &str| samples::with(&json!({"metadata": {"annotations": {name: "BK-1"}}}));
        let fingerprint = |ticket: FlightTicket, has_own| ticket.fingerprint(&ticket.claim(), has_own);
        let seed = fingerprint(samples::seed(), false);
        for name in [BOOKING_ID, RETRY, ADOPT] {
            assert_ne!(fingerprint(annotated(name), false), seed, "{name}");
        }
        assert_ne!(fingerprint(samples::with(&json!({"metadata": {"generation": 2}})), false), seed);
        assert_eq!(fingerprint(annotated("other"), false), seed);
        let known = fingerprint(samples::seed(), true);
        assert_eq!(fingerprint(annotated(BOOKING_ID), true), known, "the operator itself writes it");
    }

    #[test]
    fn only_requests_of_users_and_the_loss_of_ready_end_a_wait() {
        let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2026-11-21T12:00:00Z"});
        let reported =
            |types: &[&str]| json!({"conditions": types.iter().map(|it| condition(it)).collect::<Vec<Value>>()});
        let intent =
            |metadata: Value, status: Value| samples::with(&json!({"metadata": metadata, "status": status})).intent();
        let both = || reported(&["Ready", "Synced"]);
        let usual = intent(json!({}), both());
        assert_eq!(intent(json!({}), reported(&["Ready"])), usual);
        assert_eq!(intent(json!({"labels": {"a": "b"}}), both()), usual);
        assert_ne!(intent(json!({}), reported(&["Synced"])), usual);
        for name in [FORCE_DELETE, RETRY] {
            assert_ne!(intent(json!({"annotations": {name: "true"}}), both()), usual, "{name}");
        }
    }

    #[test]
    fn invalid_booking_id_annotation_is_ignored() {
        let ticket = samples::with(&json!({"metadata": {"annotations": {BOOKING_ID: "../admin"}}}));
        assert_eq!(ticket.claim().booking(), None);
    }
}

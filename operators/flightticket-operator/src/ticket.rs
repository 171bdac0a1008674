//! Reads a ticket: its references, its annotations, and its order.

use kube::ResourceExt;
use manager::ObjectKey;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    FlightTicket,
    booking::{Order, is_word},
};

/// The finalizer, which stays until no booking is left at the provider.
pub const FINALIZER: &str = "flights.com/booking";
/// Annotation with the id of the object's booking. It survives a backup and restore, which loses the status and changes the uid.
pub const BOOKING_ID: &str = "flights.com/booking-id";
/// Annotation: `true` takes over a booking that belongs to another object.
pub const ADOPT: &str = "flights.com/adopt-booking";
/// Annotation: any new value repeats the request after a final refusal.
pub const RETRY: &str = "flights.com/retry";
/// Annotation: `true` lets the object be deleted although its booking could not be cancelled.
pub const FORCE_DELETE: &str = "flights.com/force-delete";
const REQUESTED: &str = "flights.com/reconcile-requested-at";

/// How many times the operator replaces a lost booking.
pub const MOST_ATTEMPTS: u32 = 10;

impl FlightTicket {
    /// Returns namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace().unwrap_or_default(), self.name_any())
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether an annotation is `true`.
    pub fn is_annotated(&self, name: &str) -> bool {
        self.annotation(name) == Some("true")
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

    /// Returns the booking id in the annotation, if it has the form of an id.
    pub fn claimed_id(&self) -> Option<&str> {
        self.annotation(BOOKING_ID).filter(|id| is_word(id, 64))
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
            contact: (self.namespace().unwrap_or_default(), self.name_any()),
        }
    }

    /// Returns a fingerprint of everything in the object that a final answer depends on. When it changes, the operator tries
    /// again. If the booking is known (`is_known`), [`BOOKING_ID`] does not count, because the operator itself writes it.
    pub fn demand(&self, is_known: bool) -> String {
        let claimed = if is_known { None } else { self.annotation(BOOKING_ID) };
        let generation = self.metadata.generation.unwrap_or_default();
        let texts = format!("{:?}", [claimed, self.annotation(RETRY), self.annotation(ADOPT)]);
        format!("{generation}-{:016x}", xxh3_64(texts.as_bytes()))
    }

    /// Returns the parts of the ticket whose change ends a wait at once: the user's requests, and whether the status reports
    /// `Ready`. Other changes wait for the next poll, so that they cause no request to the provider.
    pub fn intent(&self) -> (String, [Option<String>; 2], bool) {
        let status = self.status.as_ref();
        let is_known = status.is_some_and(|status| status.booking_id.is_some());
        let is_reported = status.is_some_and(|status| status.conditions.iter().any(|it| it.type_ == "Ready"));
        let annotations = [REQUESTED, FORCE_DELETE].map(|name| self.annotation(name).map(str::to_owned));
        (self.demand(is_known), annotations, is_reported)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn demand_changes_with_spec_and_user_annotations() {
        let annotated = |name: &str| samples::with(&json!({"metadata": {"annotations": {name: "BK-1"}}}));
        let seed = samples::seed().demand(false);
        for name in [BOOKING_ID, RETRY, ADOPT] {
            assert_ne!(annotated(name).demand(false), seed, "{name}");
        }
        assert_ne!(samples::with(&json!({"metadata": {"generation": 2}})).demand(false), seed);
        assert_eq!(annotated("other").demand(false), seed);
        assert_eq!(annotated(BOOKING_ID).demand(true), samples::seed().demand(true), "the operator itself writes it");
    }

    #[test]
    fn invalid_booking_id_annotation_is_ignored() {
        let ticket = samples::with(&json!({"metadata": {"annotations": {BOOKING_ID: "../admin"}}}));
        assert_eq!(ticket.claimed_id(), None);
    }
}

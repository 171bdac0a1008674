//! A ticket as the operator reads it: its references, its annotations, and what it asks for.

use kube::ResourceExt;
use manager::ObjectKey;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    FlightTicket,
    booking::{Order, is_word},
};

/// Held until nothing is left at the provider.
pub const FINALIZER: &str = "flights.com/booking";
/// The booking that an object stands for. It outlives a backup and restore, which loses the status and changes the uid.
pub const BOOKING_ID: &str = "flights.com/booking-id";
/// `true`: a booking that belongs to another object is taken over.
pub const ADOPT: &str = "flights.com/adopt-booking";
/// Any new value: what was refused for good is asked for once more.
pub const RETRY: &str = "flights.com/retry";
/// `true`: the object goes although its booking could not be cancelled.
pub const FORCE_DELETE: &str = "flights.com/force-delete";
const REQUESTED: &str = "flights.com/reconcile-requested-at";

/// So often a lost booking is bought anew.
pub const MOST_ATTEMPTS: u32 = 10;

impl FlightTicket {
    /// Namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace().unwrap_or_default(), self.name_any())
    }

    /// An annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether an annotation is `true`.
    pub fn is_annotated(&self, name: &str) -> bool {
        self.annotation(name) == Some("true")
    }

    /// Our name for the booking of this attempt. It follows from the object alone, so that whoever repeats a request after
    /// whatever crash repeats the same one.
    pub fn reference(&self, attempt: u32) -> String {
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        if attempt == 0 { uid.to_owned() } else { format!("{uid}.{attempt}") }
    }

    /// The attempt that has this reference; `None` when it is not ours.
    pub fn attempt_of(&self, reference: &str) -> Option<u32> {
        (0..=MOST_ATTEMPTS).find(|attempt| self.reference(*attempt) == reference)
    }

    /// The booking id in the annotation, if it can be one.
    pub fn claimed_id(&self) -> Option<&str> {
        self.annotation(BOOKING_ID).filter(|id| is_word(id, 64))
    }

    /// What is booked for this ticket.
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

    /// What a final answer depends on besides the provider: when this differs, it is asked for once more. Once a booking is
    /// known, the annotation about it has no say.
    pub fn demand(&self, is_known: bool) -> String {
        let claimed = if is_known { None } else { self.annotation(BOOKING_ID) };
        let generation = self.metadata.generation.unwrap_or_default();
        let texts = format!("{:?}", [claimed, self.annotation(RETRY), self.annotation(ADOPT)]);
        format!("{generation}-{:016x}", xxh3_64(texts.as_bytes()))
    }

    /// What somebody who changes the object wants to have looked at at once.
    pub fn intent(&self) -> String {
        let is_known = self.status.as_ref().is_some_and(|status| status.booking_id.is_some());
        let (requested, forced) = (self.annotation(REQUESTED), self.annotation(FORCE_DELETE));
        let deleted = self.metadata.deletion_timestamp.is_some();
        format!("{} {requested:?} {forced:?} {deleted}", self.demand(is_known))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::{self, UID};

    #[test]
    fn references_follow_from_the_uid_and_the_attempt() {
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
    fn what_is_asked_for_changes_with_what_people_change() {
        let annotated = |name: &str| samples::with(&json!({"metadata": {"annotations": {name: "BK-1"}}}));
        let seed = samples::seed().demand(false);
        for name in [BOOKING_ID, RETRY, ADOPT] {
            assert_ne!(annotated(name).demand(false), seed, "{name}");
        }
        assert_ne!(samples::with(&json!({"metadata": {"generation": 2}})).demand(false), seed);
        assert_eq!(annotated("other").demand(false), seed);
        assert_eq!(annotated(BOOKING_ID).demand(true), samples::seed().demand(true), "we write that one ourselves");
    }

    #[test]
    fn an_annotation_that_is_no_id_never_reaches_a_path() {
        let ticket = samples::with(&json!({"metadata": {"annotations": {BOOKING_ID: "../admin"}}}));
        assert_eq!(ticket.claimed_id(), None);
    }
}

//! The cheapest change: one request, decided from what the cache keeps.

use serde_json::Value;
use workloads::Child;

use super::{Context, Outcome, Root, Target, defaulted};
use crate::{
    api::{Namespaced, Requests},
    error::{Class, Error},
    metrics::Written,
    object::Head,
    owned::{self, compare, fields_of, hash, project},
    wire::{Decoded, Seen},
};

impl<K: Root> Context<K> {
    /// Changes a child of ours as the cache knows it: one request, if plain fields are to be set. `None` when that would
    /// not be exact, or the child is not what the cache says.
    pub(super) async fn edit<C: Child + Namespaced>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        let Some(text) = self.store::<C>().text(&target.key) else { return Ok(None) };
        let broken = |source| Error::Decode { request: requests.describe("read", &target.key), source };
        let live: Value = serde_json::from_str(&text).map_err(broken)?;
        let metadata = serde_json::from_str::<Head<'_>>(&text).map_err(broken)?.metadata;
        let Some((fields, true)) = fields_of(requests.manager(), &metadata.managed_fields) else { return Ok(None) };
        if C::immutable_difference(&live, &target.fields).is_some() {
            return Ok(None);
        }
        let changes = compare(&live, &project(&live, &fields), &target.fields, &defaulted::<C>(&target.fields));
        let Some(operations) = owned::edit(&live, &metadata.uid, &self.pass.uid, &changes) else { return Ok(None) };
        let drift = self.is_drift(target, self.store::<C>().known(&target.key).and_then(|known| known.verified));
        let answer = match requests.edit(&target.key, &operations).await {
            Ok(answer) => answer,
            // A test failed, or the result is refused: what is there now decides.
            Err(error) if matches!(error.class(), Class::NotFound | Class::Conflict | Class::Rejected) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.scope.children.wrote(requests.kind(), Written::Updated);
        self.tell_changes(requests, target, &metadata.uid, &changes, &metadata, drift);
        let decoded = Decoded::read::<Seen<C>>(&answer).map_err(broken)?;
        if decoded.facts.fingerprint.hash != hash(&defaulted::<C>(&target.fields)) {
            return Ok(None); // somebody else holds a field with the right value, or one is written in another way
        }
        self.observe::<C>(requests, target, &answer).map(Some)
    }
}

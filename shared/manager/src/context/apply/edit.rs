//! The cheapest change of a child: one JSON patch, decided from the cached text.

use api_errors::Class;
use cache::{Head, Known, owned};
use serde_json::Value;
use workloads::{Child, Live};

use super::{AppliedWrite, Before, Context, Difference, Outcome, Primary, Shared, Target, difference::applied_changes};
use crate::{api::Requests, metrics::Written};

impl<K: Primary, S: Shared> Context<K, S> {
    /// Changes our child by one JSON patch, if only plain fields have to be set. Returns `None` if a patch would not be exact,
    /// or if the child differs from the cache.
    pub(super) async fn edit<C: Child>(
        &self,
        requests: &Requests,
        target: &Target,
        known: &Known<Live<C::View>>,
    ) -> Outcome<C> {
        let Some(text) = self.store::<C>().text(&target.key) else { return Ok(None) };
        let decode_error = requests.undecodable("read", &target.key);
        let live: Value = serde_json::from_str(&text).map_err(&decode_error)?;
        let metadata = serde_json::from_str::<Head<'_>>(&text).map_err(&decode_error)?.metadata;
        let difference = Difference::of::<C>(&live, &metadata, requests.manager(), target);
        if self.waits(requests, target, &difference) {
            return Ok(Some(known.item.clone()));
        }
        if !difference.from_create || C::immutable_difference(&live, &target.fields).is_some() {
            return Ok(None);
        }
        let (changes, is_covered) = (difference.changes, difference.covered);
        let Some(operations) = owned::json_patch(&live, &metadata.uid, &self.reconciliation.uid, &changes) else {
            return Ok(None);
        };
        if known.verified.is_none() {
            let dry_run = requests.dry_run_patch(&target.key, &operations).await;
            if self.changes_nothing::<C>(requests, target, known.fingerprint, dry_run)? {
                self.store::<C>().verify(&target.key, known.uid, target.verified(known.fingerprint.hash));
                return Ok(Some(known.item.clone()));
            }
        }
        let answer = match requests.json_patch(&target.key, &operations).await {
            Ok(answer) => answer,
            // A test in the patch failed, or the API server refused the result: the caller reads the child and decides.
            Err(error) if matches!(error.class(), Class::NotFound | Class::Conflict | Class::Rejected) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.controller.children.wrote(requests.kind(), Written::Updated);
        let left = Difference::read::<C>(&answer, requests.manager(), target).map_err(&decode_error)?;
        let is_all = left.remains_after(&changes);
        let (changes, kept) = applied_changes(changes, &left);
        let (verified, is_changed) = (known.verified, known.is_changed());
        let before = Before { metadata: &metadata, verified, is_changed, is_lost: false, is_covered };
        self.report_changes(&AppliedWrite { requests, target, before, changes, kept });
        // If more is left, another manager holds a field with the right value, or the cache lagged behind.
        if is_all { self.observe::<C>(requests, target, &answer).map(Some) } else { Ok(None) }
    }
}

//! Dry runs: before the first write of a process to a child that differs, the API server computes what the write would do.
//!
//! A webhook or policy of the cluster may rewrite a field of ours in each of our writes, and the API server drops values
//! that its types do not print (`omitempty`). Such a child differs from the desired one for ever. `managedFields` do not
//! show this: they record the result of admission as if we had written it. Only a write shows it. The process remembers
//! this result as a pair of hashes, which a restart loses. So a process that has not seen the child in sync yet
//! sends its first change as a dry run. A write that would change nothing of ours is not sent, and emits no event.

use api_errors::Class;
use cache::{
    Decoded, Metadata, Projected,
    owned::{Fingerprint, dry_run_operations, fingerprint},
};
use serde_json::Value;
use workloads::Child;

use super::{Context, Difference, Primary, Shared, Target};
use crate::{api::Requests, error::Error};

impl<K: Primary, S: Shared> Context<K, S> {
    /// Sends the change as a dry run. Returns whether it would change nothing of ours.
    pub(super) async fn dry_run_changes_nothing<C: Child>(
        &self,
        requests: &Requests,
        target: &Target,
        live: &Value,
        metadata: &Metadata<'_>,
        difference: &Difference,
    ) -> Result<bool, Error> {
        let key = &target.key;
        let answer = if difference.is_for_an_apply() {
            requests.dry_run_apply(key, &target.body_for(requests, metadata)).await
        } else if let Some(operations) = dry_run_operations(live, &metadata.uid, &difference.changes) {
            requests.dry_run_patch(key, &operations).await
        } else {
            return Ok(false);
        };
        let fingerprint = fingerprint(live, requests.manager(), &metadata.managed_fields);
        self.changes_nothing::<C>(requests, target, fingerprint, answer)
    }

    /// Whether this answer to a dry run has all our fields as a child with this fingerprint has them.
    pub(super) fn changes_nothing<C: Child>(
        &self,
        requests: &Requests,
        target: &Target,
        fingerprint: Fingerprint,
        dry_run: Result<String, Error>,
    ) -> Result<bool, Error> {
        let answer = match dry_run {
            Ok(answer) => answer,
            // Forbidden, or a webhook does not support dry runs: the answer to the real write decides. The real write also
            // detects a child that is gone or was replaced.
            Err(error) if error.class() != Class::Transient => return Ok(false),
            Err(error) => return Err(error),
        };
        let after =
            Decoded::read::<Projected<C>>(&answer).map_err(requests.undecodable("read", &target.key))?.meta.fingerprint;
        let is_unchanged = fingerprint.is_some() && after.hash == fingerprint.hash;
        if is_unchanged {
            self.controller.environment.metrics.skipped_writes.with_label_values(&[requests.kind(), "apply"]).inc();
        }
        Ok(is_unchanged)
    }
}

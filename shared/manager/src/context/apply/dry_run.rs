//! Dry runs: before the first write of a process to a child that differs, the API server computes what the write would do.
//!
//! A webhook or policy of the cluster may rewrite a field of ours in each of our writes, and the API server drops values
//! that its types do not print (`omitempty`). Such a child differs from the desired one for ever. `managedFields` do not
//! show this: they record the result of admission as if we had written it. Only a write shows it. The process remembers
//! this result as a pair of hashes, which a restart loses. So the first write of a process to a child is rehearsed: a
//! write that would change nothing of ours is not sent, and emits no event.

use api_errors::Class;
use cache::{Decoded, Projected, owned::Fingerprint};
use workloads::Child;

use super::{Context, Primary, Target};
use crate::{api::Requests, error::Error};

impl<K: Primary> Context<K> {
    /// Whether the rehearsed write leaves all our fields unchanged in a child with this fingerprint.
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
        let changes_nothing = fingerprint.is_some() && after.hash == fingerprint.hash;
        if changes_nothing {
            self.controller.environment.metrics.skipped_writes.with_label_values(&[requests.kind(), "apply"]).inc();
        }
        Ok(changes_nothing)
    }
}

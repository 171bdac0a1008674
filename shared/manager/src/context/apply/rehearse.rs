//! Asking the API server what a write would do, by a dry run, before a process first writes to a child that differs.
//!
//! A webhook or policy of the cluster may rewrite a field of ours in each of our writes, and the API server drops what
//! its types do not print (`omitempty`). Such a child differs from what is wanted for ever, and `managedFields` do not
//! tell: admission is recorded as if we had written it. Whether it is so, is only known by a write. That it was so, is
//! remembered as a pair of hashes, but not beyond the process. So the first write of a process to a child is rehearsed:
//! one that would change nothing of ours is not sent, and nothing is told.

use workloads::Child;

use super::{Context, Root, Target};
use crate::{
    api::Requests,
    error::{Class, Error},
    owned::Fingerprint,
    wire::{Decoded, Seen},
};

impl<K: Root> Context<K> {
    /// Whether a write that was rehearsed leaves all that is ours as it is in a child with this fingerprint.
    pub(super) fn is_in_vain<C: Child>(
        &self,
        requests: &Requests,
        target: &Target,
        fingerprint: Fingerprint,
        rehearsed: Result<String, Error>,
    ) -> Result<bool, Error> {
        let answer = match rehearsed {
            Ok(answer) => answer,
            // Not allowed, or a webhook that takes no part in dry runs: what the write itself says counts. It also finds
            // a child that is gone or another one.
            Err(error) if error.class() != Class::Transient => return Ok(false),
            Err(error) => return Err(error),
        };
        let broken = |source| Error::Decode { request: requests.describe("read", &target.key), source };
        let after = Decoded::read::<Seen<C>>(&answer).map_err(broken)?.facts.fingerprint;
        let is_in_vain = fingerprint.is_some() && after.hash == fingerprint.hash;
        if is_in_vain {
            self.scope.outside.metrics.skipped_writes.with_label_values(&[requests.kind(), "apply"]).inc();
        }
        Ok(is_in_vain)
    }
}

//! Fencing of status writes, for kinds whose status is the operator's memory: the status records which leader wrote it, so that
//! the API server itself refuses a late write of a former leader.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The leadership under which a status was last written. The runtime sets it.
///
/// With [`Fence::RULE`] on the status, the API server refuses a status without the fence, or with a lower epoch of the same
/// lease. So it refuses late writes of a former leader, even if that replica still believes that it leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fence {
    /// The uid of the Lease that the leader held. Epochs of different leases are not compared.
    #[schemars(length(max = 64))]
    pub lease: String,
    /// The term in which the leader wrote: leaseTransitions of that Lease, which each acquisition raises.
    pub epoch: i64,
}

impl Fence {
    /// The CEL rule for the status of a kind, in `x-kubernetes-validations`.
    pub const RULE: &str = "!has(oldSelf.fence) || (has(self.fence) && (self.fence.lease != oldSelf.fence.lease || \
                            self.fence.epoch >= oldSelf.fence.epoch))";
    /// The API server's error message to a former leader.
    pub const MESSAGE: &str = "written by a former leader";
}

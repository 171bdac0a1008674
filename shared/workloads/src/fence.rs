//! Which leader wrote a status that holds memory, so that the API server itself can refuse a late one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The leadership under which a status was last written. The runtime fills it in.
///
/// With [`Fence::RULE`] on the status, the epoch cannot fall while the lease is the same, and a fence cannot disappear:
/// what a former leader sends late is refused by the API server, whatever that leader believes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fence {
    /// The uid of the Lease that was held. Another lease starts anew.
    #[schemars(length(max = 64))]
    pub lease: String,
    /// How often that lease had changed hands, its leaseTransitions.
    pub epoch: i64,
}

impl Fence {
    /// The CEL rule for the status of a kind, in `x-kubernetes-validations`.
    pub const RULE: &str = "!has(oldSelf.fence) || (has(self.fence) && (self.fence.lease != oldSelf.fence.lease || \
                            self.fence.epoch >= oldSelf.fence.epoch))";
    /// What the API server says to a former leader.
    pub const MESSAGE: &str = "written by a former leader";
}

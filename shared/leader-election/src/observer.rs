//! The observer of an elector. The crate depends on no metrics library and emits no Kubernetes events.

use crate::Leadership;

/// Receives what happens, for metrics and events. The elector's task calls it, so an implementation must be quick.
pub trait Observer: Send + Sync + 'static {
    /// This process leads now. For `leader_election_master_status` = 1 and the event "… became leader".
    fn started_leading(&self, leadership: &Leadership) {
        let _ = leadership;
    }

    /// This process no longer leads; its token is dead already. For `leader_election_master_status` = 0 and the event "… stopped
    /// leading".
    fn stopped_leading(&self, leadership: &Leadership, loss: StopReason) {
        let _ = (leadership, loss);
    }

    /// A renewal took more than its one request. For `leader_election_slowpath_total`.
    fn slow_path(&self) {}
}

/// Observes nothing.
impl Observer for () {}

/// Why a leadership ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The guarded work ended, by itself or after a stop; the elector releases the lease next.
    Released,
    /// No renewal succeeded within the renew deadline.
    Expired,
    /// This process is no longer the holder of the lease: another process took it, or a client edited it.
    Taken,
    /// An object was written under a later term of the lease, see [`Leadership::witness`].
    Outdated,
    /// The lease is gone.
    Deleted,
    /// The elector was dropped.
    Dropped,
}

impl StopReason {
    /// The reason as text, to follow "stopped leading: ".
    pub fn describe(self) -> &'static str {
        match self {
            Self::Released => "the work has ended and the lease is released",
            Self::Expired => "the lease could not be renewed in time",
            Self::Taken => "the lease has another holder",
            Self::Outdated => "there was a later term",
            Self::Deleted => "the lease was deleted",
            Self::Dropped => "the election was cancelled",
        }
    }
}

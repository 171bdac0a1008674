//! Who is told what happens. The crate knows no metrics library and sends no events.

use crate::Leadership;

/// Told what happens; for metrics and events. Called in the elector's task: an implementation must be quick.
pub trait Observer: Send + Sync + 'static {
    /// We lead. For `leader_election_master_status` = 1 and the event "… became leader".
    fn started_leading(&self, leadership: &Leadership) {
        let _ = leadership;
    }

    /// The token is dead already. For `leader_election_master_status` = 0 and the event "… stopped leading".
    fn stopped_leading(&self, leadership: &Leadership, loss: Loss) {
        let _ = (leadership, loss);
    }

    /// A renewal took more than its one request. For `leader_election_slowpath_total`.
    fn slow_path(&self) {}
}

/// Observes nothing.
impl Observer for () {}

/// Why a leadership ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The guarded work ended, as after a stop: the lease is given back next.
    Released,
    /// No renewal succeeded within the renew deadline.
    Expired,
    /// Somebody else is, or wrote that somebody else is, the holder.
    Taken,
    /// A later term of the lease has left its mark, see [`Leadership::witness`].
    Outdated,
    /// The lease is gone.
    Deleted,
    /// The elector was dropped.
    Dropped,
}

impl Loss {
    /// In words, to follow "stopped leading: ".
    pub fn describe(self) -> &'static str {
        match self {
            Self::Released => "the work has ended and the lease is given back",
            Self::Expired => "the lease could not be renewed in time",
            Self::Taken => "the lease has another holder",
            Self::Outdated => "there was a later term",
            Self::Deleted => "the lease was deleted",
            Self::Dropped => "the election was cancelled",
        }
    }
}

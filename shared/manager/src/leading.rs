//! Decides whether this process may write: always if there is no election, else only as the leader, and only while its
//! leadership is alive.

use std::sync::Arc;

use leader_election::Leadership;
use parking_lot::{Mutex, MutexGuard};

use workloads::Fence;

/// The right to write, which is checked as the last step before a write is sent, and which a write carries in its extensions while it
/// waits for its turn. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leading {
    /// `None` where there is no election.
    current: Option<Arc<Mutex<CurrentLeadership>>>,
}

#[derive(Debug, Default)]
struct CurrentLeadership {
    /// The latest leadership; `None` before the first.
    token: Option<Leadership>,
    /// How often this process has become leader.
    times_elected: u64,
}

impl Leading {
    /// Returns the right of a process with an election: no writes before [`Leading::begin`].
    pub(crate) fn elected() -> Self {
        Self { current: Some(Arc::default()) }
    }

    /// Begins a term: from now on this leadership decides.
    pub(crate) fn begin(&self, leadership: Leadership) {
        if let Some(mut current) = self.current() {
            current.token = Some(leadership);
            current.times_elected += 1;
        }
    }

    /// Whether a write may be sent at this moment. A leadership that was lost never comes back to life.
    pub(crate) fn may_write(&self) -> bool {
        self.current().is_none_or(|current| current.token.as_ref().is_some_and(Leadership::is_alive))
    }

    /// Whether this write may be sent at this moment. If so, the request carries the leadership, so that the client can check again
    /// when the request has had its turn.
    pub(crate) fn admit<B>(&self, write: &mut http::Request<B>) -> bool {
        let may_write = self.may_write();
        if may_write {
            write.extensions_mut().insert(self.clone());
        }
        may_write
    }

    /// Returns the fence of this leadership, which a status that holds memory stores; `None` where there is no election.
    pub(crate) fn fence(&self) -> Option<Fence> {
        let current = self.current()?;
        let epoch = current.token.as_ref()?.epoch();
        Some(Fence { lease: epoch.lease_uid.to_string(), epoch: epoch.transitions.into() })
    }

    /// Checks the fence of a stored status. If it is of a later term of our lease, then our leadership is over: another process
    /// leads, or the lease was restored from a backup and counts its terms again.
    pub(crate) fn witness(&self, written: &Fence) {
        let Some(current) = self.current() else { return };
        let Some(token) = current.token.as_ref().filter(|token| *token.epoch().lease_uid == *written.lease) else {
            return;
        };
        token.witness(u32::try_from(written.epoch).unwrap_or_default());
    }

    /// Returns how often this process has become leader; 0 where there is no election. Other processes may have written
    /// between two terms.
    pub(crate) fn times_elected(&self) -> u64 {
        self.current().map_or(0, |current| current.times_elected)
    }

    fn current(&self) -> Option<MutexGuard<'_, CurrentLeadership>> {
        Some(self.current.as_ref()?.lock())
    }
}

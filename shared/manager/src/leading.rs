//! Decides whether this process may write: always if there is no election, else only as the leader, and only while its
//! leadership is alive.

use std::sync::Arc;

use leader_election::Leadership;
use parking_lot::{Mutex, MutexGuard};

use workloads::Fence;

/// The right to write, which is checked as the last step before a write is sent. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leading {
    /// `None` where there is no election.
    tenure: Option<Arc<Mutex<Tenure>>>,
}

#[derive(Debug, Default)]
struct Tenure {
    /// The latest leadership; `None` before the first.
    token: Option<Leadership>,
    /// How often this process has become leader.
    terms: u64,
}

impl Leading {
    /// Returns the right of a process with an election: no writes before [`Leading::begin`].
    pub(crate) fn elected() -> Self {
        Self { tenure: Some(Arc::default()) }
    }

    /// Begins a term: from now on this leadership decides.
    pub(crate) fn begin(&self, leadership: Leadership) {
        if let Some(mut tenure) = self.tenure() {
            tenure.token = Some(leadership);
            tenure.terms += 1;
        }
    }

    /// Whether a write may be sent at this moment. A leadership that was lost never comes back to life.
    pub(crate) fn may_write(&self) -> bool {
        self.tenure().is_none_or(|tenure| tenure.token.as_ref().is_some_and(Leadership::is_alive))
    }

    /// Returns the fence of this leadership, which a status that holds memory stores; `None` where there is no election.
    pub(crate) fn fence(&self) -> Option<Fence> {
        let tenure = self.tenure()?;
        let epoch = tenure.token.as_ref()?.epoch();
        Some(Fence { lease: epoch.lease_uid.to_string(), epoch: epoch.transitions.into() })
    }

    /// Checks the fence of a stored status. If it is of a later term of our lease, then our leadership is over: another process
    /// leads, or the lease was restored from a backup and counts its terms again.
    pub(crate) fn witness(&self, written: &Fence) {
        let Some(tenure) = self.tenure() else { return };
        let Some(token) = tenure.token.as_ref().filter(|token| *token.epoch().lease_uid == *written.lease) else {
            return;
        };
        token.witness(u32::try_from(written.epoch).unwrap_or_default());
    }

    /// Returns how often this process has become leader; 0 where there is no election. Other processes may have written
    /// between two terms.
    pub(crate) fn term(&self) -> u64 {
        self.tenure().map_or(0, |tenure| tenure.terms)
    }

    fn tenure(&self) -> Option<MutexGuard<'_, Tenure>> {
        Some(self.tenure.as_ref()?.lock())
    }
}

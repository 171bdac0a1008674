//! Decides whether a reconcile may write: always if there is no election, else only in the term in which it began, and only while
//! that leadership is alive.

use std::sync::Arc;

use leader_election::Leadership;
use parking_lot::Mutex;

use workloads::Fence;

/// The terms of this process. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leading {
    /// `None` where there is no election.
    current: Option<Arc<Mutex<Elected>>>,
}

/// The right to write in one term. The last step before a write is sent checks it. While the write waits for its turn after that, it
/// carries the right in its extensions, and the client checks it again. By default, the right of a process without an election.
///
/// A reconcile keeps the right with which it began. A part of it may outlive its term: the runtime can cancel neither a task that the
/// reconciler has spawned nor code that blocks its thread. In a later term, its writes would rest on what it had read before another
/// process led.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Term {
    /// `None` where there is no election.
    elected: Option<Elected>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Elected {
    /// The latest leadership; `None` before the first.
    token: Option<Leadership>,
    /// How often this process has become leader.
    times: u64,
}

impl Leading {
    /// Returns the terms of a process with an election: no writes before [`Leading::begin`].
    pub(crate) fn elected() -> Self {
        Self { current: Some(Arc::default()) }
    }

    /// Begins a term: from now on this leadership decides.
    pub(crate) fn begin(&self, leadership: Leadership) {
        if let Some(current) = &self.current {
            let mut current = current.lock();
            current.token = Some(leadership);
            current.times += 1;
        }
    }

    /// Returns the right to write in the present term.
    pub(crate) fn term(&self) -> Term {
        Term { elected: self.current.as_ref().map(|current| current.lock().clone()) }
    }
}

impl Term {
    /// Whether a write may be sent at this moment. A leadership that was lost never comes back to life.
    pub(crate) fn may_write(&self) -> bool {
        self.elected.as_ref().is_none_or(|elected| elected.token.as_ref().is_some_and(Leadership::is_alive))
    }

    /// Whether this write may be sent at this moment. If so, the request carries the right, so that the client can check again when
    /// the request has had its turn.
    pub(crate) fn admit<B>(&self, write: &mut http::Request<B>) -> bool {
        let may_write = self.may_write();
        if may_write {
            write.extensions_mut().insert(self.clone());
        }
        may_write
    }

    /// Returns the fence of this leadership, which a status that holds memory stores; `None` where there is no election.
    pub(crate) fn fence(&self) -> Option<Fence> {
        let epoch = self.token()?.epoch();
        Some(Fence { lease: epoch.lease_uid.to_string(), epoch: epoch.transitions.into() })
    }

    /// Checks the fence of a stored status. If it is of a later term of our lease, then this leadership is over: another process
    /// leads, or the lease was restored from a backup and counts its terms again.
    pub(crate) fn witness(&self, written: &Fence) {
        if let Some(token) = self.token().filter(|token| *token.epoch().lease_uid == *written.lease) {
            token.witness(u32::try_from(written.epoch).unwrap_or_default());
        }
    }

    /// Returns how often this process has become leader, this term included; 0 where there is no election. Other processes may have
    /// written between two terms.
    pub(crate) fn times_elected(&self) -> u64 {
        self.elected.as_ref().map_or(0, |elected| elected.times)
    }

    fn token(&self) -> Option<&Leadership> {
        self.elected.as_ref()?.token.as_ref()
    }
}

//! What a replica sees of the cluster, and what it asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A point in time on a replica's own clock, as the duration since the clock's zero. The clock never steps, and also runs while
/// the machine sleeps.
pub type Moment = Duration;

/// The identity of a replica, which is also the name of its lease. A replica that has worked never works again under an identity
/// whose lease was fenced or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId {
    /// A random number of the process. Each start of a process draws its own.
    pub process: u64,
    /// Rises each time the process loses what it relied on, and begins anew.
    pub life: u32,
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, life } = self;
        write!(f, "{process:016x}-{life}")
    }
}

/// The lease of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The `resourceVersion`. Only equality counts.
    pub version: u64,
    /// The number of the last renewal. It makes each write differ from the last one.
    pub renewal: u64,
    /// Whether the lease has ended for ever. Its replica never works again under this identity.
    pub fenced: bool,
}

/// The map from slots to their holders.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotMap {
    /// The uid of the object. A map that was deleted and created again has another one.
    pub uid: Arc<str>,
    /// The `resourceVersion`. Only equality counts.
    pub version: u64,
    /// The slots; the index is the number of the slot.
    pub slots: Vec<Slot>,
}

impl SlotMap {
    /// Whether this map can come after `before` in one history of the cluster.
    pub(crate) fn follows(&self, before: &Self) -> bool {
        let mut slots = self.slots.iter().zip(&before.slots);
        self.uid == before.uid
            && self.slots.len() == before.slots.len()
            && slots.all(|(after, before)| after.epoch > before.epoch || after == before)
    }

    /// The slots of this replica, in ascending order.
    pub(crate) fn held_by(&self, id: ReplicaId) -> impl Iterator<Item = usize> {
        let slots = self.slots.iter().enumerate();
        slots.filter(move |(_, slot)| slot.holder == Some(id)).map(|(index, _)| index)
    }
}

/// One slot of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The replica that may work on the objects of this slot, or `None` after a hand-over.
    pub holder: Option<ReplicaId>,
    /// Rises with each change of the holder.
    pub epoch: u64,
}

/// The map and all leases at one moment of the cluster: a list, or a list with the events of its watch up to some moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// The map; `None` if it does not exist.
    pub map: Option<SlotMap>,
    /// The leases of all replicas.
    pub leases: BTreeMap<ReplicaId, Lease>,
}

/// A write. It succeeds only if the object still has the expected version; `None` means that the object must not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Request {
    /// Write a lease: the replica's own, or another one to fence it.
    PutLease {
        /// Whose lease.
        id: ReplicaId,
        /// The version that the write replaces.
        expected: Option<u64>,
        /// [`Lease::renewal`].
        renewal: u64,
        /// [`Lease::fenced`].
        fenced: bool,
    },
    /// Delete the lease of a replica that holds nothing and never works again.
    DeleteLease {
        /// Whose lease.
        id: ReplicaId,
        /// The version that is deleted.
        expected: u64,
    },
    /// Write the map.
    PutMap {
        /// The version that the write replaces.
        expected: Option<u64>,
        /// [`SlotMap::slots`].
        slots: Vec<Slot>,
    },
}

//! Forgets what can no longer make a difference, so that the number of states is finite: how old a version or an epoch is, how long
//! ago something expired, and which numbers former lives had.

use super::super::*;
use super::S;
use super::model::{CURRENT, NOW, STALE, State};

/// The present epoch of a slot. Former ones become [`FORMER`].
const PRESENT: u64 = 2;
const FORMER: u64 = 1;
/// The number of the last renewal of each replica.
const LAST: u64 = 2;

impl State {
    pub(super) fn forget(&mut self, config: &Config) {
        // A version never comes back. But a create that is refused now succeeds when its object has been deleted.
        if self.late.as_ref().is_some_and(|late| !is_create(late) && !self.accepts(late)) {
            self.late = None;
        }
        self.number_lives();
        self.forget_numbers();
        self.forget_times(config);
    }

    /// All identities that something names.
    pub(super) fn ids(&self) -> BTreeSet<ReplicaId> {
        let holders = |slots: &[Slot]| slots.iter().filter_map(|slot| slot.holder).collect::<Vec<_>>();
        let mut ids: BTreeSet<ReplicaId> = self.stored.leases.keys().copied().collect();
        ids.extend(self.stored.map.iter().flat_map(|map| holders(&map.slots)));
        for replica in self.nodes.iter().filter_map(|node| node.replica.as_ref()) {
            ids.insert(replica.id);
            ids.extend(replica.peers.keys());
        }
        match &self.late {
            Some(Request::PutLease { id, .. } | Request::DeleteLease { id, .. }) => ids.extend([*id]),
            Some(Request::PutMap { slots, .. }) => ids.extend(holders(slots)),
            None => {}
        }
        ids
    }

    /// Numbers the lives of each process from one, in their order.
    fn number_lives(&mut self) {
        let mut names: BTreeMap<ReplicaId, ReplicaId> = BTreeMap::new();
        let mut last: Option<ReplicaId> = None;
        for id in self.ids() {
            let life = last.filter(|last| last.process == id.process).map_or(1, |last| last.life + 1);
            let name = ReplicaId { life, ..id };
            names.insert(id, name);
            last = Some(name);
        }
        let last_life = |process: u64| names.values().filter(|id| id.process == process).map(|id| id.life).max();
        let rename = |slots: &mut [Slot]| {
            for slot in slots {
                slot.holder = slot.holder.map(|id| names[&id]);
            }
        };
        self.stored.leases = self.stored.leases.iter().map(|(id, lease)| (names[id], *lease)).collect();
        if let Some(map) = &mut self.stored.map {
            rename(&mut map.slots);
        }
        for replica in self.nodes.iter_mut().filter_map(|node| node.replica.as_mut()) {
            replica.id = names[&replica.id];
            replica.lives = last_life(replica.id.process).unwrap_or(1);
            replica.peers = replica.peers.iter().map(|(id, peer)| (names[id], *peer)).collect();
            if let Some(map) = &mut replica.map {
                rename(&mut map.slots);
            }
        }
        match &mut self.late {
            Some(Request::PutLease { id, .. } | Request::DeleteLease { id, .. }) => *id = names[id],
            Some(Request::PutMap { slots, .. }) => rename(slots),
            None => {}
        }
    }

    /// Replaces versions, epochs and numbers of renewals by what matters of them: whether they are the present ones.
    fn forget_numbers(&mut self) {
        let stored = self.stored.clone();
        let mut last: BTreeMap<ReplicaId, u64> = BTreeMap::new();
        for replica in self.nodes.iter_mut().filter_map(|node| node.replica.as_mut()) {
            last.insert(replica.id, replica.renewal);
            replica.forget_numbers(&stored);
        }
        // Only its own replica reads the number of a renewal.
        let renewal =
            |id: &ReplicaId, renewal: u64| last.get(id).map_or(0, |last| (renewal + LAST).saturating_sub(*last));
        for (id, lease) in &mut self.stored.leases {
            (lease.version, lease.renewal) = (CURRENT, renewal(id, lease.renewal));
        }
        if let Some(map) = &mut self.stored.map {
            map.version = CURRENT;
            for slot in &mut map.slots {
                slot.epoch = PRESENT;
            }
        }
        match &mut self.late {
            Some(Request::PutLease { id, expected, renewal: number, fenced }) => {
                *expected = expected.map(|_| CURRENT);
                *number = if *fenced { 0 } else { renewal(id, *number) };
            }
            Some(Request::DeleteLease { id: _, expected }) => *expected = CURRENT,
            Some(Request::PutMap { expected: Some(expected), slots }) => {
                *expected = CURRENT;
                for (slot, present) in slots.iter_mut().zip(stored.map.iter().flat_map(|map| &map.slots)) {
                    slot.epoch = slot.epoch + PRESENT - present.epoch;
                }
            }
            Some(Request::PutMap { expected: None, slots: _ }) | None => {}
        }
    }

    fn forget_times(&mut self, config: &Config) {
        let Config { slots: _, lease_duration, renew_deadline, retry_period } = *config;
        // A renewal as old as that gives no validity, is due again, and was heard too long ago.
        let oldest =
            NOW.saturating_sub(renew_deadline.max(retry_period).max(lease_duration.saturating_sub(renew_deadline)) + S);
        for replica in self.nodes.iter_mut().filter_map(|node| node.replica.as_mut()) {
            replica.sent = replica.sent.max(oldest);
            replica.heard = replica.heard.filter(|heard| *heard > oldest);
            for (id, peer) in &mut replica.peers {
                let never_expires = *id == replica.id || peer.is_fenced();
                peer.since = if never_expires { NOW } else { peer.since.max(NOW.saturating_sub(lease_duration)) };
            }
        }
    }
}

fn is_create(request: &Request) -> bool {
    matches!(request, Request::PutLease { expected: None, .. } | Request::PutMap { expected: None, .. })
}

impl Replica {
    fn forget_numbers(&mut self, stored: &View) {
        if let Some(seen) = &mut self.map {
            let same = stored.map.as_ref().filter(|map| map.uid == seen.uid);
            for (index, slot) in seen.slots.iter_mut().enumerate() {
                let is_present = same.is_some_and(|map| map.slots[index].epoch == slot.epoch);
                slot.epoch = if is_present { PRESENT } else { FORMER };
                if let Some(drain) = self.drains.get_mut(&index) {
                    (drain.epoch, drain.witnessed) = (slot.epoch, slot.epoch);
                }
            }
            seen.version = if same.is_some_and(|map| map.version == seen.version) { CURRENT } else { STALE };
            if same.is_none() {
                seen.uid = "former".into();
            }
        }
        for (id, peer) in &mut self.peers {
            let Some(lease) = &mut peer.lease else { continue };
            let is_present = stored.leases.get(id).is_some_and(|stored| stored.version == lease.version);
            lease.version = if is_present { CURRENT } else { STALE };
            lease.renewal = if *id == self.id { (lease.renewal + LAST).saturating_sub(self.renewal) } else { 0 };
        }
        self.renewal = if self.renewal == 0 { 0 } else { LAST };
    }
}

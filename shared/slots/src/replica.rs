//! The whole behaviour of a replica. `docs/sharing-work.md` says why it is safe.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Config, Lease, Moment, ReplicaId, Request, Slot, SlotMap, View};

/// The state machine of one replica.
///
/// Its driver does four things. It calls [`observe`](Self::observe) for each new view. After that, and at least once per retry
/// period, it calls [`act`](Self::act), sends the request, and calls `act` again after the answer and its event. It compares the
/// [`duty`](Self::duty) for each slot with what runs, and reports with [`drained`](Self::drained) when the work on a slot has
/// ended. And it asks for the duty again right before each write to an object.
///
/// The replica needs no answers: it learns what its requests have done from the view.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Replica {
    config: Config,
    id: ReplicaId,
    /// The number of the last life of this process, including those that it gave to the unknown holders of a new map.
    lives: u32,
    stage: Stage,
    /// Whether a view has arrived.
    looked: bool,
    map: Option<SlotMap>,
    /// All replicas with a lease, and all holders without one.
    peers: BTreeMap<ReplicaId, Peer>,
    /// The number of the last renewal, zero before the first one.
    renewal: u64,
    /// When the last renewal was first sent.
    sent: Moment,
    /// When the last renewal that a view has shown was first sent. From then on, the time runs for which this replica may work.
    heard: Option<Moment>,
    /// The slots that this replica gives up.
    drains: BTreeMap<usize, Drain>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Serving,
    /// It gives up all slots.
    Leaving,
    /// It works on nothing any more, and gives up its lease.
    Resigned,
    Left,
}

/// What this replica knows of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Peer {
    lease: Option<Lease>,
    /// Since when the lease is unchanged, or has not existed.
    since: Moment,
}

impl Peer {
    fn is_fenced(&self) -> bool {
        self.lease.is_some_and(|lease| lease.fenced)
    }
}

/// A slot that its holder gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Drain {
    /// The epoch under which this replica holds the slot.
    epoch: u64,
    /// The highest epoch in the objects of the slot, if that is higher.
    witnessed: u64,
    /// Whether the work has ended.
    done: bool,
}

/// What a replica has to do for a slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Duty {
    /// Reconcile its objects.
    Work(Fence),
    /// Begin no reconcile, let the running ones end, then call [`Replica::drained`].
    Drain(Fence),
    /// Cancel the running reconciles, and write nothing.
    Stop,
}

/// What a write carries, so that the API server can refuse a late one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The uid of the slot map. Epochs of different maps are not comparable.
    pub map_uid: Arc<str>,
    /// The epoch of the slot.
    pub epoch: u64,
}

impl Replica {
    /// A replica that has seen nothing yet. `process` is a random number.
    pub fn new(config: Config, process: u64) -> Self {
        Self {
            config,
            id: ReplicaId { process, life: 1 },
            lives: 1,
            stage: Stage::Serving,
            looked: false,
            map: None,
            peers: BTreeMap::new(),
            renewal: 0,
            sent: Moment::ZERO,
            heard: None,
            drains: BTreeMap::new(),
        }
    }

    /// The present identity.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Takes in a view. Views must come in the order of the cluster's history, unless the cluster was restored from a backup.
    pub fn observe(&mut self, now: Moment, view: &View) {
        if self.is_contradicted_by(view) {
            self.begin_life();
        }
        let holders = view.map.iter().flat_map(|map| &map.slots).filter_map(|slot| slot.holder);
        let ids: BTreeSet<ReplicaId> = view.leases.keys().copied().chain(holders).collect();
        let peer = |id: ReplicaId| {
            let lease = view.leases.get(&id).copied();
            let before = self.peers.get(&id).filter(|peer| peer.lease == lease);
            (id, Peer { lease, since: before.map_or(now, |peer| peer.since) })
        };
        let peers = ids.into_iter().map(peer).collect();
        self.peers = peers;
        self.map.clone_from(&view.map);
        self.looked = true;
        if self.lease_of(self.id).is_some_and(|lease| lease.renewal == self.renewal) {
            self.hear(now);
        }
        let (map, id) = (&self.map, self.id);
        self.drains.retain(|&slot, drain| {
            let held = Slot { holder: Some(id), epoch: drain.epoch };
            map.as_ref().is_some_and(|map| map.slots.get(slot) == Some(&held))
        });
    }

    /// The view shows the last renewal. So it is at least as new, and also shows each change of the map that came before.
    fn hear(&mut self, now: Moment) {
        let Config { lease_duration, renew_deadline, .. } = self.config;
        if self.heard.is_none_or(|heard| now > heard + lease_duration.saturating_sub(renew_deadline)) {
            // After an outage, the leases of all are old. The others get as long as after a crash to renew theirs.
            for peer in self.peers.values_mut() {
                peer.since = now;
            }
        }
        self.heard = Some(self.sent);
    }

    /// Whether the replica lost what it relied on: its lease was fenced, deleted or written by another client, the map was
    /// deleted, or the cluster was restored from a backup.
    fn is_contradicted_by(&self, view: &View) -> bool {
        let lease_is_lost = match (self.lease_of(self.id), view.leases.get(&self.id)) {
            // Each renewal is written once. But a late first one creates the lease again after it was fenced and deleted.
            (before, Some(lease)) => {
                lease.fenced || before.is_some_and(|before| *lease != before && lease.renewal <= before.renewal)
            }
            (before, None) => before.is_some(),
        };
        let map_is_lost = |before: &SlotMap| view.map.as_ref().is_none_or(|map| !map.follows(before));
        lease_is_lost || self.map.as_ref().is_some_and(map_is_lost)
    }

    /// Forgets the present identity, and with it all slots.
    fn begin_life(&mut self) {
        if self.stage != Stage::Serving {
            self.stage = Stage::Left;
        }
        self.id = self.unused_id();
        self.renewal = 0;
        self.heard = None;
        self.drains.clear();
    }

    fn unused_id(&mut self) -> ReplicaId {
        self.lives += 1;
        ReplicaId { process: self.id.process, life: self.lives }
    }

    /// What to do for a slot. Only [`Duty::Work`] and [`Duty::Drain`] permit writes.
    pub fn duty(&self, slot: usize, now: Moment) -> Duty {
        let held = self.map.as_ref().and_then(|map| Some((map, map.slots.get(slot)?)));
        let Some((map, slot_of_map)) = held.filter(|(_, held)| held.holder == Some(self.id)) else { return Duty::Stop };
        if !self.is_valid(now) || self.stage == Stage::Resigned {
            return Duty::Stop;
        }
        let fence = Fence { map_uid: map.uid.clone(), epoch: slot_of_map.epoch };
        match self.drains.get(&slot) {
            None => Duty::Work(fence),
            Some(drain) if drain.done => Duty::Stop,
            Some(_) => Duty::Drain(fence),
        }
    }

    /// Reports that no reconcile of this slot runs any more, after [`Duty::Drain`].
    pub fn drained(&mut self, slot: usize) {
        if let Some(drain) = self.drains.get_mut(&slot) {
            drain.done = true;
        }
    }

    /// Reports the epoch in an object of this slot, written under the present map. If it is later than that of the slot, the map
    /// was restored from a backup. The slot then gets a later epoch than both.
    pub fn witness(&mut self, slot: usize, epoch: u64) {
        let held = self.map.as_ref().and_then(|map| map.slots.get(slot));
        let Some(held) = held.filter(|held| held.holder == Some(self.id) && held.epoch < epoch) else { return };
        let drain = self.drains.entry(slot).or_insert(Drain { epoch: held.epoch, witnessed: epoch, done: false });
        drain.witnessed = drain.witnessed.max(epoch);
    }

    /// Begins to leave: drains all slots, then gives up the lease. The replica takes no slot any more.
    pub fn leave(&mut self) {
        if self.stage == Stage::Serving {
            self.stage = Stage::Leaving;
        }
    }

    /// Whether the replica has given up everything.
    pub fn has_left(&self) -> bool {
        self.stage == Stage::Left
    }

    /// The next request. It is the same again until the view shows its effect, or the effect of another replica's request.
    pub fn act(&mut self, now: Moment) -> Option<Request> {
        if !self.looked || self.stage == Stage::Left {
            return None;
        }
        self.plan_drains(now);
        if self.stage == Stage::Leaving && self.is_idle() {
            // From now on, others may take any slot that a late event still gives to this replica.
            self.stage = Stage::Resigned;
        }
        if self.stage == Stage::Resigned {
            return self.give_up_lease();
        }
        if let Some(renewal) = self.renew(now) {
            return Some(renewal);
        }
        // Only a replica that has a lease, and a view that shows it, changes what belongs to all.
        if !self.is_valid(now) || self.stage == Stage::Leaving {
            return None;
        }
        let Some(map) = &self.map else { return Some(self.create_map()) };
        self.change_map(now, map).or_else(|| self.fence(now)).or_else(|| self.clean_up(map))
    }

    fn is_valid(&self, now: Moment) -> bool {
        self.heard.is_some_and(|heard| now < heard + self.config.renew_deadline)
    }

    fn lease_of(&self, id: ReplicaId) -> Option<Lease> {
        self.peers.get(&id).and_then(|peer| peer.lease)
    }

    /// Decides which slots to give up: all when leaving, otherwise those above this replica's share.
    fn plan_drains(&mut self, now: Moment) {
        let Some(map) = &self.map else { return };
        let keep = match self.stage {
            Stage::Serving if self.is_valid(now) => self.share(now, map),
            Stage::Serving => return, // the view may be old
            Stage::Leaving | Stage::Resigned | Stage::Left => 0,
        };
        let kept: Vec<usize> = map.held_by(self.id).filter(|slot| !self.drains.contains_key(slot)).collect();
        for &slot in kept.iter().skip(keep) {
            let epoch = map.slots[slot].epoch;
            self.drains.insert(slot, Drain { epoch, witnessed: epoch, done: false });
        }
    }

    /// How many slots this replica should hold. The shares of all live replicas differ by at most one and add up to all slots.
    /// Who holds more keeps more, so that few slots move.
    fn share(&self, now: Moment, map: &SlotMap) -> usize {
        let is_live = |id: &ReplicaId, peer: &Peer| {
            *id == self.id || (peer.lease.is_some() && !peer.is_fenced() && !self.has_expired(now, peer))
        };
        let live = self.peers.iter().filter(|(id, peer)| is_live(id, peer)).map(|(id, _)| *id);
        let mut live: Vec<_> = live.map(|id| (Reverse(map.held_by(id).count()), id)).collect();
        live.sort_unstable();
        let Some(rank) = live.iter().position(|(_, id)| *id == self.id) else { return 0 };
        map.slots.len() / live.len() + usize::from(rank < map.slots.len() % live.len())
    }

    fn has_expired(&self, now: Moment, peer: &Peer) -> bool {
        now >= peer.since + self.config.lease_duration
    }

    fn is_idle(&self) -> bool {
        let is_done = |slot: usize| self.drains.get(&slot).is_some_and(|drain| drain.done);
        self.map.as_ref().is_none_or(|map| map.held_by(self.id).all(is_done))
    }

    /// Fences the own lease: then other replicas take all its slots at once.
    fn give_up_lease(&mut self) -> Option<Request> {
        let Some(Lease { version, renewal, .. }) = self.lease_of(self.id) else {
            self.stage = Stage::Left;
            return None;
        };
        Some(Request::PutLease { id: self.id, expected: Some(version), renewal, fenced: true })
    }

    /// The next renewal if it is due, or the last one again until the view shows it.
    fn renew(&mut self, now: Moment) -> Option<Request> {
        let lease = self.lease_of(self.id);
        if self.renewal == 0 || lease.is_some_and(|lease| lease.renewal == self.renewal) {
            if self.renewal > 0 && now < self.sent + self.config.retry_period {
                return None;
            }
            self.renewal += 1;
            self.sent = now;
        }
        let expected = lease.map(|lease| lease.version);
        Some(Request::PutLease { id: self.id, expected, renewal: self.renewal, fenced: false })
    }

    /// A new map belongs to unknown holders: a map may have existed before, and its holders may still work. They have no lease,
    /// so all replicas wait for them as for a replica that has crashed.
    fn create_map(&mut self) -> Request {
        let unknown = Slot { holder: Some(self.unused_id()), epoch: 0 };
        Request::PutMap { expected: None, slots: vec![unknown; usize::from(self.config.slots.get())] }
    }

    /// Gives up what is drained, and takes what is free, up to the share.
    fn change_map(&self, now: Moment, map: &SlotMap) -> Option<Request> {
        let mut slots = map.slots.clone();
        for (&slot, drain) in self.drains.iter().filter(|(_, drain)| drain.done) {
            slots[slot] = Slot { holder: None, epoch: drain.epoch.max(drain.witnessed) + 1 };
        }
        let held = slots.iter().filter(|slot| slot.holder == Some(self.id)).count();
        let lacking = self.share(now, map).saturating_sub(held);
        for slot in slots.iter_mut().filter(|slot| self.is_free(slot)).take(lacking) {
            *slot = Slot { holder: Some(self.id), epoch: slot.epoch + 1 };
        }
        (slots != map.slots).then_some(Request::PutMap { expected: Some(map.version), slots })
    }

    fn is_free(&self, slot: &Slot) -> bool {
        slot.holder.is_none_or(|holder| self.peers.get(&holder).is_some_and(Peer::is_fenced))
    }

    /// Ends the lease of a replica that has not renewed it for the lease duration, and of a holder that has none.
    fn fence(&self, now: Moment) -> Option<Request> {
        let is_dead = |id: &ReplicaId, peer: &Peer| *id != self.id && !peer.is_fenced() && self.has_expired(now, peer);
        let (&id, peer) = self.peers.iter().find(|(id, peer)| is_dead(id, peer))?;
        let expected = peer.lease.map(|lease| lease.version);
        let renewal = peer.lease.map_or(0, |lease| lease.renewal);
        Some(Request::PutLease { id, expected, renewal, fenced: true })
    }

    /// Deletes a fenced lease that the map does not name any more.
    fn clean_up(&self, map: &SlotMap) -> Option<Request> {
        let is_unused = |id: &ReplicaId, peer: &Peer| peer.is_fenced() && map.held_by(*id).next().is_none();
        let (&id, peer) = self.peers.iter().find(|(id, peer)| is_unused(id, peer))?;
        Some(Request::DeleteLease { id, expected: peer.lease?.version })
    }
}

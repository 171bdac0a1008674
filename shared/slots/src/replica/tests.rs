//! Checks all runs of small groups of replicas, and single rules in tables.

mod forget;
mod larger;
mod model;

use std::num::NonZeroU16;
use std::time::Duration;

use stateright::{Checker as _, CheckerBuilder, HasDiscoveries, Model as _};

use super::*;
use model::{ALONE, Group, Mishap, Pace, State, Step};

const S: Duration = Duration::from_secs(1);

/// Explores all runs of a group. Fails at the first run that breaks a promise, and prints it.
fn check(group: Group) {
    explore(group.checker().threads(2));
}

/// Explores the first steps of all runs. With a second thread, some states would count as deeper than they are.
fn check_beginnings(group: Group, steps: usize) {
    explore(group.checker().target_max_depth(steps + 1));
}

fn explore(checker: CheckerBuilder<Group>) {
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{} states, {} steps deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

#[test]
fn two_replicas_that_pause_at_any_time_never_work_on_one_slot() {
    check_beginnings(Group::new(2, 2, Pace::Any, 0), 24);
}

#[test]
fn two_replicas_share_two_slots_after_any_fault() {
    check(Group::new(2, 2, Pace::Prompt, 1));
}

#[test]
fn three_replicas_share_three_slots_whenever_they_start() {
    check(Group::new(3, 3, Pace::Rounds, 0));
}

#[test]
fn checker_finds_a_lease_that_is_too_short_for_the_drift() {
    // Clocks differ by up to two ticks in any time, and a holder works for one. So three are enough, and two are not.
    let group = Group::new(2, 1, Pace::Any, 0).with_lease(2);
    let checker = group.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    assert!(checker.discovery(ALONE).is_some(), "{} states, none with two workers", checker.unique_state_count());
}

/// Plays these steps of a group from its beginning.
fn play(group: &Group, steps: &[Step]) -> State {
    let begin = group.init_states().swap_remove(0);
    let next = |state, step: &Step| group.next_state(&state, *step).unwrap_or_else(|| panic!("{step:?} does nothing"));
    steps.iter().fold(begin, next)
}

#[test]
fn late_create_of_a_map_succeeds_after_the_map_was_created_and_deleted() {
    let group = Group::new(1, 1, Pace::Prompt, 2);
    // The first request is a renewal, and the second one creates the map.
    let late = [Step::Start(0), Step::RunUntil(0, 1, Mishap::Late), Step::Run(0)];
    let exists = play(&group, &late);
    assert!(exists.stored.map.is_some() && matches!(exists.late, Some(Request::PutMap { expected: None, .. })));
    let arrived = play(&group, &[&late[..], &[Step::DeleteMap, Step::Arrive][..]].concat());
    assert!(arrived.stored.map.is_some() && arrived.late.is_none());
}

#[test]
fn late_change_of_an_object_that_has_changed_since_is_forgotten() {
    let group = Group::new(1, 1, Pace::Prompt, 1);
    // The second renewal is late, and the replica sends it again.
    let renewed = [Step::Start(0), Step::Run(0), Step::Tick(0), Step::RunUntil(0, 0, Mishap::Late)];
    let waits = play(&group, &renewed);
    assert!(matches!(waits.late, Some(Request::PutLease { expected: Some(_), .. })), "{:?}", waits.late);
    assert_eq!(play(&group, &[&renewed[..], &[Step::Run(0)][..]].concat()).late, None);
}

/// One replica, and the objects as the API server stores them.
struct Solo {
    replica: Replica,
    view: View,
    versions: u64,
}

impl Solo {
    fn new(slots: u16) -> Self {
        let config = Config::new(NonZeroU16::new(slots).unwrap());
        Self { replica: Replica::new(config, 1), view: View::default(), versions: 0 }
    }

    /// A replica that holds all slots.
    fn holding(slots: u16, now: Moment) -> Self {
        let mut solo = Self::new(slots);
        solo.settle(now);
        solo.renew_until(now + 15 * S, now);
        assert_eq!(solo.held(), usize::from(slots));
        solo
    }

    /// Shows the view, and carries out all requests, until there is none.
    fn settle(&mut self, now: Moment) {
        self.replica.observe(now, &self.view);
        while let Some(request) = self.replica.act(now) {
            self.store(&request);
            self.replica.observe(now, &self.view);
        }
    }

    fn renew_until(&mut self, end: Moment, mut now: Moment) {
        while now < end {
            now += S;
            self.settle(now);
        }
    }

    /// Stores what a request writes. Nothing else writes, so it never conflicts.
    fn store(&mut self, request: &Request) {
        self.versions += 1;
        let version = self.versions;
        match request.clone() {
            Request::PutLease { id, expected: _, renewal, fenced } => {
                self.view.leases.insert(id, Lease { version, renewal, fenced });
            }
            Request::DeleteLease { id, expected: _ } => {
                self.view.leases.remove(&id);
            }
            Request::PutMap { expected: _, slots } => {
                let uid = self.view.map.as_ref().map_or_else(|| "map".into(), |map| map.uid.clone());
                self.view.map = Some(SlotMap { uid, version, slots });
            }
        }
    }

    /// Another replica, which has a lease and holds nothing.
    fn add_peer(&mut self, process: u64) -> ReplicaId {
        let id = ReplicaId { process, life: 1 };
        self.store(&Request::PutLease { id, expected: None, renewal: 1, fenced: false });
        id
    }

    fn slots(&mut self) -> &mut Vec<Slot> {
        &mut self.view.map.as_mut().unwrap().slots
    }

    fn held(&self) -> usize {
        self.view.map.as_ref().map_or(0, |map| map.held_by(self.replica.id()).count())
    }

    fn works(&self, slot: usize, now: Moment) -> bool {
        matches!(self.replica.duty(slot, now), Duty::Work(_))
    }
}

#[test]
fn first_replica_of_a_new_map_waits_one_lease_for_unknown_holders() {
    let mut solo = Solo::new(3);
    solo.settle(S);
    solo.renew_until(15 * S, S);
    assert_eq!(solo.held(), 0);
    solo.settle(16 * S);
    assert_eq!(solo.held(), 3);
    assert_eq!(solo.view.leases.len(), 1, "the lease of the unknown holders is deleted again");
}

#[test]
fn work_stops_at_the_renew_deadline_and_resumes_after_a_renewal() {
    let mut solo = Solo::holding(1, S);
    assert!(solo.works(0, 16 * S));
    assert!(!solo.works(0, 26 * S), "the last renewal was sent at 16 s at the latest");
    solo.settle(40 * S);
    assert!(solo.works(0, 40 * S), "no replica has fenced it");
}

#[test]
fn after_an_outage_each_replica_gets_a_whole_lease_to_renew() {
    let mut solo = Solo::holding(1, S);
    let peer = solo.add_peer(2);
    solo.settle(17 * S);
    solo.settle(60 * S);
    assert!(!solo.view.leases[&peer].fenced, "the outage hid its renewals");
    solo.renew_until(74 * S, 60 * S);
    assert!(!solo.view.leases[&peer].fenced);
    solo.settle(75 * S);
    assert!(!solo.view.leases.contains_key(&peer), "fenced, and then deleted");
}

#[test]
fn drain_lets_work_end_before_the_slot_is_free() {
    let mut solo = Solo::holding(2, S);
    solo.add_peer(2);
    solo.settle(17 * S);
    let fence = |solo: &Solo| Fence { map_uid: "map".into(), epoch: solo.view.map.as_ref().unwrap().slots[1].epoch };
    assert_eq!(solo.replica.duty(1, 17 * S), Duty::Drain(fence(&solo)));
    assert!(solo.works(0, 17 * S));
    assert_eq!(solo.held(), 2);
    solo.replica.drained(1);
    assert_eq!(solo.replica.duty(1, 17 * S), Duty::Stop, "an unanswered release may still arrive");
    solo.settle(17 * S);
    assert_eq!(solo.held(), 1);
    assert_eq!(solo.slots()[1].holder, None);
}

#[test]
fn balanced_group_moves_nothing() {
    for slots in 1..=7 {
        for peers in 0..=4 {
            let mut solo = Solo::holding(slots, S);
            let ids: Vec<ReplicaId> = (0..peers).map(|peer| solo.add_peer(2 + peer)).collect();
            let own = solo.replica.id();
            let turns = ids.iter().copied().chain([own]).cycle();
            for (slot, holder) in solo.slots().iter_mut().zip(turns) {
                *slot = Slot { holder: Some(holder), epoch: slot.epoch + 1 };
            }
            solo.replica.observe(17 * S, &solo.view.clone());
            let map = solo.view.map.as_ref().unwrap();
            let held = map.held_by(own).count();
            assert_eq!(solo.replica.share(17 * S, map), held, "{slots} slots, {peers} peers");
        }
    }
}

#[test]
fn witnessed_epoch_is_exceeded() {
    let mut solo = Solo::holding(1, S);
    let before = solo.slots()[0].epoch;
    solo.replica.witness(0, before);
    assert!(solo.works(0, 16 * S), "it is the present one");
    solo.replica.witness(0, before + 40);
    assert!(matches!(solo.replica.duty(0, 16 * S), Duty::Drain(_)));
    solo.replica.drained(0);
    solo.settle(16 * S);
    assert_eq!((solo.held(), solo.slots()[0].epoch), (1, before + 42), "released and taken in one write");
    assert!(solo.works(0, 16 * S));
}

#[test]
fn lost_map_older_map_and_lost_lease_end_a_life() {
    type Change = fn(&mut Solo);
    let changes: [(&str, Change); 6] = [
        ("the map is deleted", |solo| solo.view.map = None),
        ("another map has its name", |solo| solo.view.map.as_mut().unwrap().uid = "other".into()),
        ("the map is older", |solo| solo.slots()[0].epoch -= 1),
        ("the lease is deleted", |solo| solo.view.leases.clear()),
        ("the lease is created again by a late request", |solo| {
            let id = solo.replica.id();
            solo.view.leases.get_mut(&id).unwrap().version += 1;
        }),
        ("the lease is fenced", |solo| {
            let id = solo.replica.id();
            solo.view.leases.get_mut(&id).unwrap().fenced = true;
        }),
    ];
    for (what, change) in changes {
        let mut solo = Solo::holding(2, S);
        let before = solo.replica.id();
        change(&mut solo);
        solo.replica.observe(16 * S, &solo.view.clone());
        assert_ne!(solo.replica.id(), before, "{what}");
        assert_eq!(solo.replica.duty(1, 16 * S), Duty::Stop, "{what}");
        solo.settle(16 * S);
        solo.renew_until(33 * S, 16 * S);
        assert_eq!(solo.held(), 2, "{what}");
    }
}

#[test]
fn leaving_replica_ends_its_work_and_then_its_lease() {
    let mut solo = Solo::holding(1, S);
    let id = solo.replica.id();
    solo.replica.leave();
    solo.settle(16 * S);
    assert!(matches!(solo.replica.duty(0, 16 * S), Duty::Drain(_)));
    assert!(!solo.view.leases[&id].fenced);
    solo.replica.drained(0);
    solo.settle(16 * S);
    assert!(solo.view.leases[&id].fenced && solo.replica.has_left());
}

#[test]
fn replica_that_gives_up_its_lease_does_not_work_on_a_slot_that_a_late_event_gives_it() {
    let mut solo = Solo::new(1);
    solo.settle(S);
    solo.renew_until(15 * S, S);
    let now = 16 * S;
    let take = loop {
        solo.replica.observe(now, &solo.view);
        match solo.replica.act(now) {
            Some(request @ Request::PutMap { .. }) => break request,
            Some(request) => solo.store(&request),
            None => panic!("it takes no slot"),
        }
    };
    solo.replica.leave();
    let end = solo.replica.act(now);
    assert!(matches!(end, Some(Request::PutLease { fenced: true, .. })), "its view shows no slot: {end:?}");
    solo.store(&take);
    solo.replica.observe(now, &solo.view);
    assert_eq!((solo.held(), solo.replica.duty(0, now)), (1, Duty::Stop), "others take it after the fence");
    assert_eq!(solo.replica.act(now), end);
    assert_eq!(solo.replica.duty(0, now), Duty::Stop);
    solo.store(&end.unwrap());
    solo.replica.observe(now, &solo.view);
    assert!(solo.replica.has_left());
}

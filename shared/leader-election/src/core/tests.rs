//! Runs thousands of elections on a simulated network, without a runtime. Two leaders never overlap, and there is always a next
//! leader.

mod model;

use std::time::Duration;

use proptest::{prelude::*, test_runner::RngSeed};

use super::*;
use crate::lease::is_released;
use model::{Faults, World};

fn faults() -> impl Strategy<Value = Faults> {
    (0..4_000_u64, 0..30_u32, 0..30_u32, 0..30_u32, 0..20_u32, any::<bool>()).prop_map(
        |(delay, lost_before, lost_after, pauses, restarts, hands)| Faults {
            delay,
            lost_before,
            lost_after,
            pauses,
            // Either restarts or manual edits: to a new process, a deleted lease looks like one that never existed.
            restarts: if hands { 0 } else { restarts },
            hands,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1_000), rng_seed: seed(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_two_leaders_and_always_a_next(seed: u64, candidates in 2..=4_usize, faults in faults()) {
        let mut world = World::new(seed, candidates, faults);
        world.run(Duration::from_mins(4)).map_err(TestCaseError::fail)?;
        world.heal();
        world.run(Duration::from_mins(2)).map_err(TestCaseError::fail)?;
        prop_assert!(world.leader().is_some(), "no leader after two quiet minutes");
    }
}

#[test]
fn a_create_that_is_late_and_a_lease_that_a_hand_deletes_do_not_meet_in_the_model() {
    // Found by the property above. Both together hit a limit that the README names, which is not a bug.
    let faults = Faults { delay: 3701, lost_before: 18, lost_after: 0, pauses: 0, restarts: 0, hands: true };
    let mut world = World::new(14_495_932_327_765_836_775, 4, faults);
    world.run(Duration::from_mins(4)).expect("never two leaders");
}

/// The number of cases; `LEADER_ELECTION_CASES` sets more for a nightly run.
fn cases(usual: u32) -> u32 {
    std::env::var("LEADER_ELECTION_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

/// The usual cases are the same each time, so that a failure comes from a change of the code. A nightly run draws new ones.
fn seed() -> RngSeed {
    if std::env::var_os("LEADER_ELECTION_CASES").is_some() { RngSeed::Random } else { RngSeed::Fixed(1) }
}

/// A candidate whose requests succeed at once. The test controls time and lease.
struct Solo {
    core: Core,
    lease: Lease,
    version: u64,
    wall: Timestamp,
}

const S: Duration = Duration::from_secs(1);

impl Solo {
    fn new() -> Self {
        let config = Config { identity: "me".to_owned(), ..Config::new("operators", "manager") };
        let core = Core::new(config, fastrand::Rng::with_seed(1));
        Self { core, lease: Lease::default(), version: 0, wall: Timestamp::UNIX_EPOCH }
    }

    fn leading() -> Self {
        let mut solo = Self::new();
        assert!(matches!(solo.core.next(S, solo.wall), Step::Send(Request::Get)));
        solo.core.answered(S, Answer::Absent);
        assert!(matches!(solo.step(S), Some(Request::Create(_))));
        assert!(matches!(solo.core.role(), Role::Leading(_)));
        solo
    }

    /// Executes the next request, if there is one.
    fn step(&mut self, now: Moment) -> Option<Request> {
        let Step::Send(request) = self.core.next(now, self.wall) else { return None };
        if let Some(lease) = request.lease() {
            self.write(lease.clone());
        }
        self.core.answered(now, Answer::Lease(Box::new(self.lease.clone())));
        Some(request)
    }

    /// Stores a lease as an API server does: a write that changes nothing gets no new version.
    fn write(&mut self, lease: Lease) {
        if self.version == 0 || lease.spec != self.lease.spec {
            self.version += 1;
        }
        self.lease = lease;
        self.lease.metadata.uid = Some("uid".to_owned());
        self.lease.metadata.resource_version = Some(self.version.to_string());
    }

    fn until(&self) -> Option<Moment> {
        self.core.term().map(|term| term.until)
    }
}

#[test]
fn a_leaders_time_runs_from_before_its_write_was_sent() {
    let mut solo = Solo::leading();
    assert_eq!(solo.until(), Some(11 * S));
    let Step::Send(Request::Replace(renewal)) = solo.core.next(3 * S, solo.wall) else { panic!("no renewal") };
    solo.write(*renewal);
    solo.core.answered(7 * S, Answer::Lease(Box::new(solo.lease.clone())));
    assert_eq!(solo.until(), Some(13 * S));
}

#[test]
fn an_answer_after_the_deadline_does_not_bring_leadership_back() {
    let mut solo = Solo::leading();
    let Step::Send(Request::Replace(renewal)) = solo.core.next(10 * S, solo.wall) else { panic!("no renewal") };
    solo.write(*renewal);
    solo.core.answered(11 * S, Answer::Lease(Box::new(solo.lease.clone())));
    assert_eq!(solo.core.role(), &Role::Ending(Loss::Expired));
}

#[test]
fn l4_a_wall_clock_that_stands_or_steps_back_still_makes_every_renewal_a_sign_of_life() {
    let mut solo = Solo::leading();
    solo.wall = Timestamp::from_second(7_200).expect("a time");
    for second in 3..60_u32 {
        if second == 30 {
            solo.wall = Timestamp::from_second(3_600).expect("a time");
        }
        let before = solo.version;
        if solo.step(second * S).is_some() {
            assert_eq!(solo.version, before + 1, "the API server changes nothing for equal objects");
        }
    }
    assert_eq!(solo.core.role(), &Role::Leading(solo.core.term().expect("a leader").clone()));
    assert!(solo.until() >= Some(68 * S));
}

#[test]
fn a_write_that_changed_nothing_is_no_renewal() {
    let mut solo = Solo::leading();
    let Step::Send(_) = solo.core.next(3 * S, solo.wall) else { panic!("no renewal") };
    solo.core.answered(3 * S, Answer::Lease(Box::new(solo.lease.clone())));
    assert_eq!(solo.core.role(), &Role::Ending(Loss::Taken));
}

#[test]
fn the_number_of_a_term_is_never_used_twice_nor_lowered_by_a_hand() {
    let mut solo = Solo::leading();
    assert_eq!(lease::transitions(&solo.lease), 0);
    solo.core.next(11 * S, solo.wall);
    solo.core.work_ended(11 * S);
    assert!(matches!(solo.step(11 * S), Some(Request::Get)), "after a loss, look first");
    assert!(matches!(solo.step(11 * S), Some(Request::Replace(_))), "it is still ours");
    assert_eq!(lease::transitions(&solo.lease), 1, "another term of the same process");

    solo.core.next(21 * S, solo.wall);
    solo.core.work_ended(21 * S);
    solo.lease.spec.as_mut().expect("a spec").lease_transitions = Some(0);
    solo.step(21 * S);
    solo.step(21 * S);
    assert_eq!(lease::transitions(&solo.lease), 2);
}

#[test]
fn a_watch_that_is_quicker_than_the_answer_does_not_undo_a_claim() {
    let mut solo = Solo::new();
    solo.write(lease::released(&Lease::default(), Timestamp::UNIX_EPOCH));
    solo.step(S);
    let Step::Send(Request::Replace(claim)) = solo.core.next(S, solo.wall) else { panic!("no claim") };
    solo.write(*claim);
    solo.core.noticed(S, Some(solo.lease.clone()));
    solo.core.answered(S, Answer::Lease(Box::new(solo.lease.clone())));
    assert!(matches!(solo.core.role(), Role::Leading(_)));
}

#[test]
fn whatever_changes_the_lease_may_be_a_sign_of_life() {
    let mut solo = Solo::new();
    solo.write(lease::first("operators", "manager", "other", 15 * S, Timestamp::UNIX_EPOCH));
    solo.step(S);
    solo.core.noticed(5 * S, Some(solo.lease.clone()));
    assert_eq!(solo.core.free_at(), Some(16 * S), "the same version again is no renewal");
    solo.lease.metadata.resource_version = Some("7".to_owned());
    solo.core.noticed(10 * S, Some(solo.lease.clone()));
    assert_eq!(solo.core.free_at(), Some(25 * S), "an edit may have undone the only difference");
}

#[test]
fn only_a_clean_release_is_taken_at_once() {
    let mut solo = Solo::new();
    let held = lease::first("operators", "manager", "other", 15 * S, Timestamp::UNIX_EPOCH);
    solo.write(held.clone());
    solo.step(S);
    let mut edited = |edit: &dyn Fn(&mut k8s_openapi::api::coordination::v1::LeaseSpec), at| {
        let mut lease = held.clone();
        edit(lease.spec.as_mut().expect("a spec"));
        solo.write(lease);
        solo.core.noticed(at, Some(solo.lease.clone()));
        solo.core.free_at().expect("known")
    };
    assert_eq!(edited(&|spec| spec.holder_identity = Some(String::new()), 2 * S), 17 * S, "emptied by a hand");
    assert_eq!(edited(&|spec| spec.holder_identity = None, 3 * S), 18 * S);
    assert_eq!(edited(&|spec| spec.holder_identity = Some("me".to_owned()), 4 * S), 19 * S, "not our claim");
    assert_eq!(edited(&|spec| spec.lease_duration_seconds = Some(0), 5 * S), 20 * S);
    assert_eq!(edited(&|spec| spec.lease_duration_seconds = Some(-1), 6 * S), 21 * S);
    assert_eq!(edited(&|spec| spec.lease_duration_seconds = Some(60), 7 * S), 67 * S, "its holder has longer times");
    assert_eq!(
        edited(
            &|spec| *spec = lease::released(&held, spec.renew_time.clone().expect("a time").0).spec.expect("a spec"),
            8 * S
        ),
        8 * S
    );
}

#[test]
fn l7_a_claim_that_succeeds_after_the_stop_is_given_back_and_never_led() {
    let mut solo = Solo::new();
    solo.core.next(S, solo.wall);
    solo.core.answered(S, Answer::Absent);
    let Step::Send(Request::Create(claim)) = solo.core.next(S, solo.wall) else { panic!("no claim") };
    solo.write(*claim);
    solo.core.stop();
    solo.core.answered(2 * S, Answer::Lease(Box::new(solo.lease.clone())));
    assert!(matches!(solo.core.role(), Role::Releasing { .. }));
    solo.step(2 * S);
    assert!(is_released(&solo.lease));
    assert!(matches!(solo.core.next(2 * S, solo.wall), Step::Finished));
}

#[test]
fn a_claim_without_an_answer_is_looked_after_at_the_stop() {
    let mut solo = Solo::new();
    solo.core.next(S, solo.wall);
    solo.core.answered(S, Answer::Absent);
    let Step::Send(Request::Create(claim)) = solo.core.next(S, solo.wall) else { panic!("no claim") };
    solo.write(*claim);
    solo.core.answered(6 * S, Answer::Unknown);
    solo.core.stop();
    assert!(matches!(solo.step(6 * S), Some(Request::Get)));
    solo.step(6 * S);
    assert!(is_released(&solo.lease));
    assert!(matches!(solo.core.next(6 * S, solo.wall), Step::Finished));
}

#[test]
fn giving_back_is_tried_for_one_request_time_and_not_longer() {
    let mut solo = Solo::leading();
    solo.core.work_ended(2 * S);
    let mut now = 2 * S;
    let mut requests = 0;
    loop {
        match solo.core.next(now, solo.wall) {
            Step::Send(_) => {
                requests += 1;
                solo.core.answered(now, Answer::Unknown);
            }
            Step::Wait(until) => now = until.expect("a time"),
            Step::Finished => break,
        }
    }
    assert_eq!(now, 7 * S);
    assert!((5..=12).contains(&requests), "{requests}");
}

/// Makes another process, `x`, the holder of the lease. Returns the lease.
fn held_by_another(solo: &mut Solo) -> Lease {
    let lease = lease::claimed(&solo.lease, "x", 15 * S, 7, Timestamp::from_second(500).expect("a time"));
    solo.write(lease);
    solo.lease.clone()
}

#[test]
fn a_lease_that_was_restored_to_a_former_claim_of_ours_is_waited_for() {
    let mut solo = Solo::leading();
    let claimed = solo.lease.clone();
    solo.core.expired();
    solo.core.work_ended(2 * S);
    let other = held_by_another(&mut solo);
    solo.core.noticed(3 * S, Some(other));
    // The backup is older than the other process's claim, and that process may still lead.
    solo.lease = claimed;
    solo.core.noticed(4 * S, Some(solo.lease.clone()));
    solo.core.watched(true);
    assert!(solo.step(5 * S).is_none_or(|request| matches!(request, Request::Get)));
    assert!(solo.step(6 * S).is_none());
    let taken = (6..60).find(|second| matches!(solo.step(*second * S), Some(Request::Replace(_))));
    assert!(taken.is_some_and(|second| second >= 19), "{taken:?}");
    let Role::Leading(term) = solo.core.role() else { panic!("it leads") };
    assert_eq!(term.transitions, 8, "no term is used twice, though the lease says 0");
}

#[test]
fn a_leader_that_witnesses_a_later_term_ends_and_leads_again_under_a_still_later_one() {
    let mut solo = Solo::leading();
    solo.core.witnessed(0);
    assert!(matches!(solo.core.role(), Role::Leading(_)));
    solo.core.witnessed(9);
    assert_eq!(solo.core.role(), &Role::Ending(Loss::Outdated));
    solo.core.work_ended(2 * S);
    for second in 2..4_u32 {
        solo.step(second * S);
    }
    let Role::Leading(term) = solo.core.role() else { panic!("it leads: {:?}", solo.core.role()) };
    assert_eq!(term.transitions, 10);
}

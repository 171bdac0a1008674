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
    fn at_most_one_leader_and_always_a_successor(seed: u64, candidates in 2..=4_usize, faults in faults()) {
        let mut world = World::new(seed, candidates, faults);
        world.run(Duration::from_mins(4)).map_err(TestCaseError::fail)?;
        world.heal();
        world.run(Duration::from_mins(2)).map_err(TestCaseError::fail)?;
        prop_assert!(world.leader().is_some(), "no leader after two quiet minutes");
    }
}

#[test]
fn model_excludes_a_late_create_after_a_lease_deletion() {
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
fn term_starts_when_the_renewal_is_sent() {
    let mut solo = Solo::leading();
    assert_eq!(solo.until(), Some(11 * S));
    let Step::Send(Request::Replace(renewal)) = solo.core.next(3 * S, solo.wall) else { panic!("no renewal") };
    solo.write(*renewal);
    solo.core.answered(7 * S, Answer::Lease(Box::new(solo.lease.clone())));
    assert_eq!(solo.until(), Some(13 * S));
}

#[test]
fn late_renewal_answer_does_not_restore_leadership() {
    let mut solo = Solo::leading();
    let Step::Send(Request::Replace(renewal)) = solo.core.next(10 * S, solo.wall) else { panic!("no renewal") };
    solo.write(*renewal);
    solo.core.answered(11 * S, Answer::Lease(Box::new(solo.lease.clone())));
    assert_eq!(solo.core.role(), &Role::Ending(StopReason::Expired));
}

#[test]
fn l4_renewals_differ_if_wall_clock_stops_or_steps_back() {
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
fn unchanged_lease_is_not_a_renewal() {
    let mut solo = Solo::leading();
    let Step::Send(_) = solo.core.next(3 * S, solo.wall) else { panic!("no renewal") };
    solo.core.answered(3 * S, Answer::Lease(Box::new(solo.lease.clone())));
    assert_eq!(solo.core.role(), &Role::Ending(StopReason::Taken));
}

#[test]
fn term_number_is_unique_even_if_a_user_lowers_it() {
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
fn watch_event_before_the_answer_does_not_undo_a_claim() {
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
fn any_new_lease_version_restarts_the_wait() {
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
fn only_a_clean_release_is_acquired_at_once() {
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
fn l7_claim_after_stop_is_released_and_never_leads() {
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
fn stop_checks_and_releases_an_unanswered_claim() {
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
fn release_is_retried_for_one_request_timeout() {
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
fn restored_lease_with_our_old_claim_is_waited_for() {
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
fn leader_steps_down_on_a_later_term_and_leads_a_newer_one() {
    let mut solo = Solo::leading();
    solo.core.witnessed(0);
    assert!(matches!(solo.core.role(), Role::Leading(_)));
    solo.core.witnessed(9);
    assert_eq!(solo.core.role(), &Role::Ending(StopReason::Outdated));
    solo.core.work_ended(2 * S);
    for second in 2..4_u32 {
        solo.step(second * S);
    }
    let Role::Leading(term) = solo.core.role() else { panic!("it leads: {:?}", solo.core.role()) };
    assert_eq!(term.transitions, 10);
}

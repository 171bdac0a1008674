//! Crashes and changes of leader: what one process of the operator leaves behind, and how the next one continues.

use std::{
    pin::pin,
    task::{Context as Task, Waker},
};

use serde_json::json;

use super::{World, count, created, job};
use crate::controller::model::Replica;

/// Lives through the runs from 10:00 to 10:30 in steps of about ten minutes, and completes the Jobs in between.
fn hour(world: &World, operator: &mut Replica, crash: &mut impl FnMut(&World, &mut Replica)) {
    for minute in ["10:00:30", "10:10:00", "10:10:30", "10:20:01", "10:30:00", "10:30:45"] {
        world.set_now(&format!("2026-11-20T{minute}Z"));
        crash(world, operator);
        operator.settle();
        world.finish_all();
        crash(world, operator);
        operator.settle();
    }
}

const TIMES: [&str; 4] =
    ["2026-11-20T10:00:00Z", "2026-11-20T10:10:00Z", "2026-11-20T10:20:00Z", "2026-11-20T10:30:00Z"];

#[test]
fn t08_crash_at_any_step_leaves_one_job_per_due_run() {
    let mut crashes = 0;
    for policy in ["Allow", "Forbid", "Replace"] {
        for limit in [0, 3] {
            for stale in [false, true] {
                for at in 0..40 {
                    let spec = json!({
                        "cronSpec": "*/10 * * * *", "concurrencyPolicy": policy, "successfulJobsHistoryLimit": limit,
                    });
                    let world = World::new("2026-11-20T10:00:30Z", &spec);
                    let mut operator = world.leader();
                    hour(&world, &mut operator, &mut |world, operator| {
                        // If `stale`, the cache of the next process dates from before the crash.
                        let next = stale.then(|| world.replica());
                        operator.sync();
                        if operator.wake_for(at).is_some() {
                            return;
                        }
                        crashes += 1;
                        let mut next = match next {
                            Some(next) => next.elected(),
                            None => world.leader(),
                        };
                        next.holds_back = at % 2 == 1;
                        // Its first reconcile uses its own cache. It may fail; then the second one tries again.
                        drop(next.wake());
                        drop(next.wake());
                        next.holds_back = false;
                        *operator = next;
                    });
                    let context = format!("{policy}, limit {limit}, stale {stale}, killed at turn {at}");
                    assert_eq!(created(&world), TIMES.map(job), "{context}");
                    assert_eq!(world.state().jobs.len(), limit, "{context}");
                    assert_eq!(world.status().last_schedule_time, Some(TIMES[3].parse().expect("a time")), "{context}");
                    assert_eq!(count(&world, "JobAlreadyActive"), 0, "{context}");
                }
            }
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 500, "{crashes}");
}

/// Returns a world at 11:00:01 and its leader. The run of 10:00 has ended, and only the status still records it.
fn at_eleven(policy: &str) -> (World, Replica) {
    let spec = json!({"cronSpec": "0 * * * *", "concurrencyPolicy": policy, "successfulJobsHistoryLimit": 0});
    let world = World::new("2026-11-20T10:00:30Z", &spec);
    let leader = world.leader();
    leader.settle();
    world.finish_all();
    leader.settle();
    world.set_now("2026-11-20T11:00:01Z");
    (world, leader)
}

#[test]
fn new_leader_with_a_stale_cache_starts_no_run_twice() {
    for policy in ["Allow", "Forbid", "Replace"] {
        let (world, leader) = at_eleven(policy);
        let behind = world.replica();
        leader.settle();
        world.finish_all();
        leader.settle();
        assert!(world.state().jobs.is_empty(), "only the status records the run");
        let behind = behind.elected();
        for _ in 0..3 {
            drop(behind.wake());
        }
        assert_eq!(created(&world), [job("2026-11-20T10:00:00Z"), job("2026-11-20T11:00:00Z")], "{policy}");
    }
}

#[test]
fn new_leader_finds_active_job_unknown_to_status_and_cache() {
    for policy in ["Forbid", "Replace"] {
        let mut unknown = 0;
        for turns in 1..8 {
            let spec = json!({"cronSpec": "0 * * * *", "concurrencyPolicy": policy});
            let world = World::new("2026-11-20T10:00:30Z", &spec);
            let (leader, behind) = (world.leader(), world.replica());
            drop(leader.wake_for(turns));
            if created(&world).is_empty() || world.status().last_schedule_time.is_some() {
                continue;
            }
            unknown += 1;
            let behind = behind.elected();
            world.set_now("2026-11-20T11:00:01Z");
            for _ in 0..3 {
                drop(behind.wake());
            }
            let runs = ["2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z"].map(job);
            if policy == "Forbid" {
                assert_eq!((created(&world), count(&world, "JobAlreadyActive")), (runs[..1].to_vec(), 1));
            } else {
                assert_eq!((created(&world), world.state().deleted.clone()), (runs.to_vec(), runs[..1].to_vec()));
            }
        }
        assert!(unknown > 0, "{policy}: the Job exists before the status records it");
    }
}

#[test]
fn t08_ended_job_is_kept_until_the_status_records_it() {
    for turns in 1..6 {
        let (world, leader) = at_eleven("Allow");
        leader.sync();
        assert!(leader.wake_for(turns).is_none() || turns > 4);
        world.finish_all();
        for _ in 0..3 {
            let mut next = world.leader();
            next.holds_back = true;
            drop(next.wake());
        }
        world.replica().settle();
        world.finish_all(); // for those turns at which the first leader had created nothing
        world.replica().settle();
        assert_eq!(created(&world), [job("2026-11-20T10:00:00Z"), job("2026-11-20T11:00:00Z")], "{turns}");
        assert_eq!(
            (world.status().last_successful_time, count(&world, "MissingJob")),
            (Some(world.now()), 0),
            "{turns}"
        );
        assert!(world.state().jobs.is_empty());
    }
}

#[test]
fn skip_is_stored_before_its_event_is_emitted() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 * * * *"}));
    let mut operator = world.replica();
    operator.holds_back = true;
    operator.settle();
    world.set_now("2026-11-20T11:00:01Z");
    for _ in 0..3 {
        operator.settle();
    }
    assert_eq!(world.reasons(), ["SuccessfulCreate", "JobAlreadyActive"]);
    assert_eq!(world.status().last_missed_time, Some("2026-11-20T11:00:00Z".parse().expect("a time")));
}

#[test]
fn ended_job_is_recognised_despite_a_stale_cache() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 * * * *"}));
    let operator = world.replica();
    operator.settle();
    world.finish_all();
    world.set_now("2026-11-20T11:00:01Z");
    operator.wake().expect("works");
    assert_eq!(created(&world).last(), Some(&job("2026-11-20T11:00:00Z")));
}

#[test]
fn t14_two_managers_create_one_job_per_run() {
    let mut random = fastrand::Rng::with_seed(14);
    for round in 0..3_000 {
        let policy = ["Allow", "Forbid", "Replace"][round % 3];
        let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 * * * *", "concurrencyPolicy": policy}));
        let elected = round % 2 == 0;
        let mut first = if elected { world.leader() } else { world.replica() };
        first.zombie = true; // it has lost its lease without noticing
        let second = if elected { world.leader() } else { world.replica() };
        {
            let (mut one, mut two) = (pin!(first.work()), pin!(second.work()));
            let mut task = Task::from_waker(Waker::noop());
            let (mut one_ended, mut two_ended) = (false, false);
            while !(one_ended && two_ended) {
                if !one_ended && (two_ended || random.bool()) {
                    one_ended = one.as_mut().poll(&mut task).is_ready();
                } else if !two_ended {
                    two_ended = two.as_mut().poll(&mut task).is_ready();
                }
            }
        }
        second.settle();
        assert_eq!(created(&world), [job("2026-11-20T10:00:00Z")], "{policy}, round {round}");
        assert_eq!(world.state().jobs.len(), 1, "{policy}, round {round}");
        assert_eq!(world.status().active_jobs, 1);
        assert_eq!((count(&world, "JobNameConflict"), world.status().last_missed_time), (0, None));
    }
}

//! Tests of the reconciler on a model of the cluster, with simulated time. The numbers in the names (`t02`) are those of the
//! operator's list of acceptance tests.

mod handover;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::model::{World, delays};
use crate::known::RUN_NOW;

const NAME: &str = "my-new-cron-object";

/// Returns the name of the Job for this scheduled time.
fn job(time: &str) -> String {
    format!("{NAME}-{}", time.parse::<Timestamp>().expect("a time").as_second())
}

fn created(world: &World) -> Vec<String> {
    world.state().created.clone()
}

fn nothing(_: &World) {}

fn count(world: &World, reason: &str) -> usize {
    world.reasons().into_iter().filter(|it| *it == reason).count()
}

#[test]
fn t02_t03_sample_starts_in_the_first_minute_of_friday() {
    let world = World::new("2026-11-19T12:34:56Z", &json!({}));
    let operator = world.replica();
    operator.live_until("2026-11-19T23:59:59.9Z", nothing);
    assert_eq!(world.status().next_schedule_time, Some("2026-11-20T00:00:00Z".parse().expect("a time")));
    assert!(created(&world).is_empty());
    operator.live_until("2026-11-20T00:00:30Z", nothing);
    assert_eq!(created(&world), ["my-new-cron-object-1795132800"]);
    assert!(delays(&world)[0].as_millis() <= 200, "{:?}", delays(&world));
    assert_eq!(world.state().writes, 2, "one in the first reconcile, one for the run");
    let status = world.status();
    assert_eq!(status.active.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["my-new-cron-object-1795132800"]);
    assert_eq!(status.last_schedule_time, Some("2026-11-20T00:00:00Z".parse().expect("a time")));
    assert_eq!(world.reasons(), ["SuccessfulCreate"]);
}

#[test]
fn t04_stuck_job_does_not_flood_the_cluster() {
    let world = World::new("2026-11-19T23:59:30Z", &json!({}));
    world.replica().live_until("2026-11-20T01:00:30Z", nothing);
    assert_eq!(created(&world).len(), 1);
    assert_eq!(count(&world, "JobAlreadyActive"), 2, "one for the first skipped run, one an hour later");
    let status = world.status();
    assert_eq!(status.last_missed_time, Some("2026-11-20T01:00:00Z".parse().expect("a time")));
    assert_eq!(status.last_missed_reason.as_deref(), Some("JobAlreadyActive"));
    assert_eq!(world.state().writes, 1 + 1 + 60, "one a minute");
}

#[test]
fn t05_sample_starts_no_run_on_saturday() {
    let world = World::new("2026-11-20T23:58:30Z", &json!({}));
    let operator = world.replica();
    operator.live_until("2026-11-20T23:59:30Z", World::finish_all);
    let before = created(&world).len();
    operator.live_until("2026-11-21T23:59:59Z", World::finish_all);
    assert_eq!(created(&world).len(), before);
    operator.live_until("2026-11-22T00:00:01Z", World::finish_all);
    assert_eq!(created(&world).last(), Some(&job("2026-11-22T00:00:00Z")));
}

#[test]
fn t06_concurrency_policy_governs_overlapping_runs() {
    for (policy, active, skipped, deleted) in [("Allow", 2, 0, 0), ("Forbid", 1, 1, 0), ("Replace", 1, 0, 1)] {
        let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 * * * *", "concurrencyPolicy": policy}));
        world.made_at("2026-11-20T10:00:00Z");
        world.replica().live_until("2026-11-20T12:00:30Z", nothing);
        assert_eq!(world.state().jobs.len(), active, "{policy}");
        assert_eq!(world.status().active_jobs, i32::try_from(active).expect("few"));
        assert_eq!(count(&world, "JobAlreadyActive"), skipped, "{policy}");
        assert_eq!(world.state().deleted.len(), deleted, "{policy}");
        assert_eq!(count(&world, "SuccessfulDelete"), deleted, "{policy}");
        assert_eq!(count(&world, "MissingJob"), 0, "{policy}");
        if policy == "Replace" {
            assert!(world.state().jobs.contains_key(&job("2026-11-20T12:00:00Z")));
        }
    }
}

#[test]
fn allow_policy_stops_at_max_active_jobs() {
    let spec = json!({"cronSpec": "* * * * *", "concurrencyPolicy": "Allow", "maxActiveJobs": 3});
    let world = World::new("2026-11-20T10:00:30Z", &spec);
    world.replica().live_until("2026-11-20T10:10:30Z", nothing);
    assert_eq!(world.state().jobs.len(), 3);
    assert_eq!(count(&world, "TooManyActiveJobs"), 1);
    assert_eq!(world.problems(), ["TooManyActiveJobs"]);
    world.finish_all();
    world.replica().live_until("2026-11-20T10:11:30Z", nothing);
    assert_eq!(world.problems(), [""; 0]);
}

#[test]
fn t07_outage_starts_newest_run_or_reports_it_missed_once() {
    for (deadline, started, told) in [(Value::Null, 1, 0), (json!(60), 0, 1)] {
        let mut spec = json!({"cronSpec": "0 * * * *"});
        if !deadline.is_null() {
            spec["startingDeadlineSeconds"] = deadline;
        }
        let world = World::new("2026-11-20T05:30:00Z", &spec);
        world.made_at("2026-11-20T05:30:00Z");
        world.replica().settle();
        world.set_now("2026-11-20T10:30:00Z");
        world.replica().settle();
        for _ in 0..5 {
            world.replica().settle();
        }
        assert_eq!((created(&world).len(), count(&world, "MissSchedule")), (started, told));
        if started == 1 {
            assert_eq!(created(&world), [job("2026-11-20T10:00:00Z")]);
        }
        assert_eq!(world.status().last_missed_time.is_some(), told == 1);
    }
}

#[test]
fn t10_replicas_apply_to_the_next_run_and_zero_stops_runs() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "* * * * *"}));
    let operator = world.replica();
    world.edit(|crontab| crontab.spec.replicas = 0);
    operator.live_until("2026-11-20T12:00:30Z", World::finish_all);
    assert!(created(&world).is_empty());
    world.edit(|crontab| crontab.spec.replicas = 2);
    operator.live_until("2026-11-20T12:01:30Z", World::finish_all);
    assert_eq!(created(&world), [job("2026-11-20T12:01:00Z")], "no missed run is started later");
}

#[test]
fn t11_history_keeps_the_newest_jobs() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "* * * * *"}));
    let mut ended = 0;
    world.replica().live_until("2026-11-20T10:09:30Z", |world| {
        let running: Vec<String> =
            world.state().jobs.values().filter(|job| job.end().is_none()).map(|job| job.name.to_string()).collect();
        for name in running {
            ended += 1;
            world.finish(&name, if ended % 3 == 0 { "Failed" } else { "Complete" });
        }
    });
    let state = world.state();
    let (failed, completed): (Vec<_>, Vec<_>) =
        state.jobs.values().partition(|job| job.end().is_some_and(|end| end.failure.is_some()));
    assert_eq!((completed.len(), failed.len(), state.created.len()), (3, 1, 10));
    let names: Vec<&str> = failed.iter().map(|job| &*job.name).collect();
    assert_eq!(names, [job("2026-11-20T10:08:00Z")]);
}

#[test]
fn large_history_is_deleted_in_batches() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"suspend": true}));
    {
        let mut state = world.state();
        for number in 0..10_000 {
            let name = format!("{NAME}-{}", 1_000_000_000 + number);
            state.jobs.insert(name.clone(), crate::known::testing::job(&name, "+ 10:00"));
        }
    }
    let operator = world.replica();
    operator.wake().expect("works"); // writes the status, before any deletion
    let mut wakes = 0;
    while world.state().jobs.len() > 3 {
        operator.sync();
        let before = world.state().jobs.len();
        operator.wake().expect("works");
        assert!(before - world.state().jobs.len() <= super::DELETED_AT_ONCE);
        wakes += 1;
    }
    assert!((199..=201).contains(&wakes), "{wakes}");
}

#[test]
fn t13_unowned_job_blocks_only_its_own_run() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "* * * * *"}));
    world.made_at("2026-11-20T10:00:30Z");
    world.state().unowned.insert(job("2026-11-20T10:01:00Z"));
    world.replica().live_until("2026-11-20T10:02:30Z", nothing);
    assert_eq!(created(&world), [job("2026-11-20T10:02:00Z")]);
    assert_eq!(world.reasons(), ["JobNameConflict", "SuccessfulCreate"]);
    assert_eq!(world.status().last_missed_reason.as_deref(), Some("JobNameConflict"));
}

#[test]
fn run_waits_while_an_old_job_of_its_name_terminates() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 * * * *"}));
    world.state().dying.insert(job("2026-11-20T10:00:00Z"));
    assert_eq!(world.replica().settle(), Some(super::DYING));
    world.state().dying.clear();
    world.replica().settle();
    assert_eq!(created(&world), [job("2026-11-20T10:00:00Z")]);
}

#[test]
fn refused_job_stays_due_while_other_work_continues() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 * * * *", "successfulJobsHistoryLimit": 0}));
    world.replica().settle();
    world.finish_all();
    world.state().refusal = Some("exceeded quota".to_owned());
    world.set_now("2026-11-20T11:00:01Z");
    world.replica().settle();
    assert!(world.state().jobs.is_empty(), "old Jobs are deleted nevertheless");
    assert!(world.reasons().contains(&"FailedCreate") && world.status().last_successful_time.is_some());
    world.state().refusal = None;
    world.set_now("2026-11-20T11:20:00Z");
    world.replica().settle();
    assert_eq!(created(&world).last(), Some(&job("2026-11-20T11:00:00Z")));
}

#[test]
fn t15_clock_change_days_repeat_or_skip_runs() {
    for (spec, from, until, times) in [
        (
            "30 1 * * *",
            "2026-11-01T00:00:00-04:00",
            "2026-11-01T23:00:00-05:00",
            vec!["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"],
        ),
        ("30 2 * * *", "2027-03-14T00:00:00-05:00", "2027-03-14T23:00:00-04:00", vec![]),
    ] {
        let world = World::new(from, &json!({"cronSpec": spec, "timeZone": "America/New_York"}));
        world.made_at(from);
        world.replica().live_until(until, World::finish_all);
        assert_eq!(created(&world), times.into_iter().map(job).collect::<Vec<_>>(), "{spec}");
    }
}

#[test]
fn t16_clock_jump_repeats_no_run_and_starts_the_newest() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 * * * *"}));
    let operator = world.replica();
    operator.live_until("2026-11-20T12:00:30Z", World::finish_all);
    let before = created(&world);
    assert_eq!(before.len(), 3);
    world.set_now("2026-11-20T10:00:30Z");
    operator.live_until("2026-11-20T12:30:00Z", World::finish_all);
    assert_eq!(created(&world), before, "clock two hours back: no run is repeated");
    world.set_now("2026-11-23T12:30:00Z");
    operator.live_until("2026-11-23T12:31:00Z", World::finish_all);
    assert_eq!(created(&world)[3..], [job("2026-11-23T12:00:00Z")], "clock three days ahead: only the newest run");
    for (now, runs) in [("2036-11-23T12:31:00Z", 1), ("2026-11-23T12:31:01Z", 0), ("2036-11-23T12:31:01Z", 0)] {
        let before = created(&world).len();
        world.set_now(now);
        operator.settle();
        assert_eq!(created(&world).len() - before, runs, "{now}");
    }
}

#[test]
fn t17_deleted_active_job_is_not_restarted() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 * * * *"}));
    let operator = world.replica();
    operator.settle();
    let name = created(&world).remove(0);
    world.state().jobs.remove(&name);
    operator.live_until("2026-11-20T11:00:30Z", nothing);
    assert_eq!(world.reasons(), ["SuccessfulCreate", "MissingJob", "SuccessfulCreate"]);
    assert_eq!(created(&world), [job("2026-11-20T10:00:00Z"), job("2026-11-20T11:00:00Z")]);
}

#[test]
fn stale_cache_does_not_report_a_job_missing() {
    let world = World::new("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 * * * *"}));
    world.replica().settle();
    let behind = world.replica();
    let jobs = std::mem::take(&mut world.state().jobs);
    behind.sync();
    world.state().jobs = jobs;
    behind.wake().expect("works");
    assert_eq!(count(&world, "MissingJob"), 0);
    assert_eq!(world.status().active_jobs, 1);
}

#[test]
fn every_counts_from_the_last_run_across_restarts() {
    let world = World::new("2026-11-20T10:00:00Z", &json!({"cronSpec": "@every 30s"}));
    world.made_at("2026-11-20T09:59:50Z");
    world.replica().live_until("2026-11-20T10:00:51Z", World::finish_all);
    assert_eq!(created(&world), [job("2026-11-20T10:00:20Z"), job("2026-11-20T10:00:50Z")], "two runs in a minute");
    world.set_now("2026-11-20T10:05:02Z");
    world.replica().settle();
    assert_eq!(created(&world).last(), Some(&job("2026-11-20T10:04:50Z")));
}

#[test]
fn run_now_starts_one_job_outside_the_schedule() {
    let world = World::new("2026-11-20T10:10:30Z", &json!({"cronSpec": "0 12 * * *", "suspend": true}));
    let ask = |token: &str| {
        world.edit(|crontab| {
            drop(crontab.metadata.annotations.get_or_insert_default().insert(RUN_NOW.into(), token.into()));
        });
    };
    ask("a");
    world.replica().settle();
    world.replica().settle();
    assert_eq!(created(&world).len(), 1);
    assert_eq!((world.status().last_run_now.as_deref(), world.status().last_schedule_time), (Some("a"), None));
    ask("b");
    world.replica().settle();
    assert_eq!(created(&world).len(), 1, "Forbid also applies to run-now");
    assert_eq!(world.reasons(), ["SuccessfulCreate", "JobAlreadyActive"]);
    world.finish_all();
    ask("c");
    world.replica().settle();
    assert_eq!(created(&world).len(), 2);
    world.edit(|crontab| crontab.spec.replicas = 0);
    ask("d");
    world.replica().settle();
    assert_eq!((created(&world).len(), world.status().last_run_now.as_deref()), (2, Some("d")));
}

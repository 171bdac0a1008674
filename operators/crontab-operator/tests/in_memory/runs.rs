//! Which runs start.

use std::{collections::HashSet, time::Duration};

use serde_json::{Value, json};

use crate::kit::{
    MINUTE, begun, created, deleted, edit, events, finish, job, jobs, problem, status, time, until, until_finishing,
};

#[tokio::test(start_paused = true)]
async fn t02_t05_sample_runs_through_a_weekend() {
    let mut memory = begun("2026-11-19T12:34:56Z", &json!({})).await;
    memory.start();
    memory.pass(11 * 60 * MINUTE).await;
    assert!(created(&memory).is_empty());
    assert_eq!(status(&memory)["nextScheduleTime"], "2026-11-20T00:00:00Z");
    let before = memory.writes().len();
    memory.pass(59 * MINUTE).await;
    assert_eq!(created(&memory), ["my-new-cron-object-1795132800"], "the Job never ends, so no other run starts");
    assert_eq!(status(&memory)["lastMissedReason"], "JobAlreadyActive");
    let an_hour_less = memory.writes().len() - before;
    println!("{an_hour_less} writes, including events, in 34 minutes; 33 runs are skipped");
    assert!(an_hour_less <= 34 + 5, "{an_hour_less}");

    while created(&memory).len() < 100 {
        finish(&memory).await;
        memory.pass(MINUTE).await;
    }
    assert_eq!(memory.model.objects("jobs.batch").len(), 4, "three completed Jobs and an active one");
    // One more Job that does not end before Saturday, a day without runs.
    memory.pass(24 * 60 * MINUTE).await;
    finish(&memory).await;
    memory.pass(MINUTE).await;
    let (runs, writes) = (created(&memory).len(), memory.writes().len());
    memory.pass(20 * 60 * MINUTE).await;
    assert_eq!((created(&memory).len(), memory.writes().len()), (runs, writes), "not one write on Saturday");
    memory.pass(3 * 60 * MINUTE).await;
    assert_eq!(created(&memory)[runs..], [job("2026-11-22T00:00:00Z")]);
}

const QUOTA: &str = r#"before create jobs.batch -> answer 403 body="{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Forbidden\",\"message\":\"jobs.batch is forbidden: exceeded quota: q\",\"code\":403}""#;

#[tokio::test(start_paused = true)]
async fn job_refused_by_quota_loses_no_later_run() {
    let spec = json!({"cronSpec": "* * * * *", "concurrencyPolicy": "Allow"});
    let mut memory = begun("2026-11-20T10:00:30Z", &spec).await;
    memory.start();
    memory.pass(MINUTE).await;
    finish(&memory).await;
    memory.plan(&QUOTA.parse().expect("a plan"));
    memory.pass(20 * MINUTE).await;
    let of =
        |minutes: std::ops::RangeInclusive<u32>| minutes.map(|minute| job(&format!("2026-11-20T10:{minute:02}:00Z")));
    let tried: HashSet<String> =
        memory.writes().into_iter().filter(|it| it.resource == "jobs.batch").map(|it| it.name.clone()).collect();
    let left_out: Vec<String> = of(1..=21).filter(|run| !tried.contains(run)).collect();
    assert!(left_out.is_empty(), "each run is tried at its time, even if the previous one was refused: {left_out:?}");
    let unsuccessful = memory.metric("crontab_operator_runs_without_success");
    assert!(unsuccessful >= 19, "an alert fires if there is no success for too long: {unsuccessful}");
    memory.no_plan();
    for _ in 0..10 {
        memory.pass(MINUTE).await;
        finish(&memory).await;
    }
    let created = created(&memory);
    let lost: Vec<String> = of(22..=31).filter(|run| !created.contains(run)).collect();
    assert!(lost.is_empty(), "runs that did not start although the quota had room again: {lost:?}");
}

#[tokio::test(start_paused = true)]
async fn t04_stuck_job_does_not_flood_the_cluster() {
    let mut memory = begun("2026-11-19T23:59:30Z", &json!({})).await;
    memory.start();
    until(&mut memory, "2026-11-20T01:00:30Z").await;
    assert_eq!(created(&memory), [job("2026-11-20T00:00:00Z")]);
    assert_eq!(events(&memory, "JobAlreadyActive"), 2, "one for the first skipped run, one an hour later");
    let status = status(&memory);
    assert_eq!(status["lastMissedTime"], "2026-11-20T01:00:00Z");
    assert_eq!(status["lastMissedReason"], "JobAlreadyActive");
}

#[tokio::test(start_paused = true)]
async fn t06_concurrency_policy_governs_overlapping_runs() {
    for (policy, active, skipped, replaced) in [("Allow", 2, 0, 0), ("Forbid", 1, 1, 0), ("Replace", 1, 0, 1)] {
        let spec = json!({"cronSpec": "0 * * * *", "concurrencyPolicy": policy});
        let mut memory = begun("2026-11-20T10:59:30Z", &spec).await;
        memory.start();
        until(&mut memory, "2026-11-20T12:00:30Z").await;
        assert_eq!((jobs(&memory).len(), deleted(&memory).len()), (active, replaced), "{policy}");
        assert_eq!(status(&memory)["activeJobs"], active, "{policy}");
        assert_eq!(events(&memory, "JobAlreadyActive"), skipped, "{policy}");
        assert_eq!(events(&memory, "SuccessfulDelete"), replaced as u64, "{policy}");
        assert_eq!(events(&memory, "MissingJob"), 0, "{policy}");
        assert_eq!(jobs(&memory).contains(&job("2026-11-20T12:00:00Z")), policy != "Forbid", "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn allow_policy_stops_at_max_active_jobs() {
    let spec = json!({"cronSpec": "* * * * *", "concurrencyPolicy": "Allow", "maxActiveJobs": 3});
    let mut memory = begun("2026-11-20T10:00:30Z", &spec).await;
    memory.start();
    memory.pass(10 * MINUTE).await;
    assert_eq!(jobs(&memory).len(), 3);
    assert_eq!(problem(&memory).as_deref(), Some("TooManyActiveJobs"));
    assert!(events(&memory, "TooManyActiveJobs") > 0);
    finish(&memory).await;
    memory.pass(MINUTE).await;
    assert_eq!(problem(&memory), None);
}

#[tokio::test(start_paused = true)]
async fn t07_outage_starts_newest_run_or_reports_it_missed_once() {
    for (deadline, started, reported) in [(None, 1, 0), (Some(60), 0, 1)] {
        let mut spec = json!({"cronSpec": "0 * * * *"});
        if let Some(deadline) = deadline {
            spec["startingDeadlineSeconds"] = json!(deadline);
        }
        let mut memory = begun("2026-11-20T05:30:00Z", &spec).await;
        memory.model.set_time(time("2026-11-20T10:30:00Z"));
        for _ in 0..5 {
            memory.restart().await;
            memory.pass(MINUTE).await;
        }
        assert_eq!((created(&memory).len(), events(&memory, "MissSchedule")), (started, reported));
        if started == 1 {
            assert_eq!(created(&memory), [job("2026-11-20T10:00:00Z")]);
        }
        assert_eq!(!status(&memory)["lastMissedTime"].is_null(), reported == 1);
    }
}

#[tokio::test(start_paused = true)]
async fn t10_replicas_apply_to_the_next_run_and_zero_stops_runs() {
    let mut memory = begun("2026-11-20T10:00:30Z", &json!({"cronSpec": "* * * * *", "replicas": 0})).await;
    memory.start();
    memory.pass(120 * MINUTE).await;
    assert!(created(&memory).is_empty());
    edit(&memory, json!({"spec": {"replicas": 2}})).await;
    memory.pass(MINUTE).await;
    assert_eq!(created(&memory), [job("2026-11-20T12:01:00Z")], "no missed run is started later");
}

#[tokio::test(start_paused = true)]
async fn t13_unowned_job_blocks_only_its_own_run() {
    let mut memory = begun("2026-11-20T10:00:30Z", &json!({"cronSpec": "* * * * *"})).await;
    memory.model.put(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": job("2026-11-20T10:01:00Z"), "namespace": "default"}, "spec": {},
    }));
    memory.start();
    until(&mut memory, "2026-11-20T10:01:30Z").await;
    assert_eq!(status(&memory)["lastMissedReason"], "JobNameConflict");
    memory.pass(MINUTE).await;
    assert_eq!(created(&memory), [job("2026-11-20T10:02:00Z")]);
    assert_eq!((events(&memory, "JobNameConflict"), events(&memory, "SuccessfulCreate")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn refused_job_stays_due_while_other_work_continues() {
    let spec = json!({"cronSpec": "0 * * * *", "successfulJobsHistoryLimit": 0});
    let mut memory = begun("2026-11-20T09:59:30Z", &spec).await;
    memory.start();
    memory.pass(MINUTE).await;
    memory.plan(&QUOTA.parse().expect("a plan"));
    until(&mut memory, "2026-11-20T10:59:30Z").await;
    finish(&memory).await;
    until(&mut memory, "2026-11-20T11:01:00Z").await;
    assert!(jobs(&memory).is_empty(), "old Jobs are deleted nevertheless");
    assert!(events(&memory, "FailedCreate") > 0 && !status(&memory)["lastSuccessfulTime"].is_null());
    memory.no_plan();
    memory.pass(20 * MINUTE).await;
    assert_eq!(created(&memory), ["10:00", "11:00"].map(|at| job(&format!("2026-11-20T{at}:00Z"))));
}

#[tokio::test(start_paused = true)]
async fn t17_deleted_active_job_is_not_restarted() {
    let mut memory = begun("2026-11-20T09:59:30Z", &json!({"cronSpec": "0 * * * *"})).await;
    memory.start();
    memory.pass(MINUTE).await;
    memory.model.take("jobs.batch", "default", &job("2026-11-20T10:00:00Z")).expect("it exists");
    until(&mut memory, "2026-11-20T11:00:30Z").await;
    assert_eq!(created(&memory), ["10:00", "11:00"].map(|at| job(&format!("2026-11-20T{at}:00Z"))));
    assert_eq!(events(&memory, "MissingJob"), 1);
}

#[tokio::test(start_paused = true)]
async fn every_counts_from_the_last_run_across_restarts() {
    let mut memory = begun("2026-11-20T09:59:50Z", &json!({"cronSpec": "@every 30s"})).await;
    memory.start();
    until_finishing(&mut memory, "2026-11-20T10:00:51Z").await;
    assert_eq!(created(&memory), ["10:00:20", "10:00:50"].map(|at| job(&format!("2026-11-20T{at}Z"))));
    memory.model.set_time(time("2026-11-20T10:05:02Z"));
    memory.restart().await;
    memory.pass(Duration::from_secs(1)).await;
    assert_eq!(created(&memory).last(), Some(&job("2026-11-20T10:04:50Z")));
}

#[tokio::test(start_paused = true)]
async fn return_to_an_earlier_schedule_starts_no_run_from_before() {
    for (out, back) in [
        (json!({"spec": {"cronSpec": "61 * * * *"}}), json!({"spec": {"cronSpec": "0 * * * *"}})),
        (json!({"spec": {"timeZone": "Mars/Base"}}), json!({"spec": {"timeZone": null}})),
        (json!({"spec": {"suspend": true}}), json!({"spec": {"suspend": false}})),
        (
            json!({"metadata": {"annotations": {"stable.example.com/paused": "true"}}}),
            json!({"metadata": {"annotations": {"stable.example.com/paused": null}}}),
        ),
    ] {
        // The first object has a valid schedule first. The second one is created without.
        for is_valid_first in [true, false] {
            let mut memory = begun("2026-11-20T09:30:30Z", &json!({"cronSpec": "0 * * * *"})).await;
            if is_valid_first {
                memory.start();
                memory.pass(MINUTE).await;
            }
            edit(&memory, out.clone()).await;
            if !is_valid_first {
                memory.start();
            }
            until(&mut memory, "2026-11-20T10:30:30Z").await;
            edit(&memory, back.clone()).await;
            until(&mut memory, "2026-11-20T11:00:30Z").await;
            assert_eq!(created(&memory), [job("2026-11-20T11:00:00Z")], "{out}, {is_valid_first}");
        }
    }
}

/// The status was written a moment before, so the next change of it may wait for a moment, in which a run is due.
#[tokio::test(start_paused = true)]
async fn run_that_is_due_right_after_an_edit_is_not_lost() {
    let mut memory = begun("2026-11-20T11:59:30Z", &json!({"cronSpec": "0 13 * * *"})).await;
    memory.start();
    until(&mut memory, "2026-11-20T11:59:59.5Z").await;
    edit(&memory, json!({"spec": {"image": "report:2"}})).await;
    memory.pass(Duration::from_millis(200)).await;
    edit(&memory, json!({"spec": {"cronSpec": "0 12,13 * * *"}})).await;
    memory.pass(Duration::from_secs(2)).await;
    assert_eq!(status(&memory)["schedule"]["since"], "2026-11-20T11:59:59Z");
    assert_eq!(created(&memory), [job("2026-11-20T12:00:00Z")]);
}

#[tokio::test(start_paused = true)]
async fn paused_crontab_shows_no_next_run() {
    let mut memory = begun("2026-11-20T09:30:30Z", &json!({"cronSpec": "0 * * * *"})).await;
    memory.start();
    memory.pass(MINUTE).await;
    assert_eq!(status(&memory)["nextScheduleTime"], "2026-11-20T10:00:00Z");
    edit(&memory, json!({"metadata": {"annotations": {"stable.example.com/paused": "true"}}})).await;
    memory.pass(MINUTE).await;
    assert_eq!(status(&memory)["nextScheduleTime"], Value::Null);
    assert_eq!(memory.metric("crontab_operator_next_run_timestamp_seconds"), 0);
    until(&mut memory, "2026-11-20T10:30:30Z").await;
    edit(&memory, json!({"metadata": {"annotations": {"stable.example.com/paused": null}}})).await;
    memory.pass(MINUTE).await;
    assert_eq!(status(&memory)["nextScheduleTime"], "2026-11-20T11:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn jitter_delays_a_run_by_the_same_time_in_each_process() {
    let spec = json!({"cronSpec": "0 * * * *", "jitterSeconds": 1800});
    let mut memory = begun("2026-11-20T09:59:30Z", &spec).await;
    memory.start();
    memory.pass(Duration::from_secs(10)).await;
    let next = status(&memory)["nextScheduleTime"].as_str().expect("a time").to_owned();
    let delay = time(&next).duration_since(time("2026-11-20T10:00:00Z")).as_secs();
    assert!((10..=1800).contains(&delay), "{next}");
    memory.model.set_time(time("2026-11-20T10:00:01Z"));
    memory.restart().await;
    memory.pass(Duration::from_secs(1)).await;
    assert_eq!((status(&memory)["nextScheduleTime"].as_str(), created(&memory).len()), (Some(&*next), 0));
    until(&mut memory, &next).await;
    memory.pass(Duration::from_secs(1)).await;
    assert_eq!(created(&memory), [job("2026-11-20T10:00:00Z")], "{next}");
    assert_eq!(status(&memory)["lastScheduleTime"], "2026-11-20T10:00:00Z");
    let buckets = memory.metric("crontab_operator_start_delay_seconds_bucket");
    assert!(buckets >= 11, "jitter is no delay: the start is in each bucket from one second on: {buckets}");
}

//! Which runs start, and what becomes of their Jobs.

use std::{collections::HashSet, time::Duration};

use manager_testing::InMemory;
use serde_json::{Value, json};

use crate::kit::{
    CRONTABS, MINUTE, NAME, active, begun, created, deleted, edit, end, events, finish, job, jobs, run_now, status,
    time, until, until_finishing,
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

/// Returns the reason of the condition `Degraded`, if it is true.
fn problem(memory: &InMemory) -> Option<String> {
    let status = status(memory);
    let degraded = status["conditions"].as_array()?.iter().find(|it| it["type"] == "Degraded")?.clone();
    (degraded["status"] == "True").then(|| degraded["reason"].as_str().expect("a reason").to_owned())
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
async fn t11_history_keeps_the_newest_jobs() {
    let mut memory = begun("2026-11-20T10:00:30Z", &json!({"cronSpec": "* * * * *"})).await;
    memory.start();
    for ended in 1..=10 {
        memory.pass(MINUTE).await;
        for name in active(&memory) {
            end(&memory, &name, if ended % 3 == 0 { "Failed" } else { "Complete" }).await;
        }
    }
    memory.pass(MINUTE * 2 / 3).await;
    assert_eq!(created(&memory).len(), 11);
    let is = |how: &'static str| {
        let jobs = memory.model.objects("jobs.batch");
        let ended = jobs.into_iter().filter(move |job| job["status"]["conditions"][0]["type"] == how);
        ended.map(|job| job["metadata"]["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((is("Complete").len(), is("Failed")), (3, vec![job("2026-11-20T10:09:00Z")]));
}

#[tokio::test(start_paused = true)]
async fn large_history_is_deleted_in_batches() {
    let mut memory = begun("2026-11-20T10:00:30Z", &json!({"cronSpec": "0 12 * * *"})).await;
    memory.start();
    memory.pass(Duration::from_secs(1)).await;
    edit(&memory, run_now("a")).await;
    memory.pass(MINUTE).await;
    finish(&memory).await;
    let ended = memory.model.objects("jobs.batch").remove(0);
    for number in 0..200 {
        let mut more = ended.clone();
        more["metadata"]["name"] = json!(format!("{NAME}-{}", 1_000_000_000 + number));
        more["metadata"]["uid"] = json!(format!("uid-{number}"));
        memory.model.put(more);
    }
    let mut before = 0;
    for _ in 0..6 {
        memory.pass(Duration::from_secs(1)).await;
        let now = deleted(&memory).len();
        assert!(
            now - before <= 100,
            "at most 50 in each reconcile, and about one reconcile a second: {}",
            now - before
        );
        before = now;
    }
    memory.pass(MINUTE).await;
    assert_eq!(jobs(&memory).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn finished_job_goes_after_its_ttl_also_of_a_suspended_object() {
    let mut memory = begun("2026-11-20T09:59:30Z", &json!({"cronSpec": "0 * * * *"})).await;
    memory.start();
    memory.pass(MINUTE).await;
    finish(&memory).await;
    edit(&memory, json!({"spec": {"ttlSecondsAfterFinished": 1200, "suspend": true}})).await;
    until(&mut memory, "2026-11-20T10:20:29Z").await;
    assert_eq!(jobs(&memory).len(), 1);
    memory.pass(Duration::from_secs(2)).await;
    assert_eq!(deleted(&memory), [job("2026-11-20T10:00:00Z")]);
    assert_eq!((jobs(&memory).len(), events(&memory, "MissingJob")), (0, 0));
    let settled = memory.writes().len();
    memory.pass(60 * MINUTE).await;
    assert_eq!(memory.writes().len(), settled, "once");
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
async fn run_now_starts_one_job_outside_the_schedule() {
    let mut memory = begun("2026-11-20T10:10:30Z", &json!({"cronSpec": "0 12 * * *", "suspend": true})).await;
    memory.start();
    memory.pass(Duration::from_secs(1)).await;
    edit(&memory, run_now("a")).await;
    memory.pass(MINUTE).await;
    assert_eq!(created(&memory).len(), 1);
    assert_eq!((&status(&memory)["lastRunNow"], &status(&memory)["lastScheduleTime"]), (&json!("a"), &Value::Null));
    edit(&memory, run_now("b")).await;
    memory.pass(MINUTE).await;
    assert_eq!(created(&memory).len(), 1, "Forbid also applies to run-now");
    assert_eq!(events(&memory, "JobAlreadyActive"), 1);
    finish(&memory).await;
    edit(&memory, run_now("c")).await;
    memory.pass(MINUTE).await;
    assert_eq!(created(&memory).len(), 2);
    edit(&memory, json!({"spec": {"replicas": 0}})).await;
    edit(&memory, run_now("d")).await;
    memory.pass(MINUTE).await;
    assert_eq!((created(&memory).len(), &status(&memory)["lastRunNow"]), (2, &json!("d")));
    assert_eq!(events(&memory, "NoReplicas"), 1);
}

/// The Jobs of the earlier requests still exist.
#[tokio::test(start_paused = true)]
async fn return_to_an_earlier_value_of_run_now_starts_a_run() {
    let spec = json!({"cronSpec": "0 12 * * *", "successfulJobsHistoryLimit": 9});
    let mut memory = begun("2026-11-20T10:10:30Z", &spec).await;
    memory.start();
    memory.pass(Duration::from_secs(1)).await;
    for (before, token) in ["a", "b", "a", "b"].into_iter().enumerate() {
        edit(&memory, run_now(token)).await;
        memory.pass(MINUTE).await;
        finish(&memory).await;
        assert_eq!((created(&memory).len(), jobs(&memory).len()), (before + 1, before + 1), "{token}");
        assert_eq!(status(&memory)["runNowCount"], before + 1, "{token}");
    }
}

/// A copy, or an object restored without its status, carries an annotation that was meant for another object.
#[tokio::test(start_paused = true)]
async fn run_now_that_came_with_the_object_starts_no_run_until_it_changes() {
    for suspend in [true, false] {
        let spec = json!({"cronSpec": "0 12 * * *", "suspend": suspend});
        let mut memory = begun("2026-11-20T10:10:30Z", &spec).await;
        edit(&memory, run_now("a")).await;
        memory.start();
        memory.pass(MINUTE).await;
        assert_eq!((created(&memory).len(), events(&memory, "RunNowIgnored")), (0, 1), "suspend: {suspend}");
        assert_eq!(status(&memory)["lastRunNow"], "a", "the request is answered");

        let mut bare = memory.model.object(CRONTABS, "default", NAME).expect("it exists");
        bare.as_object_mut().expect("an object").remove("status");
        memory.model.put(bare);
        memory.pass(MINUTE).await;
        assert_eq!((created(&memory).len(), &status(&memory)["lastRunNow"]), (0, &json!("a")), "suspend: {suspend}");

        edit(&memory, run_now("b")).await;
        memory.pass(MINUTE).await;
        assert_eq!(created(&memory).len(), 1, "another value requests a run; suspend: {suspend}");
    }
}

/// The status that records the run that is due must not make a request of the annotation.
#[tokio::test(start_paused = true)]
async fn due_run_of_a_restored_object_does_not_bring_its_run_now_to_life() {
    let mut memory =
        begun("2026-11-20T09:30:30Z", &json!({"cronSpec": "0 * * * *", "concurrencyPolicy": "Allow"})).await;
    memory.model.set_time(time("2026-11-20T10:00:30Z"));
    edit(&memory, run_now("a")).await;
    memory.start();
    memory.pass(MINUTE).await;
    assert_eq!(created(&memory), [job("2026-11-20T10:00:00Z")]);
}

#[tokio::test(start_paused = true)]
async fn requested_run_whose_name_is_taken_is_reported() {
    let requested = async |taken: Option<&str>| {
        let mut memory = begun("2026-11-20T10:10:30Z", &json!({"cronSpec": "0 12 * * *"})).await;
        memory.start();
        memory.pass(Duration::from_secs(1)).await;
        if let Some(name) = taken {
            memory.model.put(json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"}, "spec": {},
            }));
        }
        edit(&memory, run_now("a")).await;
        memory.pass(MINUTE).await;
        memory
    };
    let free = requested(None).await;
    assert_eq!(events(&free, "JobNameConflict"), 0);
    let name = created(&free).remove(0); // the name does not depend on the uid of the CronTab

    let taken = requested(Some(&name)).await;
    assert_eq!((created(&taken).len(), events(&taken, "JobNameConflict")), (0, 1));
    assert_eq!(status(&taken)["lastRunNow"], "a", "the request is handled");
    assert_eq!(taken.metric("crontab_operator_runs_total"), 1, "the conflict");
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

/// The status of each run's end, from the first run on: `kubectl wait --for=condition=LastRunSucceeded`.
#[tokio::test(start_paused = true)]
async fn failed_runs_are_visible_until_a_run_completes() {
    let mut memory = begun("2026-11-20T09:59:30Z", &json!({"cronSpec": "* * * * *"})).await;
    memory.start();
    memory.pass(MINUTE).await;
    assert_eq!(last_run(&memory), None, "no run has ended");
    for (how, succeeded) in [("Failed", "False"), ("Failed", "False"), ("Complete", "True"), ("Failed", "False")] {
        for name in active(&memory) {
            end(&memory, &name, how).await;
        }
        memory.pass(MINUTE).await;
        assert_eq!(last_run(&memory).as_deref(), Some(succeeded));
        assert_eq!(problem(&memory).is_some(), succeeded == "False");
        assert_eq!(memory.metric("crontab_operator_last_run_succeeded"), u64::from(succeeded == "True"));
    }
    assert_eq!(memory.metric("crontab_operator_runs_without_success"), 2, "a failed run and the active one");
}

/// Flux, Argo CD and Helm would take `Stalled` for an operator that cannot continue. Nothing ends the failure of a suspended object.
#[tokio::test(start_paused = true)]
async fn failed_run_never_stalls_the_object() {
    let mut memory = begun("2026-11-20T09:59:30Z", &json!({"cronSpec": "0 * * * *"})).await;
    memory.start();
    memory.pass(MINUTE).await;
    end(&memory, &active(&memory)[0], "Failed").await;
    memory.pass(5 * MINUTE).await;
    let is_stalled = |memory: &InMemory| status(memory)["conditions"].to_string().contains("Stalled");
    assert_eq!((problem(&memory).as_deref(), is_stalled(&memory)), (Some("LastRunFailed"), false));
    edit(&memory, json!({"spec": {"suspend": true}})).await;
    memory.pass(5 * MINUTE).await;
    assert_eq!((problem(&memory).as_deref(), is_stalled(&memory)), (Some("LastRunFailed"), false));
}

/// Returns the status of the condition `LastRunSucceeded`.
fn last_run(memory: &InMemory) -> Option<String> {
    let status = status(memory);
    let condition = status["conditions"].as_array()?.iter().find(|it| it["type"] == "LastRunSucceeded")?;
    condition["status"].as_str().map(ToOwned::to_owned)
}

/// The status of the object is as an earlier version of the operator has written it.
#[tokio::test(start_paused = true)]
async fn upgrade_writes_nothing() {
    let mut memory = begun("2026-11-20T09:59:30Z", &json!({"cronSpec": "0 * * * *"})).await;
    memory.start();
    memory.pass(MINUTE).await;
    end(&memory, &active(&memory)[0], "Failed").await;
    memory.pass(2 * MINUTE).await;
    let mut old = memory.model.object(CRONTABS, "default", NAME).expect("it exists");
    let conditions = old["status"]["conditions"].as_array_mut().expect("conditions");
    conditions.retain(|condition| condition["type"] != "LastRunSucceeded");
    memory.model.put(old);
    let before = memory.writes().len();
    memory.restart().await;
    until(&mut memory, "2026-11-20T10:59:30Z").await;
    assert_eq!((memory.writes().len(), last_run(&memory)), (before, None));
    memory.pass(MINUTE).await;
    assert_eq!(last_run(&memory).as_deref(), Some("False"), "the next run adds the condition");
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

//! What becomes of Jobs that have ended: which of them the history keeps, and what the status tells of the last one.

use std::time::Duration;

use manager_testing::InMemory;
use serde_json::json;

use crate::kit::{
    CRONTABS, MINUTE, NAME, active, begun, created, deleted, edit, end, events, finish, job, jobs, problem, run_now,
    status, until,
};

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

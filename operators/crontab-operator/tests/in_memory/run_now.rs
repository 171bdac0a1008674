//! Runs that a user requests with the annotation `run-now`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{CRONTABS, MINUTE, NAME, begun, created, edit, events, finish, job, jobs, run_now, status, time};

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

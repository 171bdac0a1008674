//! What the operator asks of the API server.

use manager_testing::InMemory;
use serde_json::json;

use crate::kit::{
    CRONTABS, MINUTE, NAME, begun, begun_with, created, events, finish, job, jobs, problem, put, status, until,
    until_finishing,
};

/// Counts the operator's requests for Jobs with this verb.
fn asked(memory: &InMemory, verb: &str) -> usize {
    memory.requests().iter().filter(|it| it.verb.as_str() == verb && it.resource == "jobs.batch").count()
}

/// A regression observed with ten thousand objects: if each due run lists all Jobs of its namespace, only a dozen runs start per
/// second.
#[tokio::test(start_paused = true)]
async fn many_due_runs_share_one_list_of_jobs() {
    let elect = ["--leader-elect", "--leader-election-namespace", "default"];
    let mut memory = begun_with(&elect, "2026-11-20T10:00:30Z", &json!({})).await;
    for number in 0..20 {
        put(&memory, &format!("c{number}"), &json!({"cronSpec": "* * * * *"})).await;
    }
    memory.start();
    for _ in 0..3 {
        memory.pass(MINUTE).await;
        finish(&memory).await;
    }
    assert_eq!(created(&memory).len(), 3 * 21);
    assert_eq!((asked(&memory, "list"), asked(&memory, "get")), (2, 0), "one list at the start, one as the new leader");
    memory.pass(MINUTE).await;
    memory.pass(MINUTE).await;
    assert_eq!((asked(&memory, "list"), asked(&memory, "get")), (2, 21), "one read of each active Job");
    memory.restart().await;
    memory.pass(2 * MINUTE).await;
    assert_eq!(asked(&memory, "list"), 4, "two more lists by the next process, which becomes leader");
    assert_eq!(created(&memory).len(), 4 * 21);
}

/// With `Replace`, no run starts beside one that cannot be deleted. The user has to know why.
#[tokio::test(start_paused = true)]
async fn refused_deletion_of_the_job_to_replace_is_reported_in_the_status() {
    let spec = json!({"cronSpec": "0 * * * *", "concurrencyPolicy": "Replace"});
    let mut memory = begun("2026-11-20T10:59:30Z", &spec).await;
    memory.start();
    until(&mut memory, "2026-11-20T11:30:00Z").await;
    let faults = memory.plan(&"before delete jobs.batch -> answer 403".parse().expect("a plan"));
    until(&mut memory, "2026-11-20T12:05:00Z").await;
    assert!(faults.unused().is_empty(), "a deletion was refused");
    assert_eq!(jobs(&memory), [job("2026-11-20T11:00:00Z")]);
    assert_eq!(problem(&memory).as_deref(), Some("ChildRejected"), "{}", status(&memory));
}

const FORBIDDEN: &str = r#"before delete jobs.batch -> answer 403 body="{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Forbidden\",\"message\":\"u cannot delete jobs in API group batch\",\"code\":403}""#;

/// A CronTab whose run of 11:00 has ended, at 11:30. It keeps no ended Job, and the API server refuses each deletion.
async fn with_a_job_that_may_not_be_deleted() -> InMemory {
    let spec = json!({"cronSpec": "0 * * * *", "successfulJobsHistoryLimit": 0});
    let mut memory = begun("2026-11-20T10:59:30Z", &spec).await;
    memory.start();
    until(&mut memory, "2026-11-20T11:01:00Z").await;
    let faults = memory.plan(&FORBIDDEN.parse().expect("a plan"));
    finish(&memory).await;
    until(&mut memory, "2026-11-20T11:30:00Z").await;
    assert!(faults.unused().is_empty(), "a deletion was refused");
    memory
}

/// The history is not worth a request a minute, and runs do not wait for it.
#[tokio::test(start_paused = true)]
async fn forbidden_deletion_of_old_jobs_backs_off_and_delays_no_run() {
    let mut memory = with_a_job_that_may_not_be_deleted().await;
    assert!(events(&memory, "FailedDelete") > 0);
    let before = asked(&memory, "delete");
    until(&mut memory, "2026-11-20T11:58:00Z").await;
    let more = asked(&memory, "delete") - before;
    assert!((3..=9).contains(&more), "once in five minutes: {more}");
    until(&mut memory, "2026-11-20T12:00:05Z").await;
    assert_eq!(created(&memory), ["2026-11-20T11:00:00Z", "2026-11-20T12:00:00Z"].map(job));
}

/// The report stays while runs start and end: otherwise it would never be old enough for `Stalled`, and each run would repeat its
/// event.
#[tokio::test(start_paused = true)]
async fn refused_deletion_of_old_jobs_stays_in_the_status_until_it_succeeds() {
    let mut memory = with_a_job_that_may_not_be_deleted().await;
    assert_eq!(problem(&memory).as_deref(), Some("Forbidden"), "{}", status(&memory));
    let since = |memory: &InMemory| {
        let status = status(memory);
        let degraded = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == "Degraded");
        degraded.map(|it| it["lastTransitionTime"].clone())
    };
    let reported = since(&memory);
    until_finishing(&mut memory, "2026-11-20T13:30:00Z").await;
    assert_eq!(jobs(&memory), ["11:00", "12:00", "13:00"].map(|time| job(&format!("2026-11-20T{time}:00Z"))));
    assert_eq!((problem(&memory).as_deref(), since(&memory)), (Some("Forbidden"), reported), "{}", status(&memory));

    memory.no_plan();
    until(&mut memory, "2026-11-20T13:45:00Z").await;
    assert_eq!((problem(&memory), jobs(&memory)), (None, Vec::new()));
}

/// Slow deletions would otherwise delay the status.
#[tokio::test(start_paused = true)]
async fn one_deletion_shows_whether_the_report_of_a_refusal_still_holds() {
    let spec = json!({"cronSpec": "0 * * * *", "successfulJobsHistoryLimit": 0});
    let mut memory = begun("2026-11-20T10:59:30Z", &spec).await;
    memory.plan(&FORBIDDEN.parse().expect("a plan"));
    memory.start();
    until_finishing(&mut memory, "2026-11-20T13:30:00Z").await;
    until(&mut memory, "2026-11-20T13:59:59Z").await;
    assert_eq!((problem(&memory).as_deref(), jobs(&memory).len()), (Some("Forbidden"), 3));
    memory.no_plan();
    until(&mut memory, "2026-11-20T14:00:05Z").await;
    assert_eq!(jobs(&memory), [job("2026-11-20T14:00:00Z")]);

    let requests = memory.requests();
    let started = requests.iter().rposition(|it| it.verb.as_str() == "create" && it.resource == "jobs.batch");
    let then = &requests[started.expect("a run has started")..];
    let before = then.iter().take_while(|it| it.resource != CRONTABS || it.verb.as_str() != "patch");
    let deletions = before.filter(|it| it.verb.as_str() == "delete").count();
    assert!(deletions <= 1, "{deletions} deletions come before the status");
}

/// Each retry of the start would otherwise send up to fifty deletions.
#[tokio::test(start_paused = true)]
async fn no_old_job_is_deleted_while_the_start_of_a_run_fails() {
    let spec = json!({"cronSpec": "0 * * * *", "successfulJobsHistoryLimit": 1});
    let mut memory = begun("2026-11-20T10:59:30Z", &spec).await;
    memory.start();
    until_finishing(&mut memory, "2026-11-20T11:30:00Z").await;
    let ended = memory.model.objects("jobs.batch").remove(0);
    memory.plan(&"before create jobs.batch -> answer 500".parse().expect("a plan"));
    until(&mut memory, "2026-11-20T12:00:30Z").await;
    for number in 0..9 {
        let mut more = ended.clone();
        more["metadata"]["name"] = json!(format!("{NAME}-{}", 1_000_000_000 + number));
        more["metadata"]["uid"] = json!(format!("uid-{number}"));
        memory.model.put(more);
    }
    until(&mut memory, "2026-11-20T12:10:00Z").await;
    assert_eq!((asked(&memory, "delete"), jobs(&memory).len()), (0, 10));

    memory.no_plan();
    until(&mut memory, "2026-11-20T12:30:00Z").await;
    assert_eq!(created(&memory), ["2026-11-20T11:00:00Z", "2026-11-20T12:00:00Z"].map(job));
    assert_eq!(jobs(&memory).len(), 2, "the run that is active, and one that has ended");
}

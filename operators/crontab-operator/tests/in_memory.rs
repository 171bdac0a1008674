//! Tests of the whole operator against a model of the API server, in paused time. So a weekend takes no time, and a test can kill
//! the operator at each of its requests in turn.

use std::{collections::HashSet, time::Duration};

use crontab_operator::{CronTab, CronTabOperator};
use fault_plan::{Plan, enumerate};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager_testing::InMemory;
use serde_json::{Value, json};

const NAME: &str = "my-new-cron-object";
const MINUTE: Duration = Duration::from_mins(1);
/// How many plans a usual test run takes, chosen at random from `SEED`. `FAULT_PLANS=all` runs all plans.
const SAMPLE: usize = 30;

/// Returns an operator that has not started yet. The clock shows `now`, and the sample exists with these changes of its spec.
async fn begun(now: &str, more: &Value) -> InMemory {
    begun_with(&[], now, more).await
}

async fn begun_with(flags: &[&str], now: &str, more: &Value) -> InMemory {
    let memory = InMemory::new(&CronTabOperator, flags);
    memory.model.set_time(now.parse().expect("a time"));
    put(&memory, NAME, more).await;
    memory
}

async fn put(memory: &InMemory, name: &str, more: &Value) {
    let mut spec = json!({"cronSpec": "* * * * */5", "image": "my-awesome-cron-image"});
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let object = json!({
        "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}, "spec": spec,
    });
    let api: Api<CronTab> = Api::namespaced(memory.model.client(), "default");
    api.patch(name, &PatchParams::apply("kubectl").force(), &Patch::Apply(&object)).await.expect("it is accepted");
}

/// Returns the names of all Jobs that the operator has created, in order.
fn created(memory: &InMemory) -> Vec<String> {
    let writes = memory.writes().into_iter();
    writes
        .filter(|it| it.changed && it.verb.as_str() == "create" && it.resource == "jobs.batch")
        .map(|it| it.name.clone())
        .collect()
}

fn job(time: &str) -> String {
    format!("{NAME}-{}", time.parse::<jiff::Timestamp>().expect("a time").as_second())
}

fn status(memory: &InMemory) -> Value {
    memory.model.object("crontabs.stable.example.com", "default", NAME).expect("it exists")["status"].take()
}

/// Acts as the Job controller: completes all active Jobs.
async fn finish(memory: &InMemory) {
    let now = memory.model.now().to_string();
    let condition = json!({"type": "Complete", "status": "True", "lastTransitionTime": now, "lastProbeTime": now});
    let ended = json!({"status": {"startTime": now, "completionTime": now, "conditions": [condition]}});
    let api: Api<Job> = Api::namespaced(memory.model.client(), "default");
    for job in memory.model.objects("jobs.batch").iter().filter(|job| job["status"]["conditions"].is_null()) {
        let name = job["metadata"]["name"].as_str().expect("a name");
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&ended)).await.expect("it is accepted");
    }
}

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
    memory.no_plan();
    for _ in 0..10 {
        memory.pass(MINUTE).await;
        finish(&memory).await;
    }
    let created = created(&memory);
    let lost: Vec<String> = of(22..=31).filter(|run| !created.contains(run)).collect();
    assert!(lost.is_empty(), "runs that did not start although the quota had room again: {lost:?}");
}

/// Lives through four runs. One is replaced, the others complete. No Job is kept.
async fn live(memory: &mut InMemory) {
    memory.start();
    for ends in [true, false, true, true] {
        memory.pass(10 * MINUTE).await;
        if ends {
            finish(memory).await;
        }
    }
    memory.pass(2 * MINUTE).await;
}

async fn at_ten(policy: &str) -> InMemory {
    let spec = json!({"cronSpec": "*/10 * * * *", "concurrencyPolicy": policy, "successfulJobsHistoryLimit": 0});
    begun("2026-11-20T10:00:30Z", &spec).await
}

#[tokio::test(start_paused = true)]
async fn t08_crash_at_any_request_leaves_one_job_per_run() {
    let mut memory = at_ten("Replace").await;
    live(&mut memory).await;
    let runs = ["10:10", "10:20", "10:30", "10:40"].map(|time| job(&format!("2026-11-20T{time}:00Z")));
    assert_eq!(created(&memory), runs);
    let writes: Vec<_> =
        memory.writes().iter().filter(|it| !it.resource.starts_with("events")).map(fault_plan::Request::from).collect();
    println!("{} writes in four runs, one of which is replaced", writes.len());
    drop(memory);
    let all = enumerate::crashes(&writes);
    let plans = match std::env::var("FAULT_PLANS").as_deref() {
        Ok("all") => all,
        _ => enumerate::sample(all, SAMPLE, manager_testing::seed()),
    };
    for plan in &plans {
        eprintln!("{plan}"); // if the test fails, the last line names its plan
        let mut memory = at_ten("Replace").await;
        live_with_plan(&mut memory, plan).await;
        assert_eq!(created(&memory), runs, "{plan}");
        assert_eq!(status(&memory)["lastScheduleTime"], "2026-11-20T10:40:00Z", "{plan}");
        assert_eq!(status(&memory)["activeJobs"], 0, "{plan}");
        assert!(memory.model.objects("jobs.batch").is_empty(), "{plan}");
    }
}

async fn live_with_plan(memory: &mut InMemory, plan: &Plan) {
    let faults = memory.plan(plan);
    live(memory).await;
    memory.no_plan();
    drop(faults);
}

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

#[tokio::test(start_paused = true)]
async fn unanswered_job_creation_is_detected() {
    let mut memory = begun("2026-11-20T10:00:30Z", &json!({"cronSpec": "* * * * *"})).await;
    let faults = "after watch jobs.batch -> stall; after create jobs.batch #1 -> drop; \
                  before create jobs.batch #2..9 -> answer 503 Retry-After=\"20\"";
    let planned = memory.plan(&faults.parse().expect("a plan"));
    memory.start();
    memory.pass(2 * MINUTE).await;
    assert_eq!(created(&memory), [job("2026-11-20T10:01:00Z")]);
    assert_eq!(status(&memory)["lastMissedReason"], "JobAlreadyActive", "the run of the next minute");
    assert_eq!(status(&memory)["lastMissedTime"], "2026-11-20T10:02:00Z");
    drop(planned);
}

/// A rollback of the operator: a status in the format of a newer version does not cause a second run.
#[tokio::test(start_paused = true)]
async fn status_of_a_newer_version_starts_no_run_twice() {
    let mut memory = at_ten("Forbid").await;
    memory.start();
    memory.pass(10 * MINUTE).await;
    finish(&memory).await;
    memory.pass(2 * MINUTE).await;
    let mut of_newer = memory.model.object("crontabs.stable.example.com", "default", NAME).expect("it exists");
    of_newer["status"]["schedule"]["hash"] = json!("2:of-another-form");
    of_newer["status"]["fence"] = json!({"lease": "another", "epoch": 9});
    of_newer["status"]["lastRunNow"] = json!("2:of-another-form");
    memory.model.put(of_newer);
    memory.restart().await;
    memory.pass(3 * MINUTE).await;
    let settled = memory.writes().len();
    memory.restart().await;
    memory.pass(3 * MINUTE).await;
    assert_eq!(memory.writes().len(), settled, "the status already has this version's format");
    assert_eq!(status(&memory)["fence"]["lease"], "another", "without an election the fence is kept");
    memory.pass(3 * MINUTE).await;
    finish(&memory).await;
    memory.pass(10 * MINUTE).await;
    assert_eq!(created(&memory), ["10:10", "10:20", "10:30"].map(|time| job(&format!("2026-11-20T{time}:00Z"))));
}

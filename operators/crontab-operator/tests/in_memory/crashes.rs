//! Crashes and changes of leader: what one process of the operator leaves behind, and how the next one continues.

use std::time::Duration;

use crontab_operator::CronTabOperator;
use fastrand::Rng;
use fault_plan::{Plan, enumerate};
use manager::harness::Harness;
use manager_testing::InMemory;
use serde_json::json;

use crate::kit::{
    CRONTABS, MINUTE, NAME, active, begun, created, deleted, edit, events, finish, job, jobs, run_now, status, time,
    until,
};

/// How many plans a usual test run takes, chosen at random from `SEED`. `FAULT_PLANS=all` runs all plans.
const SAMPLE: usize = 30;

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

/// A leader that has lost its lease without noticing, and its successor. Each answer takes a random time.
#[tokio::test(start_paused = true)]
async fn t14_two_managers_create_one_job_per_run() {
    let seed = manager_testing::seed();
    println!("SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    for round in 0..60 {
        let policy = ["Allow", "Forbid", "Replace"][round % 3];
        let memory =
            begun("2026-11-20T09:59:59Z", &json!({"cronSpec": "0 * * * *", "concurrencyPolicy": policy})).await;
        let mut slow = || format!("#{} -> delay {}ms", rng.u32(1..4), rng.u32(0..900));
        let plan = format!(
            "after create jobs.batch {}; after patch crontabs.*/status {}; before create jobs.batch {}; after get jobs.batch {}",
            slow(),
            slow(),
            slow(),
            slow(),
        );
        memory.plan(&plan.parse().unwrap_or_else(|error| panic!("{plan}: {error}")));
        let start = |name: &str| {
            let clock = memory.model.clone();
            Harness::start(&CronTabOperator, &[], memory.model.client_named(name), move || clock.now())
        };
        let (_first, _second) = (start("operator"), start("another"));
        tokio::time::sleep(MINUTE).await;
        let context = format!("{policy}, round {round}: {plan}");
        assert_eq!(jobs(&memory), [job("2026-11-20T10:00:00Z")], "{context}");
        assert_eq!(status(&memory)["activeJobs"], 1, "{context}");
        assert_eq!(
            (events(&memory, "JobNameConflict"), &status(&memory)["lastMissedTime"]),
            (0, &json!(null)),
            "{context}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn skip_is_stored_before_its_event_is_emitted() {
    let mut memory = begun("2026-11-20T09:59:30Z", &json!({"cronSpec": "0 * * * *"})).await;
    memory.start();
    memory.pass(MINUTE).await;
    until(&mut memory, "2026-11-20T10:59:30Z").await;
    let before = memory.writes().len();
    memory.pass(MINUTE).await;
    let writes = memory.writes()[before..].to_vec();
    let of = |resource: &str| writes.iter().position(|it| it.resource.starts_with(resource)).expect("it is written");
    assert!(of(CRONTABS) < of("events"), "{writes:?}");
    assert_eq!(status(&memory)["lastMissedTime"], "2026-11-20T11:00:00Z");
}

/// The watch of Jobs stands still: the end of the first Job is unknown to the cache.
#[tokio::test(start_paused = true)]
async fn ended_job_is_recognised_despite_a_stale_cache() {
    let mut memory = begun("2026-11-20T09:59:30Z", &json!({"cronSpec": "0 * * * *"})).await;
    memory.plan(&"after watch jobs.batch -> stall".parse().expect("a plan"));
    memory.start();
    memory.pass(MINUTE).await;
    finish(&memory).await;
    until(&mut memory, "2026-11-20T11:00:30Z").await;
    assert_eq!(created(&memory), ["10:00", "11:00"].map(|at| job(&format!("2026-11-20T{at}:00Z"))));
}

/// The faults after which the next attempt finds the Job of a run but no record of it in the status.
const UNRECORDED: [&str; 6] = [
    "after create jobs.batch #1 -> drop",
    "after create jobs.batch #1 -> answer 504",
    "after create jobs.batch #1 -> signal kill",
    "before patch crontabs.*/status #1 -> answer 409",
    "before patch crontabs.*/status #1 -> answer 503",
    "before patch crontabs.*/status #1 -> signal kill",
];

/// The Job of an earlier attempt belongs to the same request: the next attempt neither replaces it nor reports it as active.
#[tokio::test(start_paused = true)]
async fn requested_run_starts_once_after_any_fault() {
    for policy in ["Allow", "Forbid", "Replace"] {
        for fault in UNRECORDED {
            let spec = json!({"cronSpec": "0 12 * * *", "concurrencyPolicy": policy, "maxActiveJobs": 1});
            let mut memory = begun("2026-11-20T10:00:30Z", &spec).await;
            memory.start();
            memory.pass(MINUTE).await;
            let faults = memory.plan(&fault.parse().expect("a plan"));
            edit(&memory, run_now("a")).await;
            memory.pass(MINUTE).await;
            memory.no_plan();
            drop(faults);
            let context = format!("{policy}: {fault}");
            assert_eq!((created(&memory).len(), deleted(&memory).len()), (1, 0), "{context}");
            assert_eq!(status(&memory)["lastRunNow"], "a", "{context}");
            assert_eq!(status(&memory)["activeJobs"], 1, "{context}");
            assert_eq!(events(&memory, "JobAlreadyActive") + events(&memory, "TooManyActiveJobs"), 0, "{context}");
        }
    }
}

/// Acts as the TTL controller of Kubernetes: deletes the finished Jobs whose own TTL has passed.
fn expire(memory: &InMemory) {
    for job in memory.model.objects("jobs.batch") {
        let (ended, ttl) = (&job["status"]["completionTime"], &job["spec"]["ttlSecondsAfterFinished"]);
        if let (Some(ended), Some(ttl)) = (ended.as_str(), ttl.as_i64())
            && memory.model.now().duration_since(time(ended)).as_secs() >= ttl
        {
            let name = job["metadata"]["name"].as_str().expect("a name");
            memory.model.take("jobs.batch", "default", name).expect("it exists");
        }
    }
}

/// The operator dies when it has created a Job, and comes back when the run is over and its TTL has passed. Until the status
/// remembers the run, its Job is the only memory of it.
#[tokio::test(start_paused = true)]
async fn run_that_ended_while_the_operator_was_down_is_not_repeated() {
    for (schedule, request) in [("0 * * * *", None), ("0 12 * * *", Some("a"))] {
        let spec = json!({"cronSpec": schedule, "ttlSecondsAfterFinished": 60});
        let mut memory = begun("2026-11-20T09:59:30Z", &spec).await;
        memory.start();
        memory.pass(Duration::from_secs(10)).await;
        let killed = memory.plan(&"before patch crontabs.*/status #1 -> signal kill".parse().expect("a plan"));
        if let Some(token) = request {
            edit(&memory, run_now(token)).await;
        }
        tokio::time::sleep(MINUTE).await; // unlike `pass`, this does not start the operator again
        assert_eq!((created(&memory).len(), active(&memory).len()), (1, 1), "{schedule}");
        finish(&memory).await;
        tokio::time::sleep(2 * MINUTE).await;
        expire(&memory);
        memory.no_plan();
        drop(killed);
        memory.pass(MINUTE).await;
        assert_eq!(created(&memory).len(), 1, "{schedule}: the run is repeated");
        assert_eq!(status(&memory)["lastRunNow"], json!(request), "{schedule}");
        assert!(!status(&memory)["lastSuccessfulTime"].is_null(), "{schedule}: its end is known");
        assert!(jobs(&memory).is_empty(), "{schedule}: the operator deletes the Job once the status remembers the run");
    }
}

/// One run is due and another one is requested. With `Replace`, the second start deletes the Job of the first. The status must
/// record the first run before that: otherwise the next attempt would start it again. The request is a time, as the plugin sets it,
/// because the object has no status yet.
#[tokio::test(start_paused = true)]
async fn due_and_requested_runs_start_once_each_after_any_fault() {
    let more = ["after create jobs.batch #2 -> drop", "after delete jobs.batch #1 -> drop"];
    let later = ["before patch crontabs.*/status #2 -> answer 409", "before patch crontabs.*/status #2 -> signal kill"];
    for fault in UNRECORDED.into_iter().chain(more).chain(later) {
        let spec = json!({"cronSpec": "0 * * * *", "concurrencyPolicy": "Replace"});
        let mut memory = begun("2026-11-20T09:30:30Z", &spec).await;
        let now = "2026-11-20T10:00:30Z";
        memory.model.set_time(time(now));
        edit(&memory, run_now(now)).await;
        let faults = memory.plan(&fault.parse().expect("a plan"));
        memory.start();
        memory.pass(MINUTE).await;
        memory.no_plan();
        drop(faults);
        let runs = created(&memory);
        assert_eq!((runs.len(), deleted(&memory)), (2, vec![job("2026-11-20T10:00:00Z")]), "{fault}: {runs:?}");
        assert_eq!(
            (&status(&memory)["lastRunNow"], &status(&memory)["activeJobs"]),
            (&json!(now), &json!(1)),
            "{fault}"
        );
        assert_eq!(status(&memory)["lastScheduleTime"], "2026-11-20T10:00:00Z", "{fault}");
    }
}

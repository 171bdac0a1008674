//! The tools of these tests: an operator with one CronTab, and a Job controller.

use std::time::Duration;

use crontab_operator::{CronTab, CronTabOperator};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager_testing::InMemory;
use serde_json::{Value, json};

pub(crate) const NAME: &str = "my-new-cron-object";
pub(crate) const MINUTE: Duration = Duration::from_mins(1);
pub(crate) const CRONTABS: &str = "crontabs.stable.example.com";

/// Returns an operator that has not started yet. The clock shows `now`, and the sample exists with these changes of its spec.
pub(crate) async fn begun(now: &str, more: &Value) -> InMemory {
    begun_with(&[], now, more).await
}

pub(crate) async fn begun_with(flags: &[&str], now: &str, more: &Value) -> InMemory {
    let memory = InMemory::new(&CronTabOperator, flags);
    memory.model.set_time(time(now));
    put(&memory, NAME, more).await;
    memory
}

pub(crate) async fn put(memory: &InMemory, name: &str, more: &Value) {
    let mut spec = json!({"cronSpec": "* * * * */5", "image": "my-awesome-cron-image"});
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let object = json!({
        "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}, "spec": spec,
    });
    let api: Api<CronTab> = Api::namespaced(memory.model.client(), "default");
    api.patch(name, &PatchParams::apply("kubectl").force(), &Patch::Apply(&object)).await.expect("it is accepted");
}

/// Changes the CronTab as a user does.
pub(crate) async fn edit(memory: &InMemory, patch: Value) {
    let api: Api<CronTab> = Api::namespaced(memory.model.client(), "default");
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.expect("it is accepted");
}

/// Returns the change with which a user requests a run at once.
pub(crate) fn run_now(token: &str) -> Value {
    json!({"metadata": {"annotations": {"stable.example.com/run-now": token}}})
}

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// Lets time pass until the clock shows this time.
pub(crate) async fn until(memory: &mut InMemory, end: &str) {
    let wait = time(end).duration_since(memory.model.now());
    memory.pass(wait.try_into().expect("a time in the future")).await;
}

/// Lets time pass until the clock shows this time. Completes all Jobs every 30 seconds.
pub(crate) async fn until_finishing(memory: &mut InMemory, end: &str) {
    while memory.model.now() < time(end) {
        let wait = time(end).duration_since(memory.model.now()).try_into().expect("a time in the future");
        memory.pass(Duration::from_secs(30).min(wait)).await;
        finish(memory).await;
    }
}

/// Returns the names of all Jobs that the operator has created, in order.
pub(crate) fn created(memory: &InMemory) -> Vec<String> {
    written(memory, "create")
}

/// Returns the names of all Jobs that the operator has deleted, in order.
pub(crate) fn deleted(memory: &InMemory) -> Vec<String> {
    written(memory, "delete")
}

fn written(memory: &InMemory, verb: &str) -> Vec<String> {
    let writes = memory.writes().into_iter();
    writes
        .filter(|it| it.changed && it.verb.as_str() == verb && it.resource == "jobs.batch")
        .map(|it| it.name.clone())
        .collect()
}

/// Returns the name of the Job for this scheduled time.
pub(crate) fn job(at: &str) -> String {
    format!("{NAME}-{}", time(at).as_second())
}

/// Returns the names of the Jobs that exist.
pub(crate) fn jobs(memory: &InMemory) -> Vec<String> {
    let name = |job: &Value| job["metadata"]["name"].as_str().expect("a name").to_owned();
    memory.model.objects("jobs.batch").iter().map(name).collect()
}

pub(crate) fn status(memory: &InMemory) -> Value {
    memory.model.object(CRONTABS, "default", NAME).expect("it exists")["status"].take()
}

/// Returns the reason of the condition `Degraded`, if it is true.
pub(crate) fn problem(memory: &InMemory) -> Option<String> {
    let status = status(memory);
    let degraded = status["conditions"].as_array()?.iter().find(|it| it["type"] == "Degraded")?.clone();
    (degraded["status"] == "True").then(|| degraded["reason"].as_str().expect("a reason").to_owned())
}

/// Returns how many events of this reason there are.
pub(crate) fn events(memory: &InMemory, reason: &str) -> u64 {
    let events = memory.model.objects("events.events.k8s.io");
    let of_reason = events.iter().filter(|event| event["reason"] == reason);
    of_reason.map(|event| event["series"]["count"].as_u64().unwrap_or(1)).sum()
}

/// Acts as the Job controller: completes all active Jobs.
pub(crate) async fn finish(memory: &InMemory) {
    for name in active(memory) {
        end(memory, &name, "Complete").await;
    }
}

/// Returns the names of the Jobs that have not ended.
pub(crate) fn active(memory: &InMemory) -> Vec<String> {
    let jobs = memory.model.objects("jobs.batch");
    let active = jobs.iter().filter(|job| job["status"]["conditions"].is_null());
    active.map(|job| job["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

/// Ends a Job with this condition: `Complete` or `Failed`.
pub(crate) async fn end(memory: &InMemory, name: &str, condition: &str) {
    let now = memory.model.now().to_string();
    let condition = json!({
        "type": condition, "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": now,
        "lastProbeTime": now,
    });
    let ended = json!({"status": {"startTime": now, "completionTime": now, "conditions": [condition]}});
    let api: Api<Job> = Api::namespaced(memory.model.client(), "default");
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&ended)).await.expect("it is accepted");
}

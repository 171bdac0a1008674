//! Tests with real pods on a real node, and with the real clock.

use std::time::Duration;

use cluster::{Cluster, Nodes};
use crontab_operator::{CronTab, CronTabOperator};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;
use manager_testing::World;
use serde_json::{Value, json};

use crate::kit::{BINARY, crontab, jobs, kubectl, told};

/// Longer than any of these steps takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(6);

fn busybox(cron_spec: &str, script: &str, more: &Value) -> Value {
    let mut spec = json!({
        "cronSpec": cron_spec, "image": "docker.io/library/busybox:1.36", "runAsUser": 65532,
        "command": ["sh", "-c", script],
    });
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn t19_real_pods_run_on_schedule() {
    // A separate cluster: in the one that end-to-end tests share, the chart installs the CRDs and operators for all namespaces.
    let Some(mut world) = World::prepare(&CronTabOperator, BINARY, || Cluster::fresh(Nodes::Real)).await else {
        return;
    };
    world.run(&[]);
    let sleep = "trap exit TERM; sleep 600 & wait";
    let echo = "echo \"$CRON_SCHEDULED_AT $JOB_COMPLETION_INDEX\"";
    for (name, spec) in [
        ("minutely", busybox("* * * * *", echo, &json!({"replicas": 2}))),
        ("quick", busybox("@every 10s", echo, &json!({"successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 0}))),
        (
            "failing",
            busybox("@every 1h", "echo no-database; exit 3", &json!({"backoffLimit": 0, "restartPolicy": "Never"})),
        ),
        ("replace", busybox("@every 15s", sleep, &json!({"concurrencyPolicy": "Replace"}))),
        ("forbid", busybox("@every 10s", sleep, &json!({}))),
        ("stuck", json!({"cronSpec": "@every 10s"})),
    ] {
        world.apply(&crontab(name, &spec)).await;
    }
    world.until_condition::<CronTab>("failing", "Ready", "True", "Scheduled").await;
    let now = json!({"metadata": {"annotations": {"stable.example.com/run-now": "1"}}});
    world.patch::<CronTab>("failing", now).await;

    let condition = async |name: &str, reason: &str| {
        let conditions = world.get::<CronTab>(name).await?.status?.conditions;
        conditions.iter().any(|it| it.type_ == "Degraded" && it.reason == reason).then_some(())
    };
    world.within(PATIENCE, "stuck reports why", async || condition("stuck", "ImagePullFailed").await).await;
    world.within(PATIENCE, "failing reports its failure", async || condition("failing", "LastRunFailed").await).await;

    // The two commands of the README, under "The log of a failed run".
    let job = kubectl(&world, &["get", "ct", "failing", "--output", "jsonpath={.status.lastFailure.job}"]);
    let selector = format!("batch.kubernetes.io/job-name={job}");
    let log = kubectl(&world, &["logs", "--selector", &selector, "--tail=-1", "--prefix"]);
    assert!(log.contains("no-database"), "{log}");

    // A run has two pods with different indexes, and the status reports its success.
    let minutely = async || world.get::<CronTab>("minutely").await?.status?.last_successful_time;
    world.within(PATIENCE, "a run of minutely completes", minutely).await;
    let pods: Vec<Pod> = world.list().await;
    let indexes: std::collections::BTreeSet<&str> = pods
        .iter()
        .filter(|pod| pod.labels().get("app.kubernetes.io/instance").is_some_and(|it| it == "minutely"))
        .filter_map(|pod| pod.labels().get("batch.kubernetes.io/job-completion-index").map(String::as_str))
        .collect();
    assert_eq!(indexes.into_iter().collect::<Vec<_>>(), ["0", "1"]);

    // Old Jobs are deleted while further runs start.
    let pruned = async || {
        let all: Vec<Job> = world.list().await;
        let runs = world.get::<CronTab>("quick").await?.status?.last_schedule_time?;
        let first = world.get::<CronTab>("quick").await?.creation_timestamp()?.0;
        let ended = all.iter().filter(|job| job.name_any().starts_with("quick-"));
        let ended = ended.filter(|job| job.status.as_ref().is_some_and(|it| it.completion_time.is_some())).count();
        (runs.duration_since(first).as_secs() >= 50 && ended == 2).then_some(())
    };
    world.within(PATIENCE, "five runs, of which two are kept", pruned).await;

    // Replace deletes the old Job. Forbid skips runs, and emits one event.
    let replaced = async || {
        let active = world.get::<CronTab>("replace").await?.status?.active;
        let alone = active.len() == 1 && jobs(&world, "replace").await == [active[0].name.clone()];
        (alone && told(&world, "replace", "SuccessfulDelete").await > 0).then_some(())
    };
    world.within(PATIENCE, "replace has ended its first run", replaced).await;
    assert_eq!(jobs(&world, "forbid").await.len(), 1);
    assert_eq!(told(&world, "forbid", "JobAlreadyActive").await, 1);
    assert_eq!(jobs(&world, "stuck").await.len(), 1, "the cluster is not flooded");

    // Suspended, it starts nothing. Resumed, it continues, with another schedule in another zone.
    world.patch::<CronTab>("quick", json!({"spec": {"suspend": true}})).await;
    world.until_condition::<CronTab>("quick", "Ready", "True", "Suspended").await;
    let last = async || world.get::<CronTab>("quick").await?.status?.last_schedule_time;
    let before = last().await;
    tokio::time::sleep(Duration::from_secs(15)).await; // real time must pass: the test is that nothing starts meanwhile
    assert_eq!(last().await, before);
    let resumed = json!({"spec": {"suspend": false, "cronSpec": "* * * * *", "timeZone": "Asia/Kolkata"}});
    world.patch::<CronTab>("quick", resumed).await;
    world.within(PATIENCE, "it runs again", async || last().await.filter(|time| Some(*time) > before)).await;
}

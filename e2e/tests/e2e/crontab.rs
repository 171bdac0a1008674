//! Tests of `CronTab`s with real pods.

use std::time::Duration;

use crontab_operator::CronTab;
use k8s_openapi::api::batch::v1::Job;
use manager_testing::World;
use serde_json::{Value, json};

use crate::kit::world;

const SAMPLE: &str = include_str!("../../../operators/crontab-operator/samples/stable_v1_crontab.yaml");

async fn has_run(world: &World, name: &str) {
    let succeeded = async || world.get::<CronTab>(name).await?.status?.last_successful_time;
    world.within(Duration::from_mins(3), "a run completes", succeeded).await;
}

fn crontab(name: &str, spec: &Value) -> String {
    json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn t19_pods_run_every_minute_and_sample_jobs_do_not_pile_up() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let image = "docker.io/library/busybox:1.36";
    let minutely = json!({
        "cronSpec": "* * * * *", "image": image, "runAsUser": 65532, "command": ["date"], "successfulJobsHistoryLimit": 0,
    });
    world.apply(&crontab("minutely", &minutely)).await;
    has_run(&world, "minutely").await;
    world
        .until("the operator deletes the ended run", async || {
            let jobs: Vec<Job> = world.list().await;
            let ended = |job: &Job| job.status.as_ref().is_some_and(|it| it.completion_time.is_some());
            let minutely = |job: &&Job| job.metadata.name.as_ref().is_some_and(|it| it.starts_with("minutely-"));
            (!jobs.iter().filter(minutely).any(ended)).then_some(())
        })
        .await;

    let sample: CronTab = world.get("my-new-cron-object").await.expect("the sample");
    let status = sample.status.expect("a status");
    assert!(status.conditions.iter().any(|it| it.type_ == "Ready" && it.reason == "Scheduled"), "{status:?}");
    let jobs: Vec<Job> = world.list().await;
    let stuck = jobs.iter().filter(|job| job.metadata.name.as_ref().is_some_and(|it| it.starts_with("my-new-cron")));
    assert!(stuck.count() <= 1, "at most one Job waits for the image, on the scheduled days");
}

//! Helpers of the acceptance tests: worlds with this operator, `CronTab` objects, and stand-ins for the Job controller and the clock.

use crontab_operator::{CronTab, CronTabOperator};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use manager_testing::World;
use serde_json::{Value, json};

pub(crate) const NAME: &str = "my-new-cron-object";
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_crontab-operator");

/// Returns a world in which the operator does not run.
pub(crate) async fn quiet_world() -> Option<World> {
    let shared = || cluster::Cluster::shared(cluster::Nodes::None);
    World::prepare(&CronTabOperator, BINARY, shared).await
}

/// Returns a world in which the operator runs, with its clock stopped at `now`. `now` must lie in the future, because the API
/// server's clock sets the creation time of objects. 20 November 2037 is a Friday.
pub(crate) async fn world(now: &str) -> Option<World> {
    let mut world = quiet_world().await?;
    world.set_clock(at(now));
    world.run(&[]);
    Some(world)
}

pub(crate) fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

pub(crate) fn crontab(name: &str, spec: &Value) -> String {
    let mut whole = json!({"cronSpec": "* * * * */5", "image": "my-awesome-cron-image"});
    whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}, "spec": whole})
        .to_string()
}

/// Applies a CronTab whose schedule takes effect at the operator's time, not at the object's creation time. For that, the object
/// is first suspended.
pub(crate) async fn begin(world: &World, name: &str, spec: &Value) -> CronTab {
    let mut held = spec.clone();
    held["suspend"] = json!(true);
    world.apply(&crontab(name, &held)).await;
    world.until_condition::<CronTab>(name, "Ready", "True", "Suspended").await;
    world.apply(&crontab(name, spec)).await;
    world.until_condition(name, "Ready", "True", "Scheduled").await
}

/// Sets the clock, and waits for a reconcile.
pub(crate) async fn tick(world: &World, name: &str, now: &str) -> CronTab {
    world.set_clock(at(now));
    look(world, name).await
}

/// Returns what `kubectl get ct` prints.
pub(crate) fn table(world: &World) -> String {
    kubectl(world, &["get", "ct"])
}

/// Returns what kubectl prints for these arguments in the namespace of the test.
pub(crate) fn kubectl(world: &World, arguments: &[&str]) -> String {
    let all = arguments.iter().copied().chain(["--namespace", &world.namespace]);
    let output = world.cluster.kubectl(all).output().expect("kubectl");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Requests a reconcile, waits for it, and returns the object.
pub(crate) async fn look(world: &World, name: &str) -> CronTab {
    world.reconcile_again::<CronTab>(name).await;
    world.get(name).await.expect("a CronTab")
}

/// Returns the name of the Job for this scheduled time.
pub(crate) fn job(name: &str, time: &str) -> String {
    format!("{name}-{}", at(time).as_second())
}

/// Returns the names of the Jobs of a CronTab, sorted.
pub(crate) async fn jobs(world: &World, name: &str) -> Vec<String> {
    let jobs = world.list::<Job>().await;
    let ours = jobs.iter().filter(|job| job.labels().get("app.kubernetes.io/instance").is_some_and(|it| it == name));
    let mut names: Vec<String> = ours.map(ResourceExt::name_any).collect();
    names.sort_unstable();
    names
}

/// Acts as the Job controller: the pods of the Job run.
pub(crate) async fn run(world: &World, name: &str, now: &str) {
    world.patch_status::<Job>(name, json!({"startTime": now, "active": 1})).await;
}

/// Acts as the Job controller: the Job has ended with the condition `how`, `Complete` or `Failed`.
pub(crate) async fn finish(world: &World, name: &str, how: &str, now: &str) {
    let first = if how == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "BackoffLimitExceeded", "message": "",
            "lastTransitionTime": now, "lastProbeTime": now,
        })
    };
    let begun = json!({"startTime": now, "active": 0, "conditions": [condition(first)]});
    world.patch_status::<Job>(name, begun).await;
    let mut ended = json!({"conditions": [condition(first), condition(how)]});
    if how == "Complete" {
        ended["completionTime"] = json!(now);
        ended["succeeded"] = json!(1);
        ended["completedIndexes"] = json!("0");
    }
    world.patch_status::<Job>(name, ended).await;
}

/// Returns the number of the object's events with this reason.
pub(crate) async fn told(world: &World, name: &str, reason: &str) -> usize {
    world.events(name).await.into_iter().filter(|event| event.1 == reason).count()
}

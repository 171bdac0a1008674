//! The plugin `kubectl operators` as a user runs it, with operators that run from their image and with real pods.

use std::time::Duration;

use manager_testing::World;

use crate::kit::world;

const HELLOAPP: &str = include_str!("../../../operators/helloapp-operator/samples/apps_v1_helloapp.yaml");
const CRONTAB: &str = include_str!("../../../operators/crontab-operator/samples/stable_v1_crontab.yaml");
/// Starting a pod takes seconds; only a failure waits this long.
const PATIENCE: Duration = Duration::from_mins(3);

async fn run(world: &World, command: &str) -> Result<String, kubectl_operators::Failed> {
    let kubeconfig = world.cluster.kubeconfig().display().to_string();
    let flags = ["kubectl-operators", "--namespace", &world.namespace, "--kubeconfig", &kubeconfig].map(str::to_owned);
    kubectl_operators::execute(flags.into_iter().chain(command.split_whitespace().map(str::to_owned))).await
}

async fn until(world: &World, command: &str, shown: &str) -> String {
    let look = async || run(world, command).await.ok().filter(|text| text.contains(shown));
    world.within(PATIENCE, &format!("`{command}` shows \"{shown}\""), look).await
}

#[tokio::test(flavor = "multi_thread")]
async fn user_sees_and_steers_an_app_and_a_schedule() {
    let Some(world) = world().await else { return };
    world.apply(HELLOAPP).await;
    // The sample runs each minute on two days of the week, and its image does not exist: the CronTab would not be ready.
    let yearly = CRONTAB.replace("* * * * */5", "@yearly");
    assert_ne!(yearly, CRONTAB);
    world.apply(&yearly).await;
    let table = until(&world, "status", "\n2 ready\n").await;
    assert!(table.contains("helloapp/helloapp-sample") && table.contains("crontab/my-new-cron-object"), "{table}");

    let text = run(&world, "describe ha/helloapp-sample").await.expect("a description");
    let is_pod = |line: &&str| line.contains("└─ Pod/helloapp-sample-") && line.ends_with("Running");
    assert!(text.lines().any(|line| is_pod(&line)), "{text}");
    let text = run(&world, "trace ha/helloapp-sample").await.expect("a timeline");
    let moment =
        |what: &str| text.lines().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(moment("Deployment created") < moment("Pod created"), "{text}");
    assert!(moment("Pod created") < moment("Ready became True"), "{text}");

    let text = run(&world, "reconcile ha/helloapp-sample").await.expect("an answer");
    assert!(text.contains("reconciled after ") && text.ends_with("Ready=True Ready\n"), "{text}");
    run(&world, "pause ha/helloapp-sample").await.expect("paused");
    until(&world, "status --not-ready", "1 paused").await;
    run(&world, "resume ha/helloapp-sample").await.expect("resumed");
    until(&world, "status", "\n2 ready\n").await;

    let text = run(&world, "run-now ct/my-new-cron-object").await.expect("an answer");
    assert!(text.starts_with("crontab/my-new-cron-object run requested after "), "{text}");
    until(&world, "describe ct/my-new-cron-object", "└─ Job/my-new-cron-object-").await;
}

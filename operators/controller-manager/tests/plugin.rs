//! The plugin `kubectl operators` on a real API server, with running operators.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use cluster::{Cluster, Nodes};
use controller_manager::manifests;

const PATIENCE: Duration = Duration::from_mins(1);
const FOO: &str = include_str!("../../foo-operator/samples/example-foo.yaml");
const CRONTAB: &str = include_str!("../../crontab-operator/samples/stable_v1_crontab.yaml");

/// The running operators; they end with the handle.
struct Operators(Child);

impl Drop for Operators {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn apply(cluster: &Cluster, manifest: &str) {
    let mut kubectl = cluster.kubectl(["apply", "--server-side", "--namespace", "default", "--filename", "-"]);
    let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("kubectl");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), manifest.as_bytes()).expect("written");
    assert!(child.wait().expect("it ends").success(), "{manifest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_shows_and_steers_objects_of_running_operators() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let start = || cluster::or_skip(Cluster::fresh(Nodes::None));
    let Some(cluster) = tokio::task::spawn_blocking(start).await.expect("no panic") else { return };
    let kubeconfig = cluster.kubeconfig();
    for definition in manifests::definitions() {
        apply(&cluster, &definition.to_string());
    }
    let operators = Command::new(env!("CARGO_BIN_EXE_controller-manager"))
        .args(["run", "--operators", "foo,crontab", "--enable-webhooks=false", "--metrics-bind-address", "0"])
        .args(["--health-probe-bind-address", "0", "--log-format", "text", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdin(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let _operators = Operators(operators);
    let run = async |command: &str| {
        let program = ["kubectl-operators", "--kubeconfig"].map(str::to_owned).into_iter();
        let file = kubeconfig.display().to_string();
        let words = command.split_whitespace().map(str::to_owned);
        kubectl_operators::execute(program.chain([file]).chain(words)).await
    };
    let until = async |command: &str, shown: &str| {
        let begun = Instant::now();
        loop {
            match run(command).await {
                Ok(text) if text.contains(shown) => return text,
                other => assert!(begun.elapsed() < PATIENCE, "{command}: no \"{shown}\" in {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    apply(&cluster, FOO);
    apply(&cluster, CRONTAB);

    // No pod runs here, so the Foo stays in progress, and is listed before the CronTab.
    until("status", "1 in progress, 1 ready").await;
    let table = run("status").await.expect("a table");
    assert!(table.find("foo/example-foo") < table.find("crontab/my-new-cron-object"), "{table}");
    assert!(run("status ct").await.expect("a table").contains("1 ready"), "by short name");
    let text = until("describe foo/example-foo", "Created").await;
    assert!(text.contains("└─ Deployment/example-foo") && text.contains("0/1 ready"), "{text}");
    let text = run("trace foo example-foo").await.expect("a timeline");
    assert!(text.contains("written by kubectl") && text.contains("Deployment created"), "{text}");
    assert!(text.contains("spec.deploymentName, spec.replicas"), "{text}");

    let text = run("reconcile foo/example-foo").await.expect("an answer");
    assert!(text.starts_with("foo/example-foo reconciled after "), "{text}");
    run("pause foo/example-foo").await.expect("paused");
    until("status", "Paused").await;
    run("resume foo/example-foo").await.expect("resumed");

    let error = run("run-now foo/example-foo").await.expect_err("no runs").error;
    assert!(error.starts_with("a Foo has no runs"), "{error}");
    let text = run("run-now crontab/my-new-cron-object").await.expect("an answer");
    assert!(text.starts_with("crontab/my-new-cron-object run requested after "), "{text}");
    until("describe crontab/my-new-cron-object", "Job/my-new-cron-object-").await;

    let text = run("migrate-storage").await.expect("a table");
    assert!(text.contains("nothing to do: only v1 is stored"), "{text}");
    let listed = cluster.kubectl(["get", "operator-managed", "--namespace", "default", "--output", "name"]).output();
    let listed = String::from_utf8(listed.expect("kubectl").stdout).expect("text");
    assert_eq!(listed.lines().count(), 2, "{listed}");

    // A user without any permission: the kinds are found, and the error says what is missing.
    let powerless = cluster.kubeconfig_for("powerless", &[]).expect("a kubeconfig").display().to_string();
    let failed = kubectl_operators::execute(["kubectl-operators", "--kubeconfig", &powerless, "status"]).await;
    let error = failed.expect_err("no permission").error;
    assert!(error.contains("cannot list foos: ") && error.contains("ask for the permission"), "{error}");
}

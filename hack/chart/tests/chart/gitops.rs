//! What Argo CD and Flux delete when a user turns operators off: their own programs apply the rendered chart to a real API server
//! and prune it. And what is left of a Secret that they replace.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use chart::{NAMESPACE, helm::succeeded};
use cluster::{Cluster, Nodes, Tool, Tools, or_skip, progress};
use controller_manager::manifests::definitions;
use mlua::{Lua, LuaSerdeExt as _, Table};
use serde_json::{Value, json};

use crate::kit::helm;

const CRONTAB: &str = r#"{
    "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "users", "namespace": "default"},
    "spec": {"cronSpec": "* * * * *", "image": "busybox"}
}"#;

/// The longest time for a sync; one takes a few seconds.
const PATIENCE: Duration = Duration::from_mins(3);

/// The chart with everything that holds users' data, and the same without any of it.
fn before_and_after() -> [String; 2] {
    let all = json!({"bookingServer": {"persistence": {"enabled": true}}, "webhooks": {"enabled": false}});
    let mut fewer = all.clone();
    fewer["operators"] = json!({"crontab": {"enabled": false}, "flightticket": {"enabled": false}});
    fewer["bookingServer"] = json!({"enabled": false});
    [all, fewer].map(|values| helm().template(&values, &["--skip-tests"]).unwrap().text)
}

/// A cluster with the release's namespace.
fn cluster() -> Option<Cluster> {
    let cluster = or_skip(Cluster::fresh(Nodes::None))?;
    succeeded(&mut cluster.kubectl(["create", "namespace", NAMESPACE])).unwrap();
    Some(cluster)
}

/// The program, in the network of the cluster and with its kubeconfig.
fn program(cluster: &Cluster, tool: Tool, name: &str) -> Command {
    let tools = Tools::locate_or_build(&[tool], &progress::to_stderr).unwrap();
    cluster.exec(tools.binary(name).unwrap())
}

fn create_crontab(cluster: &Cluster) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), CRONTAB).unwrap();
    succeeded(cluster.kubectl(["create", "--filename"]).arg(file.path())).unwrap();
}

/// Whether the object exists.
fn exists(cluster: &Cluster, object: &[&str]) -> bool {
    let get = ["get", "--ignore-not-found", "--output=name"];
    !succeeded(&mut cluster.kubectl([&get, object].concat())).unwrap().is_empty()
}

fn only_users_data_are_left(cluster: &Cluster) {
    // Argo CD deletes in the foreground: an object is gone when its dependents are.
    for gone in [
        "clusterrole/operators-crontab",
        "clusterrolebinding/crontab-operator.one-release-per-cluster",
        "deployment/operators-booking-server",
    ] {
        let wait = ["wait", "--for=delete", gone, "--timeout=2m", "--namespace", NAMESPACE];
        succeeded(&mut cluster.kubectl(wait)).expect("it is pruned");
    }
    assert!(exists(cluster, &["clusterrole", "operators-memcached"]));
    assert!(exists(cluster, &["crontab.stable.example.com", "users"]), "the users' objects went with their definition");
    assert!(exists(cluster, &["crd", "flighttickets.flights.com"]));
    assert!(exists(cluster, &["pvc", "operators-booking-server", "--namespace", NAMESPACE]), "the bookings are lost");
}

#[test]
fn flux_prunes_a_disabled_operator_but_no_users_data() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [before, after] = ["before.yaml", "after.yaml"].map(|name| folder.path().join(name));
    for (file, text) in [&before, &after].into_iter().zip(before_and_after()) {
        fs::write(file, text).unwrap();
    }
    let flux = |manifests: &[&Path]| {
        let mut flux = program(&cluster, Tool::Flux, "flux-apply");
        succeeded(flux.args(manifests)).unwrap()
    };
    flux(&[&before]);
    create_crontab(&cluster);
    let said = flux(&[&after, &before]);
    assert!(said.contains("crontabs.stable.example.com skipped"), "{said}");
    only_users_data_are_left(&cluster);
}

/// Argo CD's agent, which syncs a Git repository to the cluster. Ends when dropped.
struct Agent {
    process: Child,
    said: Receiver<String>,
}

impl Agent {
    fn start(cluster: &Cluster, repository: &Path) -> Self {
        let mut agent = program(cluster, Tool::ArgoCd, "gitops-agent");
        agent.arg(repository).args(["--default-namespace", NAMESPACE, "--port=0", "--resync-seconds=2"]);
        agent.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = agent.spawn().unwrap();
        let (sender, said) = channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { process, said }
    }

    /// Waits until the agent has reported each of these results, in any order. A result is an object and what happened to it.
    fn until_it_reports(&self, results: &[(&str, &str)]) {
        let (mut missing, deadline) = (results.to_vec(), Instant::now() + PATIENCE);
        while !missing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.said.recv_timeout(left).unwrap_or_else(|_| panic!("the agent never reports {missing:?}"));
            missing.retain(|(object, result)| !(line.contains(object) && line.contains(result)));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn argo_cd_prunes_a_disabled_operator_but_no_users_data() {
    let Some(cluster) = cluster() else { return };
    let repository = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=test", "-c", "user.email=test@example.com"]).args(arguments);
        succeeded(git.current_dir(repository.path())).unwrap();
    };
    let [before, after] = before_and_after();
    let push = |text: &str| {
        fs::write(repository.path().join("install.yaml"), text).unwrap();
        git(&["add", "install.yaml"]);
        git(&["commit", "--quiet", "--message=change"]);
    };
    git(&["init", "--quiet"]);
    push(&before);
    let agent = Agent::start(&cluster, repository.path());
    agent.until_it_reports(&[("crontabs.stable.example.com", "created"), ("/operators-booking-server", "created")]);
    create_crontab(&cluster);
    push(&after);
    agent.until_it_reports(&[
        ("crontabs.stable.example.com", "ignored (no prune)"),
        ("flighttickets.flights.com", "ignored (no prune)"),
        ("PersistentVolumeClaim/operators-system/operators-booking-server", "ignored (no prune)"),
        ("ClusterRole//operators-crontab ", "pruned"),
        ("Deployment/operators-system/operators-booking-server", "pruned"),
    ]);
    only_users_data_are_left(&cluster);
}

/// With `Replace=true`, Argo CD runs `kubectl replace` for each object at each sync. The rendered Secret has no token, so it is empty
/// afterwards, until the control plane fills in the token of the same account again.
#[test]
fn a_replaced_secret_gets_its_token_again() {
    const ACCOUNT: &str = "operators-controller-manager-metrics-proxy";
    let Some(cluster) = cluster() else { return };
    let rendered = helm().template(&json!({}), &["--skip-tests"]).unwrap();
    let objects = ["ServiceAccount", "Secret"].map(|kind| rendered.object(kind, ACCOUNT).unwrap().to_string());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), objects.join("\n---\n")).unwrap();
    let secret = ["--namespace", NAMESPACE, "secret", ACCOUNT];
    let wait = ["wait", "--for=jsonpath={.data.token}", "--timeout=2m"];
    succeeded(cluster.kubectl(["create", "--filename"]).arg(file.path())).unwrap();
    succeeded(&mut cluster.kubectl([&wait[..], &secret].concat())).expect("the first token");
    let replaced = succeeded(cluster.kubectl(["replace", "--output=json", "--filename"]).arg(file.path())).unwrap();
    assert!(replaced.contains(ACCOUNT) && !replaced.contains("\"token\""), "the Secret is not empty: {replaced}");
    succeeded(&mut cluster.kubectl([&wait[..], &secret].concat())).expect("a token again");

    let get = ["get", "--output=go-template={{.data.token | base64decode}}"];
    let token = succeeded(&mut cluster.kubectl([&get[..], &secret].concat())).unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    fs::write(file.path(), review.to_string()).unwrap();
    let create = ["create", "--output=jsonpath={.status.user.username}", "--filename"];
    let user = succeeded(cluster.kubectl(create).arg(file.path())).unwrap();
    assert_eq!(user.trim(), format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"));
}

/// The groups of all our kinds, and the script for the health of their objects, from the document for users.
fn health() -> (Vec<String>, String) {
    let document = include_str!("../../../../docs/gitops.md");
    let settings = document.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let settings: Value = serde_saphyr::from_str(settings).unwrap();
    let kinds: BTreeMap<String, Value> =
        serde_saphyr::from_str(settings["data"]["resource.customizations"].as_str().unwrap()).unwrap();
    let scripts: BTreeSet<&str> = kinds.values().map(|it| it["health.lua"].as_str().unwrap()).collect();
    assert_eq!(scripts.len(), 1, "one script for all kinds");
    let script = scripts.first().unwrap().to_string();
    (kinds.into_keys().map(|key| key.strip_suffix("/*").unwrap().to_owned()).collect(), script)
}

/// The health that the script returns for an object of generation 2 with this status.
fn health_of(script: &str, status: &Value) -> (String, String) {
    let lua = Lua::new();
    let object = lua.to_value(&json!({"metadata": {"name": "a", "generation": 2}, "status": status})).unwrap();
    // As in Argo CD, what is null in JSON is nil.
    lua.globals().set("obj", object).unwrap();
    let health: Table = lua.load(script).eval().unwrap();
    (health.get("status").unwrap(), health.get("message").unwrap())
}

#[test]
fn argo_cd_knows_the_health_of_all_kinds() {
    let (groups, script) = health();
    let ours: BTreeSet<String> =
        definitions().iter().map(|definition| definition["spec"]["group"].as_str().unwrap().to_owned()).collect();
    assert_eq!(groups, Vec::from_iter(ours), "docs/gitops.md names the groups of all kinds");

    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": format!("{kind} because of {reason}")});
    let cases = [
        (json!({}), "Progressing", "No operator has handled this object yet"),
        (json!({"conditions": []}), "Progressing", "No operator has handled this object yet"),
        (
            json!({"observedGeneration": 1, "conditions": [condition("Ready", "True", "Ready")]}),
            "Progressing",
            "The last change has not been handled yet",
        ),
        (
            json!({"observedGeneration": 2, "conditions": [condition("Ready", "True", "Ready")]}),
            "Healthy",
            "Ready because of Ready",
        ),
        (
            json!({"observedGeneration": 2, "conditions": [condition("Reconciling", "True", "Scaling"), condition("Ready", "False", "Scaling")]}),
            "Progressing",
            "Ready because of Scaling",
        ),
        (
            json!({"observedGeneration": 2, "conditions": [condition("Ready", "False", "Paused")]}),
            "Suspended",
            "Ready because of Paused",
        ),
        (
            json!({"observedGeneration": 2, "conditions": [condition("Ready", "False", "Broken"), condition("Stalled", "True", "Broken")]}),
            "Degraded",
            "Stalled because of Broken",
        ),
    ];
    for (status, health, message) in cases {
        assert_eq!(health_of(&script, &status), (health.to_owned(), message.to_owned()), "{status}");
    }
}

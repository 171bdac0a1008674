//! Helpers for the tests of releases, each on its own real node.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use chart::helm::{Helm, Version, succeeded};
use cluster::{
    Cluster, Tool, Tools,
    audit::{self, Write},
    or_skip, progress,
};
use installation::{EARLIER, MANAGER_NAMESPACE, earlier_chart};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The seed that draws a part of the tests; none, which selects all, if there is no `SEED` or if `variable` is set.
pub(crate) fn seed_without(variable: &str) -> Option<u64> {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    seed.filter(|_| std::env::var_os(variable).is_none())
}

/// The number of tests with [`World::drawn`].
const DRAWN: u64 = 11;

/// A cluster, and the version of Helm that installs the chart there.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    /// The operators' image.
    pub(crate) image: String,
    helm: Helm,
    values: Value,
}

impl World {
    /// `None` if no real node can run here.
    pub(crate) fn new(version: Version) -> Option<Self> {
        Self::on(installation::fresh_cluster, version)
    }

    /// For the tests that take one to three minutes each, numbered from 0: a run draws one of them by its seed. `INSTALLATIONS=all`, or no
    /// seed, selects all. `None` also if this run has drawn another one.
    pub(crate) fn drawn(number: u64, start: impl FnOnce() -> anyhow::Result<Cluster>) -> Option<Self> {
        assert!(number < DRAWN, "no seed would draw this test");
        if seed_without("INSTALLATIONS").is_some_and(|seed| seed % DRAWN != number) {
            skip::unasked("this run has drawn another test of releases; INSTALLATIONS=all runs all");
            return None;
        }
        Self::on(start, Version::Four)
    }

    /// Like [`Self::new`], on the cluster that `start` starts.
    pub(crate) fn on(start: impl FnOnce() -> anyhow::Result<Cluster>, version: Version) -> Option<Self> {
        let cluster = or_skip(start())?;
        installation::make_namespace(&cluster).unwrap();
        let image = installation::image_for(&cluster).unwrap();
        let mut values = installation::values(&image).unwrap();
        values["replicas"] = json!(1);
        Some(Self { cluster, image, helm: Helm::of(version).unwrap(), values })
    }

    /// Runs `helm ARGUMENTS` in this namespace. The error is Helm's standard error.
    fn try_helm_in(&self, namespace: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.helm.on(&self.cluster);
        command.args(arguments).args(["--namespace", namespace]);
        succeeded(&mut command).map_err(|error| format!("{error:#}"))
    }

    /// Runs `helm ARGUMENTS` in the namespace of the operators. The error is Helm's standard error.
    pub(crate) fn try_helm(&self, arguments: &[&str]) -> Result<String, String> {
        self.try_helm_in(MANAGER_NAMESPACE, arguments)
    }

    pub(crate) fn helm(&self, arguments: &[&str]) -> String {
        self.try_helm(arguments).unwrap_or_else(|error| panic!("helm {arguments:?}: {error}"))
    }

    /// Installs the chart in `folder` or upgrades to it, and waits until the operators are ready.
    pub(crate) fn try_upgrade(&self, folder: &Path, more: &[&str]) -> Result<String, String> {
        self.try_release(("operators", MANAGER_NAMESPACE), folder, more)
    }

    fn try_release(&self, (name, namespace): (&str, &str), folder: &Path, more: &[&str]) -> Result<String, String> {
        let values = self.helm.values_file(&self.values).unwrap();
        let (folder, values) = (folder.to_str().unwrap(), values.path().to_str().unwrap());
        let arguments = ["upgrade", "--install", name, folder, "--values", values, "--wait", "--timeout=3m"];
        self.try_helm_in(namespace, &[&arguments, more].concat())
    }

    /// Installs the chart as another release, by its name and namespace, or upgrades that release.
    pub(crate) fn release(&self, (name, namespace): (&str, &str), more: &[&str]) {
        self.try_release((name, namespace), &chart::folder(), more)
            .unwrap_or_else(|error| panic!("helm upgrade {name} {more:?}: {error}"));
    }

    pub(crate) fn uninstall(&self, (name, namespace): (&str, &str)) {
        self.try_helm_in(namespace, &["uninstall", name, "--wait", "--timeout=3m"])
            .unwrap_or_else(|error| panic!("helm uninstall {name}: {error}"));
    }

    pub(crate) fn upgrade(&self, more: &[&str]) {
        self.try_upgrade(&chart::folder(), more).unwrap_or_else(|error| panic!("helm upgrade {more:?}: {error}"));
    }

    /// Runs `kubectl ARGUMENTS` and returns its output without surrounding white space. The error is its standard error.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let said = succeeded(&mut self.cluster.kubectl(arguments)).map_err(|error| format!("{error:#}"))?;
        Ok(said.trim().to_owned())
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// The images in what the chart renders, as `helm template … | grep image:` prints them.
    pub(crate) fn images_of_chart(&self) -> BTreeSet<String> {
        let rendered = self.helm.template(&self.values, &[]).unwrap();
        let lines = rendered.text.lines().filter_map(|line| line.trim().strip_prefix("image: "));
        lines.map(|image| image.trim_matches('"').to_owned()).collect()
    }

    /// The object; null if it does not exist.
    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let printed = self.kubectl(&[&["get", "--ignore-not-found", "--output=json"], arguments].concat());
        if printed.is_empty() { Value::Null } else { serde_json::from_str(&printed).unwrap() }
    }

    /// Runs commands of the documentation as users do, with Helm 4 and in the folder of the checkout.
    pub(crate) fn script(&self, commands: &str) {
        let helm = Tools::locate_or_build(&[Tool::Helm], &progress::to_stderr).unwrap();
        let path = helm.path(Some(self.cluster.tools().path(std::env::var_os("PATH"))));
        let mut shell = self.cluster.exec("sh");
        shell.args(["-euc", commands]).current_dir(chart::folder().join("../..")).env("PATH", path);
        succeeded(&mut shell).unwrap_or_else(|error| panic!("{commands}\n{error:#}"));
    }

    /// What has been written, by the API server's audit log.
    pub(crate) fn writes(&self) -> Vec<Write> {
        audit::writes(&self.cluster.audit_log()).unwrap()
    }

    /// The pods of the managers, including terminating ones.
    pub(crate) fn pods(&self) -> Vec<Value> {
        let selector = "--selector=app.kubernetes.io/component=controller-manager";
        let list = self.get(&["pods", "--namespace", MANAGER_NAMESPACE, selector]);
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) fn apply(&self, manifest: &str) {
        let mut kubectl = self.cluster.kubectl(["apply", "--server-side", "--filename=-"]);
        let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "see above");
    }

    /// Waits until `kind/name` in the namespace `default` is ready.
    pub(crate) fn ready(&self, object: &str) {
        self.kubectl(&["wait", "--for=condition=Ready", object, "--timeout=120s"]);
    }

    /// Runs `helm test`, which creates a sample of each operator and cleans up.
    pub(crate) fn tested(&self) {
        let said = self.helm(&["test", "operators", "--timeout=5m"]);
        assert!(said.contains("Succeeded"), "{said}");
        self.until("nothing of the test is left", |world| world.left_of_test().is_empty());
    }

    /// What is left of `helm test`, as kubectl names it.
    pub(crate) fn left_of_test(&self) -> Vec<String> {
        let kinds = "namespaces,pods,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings";
        let all = self.kubectl(&["get", kinds, "--all-namespaces", "--output=name"]);
        all.lines().filter(|name| name.contains("smoke-test")).map(str::to_owned).collect()
    }

    /// Waits until `what` holds.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_mins(2);
        while !holds(self) {
            assert!(Instant::now() < deadline, "never: {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// A process in a container of a pod.
pub(crate) struct Process {
    pub(crate) id: i32,
    pub(crate) program: String,
    /// Its program and arguments, separated by spaces.
    pub(crate) command: String,
    /// The number of the user.
    pub(crate) user: String,
}

/// The processes on this machine in the containers of the pod, without those that start and hold the containers.
pub(crate) fn processes(pod: &Value) -> Vec<Process> {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let names = [uid.to_owned(), uid.replace('-', "_")];
    let ids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let of_pod = ids.filter_map(|id: i32| {
        let text = |file: &str| fs::read_to_string(format!("/proc/{id}/{file}")).ok();
        let group = text("cgroup")?;
        let is_in_pod = names.iter().any(|name| group.contains(name.as_str()));
        let user =
            text("status")?.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.to_owned();
        let (program, command) = (text("comm")?.trim().to_owned(), text("cmdline")?.replace('\0', " "));
        is_in_pod.then_some(Process { id, program, command, user })
    });
    let of_runtime = ["pause", "runc", "containerd"];
    let processes: Vec<_> = of_pod.filter(|it| !of_runtime.iter().any(|name| it.program.starts_with(name))).collect();
    assert!(!processes.is_empty(), "no process of {}", pod["metadata"]["name"]);
    processes
}

/// An earlier release of the chart, as a package. Its definition of Memcached has no `spec.metrics`.
pub(crate) fn earlier(helm: &World, folder: &TempDir) -> PathBuf {
    let chart = earlier_chart(folder.path(), "files/memcached/crd-memcacheds.yaml", "metrics").unwrap();
    let destination = folder.path().to_str().unwrap();
    let mut package = helm.helm.command();
    succeeded(package.arg("package").arg(&chart).args(["--destination", destination])).unwrap();
    folder.path().join(format!("operators-{EARLIER}.tgz"))
}

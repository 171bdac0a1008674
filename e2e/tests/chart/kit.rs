//! Helpers for the tests of releases, each on its own real node.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use chart::helm::{Helm, Version, succeeded};
use cluster::{Cluster, or_skip};
use installation::{EARLIER, MANAGER_NAMESPACE, earlier_chart};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A cluster, and the version of Helm that installs the chart there.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    helm: Helm,
    values: Value,
}

impl World {
    /// `None` if no real node can run here.
    pub(crate) fn new(version: Version) -> Option<Self> {
        let cluster = or_skip(installation::fresh_cluster())?;
        installation::make_namespace(&cluster).unwrap();
        let mut values = installation::values(&installation::image_for(&cluster).unwrap()).unwrap();
        values["replicas"] = json!(1);
        Some(Self { cluster, helm: Helm::of(version).unwrap(), values })
    }

    /// Runs `helm ARGUMENTS` in the namespace of the operators. The error is Helm's standard error.
    pub(crate) fn try_helm(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.helm.on(&self.cluster);
        command.args(arguments).args(["--namespace", MANAGER_NAMESPACE]);
        succeeded(&mut command).map_err(|error| format!("{error:#}"))
    }

    pub(crate) fn helm(&self, arguments: &[&str]) -> String {
        self.try_helm(arguments).unwrap_or_else(|error| panic!("helm {arguments:?}: {error}"))
    }

    /// Installs the chart in `folder` or upgrades to it, and waits until the operators are ready.
    pub(crate) fn try_upgrade(&self, folder: &Path, more: &[&str]) -> Result<String, String> {
        let values = self.helm.values_file(&self.values).unwrap();
        let (folder, values) = (folder.to_str().unwrap(), values.path().to_str().unwrap());
        let arguments = ["upgrade", "--install", "operators", folder, "--values", values, "--wait", "--timeout=3m"];
        self.try_helm(&[&arguments, more].concat())
    }

    pub(crate) fn upgrade(&self, more: &[&str]) {
        self.try_upgrade(&chart::folder(), more).unwrap_or_else(|error| panic!("helm upgrade {more:?}: {error}"));
    }

    /// Runs `kubectl ARGUMENTS` and returns its output without surrounding white space.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        succeeded(&mut self.cluster.kubectl(arguments))
            .unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error:#}"))
            .trim()
            .to_owned()
    }

    /// The object; null if it does not exist.
    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let printed = self.kubectl(&[&["get", "--ignore-not-found", "--output=json"], arguments].concat());
        if printed.is_empty() { Value::Null } else { serde_json::from_str(&printed).unwrap() }
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
        let kinds = "namespaces,clusterroles,clusterrolebindings,roles,rolebindings";
        self.until("nothing of the test is left", |world| {
            !world.kubectl(&["get", kinds, "--all-namespaces", "--output=name"]).contains("smoke-test")
        });
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

/// An earlier release of the chart, as a package. Its definition of Memcached has no `spec.metrics`.
pub(crate) fn earlier(helm: &World, folder: &TempDir) -> PathBuf {
    let chart = earlier_chart(folder.path(), "files/memcached/crd-memcacheds.yaml", "metrics").unwrap();
    let destination = folder.path().to_str().unwrap();
    let mut package = helm.helm.command();
    succeeded(package.arg("package").arg(&chart).args(["--destination", destination])).unwrap();
    folder.path().join(format!("operators-{EARLIER}.tgz"))
}

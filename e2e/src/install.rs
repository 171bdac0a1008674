//! Installs the operators as people do: their image, and the chart by Helm.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use chart::helm::{Helm, Version, succeeded};
use cluster::Cluster;
use images::{Reference, Store};
use serde_json::{Value, json};

use crate::Backend;

/// The namespace of the operators.
pub const MANAGER_NAMESPACE: &str = chart::NAMESPACE;

/// The name of the operators' Deployment, of their `ServiceAccount` and of their webhook configurations.
pub const MANAGER: &str = "operators-controller-manager";

/// In the folder of a cluster: what [`install`] has installed there.
pub const INSTALLED: &str = "installed.yaml";

/// The operators as they were installed.
#[derive(Debug)]
pub struct Installed {
    /// The image, by digest.
    pub image: String,
}

/// The operators' image, as `cluster` can run it: by digest, `REPOSITORY@DIGEST`, so that a node never runs an older build of the
/// same tag, or by a tag that no other build has.
///
/// `E2E_IMAGE` names one that is there. Else it is built, and put where nodes of this repository pull from, or into kind's.
pub fn image_for(cluster: &Cluster) -> Result<String> {
    if let Ok(image) = std::env::var("E2E_IMAGE") {
        return Ok(image);
    }
    let backend = Backend::chosen()?;
    ensure!(
        backend != Backend::Existing,
        "set E2E_IMAGE to an image of the operators that {} can pull",
        cluster.name()
    );
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the crate is in a workspace")?;
    let store = Store::open(images::default_store()?)?;
    let reference: Reference = images::operator::DEFAULT_TAG.parse()?;
    let built = images::operator::build(workspace, &store, &reference)?;
    let (repository, _tag) = images::operator::DEFAULT_TAG.rsplit_once(':').context("the tag has a name")?;
    if cluster.is_ours() {
        return Ok(format!("{repository}@{}", built.digest));
    }
    // Nodes that did not pull it know it by its tag only.
    let tag = &built.digest.hex()[..12];
    once(cluster, "loaded", tag, || {
        let folder = tempfile::tempdir().context("could not make a folder")?;
        let archive = folder.path().join("image.tar");
        store.export_as(&reference, &reference.with_tag(tag), &archive)?;
        cluster.load_image(&archive)
    })?;
    Ok(format!("{repository}:{tag}"))
}

/// The values by which the chart runs this image, `REPOSITORY@DIGEST` or `REPOSITORY:TAG`, and every operator.
pub fn values(image: &str) -> Result<Value> {
    let image = match (image.split_once('@'), image.rsplit_once(':')) {
        (Some((repository, digest)), _) => json!({"repository": repository, "digest": digest}),
        (None, Some((repository, tag))) => json!({"repository": repository, "tag": tag}),
        (None, None) => bail!("the image {image:?} has neither a digest nor a tag"),
    };
    Ok(json!({
        "image": image,
        "replicas": 2, // one works, one stands by
        "telemetry": {"logLevel": "info,manager=debug"},
        "operators": {"foo": {"enabled": true}},
    }))
}

/// Whose namespace it is: nobody's release is upgraded or removed but the one that the tests have made.
const OURS: &str = "operators.example.com/end-to-end-tests";

/// Makes the namespace of the operators, in which Pod Security is enforced.
///
/// The error says so when somebody else has made it.
pub fn make_namespace(cluster: &Cluster) -> Result<()> {
    let mut get = cluster.kubectl(["get", "namespace", MANAGER_NAMESPACE, "--ignore-not-found", "--output=json"]);
    let present = succeeded(&mut get)?;
    let present: Value = if present.is_empty() { Value::Null } else { serde_json::from_str(&present)? };
    if !cluster.is_ours() && !present.is_null() && present["metadata"]["labels"][OURS].is_null() {
        let name = cluster.name();
        bail!(
            "{name} has a namespace {MANAGER_NAMESPACE} that these tests have not made: they would take its operators over"
        );
    }
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted", OURS: "true"});
    let metadata = json!({"name": MANAGER_NAMESPACE, "labels": labels});
    apply(cluster, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
}

/// Applies an object as the administrator of the cluster; doing it again changes nothing.
pub(crate) fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    let mut kubectl = cluster.kubectl(["apply", "--server-side", "--filename=-"]);
    let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("could not start kubectl")?;
    child.stdin.take().context("kubectl reads nothing")?.write_all(object.to_string().as_bytes())?;
    ensure!(child.wait()?.success(), "kubectl could not apply {}, see above", object["kind"]);
    Ok(())
}

/// Installs the chart and waits until the operators are ready. Doing it again changes nothing, and tests may do it at once.
pub fn install(cluster: &Cluster, image: &str) -> Result<Installed> {
    let (values, helm) = (values(image)?, Helm::of(Version::Four)?);
    let wanted = helm.template(&values, &[])?.text;
    once(cluster, INSTALLED, &wanted, || {
        make_namespace(cluster)?;
        let file = helm.values_file(&values)?;
        let mut command = helm.on(cluster);
        command.args(["upgrade", "--install", chart::RELEASE]).arg(chart::folder()).arg("--values").arg(file.path());
        succeeded(command.args(["--namespace", MANAGER_NAMESPACE, "--wait", "--timeout=3m"]))
            .context("Helm could not install the chart")
            .map(drop)
    })?;
    rolled_out(cluster)?;
    Ok(Installed { image: image.to_owned() })
}

/// Removes what [`install`] has installed, definitions and objects of the operators' kinds excepted; `false` when that is
/// nothing.
pub fn uninstall(cluster: &Cluster) -> Result<bool> {
    let marker = cluster.state_dir().join(INSTALLED);
    if !marker.exists() {
        return Ok(false);
    }
    make_namespace(cluster)?; // fails if it is not ours to remove
    let helm = Helm::of(Version::Four)?;
    let mut command = helm.on(cluster);
    succeeded(command.args([
        "uninstall",
        chart::RELEASE,
        "--ignore-not-found",
        "--wait",
        "--namespace",
        MANAGER_NAMESPACE,
    ]))?;
    succeeded(&mut cluster.kubectl(["delete", "namespace", MANAGER_NAMESPACE]))?;
    fs::remove_file(&marker).with_context(|| format!("could not remove {}", marker.display()))?;
    Ok(true)
}

/// Does something to the cluster unless that file in its folder says that it is done: with the same text, and on a cluster of
/// somebody else in the same run of tests, because there it may be undone without us.
fn once(cluster: &Cluster, file: &str, wanted: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let run = std::env::var("NEXTEST_RUN_ID").ok().filter(|_| !cluster.is_ours());
    let wanted = run.map_or_else(|| wanted.to_owned(), |run| format!("# {run}\n{wanted}"));
    let lock = File::create(cluster.state_dir().join(format!("{file}.lock"))).context("could not create a lock")?;
    lock.lock().context("could not wait for another call")?;
    let marker = cluster.state_dir().join(file); // goes with the cluster
    if fs::read_to_string(&marker).ok().as_ref() == Some(&wanted) {
        return Ok(());
    }
    work()?;
    fs::write(&marker, wanted).with_context(|| format!("could not write {}", marker.display()))
}

fn rolled_out(cluster: &Cluster) -> Result<()> {
    let deployment = format!("deployment/{MANAGER}");
    let mut kubectl: Command = cluster.kubectl(["--namespace", MANAGER_NAMESPACE, "rollout", "status", &deployment]);
    succeeded(kubectl.arg("--timeout=120s")).context("the operators did not become ready")?;
    Ok(())
}

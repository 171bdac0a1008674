//! Installs the operators as people do: their image, and the chart by Helm.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use chart::helm::{Helm, Version, succeeded};
use cluster::Cluster;
use images::{Reference, Store};
use serde_json::{Value, json};

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

/// Builds the operators for release and stores their image where real nodes pull from. Returns its name with its digest,
/// so that a node never runs an older build of the same tag. With `E2E_IMAGE` nothing is built: that one is used.
pub fn build_image() -> Result<String> {
    if let Ok(image) = std::env::var("E2E_IMAGE") {
        return Ok(image);
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the crate is in a workspace")?;
    let store = Store::open(images::default_store()?)?;
    let reference: Reference = images::operator::DEFAULT_TAG.parse()?;
    let built = images::operator::build(workspace, &store, &reference)?;
    let (repository, _tag) = images::operator::DEFAULT_TAG.rsplit_once(':').context("the tag has a name")?;
    Ok(format!("{repository}@{}", built.digest))
}

/// The values by which the chart runs this image, `REPOSITORY@DIGEST`, and every operator.
pub fn values(image: &str) -> Result<Value> {
    let (repository, digest) = image.split_once('@').context("the image is named by its digest")?;
    Ok(json!({
        "image": {"repository": repository, "digest": digest},
        "replicas": 2, // one works, one stands by
        "telemetry": {"logLevel": "info,manager=debug"},
        "operators": {"foo": {"enabled": true}},
    }))
}

/// Makes the namespace of the operators, in which Pod Security is enforced.
pub fn make_namespace(cluster: &Cluster) -> Result<()> {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
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
    let lock = File::create(cluster.state_dir().join("install.lock")).context("could not create a lock")?;
    lock.lock().context("could not wait for another installation")?;
    let marker = cluster.state_dir().join(INSTALLED); // goes with the cluster
    if fs::read_to_string(&marker).ok().as_ref() != Some(&wanted) {
        make_namespace(cluster)?;
        let file = helm.values_file(&values)?;
        let mut command = helm.on(cluster);
        command.args(["upgrade", "--install", chart::RELEASE]).arg(chart::folder()).arg("--values").arg(file.path());
        succeeded(command.args(["--namespace", MANAGER_NAMESPACE, "--wait", "--timeout=3m"]))
            .context("Helm could not install the chart")?;
        fs::write(&marker, wanted).context("could not note what is installed")?;
    }
    rolled_out(cluster)?;
    Ok(Installed { image: image.to_owned() })
}

fn rolled_out(cluster: &Cluster) -> Result<()> {
    let deployment = format!("deployment/{MANAGER}");
    let mut kubectl: Command = cluster.kubectl(["--namespace", MANAGER_NAMESPACE, "rollout", "status", &deployment]);
    succeeded(kubectl.arg("--timeout=120s")).context("the operators did not become ready")?;
    Ok(())
}

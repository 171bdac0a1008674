//! Installs the operators as people would: an image, a Deployment, and exactly the permissions that the code declares.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use cluster::Cluster;
use controller_manager::manifests::{Deployed, manifests};
use images::{Reference, Store};
use serde_json::json;

/// The namespace of the manager.
pub const MANAGER_NAMESPACE: &str = "operators-system";

/// Who the manager is to the API server, as in the audit log.
pub const SERVICE_ACCOUNT_USER: &str = "system:serviceaccount:operators-system:controller-manager";

/// The operators as they were installed.
#[derive(Debug)]
pub struct Installed {
    /// The image, by digest.
    pub image: String,
}

/// Builds the operators for release and stores their image where real nodes pull from. Returns its name with its digest,
/// so that a node never runs an older build of the same tag.
pub fn build_image() -> Result<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the crate is in a workspace")?;
    let store = Store::open(images::default_store()?)?;
    let reference: Reference = images::operator::DEFAULT_TAG.parse()?;
    let built = images::operator::build(workspace, &store, &reference)?;
    let (repository, _tag) = images::operator::DEFAULT_TAG.rsplit_once(':').context("the tag has a name")?;
    Ok(format!("{repository}@{}", built.digest))
}

/// Applies everything and waits until the manager is ready. Doing it again changes nothing.
pub fn install(cluster: &Cluster, image: &str) -> Result<Installed> {
    let deployed = Deployed { namespace: MANAGER_NAMESPACE, image, flags: &["--log-level", "info,manager=debug"] };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests(&deployed)});
    let mut kubectl = cluster.kubectl(["apply", "--server-side", "--force-conflicts", "-f", "-"]);
    let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("could not start kubectl")?;
    child.stdin.take().context("kubectl reads nothing")?.write_all(list.to_string().as_bytes())?;
    ensure!(child.wait()?.success(), "kubectl could not apply the operators, see above");
    rolled_out(&mut cluster.kubectl([
        "--namespace",
        MANAGER_NAMESPACE,
        "rollout",
        "status",
        "deployment/controller-manager",
        "--timeout=120s",
    ]))?;
    Ok(Installed { image: image.to_owned() })
}

fn rolled_out(kubectl: &mut Command) -> Result<()> {
    let output = kubectl.output().context("could not start kubectl")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the manager did not become ready: {text}");
    Ok(())
}

//! Installs the operators like a user: their image, and the chart with Helm.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use chart::helm::{Helm, Version, succeeded};
use cluster::Cluster;
use controller_manager::OPERATORS;
use images::{
    Reference, Store,
    operator::{self, Built},
};
use serde_json::{Map, Value, json};

use crate::Backend;

/// The namespace of the operators.
pub const MANAGER_NAMESPACE: &str = chart::NAMESPACE;

/// The name of the operators' Deployment, of their `ServiceAccount` and of their webhook configurations.
pub const MANAGER: &str = "operators-controller-manager";

/// The name of the `ServiceAccount` of the sidecar that serves the metrics.
pub const METRICS_PROXY: &str = "operators-controller-manager-metrics-proxy";

/// The file in the folder of a cluster with the manifests that [`install`] has installed.
pub const INSTALLED: &str = "installed.yaml";

/// The installed operators.
#[derive(Debug)]
pub struct Installed {
    /// The image, by digest if it has one.
    pub image: String,
}

/// The operators' image for `cluster`: by digest, `REPOSITORY@DIGEST`, so that a node never runs an older build of the same tag;
/// or by a tag that is unique to the build.
///
/// `E2E_IMAGE` names an existing image. Without it, this builds the image and stores it where the local cluster pulls from, or
/// loads it into the nodes of kind.
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
    let build = || image_of(cluster, Profile::chosen()?);
    let Ok(run) = std::env::var("NEXTEST_RUN_ID") else { return build() };
    // All local clusters pull from one store. Another cluster has only the images that were loaded into it.
    let record = if cluster.is_ours() { workspace()?.join("target/image") } else { cluster.state_dir().to_path_buf() };
    once_in_a_run(&run, &record, build)
}

/// The programs in an image of the operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Those of an ordinary `cargo build`.
    Trial,
    /// Those that users run.
    Release,
}

impl Profile {
    /// The profile that `E2E_PROFILE` names: `trial`, which is the default, or `release`.
    pub fn chosen() -> Result<Self> {
        Self::named(&std::env::var("E2E_PROFILE").unwrap_or_default())
    }

    fn named(name: &str) -> Result<Self> {
        match name {
            "" | "trial" => Ok(Self::Trial),
            "release" => Ok(Self::Release),
            other => bail!("E2E_PROFILE is {other:?}: choose trial or release"),
        }
    }
}

/// The image that `build` makes. The sources stay the same while tests run, so of all tests of a run only the first one builds. A
/// file in `folder` names the run and its image.
fn once_in_a_run(run: &str, folder: &Path, build: impl FnOnce() -> Result<String>) -> Result<String> {
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    let mut known = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join("image-of-run"))
        .context("could not open the record of the image")?;
    known.lock().context("could not wait for another test")?;
    let mut text = String::new();
    known.read_to_string(&mut text).context("could not read the record of the image")?;
    if let Some((of, image)) = text.split_once(' ')
        && of == run
    {
        return Ok(image.to_owned());
    }
    let image = build()?;
    let recorded = known.set_len(0).and_then(|()| known.rewind()).and_then(|()| write!(known, "{run} {image}"));
    recorded.context("could not record the image")?;
    Ok(image)
}

/// The checkout.
pub(crate) fn workspace() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the crate is in a workspace")
}

/// The operators' image for `cluster`, with these programs. Builds it, and stores it where the local cluster pulls from, or loads it
/// into the nodes of kind.
pub fn image_of(cluster: &Cluster, profile: Profile) -> Result<String> {
    let store = Store::open(images::default_store()?)?;
    let built = build_image(workspace()?, &store, profile)?;
    if cluster.is_ours() {
        return by_digest(&built);
    }
    let Built { reference, digest, .. } = built;
    let text = reference.to_string();
    let (repository, _tag) = text.rsplit_once(':').context("the tag has a name")?;
    // Nodes that have not pulled the image know it only by its tag.
    let tag = &digest.hex()[..12];
    once(cluster, "loaded", tag, || load(cluster, &store, &reference, &reference.with_tag(tag)))?;
    Ok(format!("{repository}:{tag}"))
}

/// The name by which a node never runs an older build of the same tag.
pub(crate) fn by_digest(built: &Built) -> Result<String> {
    let text = built.reference.to_string();
    let (repository, _tag) = text.rsplit_once(':').context("the tag has a name")?;
    Ok(format!("{repository}@{}", built.digest))
}

/// Loads an image of the store into the nodes of a cluster of kind, under the name `name`.
pub(crate) fn load(cluster: &Cluster, store: &Store, reference: &Reference, name: &Reference) -> Result<()> {
    let folder = tempfile::tempdir().context("could not make a folder")?;
    let archive = folder.path().join("image.tar");
    store.export_as(reference, name, &archive)?;
    cluster.load_image(&archive)
}

/// Builds the image of the operators with these programs.
pub fn build_image(workspace: &Path, store: &Store, profile: Profile) -> Result<Built> {
    match profile {
        Profile::Trial => operator::build_trial(workspace, store),
        Profile::Release => operator::build(workspace, store, &operator::DEFAULT_TAG.parse()?, None),
    }
}

/// The chart's values for this image, `REPOSITORY@DIGEST` or `REPOSITORY:TAG`, with all operators enabled.
pub fn values(image: &str) -> Result<Value> {
    let image = match (image.split_once('@'), image.rsplit_once(':')) {
        (Some((repository, digest)), _) => json!({"repository": repository, "digest": digest}),
        (None, Some((repository, tag))) => json!({"repository": repository, "tag": tag}),
        (None, None) => bail!("the image {image:?} has neither a digest nor a tag"),
    };
    let examples = OPERATORS.iter().filter(|operator| operator.is_example());
    let examples: Map<String, Value> = examples.map(|it| (it.name().to_owned(), json!({"enabled": true}))).collect();
    Ok(json!({
        "image": image,
        "replicas": 2, // a leader and a standby
        "telemetry": {"logLevel": "info,manager=debug,cache=debug,webhooks=debug"},
        "operators": examples,
    }))
}

/// The label of the namespace that these tests have created. They never upgrade or remove a release in another namespace.
const OURS: &str = "operators.example.com/end-to-end-tests";

/// Creates the namespace of the operators, which enforces Pod Security.
///
/// # Errors
///
/// If the namespace exists and these tests have not created it.
pub fn make_namespace(cluster: &Cluster) -> Result<()> {
    let mut get = cluster.kubectl(["get", "namespace", MANAGER_NAMESPACE, "--ignore-not-found", "--output=json"]);
    let present = succeeded(&mut get)?;
    let present: Value = if present.is_empty() { Value::Null } else { serde_json::from_str(&present)? };
    if !cluster.is_ours() && !present.is_null() && present["metadata"]["labels"][OURS].is_null() {
        let name = cluster.name();
        bail!(
            "{name} has a namespace {MANAGER_NAMESPACE} that these tests have not created: they would replace its operators"
        );
    }
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted", OURS: "true"});
    let metadata = json!({"name": MANAGER_NAMESPACE, "labels": labels});
    apply(cluster, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
}

/// Applies an object as the administrator of the cluster. A second call changes nothing.
pub(crate) fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    let mut kubectl = cluster.kubectl(["apply", "--server-side", "--filename=-"]);
    let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("could not start kubectl")?;
    child.stdin.take().context("kubectl reads nothing")?.write_all(object.to_string().as_bytes())?;
    ensure!(child.wait()?.success(), "kubectl could not apply {}, see above", object["kind"]);
    Ok(())
}

/// Installs the chart and waits until the operators are ready. A second call changes nothing, and several tests may call this at
/// once.
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

/// Removes what [`install`] has installed, except the definitions and the objects of the operators' kinds. Returns `false` if
/// nothing is installed.
pub fn uninstall(cluster: &Cluster) -> Result<bool> {
    let marker = cluster.state_dir().join(INSTALLED);
    if !marker.exists() {
        return Ok(false);
    }
    make_namespace(cluster)?; // fails if these tests have not created it
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

/// Runs `work` on the cluster, unless `file` in the cluster's folder has the text `wanted` and so records that it is done. On an
/// existing cluster, the record is valid only for one run of the tests, because its users may undo the work.
pub(crate) fn once(cluster: &Cluster, file: &str, wanted: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let run = std::env::var("NEXTEST_RUN_ID").ok().filter(|_| !cluster.is_ours());
    let wanted = run.map_or_else(|| wanted.to_owned(), |run| format!("# {run}\n{wanted}"));
    let lock = File::create(cluster.state_dir().join(format!("{file}.lock"))).context("could not create a lock")?;
    lock.lock().context("could not wait for another call")?;
    let marker = cluster.state_dir().join(file); // is removed with the cluster
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_test_of_a_run_builds_the_image_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let image = |run, built: &str| once_in_a_run(run, &folder, || Ok(built.to_owned())).unwrap();
        let images = [image("1", "long"), image("1", "other"), image("2", "new"), image("2", "other")];
        assert_eq!(images, ["long", "long", "new", "new"]);
        let failed = once_in_a_run("3", &folder, || bail!("no compiler"));
        assert!(failed.is_err());
        assert_eq!(image("3", "late"), "late");
    }

    #[test]
    fn profile_is_chosen_by_name_and_defaults_to_trial() {
        let named = |name| Profile::named(name).map_err(|error| error.to_string());
        assert_eq!([named(""), named("trial")], [Ok(Profile::Trial), Ok(Profile::Trial)]);
        assert_eq!(named("release"), Ok(Profile::Release));
        assert_eq!(named("dev"), Err("E2E_PROFILE is \"dev\": choose trial or release".into()));
    }
}

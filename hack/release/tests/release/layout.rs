//! A release in two halves: the first one builds it into a folder, and `publish.sh` publishes the folder and compiles nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chart::helm::succeeded;
use cluster::{Tool, Tools, progress};
use images::reference::Repository;
use images::{Digest, Platform, Store};
use registry::Registry;
use registry_client::{Client, Name};
use release::layout::DIGESTS;
use release::{Artifacts, Plan, check, export};
use serde_json::{Value, json};

use crate::kit::{self, Checkout, VERSION};
use crate::signing::Keys;

/// A release in a folder, and a registry that has nothing of it.
struct Built {
    registry: Registry,
    checkout: Checkout,
    keys: Keys,
    plan: Plan,
    store: Store,
    artifacts: Artifacts,
}

impl Built {
    /// `None` if this machine lacks what publishes the folder.
    fn new() -> Option<Self> {
        if Command::new("jq").arg("--version").output().is_err() {
            skip::lacking("jq is missing: install the package jq");
            return None;
        }
        let (registry, checkout, keys) = (Registry::start().unwrap(), Checkout::new(), Keys::new());
        let (plan, store) = (checkout.plan(&registry), checkout.store());
        let images = [Platform::Amd64, Platform::Arm64].map(|platform| kit::image(&store, platform, "one"));
        let artifacts = kit::assemble(&plan, &store, &images);
        let built = Self { registry, checkout, keys, plan, store, artifacts };
        export(&built.artifacts, &built.store, &built.layout()).unwrap();
        Some(built)
    }

    fn layout(&self) -> PathBuf {
        self.checkout.output().with_file_name("layout")
    }

    fn client(&self) -> Client {
        kit::client(&self.registry)
    }

    /// Publishes the folder as the workflow does.
    fn publish(&self) -> anyhow::Result<String> {
        self.publish_with("VERSION", VERSION)
    }

    /// The same with another value of this variable.
    fn publish_with(&self, name: &str, value: &str) -> anyhow::Result<String> {
        let tools = Tools::locate_or_build(&[Tool::Cosign, Tool::Oras], &progress::to_stderr).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let folders = tools.folders().into_iter().map(Path::to_path_buf).chain(std::env::split_paths(&path));
        let digests: Value = serde_json::from_slice(&fs::read(self.layout().join(DIGESTS)).unwrap()).unwrap();
        let named = |repository: Repository, of: &str| format!("{repository}@{}", digests[of].as_str().unwrap());
        let mut publish = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("publish.sh"));
        publish.arg(self.layout()).arg(&self.plan.output).args(self.keys.flags());
        publish.env("IMAGE", named(self.plan.image(), "image")).env("CHART", named(self.plan.chart(), "chart"));
        publish.env("VERSION", VERSION).env("COMMIT", check(&self.plan).unwrap().commit);
        publish.env_remove("RUN").env_remove("BUILDER");
        publish.env("PATH", std::env::join_paths(folders).unwrap());
        succeeded(self.keys.lend(&mut publish).env(name, value))
    }

    /// Checks that the registry has nothing of this release.
    async fn assert_not_pushed(&self, after: &str) {
        let digests = self.artifacts.images.iter().map(|image| image.digest.clone());
        for digest in digests.chain([self.artifacts.index.digest()]) {
            let found = self.client().digest(&self.plan.image(), &Name::Digest(digest)).await.unwrap();
            assert_eq!(found, None, "{after}: it pushed before it looked");
        }
    }
}

/// The command that does both halves finds everything, including its own signatures, and so has nothing to send.
#[tokio::test]
async fn published_folder_is_the_release_that_one_command_would_make() {
    let Some(built) = Built::new() else { return };
    built.publish().unwrap();
    let Built { keys, plan, store, artifacts, .. } = &built;
    let client = built.client();
    for (repository, document) in [(plan.image(), &artifacts.index), (plan.chart(), &artifacts.chart)] {
        let tagged = client.digest(&repository, &Name::Tag(VERSION.to_owned())).await.unwrap();
        assert_eq!(tagged, Some(document.digest()), "{repository}");
    }
    for (image, bill) in artifacts.images.iter().zip(&artifacts.bills) {
        let referrers = client.referrers(&plan.image(), &image.digest).await.unwrap();
        assert_eq!(referrers, [bill.manifest.digest()], "{}", image.platform);
    }
    for of in ["controller-manager", "charts/operators"] {
        keys.verify(plan, of).unwrap();
    }
    assert_eq!(release::publish(&client, store, plan, artifacts, Some(&keys.signer())).await.unwrap(), 0);
}

#[tokio::test]
async fn folder_that_can_be_published_again_keeps_its_digests() {
    let Some(built) = Built::new() else { return };
    for _ in 0..2 {
        built.publish().unwrap();
    }
    let Built { keys, plan, artifacts, .. } = &built;
    let tagged = built.client().digest(&plan.image(), &Name::Tag(VERSION.to_owned())).await.unwrap();
    assert_eq!(tagged, Some(artifacts.index.digest()));
    keys.verify(plan, "controller-manager").unwrap();
}

/// The half that signs trusts the other one only for the digests.
#[tokio::test]
async fn provenance_of_another_release_is_not_signed() {
    let Some(built) = Built::new() else { return };
    let other = format!("{}@{}", built.plan.image(), Digest::of(b"other"));
    for (name, value) in [
        ("COMMIT", "0000000000000000000000000000000000000000"),
        ("VERSION", "1.2.4"),
        ("RUN", "https://github.com/team/operators/actions/runs/7/attempts/"),
        ("BUILDER", "https://github.com/actions/runner/github-hosted"),
        ("IMAGE", other.as_str()),
        ("CHART", other.as_str()),
    ] {
        let error = built.publish_with(name, value).unwrap_err().to_string();
        assert!(error.contains("names another release"), "{name}: {error}");
        built.assert_not_pushed(name).await;
    }
    let error = built.publish_with("IMAGE", "ghcr.io/team/app:1.2.3").unwrap_err().to_string();
    assert!(error.contains("is not a repository with a digest"), "{error}");
}

#[tokio::test]
async fn tampered_folder_is_not_published() {
    let Some(built) = Built::new() else { return };
    let layer = built.layout().join("blobs/sha256").join(Digest::of(&built.artifacts.package.content).hex());
    let manifests = built.plan.output.join("install.yaml");
    for (file, says) in [(&layer, "does not have the digest of its name"), (&manifests, "names another release")] {
        let content = fs::read(file).unwrap();
        fs::write(file, "tampered").unwrap();
        let error = built.publish().unwrap_err().to_string();
        assert!(error.contains(says), "{}: {error}", file.display());
        built.assert_not_pushed(says).await;
        fs::write(file, content).unwrap();
    }
    // An attachment that the build made up.
    let bundle = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.dev.sigstore.bundle.v0.3+json", "layers": [],
        "subject": {"digest": built.artifacts.images[0].digest}})
    .to_string();
    let digest = Digest::of(bundle.as_bytes());
    fs::write(built.layout().join("blobs/sha256").join(digest.hex()), &bundle).unwrap();
    let index = built.layout().join("index.json");
    let whole = fs::read_to_string(&index).unwrap();
    let mut changed: Value = serde_json::from_str(&whole).unwrap();
    changed["manifests"].as_array_mut().unwrap().push(json!({"digest": digest, "size": bundle.len()}));
    fs::write(&index, changed.to_string()).unwrap();
    let error = built.publish().unwrap_err().to_string();
    assert!(error.contains("which is no bill of an image"), "{error}");
    built.assert_not_pushed("an attachment of the build's own").await;
    fs::write(&index, whole).unwrap();
    // A checksum that users would compare.
    let sums = built.plan.output.join("SHA256SUMS");
    let whole = fs::read_to_string(&sums).unwrap();
    fs::write(&sums, whole.replacen(|it: char| it.is_ascii_hexdigit(), "g", 1)).unwrap();
    let error = built.publish().unwrap_err().to_string();
    assert!(error.contains("does not have the checksum"), "{error}");
    fs::write(&sums, whole).unwrap();
    // The page of the release would get it.
    fs::write(built.plan.output.join("more.yaml"), "").unwrap();
    let error = built.publish().unwrap_err().to_string();
    assert!(error.contains("names another release"), "{error}");
}

#[tokio::test]
async fn published_folder_never_changes_a_released_version() {
    let Some(built) = Built::new() else { return };
    let Built { plan, store, .. } = &built;
    let other = Plan { output: plan.output.with_file_name("other"), ..plan.clone() };
    let released = kit::assemble(&other, store, &[kit::image(store, Platform::Amd64, "other")]);
    release::publish(&built.client(), store, &other, &released, None).await.unwrap();
    let error = built.publish().unwrap_err().to_string();
    assert!(error.contains(&format!("controller-manager:{VERSION} was released before")), "{error}");
    built.assert_not_pushed("another content").await;
}

#[test]
fn folder_gets_only_intact_blobs_and_nothing_else_is_in_it() {
    let checkout = Checkout::new();
    let (plan, store) = (checkout.plan_for("127.0.0.1:1/team"), checkout.store());
    let image = kit::image(&store, Platform::Amd64, "one");
    let artifacts = kit::assemble(&plan, &store, std::slice::from_ref(&image));
    let folder = |name: &str| checkout.output().with_file_name(name);
    export(&artifacts, &store, &folder("layout")).unwrap();
    let error = export(&artifacts, &store, &folder("layout")).unwrap_err().to_string();
    assert!(error.contains("layout is not empty"), "{error}");

    let layer = store.manifest(&image.digest).unwrap().layers[0].digest.clone();
    fs::write(store.blob_path(&layer), "damaged").unwrap();
    let error = export(&artifacts, &store, &folder("again")).unwrap_err().to_string();
    assert!(error.contains(layer.hex()) && error.contains("digest of its name"), "{error}");
}

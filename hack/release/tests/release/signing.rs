//! Signatures and provenance, verified by cosign with the commands that the chart's README gives.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use images::reference::Repository;
use images::{Digest, Platform};
use registry::Registry;
use registry_client::{Client, Name};
use release::cosign::{BUNDLE, Identity, NO_ROOTS, NO_SERVICES, Signer, generate_key_pair};
use release::documented::Reader;
use release::oci::{self, Annotations, Attachment, Document};
use release::{Artifacts, Plan};
use serde_json::Value;
use tempfile::TempDir;

use crate::kit::{self, Checkout, VERSION};

const PASSWORD: &str = "not a secret";

/// A folder with a pair of keys, in which the commands of the README run.
pub(crate) struct Keys {
    folder: TempDir,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        generate_key_pair(folder.path(), PASSWORD).unwrap();
        Self { folder }
    }

    /// Gives the password of the private key to a command that runs cosign, and another home: it would keep roots of trust and a
    /// configuration of docker there.
    pub(crate) fn lend<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("HOME", self.folder.path()).env("COSIGN_PASSWORD", PASSWORD).env_remove("DOCKER_CONFIG")
    }

    /// The flags with which cosign signs by the private key, without any service.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let file = |name: &str| self.folder.path().join(name);
        fs::write(file("services.json"), NO_SERVICES).unwrap();
        fs::write(file("roots.json"), NO_ROOTS).unwrap();
        let flags = [("--key", "cosign.key"), ("--signing-config", "services.json"), ("--trusted-root", "roots.json")];
        flags.into_iter().flat_map(|(flag, name)| [OsString::from(flag), file(name).into_os_string()]).collect()
    }

    fn private(&self) -> Identity {
        Identity::Key(self.folder.path().join("cosign.key").to_str().unwrap().to_owned())
    }

    pub(crate) fn signer(&self) -> Signer {
        Signer::new(self.private(), Some(PASSWORD.to_owned())).unwrap()
    }

    /// Runs the README's commands about this repository of the release. Returns what the last one says.
    pub(crate) fn verify(&self, plan: &Plan, of: &str) -> anyhow::Result<String> {
        let repository = [plan.image(), plan.chart()].into_iter().find(|it| it.path.ends_with(of));
        Reader::new(self.folder.path()).unwrap().verify(plan, &repository.unwrap())
    }
}

/// A signed release in a registry of its own.
struct Released {
    registry: Registry,
    checkout: Checkout,
    keys: Keys,
    plan: Plan,
    artifacts: Artifacts,
    client: Client,
}

impl Released {
    async fn new() -> Self {
        let (registry, checkout, keys) = (Registry::start().unwrap(), Checkout::new(), Keys::new());
        let (plan, store, client) = (checkout.plan(&registry), checkout.store(), kit::client(&registry));
        let artifacts = kit::assemble(&plan, &store, &[kit::image(&store, Platform::Amd64, "one")]);
        release::publish(&client, &store, &plan, &artifacts, Some(&keys.signer())).await.unwrap();
        Self { registry, checkout, keys, plan, artifacts, client }
    }

    /// Puts another content under the tag, and attaches the signatures of the released one to it.
    async fn tamper(&self, repository: &Repository, released: &Document, content: &str) {
        let tampered = Document { media_type: released.media_type, content: Bytes::from(content.to_owned()) };
        assert_ne!(tampered.content, released.content);
        let tag = Name::Tag(VERSION.to_owned());
        self.client.push_manifest(repository, &tag, tampered.media_type, &tampered.content).await.unwrap();
        for (bundle, annotations) in self.bundles(repository, &released.digest()).await {
            let stolen = Attachment::new(&tampered, BUNDLE, bundle, annotations).unwrap();
            release::publish::attach(&self.client, repository, &stolen).await.unwrap();
        }
    }

    /// The bundles that are attached to this digest.
    async fn bundles(&self, repository: &Repository, of: &Digest) -> Vec<(Bytes, Annotations)> {
        let mut bundles = Vec::new();
        for referrer in self.client.referrers(repository, of).await.unwrap() {
            let manifest = self.client.manifest(repository, &Name::Digest(referrer)).await.unwrap().unwrap();
            let manifest: Value = serde_json::from_slice(&manifest.content).unwrap();
            assert_eq!(manifest["artifactType"], BUNDLE);
            let layer = &manifest["layers"][0];
            let digest = Digest::parse(layer["digest"].as_str().unwrap()).unwrap();
            let bundle = self.client.blob(repository, &digest, layer["size"].as_u64().unwrap()).await.unwrap();
            bundles.push((bundle, serde_json::from_value(manifest["annotations"].clone()).unwrap()));
        }
        bundles
    }
}

#[tokio::test]
async fn signed_release_is_accepted_by_the_commands_of_the_readme() {
    let released = Released::new().await;
    let Released { keys, plan, artifacts, .. } = &released;
    for (of, digest) in
        [("controller-manager", artifacts.index.digest()), ("charts/operators", artifacts.chart.digest())]
    {
        // The last command prints the provenance.
        let said: Value = serde_json::from_str(&keys.verify(plan, of).unwrap()).unwrap();
        let statement = BASE64_STANDARD.decode(said["payload"].as_str().unwrap()).unwrap();
        assert_eq!(statement, artifacts.provenance.content);
        let statement: Value = serde_json::from_slice(&statement).unwrap();
        let subjects = statement["subject"].as_array().unwrap();
        assert!(subjects.iter().any(|subject| subject["digest"]["sha256"] == digest.hex()), "{subjects:?}");
    }
}

#[tokio::test]
async fn signature_of_another_key_is_refused() {
    let released = Released::new().await;
    let other = Keys::new();
    for of in ["controller-manager", "charts/operators"] {
        other.verify(&released.plan, of).unwrap_err();
        released.keys.verify(&released.plan, of).unwrap();
    }
}

#[tokio::test]
async fn tampered_image_is_refused() {
    let released = Released::new().await;
    let Released { keys, plan, artifacts, checkout, .. } = &released;
    let store = checkout.store();
    let other = kit::image(&store, Platform::Amd64, "tampered");
    let name = Name::Digest(other.digest.clone());
    registry_client::image::push_digest(&released.client, &store, &other.digest, &plan.image(), &name).await.unwrap();
    let content = String::from_utf8(artifacts.index.content.to_vec()).unwrap();
    let size = |digest: &Digest| fs::metadata(store.blob_path(digest)).unwrap().len();
    let was = &artifacts.images[0].digest;
    let content = content.replace(&was.to_string(), &other.digest.to_string());
    let content = content.replace(&format!("\"size\":{}", size(was)), &format!("\"size\":{}", size(&other.digest)));
    released.tamper(&plan.image(), &artifacts.index, &content).await;
    let error = keys.verify(plan, "controller-manager").unwrap_err().to_string();
    assert!(error.contains("subject") || error.contains("digest"), "{error}");
    keys.verify(plan, "charts/operators").unwrap();
}

#[tokio::test]
async fn tampered_chart_is_refused() {
    let released = Released::new().await;
    let Released { keys, plan, artifacts, client, .. } = &released;
    let package = Bytes::from_static(b"another package");
    client.push_blob(&plan.chart(), &package).await.unwrap();
    let chart = oci::chart(&artifacts.package.config, &package, Annotations::new()).unwrap();
    let content = String::from_utf8(chart.content.to_vec()).unwrap();
    released.tamper(&plan.chart(), &artifacts.chart, &content).await;
    let error = keys.verify(plan, "charts/operators").unwrap_err().to_string();
    assert!(error.contains("subject") || error.contains("digest"), "{error}");
    keys.verify(plan, "controller-manager").unwrap();
}

#[tokio::test]
async fn repeated_signed_release_signs_nothing_again() {
    let released = Released::new().await;
    let Released { keys, plan, artifacts, client, checkout, .. } = &released;
    let store = checkout.store();
    let before = released.bundles(&plan.image(), &artifacts.index.digest()).await;
    assert_eq!(before.len(), 2);
    let again = release::publish(client, &store, plan, artifacts, Some(&keys.signer())).await.unwrap();
    assert_eq!((again, released.bundles(&plan.image(), &artifacts.index.digest()).await), (0, before));

    // The signature of another key says nothing for ours.
    let other = Keys::new();
    assert!(release::publish(client, &store, plan, artifacts, Some(&other.signer())).await.unwrap() > 0);
    for keys in [keys, &other] {
        keys.verify(plan, "controller-manager").unwrap();
    }
    assert!(released.registry.address.ip().is_loopback());
}

#[tokio::test]
async fn unsigned_release_has_provenance_and_is_refused() {
    let (registry, checkout, keys) = (Registry::start().unwrap(), Checkout::new(), Keys::new());
    let (plan, store, client) = (checkout.plan(&registry), checkout.store(), kit::client(&registry));
    let artifacts = kit::assemble(&plan, &store, &[kit::image(&store, Platform::Amd64, "one")]);
    for _ in 0..2 {
        release::publish(&client, &store, &plan, &artifacts, None).await.unwrap();
    }
    for (repository, document) in [(plan.image(), &artifacts.index), (plan.chart(), &artifacts.chart)] {
        let referrers = client.referrers(&repository, &document.digest()).await.unwrap();
        assert_eq!(referrers.len(), 1, "{referrers:?}");
        let manifest = client.manifest(&repository, &Name::Digest(referrers[0].clone())).await.unwrap().unwrap();
        let manifest: Value = serde_json::from_slice(&manifest.content).unwrap();
        assert_eq!(manifest["artifactType"], "application/vnd.in-toto+json");
        assert_eq!(manifest["layers"][0]["digest"], Digest::of(&artifacts.provenance.content).to_string());
    }
    for of in ["controller-manager", "charts/operators"] {
        keys.verify(&plan, of).unwrap_err();
    }
}

#[test]
fn wrong_password_and_missing_key_are_named_before_the_build() {
    let keys = Keys::new();
    let error = format!("{:#}", Signer::new(keys.private(), Some("wrong".to_owned())).unwrap_err());
    assert!(error.contains("COSIGN_PASSWORD") && error.contains("cosign.key"), "{error}");
    let missing = Identity::Key("/nowhere/cosign.key".to_owned());
    let error = format!("{:#}", Signer::new(missing, None).unwrap_err());
    assert!(error.contains("/nowhere/cosign.key") && error.contains("cosign generate-key-pair"), "{error}");
}

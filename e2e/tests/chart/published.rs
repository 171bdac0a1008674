//! A release as users get it: from a registry, with signatures. This is the short form of the nightly step `release`, which also builds
//! the programs of each version, and changes bytes in the registry.

use anyhow::Result;
use chart::{
    RELEASE,
    helm::{Helm, Version},
};
use cluster::{Tool, Tools, progress};
use controller_manager::OPERATORS;
use images::{Digest, Platform, Store, operator, reference::Repository, sbom::Component};
use registry::Registry;
use registry_client::{Client, Credentials, Name, Options};
use release::{
    Artifacts, Image, Plan, Ready, check,
    checkout::Checkout,
    cosign::{Identity, Signer, generate_key_pair},
    documented::Reader,
    oci::{self, Annotations},
    package, publish,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::{self, Runtime};

use crate::{kit::World, lifecycle::MEMCACHED};

const PASSWORD: &str = "not a secret";
const WAIT: &[&str] = &["--wait", "--timeout=3m"];

/// A maintainer with a key, and a registry in the network of the node, which pulls from there.
struct Maintainer<'a> {
    world: &'a World,
    registry: Registry,
    helm: Helm,
    store: Store,
    /// What is linked into the programs, the same in each version.
    components: Vec<Component>,
    /// The folder of the keys, in which the commands of users run.
    folder: TempDir,
}

/// A release that the registry has.
struct Released {
    plan: Plan,
    ready: Ready,
    artifacts: Artifacts,
}

impl Released {
    /// The image that its pods run.
    fn image(&self) -> String {
        format!("{}@{}", self.plan.image(), self.artifacts.index.digest())
    }
}

impl<'a> Maintainer<'a> {
    fn new(world: &'a World) -> Self {
        // Before the registry starts: what is missing is built, and the network of the node has no way to the sources.
        Tools::locate_or_build(&[Tool::Cosign, Tool::Oras, Tool::Distribution], &progress::to_stderr).unwrap();
        let folder = TempDir::new().unwrap();
        generate_key_pair(folder.path(), PASSWORD).unwrap();
        let registry = world.cluster.in_network(Registry::start).unwrap();
        world.cluster.pull_from(registry.address).unwrap();
        Self {
            world,
            registry,
            helm: Helm::of(Version::Four).unwrap(),
            store: Store::open(folder.path().join("store")).unwrap(),
            components: operator::components(&chart::folder().join("../.."), Platform::here().unwrap()).unwrap(),
            folder,
        }
    }

    /// Signs and publishes the version of this checkout. Its image is that of the other tests, with other labels.
    fn release(&self, checkout: &Checkout) -> Released {
        let platform = Platform::here().unwrap();
        let plan = checkout.plan(&format!("{}/team", self.registry.address), &[platform]).unwrap();
        let ready = check(&plan).unwrap();
        let version = plan.version.to_string();
        let digest = installation::copy_as_version(&self.world.image, &version, &ready.commit, &self.store).unwrap();
        let components = self.components.clone();
        let tools = operator::tools(&components, platform).unwrap();
        let image = Image { platform, digest, components, tools };
        let artifacts = Artifacts::assemble(&plan, &ready, vec![image], &[], &self.store, &self.helm).unwrap();
        let key = self.folder.path().join("cosign.key").to_str().unwrap().to_owned();
        let signer = Signer::new(Identity::Key(key), Some(PASSWORD.to_owned())).unwrap();
        let sent = self.world.cluster.in_network(|| {
            let (client, runtime) = self.client()?;
            runtime.block_on(publish(&client, &self.store, &plan, &artifacts, Some(&signer)))
        });
        assert!(sent.unwrap() > 0, "{version} was in the registry before");
        Released { plan, ready, artifacts }
    }

    /// A client of the registry, and what runs it on this thread alone.
    fn client(&self) -> Result<(Client, Runtime)> {
        let options = Options { credentials: Credentials::Anonymous, ..Options::default() };
        let client = Client::new(&self.registry.address.to_string(), options)?;
        Ok((client, runtime::Builder::new_current_thread().enable_all().build()?))
    }

    /// Runs the commands of the chart's README about the signature and the provenance of this repository.
    fn verify(&self, plan: &Plan, of: &Repository) -> Result<String> {
        self.world.cluster.in_network(|| Reader::new(self.folder.path())?.verify(plan, of))
    }

    /// Runs all commands of the chart's README about the release, which must accept it.
    fn accepts(&self, Released { plan, artifacts, .. }: &Released) {
        for of in [plan.image(), plan.chart()] {
            self.verify(plan, &of).unwrap();
        }
        let bill = self.world.cluster.in_network(|| Reader::new(self.folder.path())?.bill_of_materials(plan)).unwrap();
        let bill: Value = serde_json::from_slice(&bill).unwrap();
        assert_eq!(bill["metadata"]["component"]["version"], artifacts.images[0].digest.to_string());
        let components = bill["components"].as_array().unwrap();
        assert!(components.iter().any(|it| it["name"] == "controller-manager"), "{components:?}");
    }

    /// Moves the tag of the chart to a chart that names another image, which the registry lacks. Returns this image.
    fn tamper(&self, Released { plan, ready, .. }: &Released) -> String {
        let digest = Digest::of(b"the registry has no such image");
        let other = package::package(&self.helm, plan, ready, &digest).unwrap();
        let manifest = oci::chart(&other.config, &other.content, Annotations::new()).unwrap();
        let (repository, tag) = (plan.chart(), Name::Tag(plan.version.to_string()));
        let pushed = self.world.cluster.in_network(|| {
            let (client, runtime) = self.client()?;
            runtime.block_on(async {
                for blob in [&other.config, &other.content] {
                    client.push_blob(&repository, blob).await?;
                }
                client.push_manifest(&repository, &tag, manifest.media_type, &manifest.content).await
            })
        });
        pushed.unwrap();
        format!("{}@{digest}", plan.image())
    }
}

/// Runs `helm install` or `helm upgrade` with the chart of this release, as users do.
fn helm(world: &World, verb: &str, plan: &Plan, more: &[&str]) {
    let (chart, version) = (format!("oci://{}", plan.chart()), plan.version.to_string());
    // The registry has no certificate.
    let arguments = [verb, RELEASE, &chart, "--version", &version, "--plain-http"];
    world.helm(&[&arguments[..], more].concat());
}

/// The image of the operators in one of their pods.
fn image(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap()
}

/// Waits until all pods of the operators are those of this release.
fn only_pods_of(world: &World, released: &Released) {
    let wanted = released.image();
    world.until(&format!("only pods with {wanted} are left"), |world| {
        let pods = world.pods();
        !pods.is_empty() && pods.iter().all(|pod| image(pod) == wanted)
    });
}

/// Whether the node could not pull an image of the pod.
fn lacks_image(pod: &Value) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let mut reasons = containers.filter_map(|it| it["state"]["waiting"]["reason"].as_str());
    reasons.any(|reason| ["ErrImagePull", "ImagePullBackOff"].contains(&reason))
}

/// The uids of the user's object and of its children.
fn uids(world: &World) -> Vec<Value> {
    let found = world.get(&[MEMCACHED, "deployment/memcached-sample", "service/memcached-sample"]);
    let uids: Vec<_> = found["items"].as_array().unwrap().iter().map(|it| it["metadata"]["uid"].clone()).collect();
    assert_eq!(uids.len(), 3, "{found}");
    uids
}

/// The operators carry out a change.
fn resize(world: &World, size: u8) {
    world.kubectl(&["scale", MEMCACHED, &format!("--replicas={size}")]);
    world.until("the operators carry out a change", |world| {
        world.get(&["deployment", "memcached-sample"])["status"]["readyReplicas"] == size
    });
    world.ready(MEMCACHED);
}

#[test]
fn signed_release_in_a_registry_is_installed_and_upgraded_and_a_tampered_one_is_refused() {
    let Some(world) = World::drawn(10, installation::own_cluster) else { return };
    let maintainer = Maintainer::new(&world);
    let checkouts = ["0.1.0", "0.1.1"].map(|version| Checkout::new(version).unwrap());
    let [first, second] = checkouts.each_ref().map(|checkout| maintainer.release(checkout));
    assert_ne!(first.image(), second.image(), "the upgrade would show nothing");
    for released in [&first, &second] {
        maintainer.accepts(released);
    }

    helm(&world, "install", &first.plan, WAIT);
    only_pods_of(&world, &first);
    let memcached = OPERATORS.iter().find(|operator| operator.name() == "memcached").unwrap();
    world.apply(memcached.sample());
    world.ready(MEMCACHED);
    let before = uids(&world);

    helm(&world, "upgrade", &second.plan, WAIT);
    only_pods_of(&world, &second);
    resize(&world, 2);
    assert_eq!(uids(&world), before, "the upgrade replaced the object or its children");

    let absent = maintainer.tamper(&second);
    maintainer.verify(&second.plan, &second.plan.chart()).unwrap_err();
    // The same commands still reach the registry, and accept what is as it was released.
    maintainer.verify(&second.plan, &second.plan.image()).unwrap();
    // A user who installs it without these commands keeps the operators of the release, because the node pulls only by the digest.
    helm(&world, "upgrade", &second.plan, &[]);
    world.until("the node looks for the image of the tampered chart in vain", |world| {
        world.pods().iter().any(|pod| image(pod) == absent && lacks_image(pod))
    });
    assert!(world.pods().iter().any(|pod| image(pod) == second.image()), "the upgrade stopped the operators");
    resize(&world, 1);
    assert_eq!(uids(&world), before, "the tampered chart replaced the object or its children");
}

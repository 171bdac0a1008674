//! The nightly step `release`: two releases as users meet them. A registry has them with signatures, a real node runs the first one from
//! there, and is upgraded to the second one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use chart::helm::{self, Helm};
use chart::{NAMESPACE, RELEASE};
use cluster::{Cluster, Nodes, Tool, Tools, progress};
use controller_manager::OPERATORS;
use images::{Digest, ImageSpec, Layer, Platform, Reference, Store};
use registry::Registry;
use registry_client::image::push_digest;
use registry_client::{Client, Credentials, Name, Options};
use release::cosign::{Identity, Signer, generate_key_pair};
use release::documented::Reader;
use release::{Artifacts, Plan, Ready, check, publish};
use semver::Version;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::assemble;
use super::replica::{self, Replica, VERSION};
use crate::report::Outcome;
use crate::workspace;

/// The profile of cargo: the release itself is tried here, not the speed of its programs.
const PROFILE: &str = "dev";
const PASSWORD: &str = "not a secret";
/// The program in the image.
const PROGRAM: &str = "/controller-manager";
/// The pods of the operators.
const PODS: &str = "--selector=app.kubernetes.io/component=controller-manager";

pub(crate) fn nightly() -> Result<Outcome> {
    let cluster = match Cluster::fresh(Nodes::Real) {
        Ok(cluster) => cluster,
        Err(error) => return Ok(Outcome::without(&error)),
    };
    let folder = workspace::root().join("target/rehearsal");
    replica::clear(&folder)?;
    let rehearsal = Rehearsal::new(&cluster, &folder)?;
    let first: Version = VERSION.parse().context("the version of the checkout")?;
    let second = Version::new(first.major, first.minor, first.patch + 1);
    let (first, second) = (rehearsal.release(first)?, rehearsal.release(second)?);
    if let Err(error) = rehearsal.play(&first, &second) {
        rehearsal.show();
        return Err(error);
    }
    drop(rehearsal);
    replica::clear(&folder)?; // some gigabytes
    Ok(Outcome::Passed)
}

/// A registry in the network of a real node, and a maintainer with a key.
struct Rehearsal<'a> {
    cluster: &'a Cluster,
    registry: Registry,
    replica: Replica,
    store: Store,
    /// The folder of the maintainer and of the users, who share the public key.
    keys: PathBuf,
    helm: Helm,
}

/// A release that the registry has.
struct Released {
    plan: Plan,
    ready: Ready,
    artifacts: Artifacts,
}

impl<'a> Rehearsal<'a> {
    fn new(cluster: &'a Cluster, folder: &Path) -> Result<Self> {
        // Before the registry starts: what is missing is built, and downloaded for that.
        Tools::locate_or_build(&[Tool::Cosign, Tool::Oras, Tool::Distribution], &progress::to_stderr)?;
        let keys = folder.join("keys");
        fs::create_dir_all(&keys).with_context(|| format!("could not create {}", keys.display()))?;
        generate_key_pair(&keys, PASSWORD)?;
        let registry = cluster.in_network(Registry::start)?;
        cluster.pull_from(registry.address)?;
        Ok(Self {
            cluster,
            registry,
            replica: Replica::new(folder.join("checkout"))?,
            store: Store::open(folder.join("store"))?,
            keys,
            helm: Helm::of(helm::Version::Four)?,
        })
    }

    /// Builds, signs and publishes this version.
    fn release(&self, version: Version) -> Result<Released> {
        eprintln!("releasing {version} to the registry {}", self.registry.address);
        self.replica.commit(&version)?;
        let registry = format!("{}/team", self.registry.address);
        let plan = self.replica.plan(version, &registry, &[Platform::here()?], PROFILE)?;
        let ready = check(&plan)?;
        let artifacts = assemble(&plan, &ready, &self.store)?;
        let key = self.keys.join("cosign.key");
        let key = key.to_str().context("the path of the checkout is not Unicode")?;
        let signer = Signer::new(Identity::Key(key.to_owned()), Some(PASSWORD.to_owned()))?;
        self.cluster.in_network(|| {
            let (client, runtime) = self.client()?;
            runtime.block_on(publish(&client, &self.store, &plan, &artifacts, Some(&signer)))
        })?;
        let released = Released { plan, ready, artifacts };
        self.check_labels(&released)?;
        Ok(released)
    }

    /// Checks that the image names the version and the commit.
    fn check_labels(&self, Released { plan, ready, artifacts }: &Released) -> Result<()> {
        let config = self.store.manifest(&artifacts.images[0].digest)?.config.digest;
        let config: Value = serde_json::from_slice(&fs::read(self.store.blob_path(&config))?)?;
        let label = |name: &str| &config["config"]["Labels"][format!("org.opencontainers.image.{name}")];
        let (version, commit) = (label("version"), label("revision"));
        ensure!(
            *version == plan.version.to_string(),
            "the image of {} says that its version is {version}",
            plan.version
        );
        ensure!(*commit == ready.commit, "the image of the commit {} says that it is {commit}", ready.commit);
        Ok(())
    }

    /// A client of the registry, and what runs it on this thread alone.
    fn client(&self) -> Result<(Client, Runtime)> {
        let options = Options { credentials: Credentials::Anonymous, ..Options::default() };
        let client = Client::new(&self.registry.address.to_string(), options)?;
        Ok((client, tokio::runtime::Builder::new_current_thread().enable_all().build()?))
    }

    /// Installs the first release and upgrades to the second one, with the objects of users in between.
    fn play(&self, first: &Released, second: &Released) -> Result<()> {
        for released in [first, second] {
            self.cluster.in_network(|| self.verify(released))?;
        }
        installation::make_namespace(self.cluster)?;
        self.install(first)?;
        let samples = self.samples("before")?;
        self.ready("before", &samples)?;
        let uids = self.uids("before", &samples)?;

        self.install(second)?;
        self.ready("before", &samples)?;
        ensure!(self.uids("before", &samples)? == uids, "the upgrade replaced objects");
        // The new operators also make something.
        self.ready("after", &self.samples("after")?)?;
        let test = ["test", RELEASE, "--namespace", NAMESPACE, "--timeout=5m"];
        helm::succeeded(self.helm.on(self.cluster).args(test)).context("helm test")?;
        self.helm_refuses_changed_chart(second)?;
        self.node_refuses_changed_layer(second)
    }

    /// Prints what users look at after a failure. The cluster ends with the rehearsal.
    fn show(&self) {
        for kind in ["pods", "events"] {
            let shown = self.kubectl(&["get", kind, "--all-namespaces", "--output=wide"]);
            eprintln!("{kind}:\n{}", shown.unwrap_or_else(|error| format!("{error:#}")));
        }
    }

    /// Runs the commands of the README for the image, the chart and the bill of materials.
    fn verify(&self, released: &Released) -> Result<()> {
        let (Released { plan, artifacts, .. }, reader) = (released, Reader::new(&self.keys)?);
        for of in [plan.image(), plan.chart()] {
            reader.verify(plan, &of).with_context(|| format!("{of}:{} is not accepted", plan.version))?;
        }
        let bill: Value = serde_json::from_slice(&reader.bill_of_materials(plan)?)?;
        let described = &bill["metadata"]["component"]["version"];
        ensure!(*described == artifacts.images[0].digest.to_string(), "the bill of materials describes {described}");
        Ok(())
    }

    /// Installs the release from the registry or upgrades to it. Checks that its pods run its image.
    fn install(&self, released: &Released) -> Result<()> {
        let Released { plan, ready, artifacts } = released;
        eprintln!("helm upgrade --install: {}", plan.version);
        helm::succeeded(&mut self.helm_with(&["upgrade", "--install", RELEASE], plan, &["--wait", "--timeout=5m"]))
            .with_context(|| format!("Helm could not install {}", plan.version))?;
        let pods = self.kubectl(&["get", "pods", "--namespace", NAMESPACE, PODS, "--output=json"])?;
        let pods: Value = serde_json::from_str(&pods)?;
        let image = format!("{}@{}", plan.image(), artifacts.index.digest());
        let is_current = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let pods: Vec<_> = pods["items"].as_array().into_iter().flatten().filter(is_current).collect();
        ensure!(!pods.is_empty(), "no pod of {} runs", plan.version);
        for pod in pods {
            let runs = main_image(pod);
            ensure!(runs == image, "a pod of {} should run {image}, but runs {runs}", plan.version);
            let name = pod["metadata"]["name"].as_str().context("a pod has a name")?;
            let said = self.kubectl(&["exec", "--namespace", NAMESPACE, name, "--", PROGRAM, "--version"])?;
            let described = format!("{} (commit {}", plan.version, ready.commit);
            ensure!(said.contains(&described), "a pod of {described}) says that it is {said}");
        }
        Ok(())
    }

    /// Helm compares the package with the digest in the manifest, which the signature is about.
    fn helm_refuses_changed_chart(&self, released: &Released) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let to = folder.path().to_str().context("the folder of temporary files is not Unicode")?;
        let mut pull = self.helm_with(&["pull"], &released.plan, &["--destination", to]);
        helm::succeeded(&mut pull).context("Helm should pull the unchanged chart")?;
        self.tamper(&Digest::of(&released.artifacts.package.content))?;
        let accepted = "Helm accepts a package that has not the digest of the chart";
        let refused = helm::succeeded(&mut pull).err().context(accepted)?;
        ensure!(
            format!("{refused:#}").contains("mismatched digest"),
            "Helm refuses it for another reason: {refused:#}"
        );
        Ok(())
    }

    /// A node does the same with the layers of an image. It has those of the release already, so this one is another one.
    fn node_refuses_changed_layer(&self, released: &Released) -> Result<()> {
        let mut files = Layer::new();
        files.file("/content", "as it was pushed", 0o644);
        let references = vec![Reference::parse("localhost/rehearsal/changed:1")?];
        let spec = ImageSpec { references, files, platform: Some(Platform::here()?), ..ImageSpec::default() };
        let image = spec.build()?;
        self.store.put(&image)?;
        let (repository, digest) = (released.plan.image(), image.digest());
        self.cluster.in_network(|| {
            let (client, runtime) = self.client()?;
            let name = Name::Digest(digest.clone());
            runtime.block_on(push_digest(&client, &self.store, &digest, &repository, &name))
        })?;
        self.tamper(&Digest::of(&image.layer))?;
        let image = format!("--image={repository}@{digest}");
        self.kubectl(&["run", "changed", &image, "--restart=Never"])?;
        // The kubelet alternates between two reasons, and `wait` sees each of them.
        let refused = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull";
        self.kubectl(&["wait", refused, "pod/changed", "--timeout=120s"]).context("the node should refuse it")?;
        let message = "--output=jsonpath={.status.containerStatuses[0].state.waiting.message}";
        let why = self.kubectl(&["get", "pod", "changed", message])?;
        ensure!(why.contains("unexpected commit digest"), "the node refuses it for another reason: {why}");
        Ok(())
    }

    /// Changes a byte of this blob in the registry.
    fn tamper(&self, digest: &Digest) -> Result<()> {
        let file = self.registry.file(digest);
        let mut content = fs::read(&file).with_context(|| format!("the registry has no {digest}"))?;
        let middle = content.len() / 2;
        *content.get_mut(middle).context("the blob is empty")? ^= 1;
        fs::write(&file, content).with_context(|| format!("could not change {}", file.display()))
    }

    /// A command of Helm about the chart of this release.
    fn helm_with(&self, before: &[&str], plan: &Plan, after: &[&str]) -> Command {
        let mut command = self.helm.on(self.cluster);
        command.args(before).arg(format!("oci://{}", plan.chart())).args(["--version", &plan.version.to_string()]);
        command.args(["--plain-http", "--namespace", NAMESPACE]).args(after); // the registry has no certificate
        command
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut kubectl = self.cluster.kubectl(arguments);
        helm::succeeded(&mut kubectl).with_context(|| format!("kubectl {}", arguments.join(" ")))
    }

    /// Creates a sample of each operator that runs by default, in a new namespace. Returns the file with them.
    fn samples(&self, namespace: &str) -> Result<String> {
        self.kubectl(&["create", "namespace", namespace])?;
        let chosen = OPERATORS.iter().filter(|it| !it.is_example() && !it.sample_needs_chart());
        let samples = chosen.map(|operator| operator.sample()).collect::<Vec<_>>().join("\n---\n");
        ensure!(!samples.is_empty(), "no operator runs by default");
        let file = self.keys.with_file_name("samples.yaml");
        fs::write(&file, samples).with_context(|| format!("could not write {}", file.display()))?;
        let file = file.to_str().context("the path of the checkout is not Unicode")?.to_owned();
        self.kubectl(&["apply", "--namespace", namespace, "--server-side", "--filename", &file])?;
        Ok(file)
    }

    fn ready(&self, namespace: &str, samples: &str) -> Result<()> {
        let ready =
            ["wait", "--for=condition=Ready", "--timeout=180s", "--namespace", namespace, "--filename", samples];
        self.kubectl(&ready).map(drop)
    }

    fn uids(&self, namespace: &str, samples: &str) -> Result<String> {
        let uid = "--output=jsonpath={.items[*].metadata.uid}{.metadata.uid}";
        self.kubectl(&["get", "--namespace", namespace, "--filename", samples, uid])
    }
}

/// The image of the first container of a pod, which is that of the operators.
fn main_image(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

//! Existing clusters that this repository does not run: what is known from their kubeconfig, and whether this machine reaches
//! their network.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::layout::Layout;
use crate::missing::{Missing, Unsupported, last_line};
use crate::pki;
use crate::progress;
use crate::tools::{Lock, Tool, Tools, hex};

/// How to use an existing cluster.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// The name of kubectl's context, or the name that kind uses.
    pub(crate) name: String,
    /// The version of Kubernetes.
    pub(crate) version: String,
    pub(crate) server: String,
    /// kubectl, if it is built here; otherwise commands use the one on the PATH.
    pub(crate) tools: Tools,
    /// The id of a process on this machine in the network of the pods, if there is one.
    pub(crate) node: Option<i32>,
    /// The number of workers that tests may drain; `None` if they may not.
    pub(crate) workers: Option<usize>,
}

/// The environment variable with which the user declares, with `true`, that this machine is in the network of the cluster's pods.
const REACHES_PODS: &str = "E2E_REACHES_PODS";

/// The cluster of the current context, and the folder for local files about it.
pub(crate) fn existing(kubeconfig: Option<&Path>) -> Result<(Layout, Foreign)> {
    let config = current_context(kubeconfig)?;
    let name = config.text("/current-context").context("kubectl has no current context: set KUBECONFIG")?;
    let server = config.server().context("the current context has no cluster")?;
    let layout = Layout::of(&format!("existing-{}", hex(&Sha256::digest(&server)[..4])))?;
    let _lock = Lock::acquire(&layout.lock(), "asking the same cluster", Duration::from_mins(5), &progress::quiet)?;
    let foreign = keep(&layout, name, &config)?;
    Ok((layout, foreign))
}

/// Copies the kubeconfig to the folder of the cluster, so that a later change of the user's context has no effect here. Then asks
/// the API server for its version. The caller must hold the lock of the folder.
pub(crate) fn keep(layout: &Layout, name: String, config: &Kubeconfig) -> Result<Foreign> {
    fs::create_dir_all(layout.folder()).with_context(|| format!("could not create {}", layout.folder().display()))?;
    let text = config.0.to_string();
    if fs::read_to_string(layout.kubeconfig()).ok().as_ref() != Some(&text) {
        pki::write_private(&layout.kubeconfig(), &text)?; // an equal file stays, since other processes may read it
    }
    let server = config.server().context("the kubeconfig names no server")?;
    let tools = kubectl_of_ours()?;
    let answer = kubectl(&tools, ["version", "--output=json", "--request-timeout=10s"])?
        .env("KUBECONFIG", layout.kubeconfig())
        .output()
        .context("could not run kubectl")?;
    let answered: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
    let Some(version) = answered.pointer("/serverVersion/gitVersion").and_then(Value::as_str) else {
        bail!("the cluster {name} does not answer at {server}: {}", last_line(&answer.stderr));
    };
    Ok(Foreign { name, version: version.to_owned(), server, tools, node: None, workers: None })
}

/// Whether the API server of the cluster in this folder reports that it is ready.
pub(crate) fn is_ready(layout: &Layout) -> bool {
    let ask = || -> Result<bool> {
        let mut kubectl = kubectl(&kubectl_of_ours()?, ["get", "--raw=/readyz", "--request-timeout=2s"])?;
        kubectl.env("KUBECONFIG", layout.kubeconfig()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(kubectl.status()?.success())
    };
    // Without this file, kubectl would ask a server on this machine.
    layout.kubeconfig().is_file() && ask().unwrap_or(false)
}

/// A kubeconfig with a single context and everything that it needs.
pub(crate) struct Kubeconfig(Value);

impl Kubeconfig {
    /// The address of the API server.
    pub(crate) fn server(&self) -> Option<String> {
        self.text("/clusters/0/cluster/server")
    }

    fn text(&self, pointer: &str) -> Option<String> {
        self.0.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    }
}

/// The current context of this kubeconfig, or of the user's if that is `None`.
pub(crate) fn current_context(kubeconfig: Option<&Path>) -> Result<Kubeconfig> {
    let mut view = kubectl(&kubectl_of_ours()?, ["config", "view", "--minify", "--flatten", "--raw", "--output=json"])?;
    if let Some(file) = kubeconfig {
        view.env("KUBECONFIG", file);
    }
    let output = view.output().context("could not run kubectl")?;
    if !output.status.success() {
        bail!("kubectl has no usable context: {}", last_line(&output.stderr));
    }
    Ok(Kubeconfig(serde_json::from_slice(&output.stdout).context("kubectl's output is not JSON")?))
}

fn kubectl_of_ours() -> Result<Tools> {
    Tools::locate(&[Tool::Kubernetes])
}

fn kubectl<const N: usize>(tools: &Tools, args: [&str; N]) -> Result<Command> {
    let mut command = match tools.binary("kubectl") {
        Ok(ours) => Command::new(ours),
        Err(_) => Command::new(crate::missing::require("kubectl", "kubectl")?),
    };
    command.args(args);
    Ok(command)
}

impl Foreign {
    /// Checks that this machine reaches the addresses of pods and Services. For a cluster without a local node, the user must
    /// declare it: connecting is no proof, because the same addresses may exist in another network.
    pub(crate) fn require_network(&self) -> Result<()> {
        let Some(node) = self.node else {
            let told = std::env::var_os(REACHES_PODS).is_some_and(|value| value == "true");
            let name = &self.name;
            let advice = format!("run the tests on a node or in a pod, and set {REACHES_PODS}=true");
            let why = || Unsupported(format!("{name}: it is unknown whether this machine reaches its pods: {advice}"));
            return told.then_some(()).ok_or_else(|| why().into());
        };
        let advice = "only root can enter the network of kind's nodes: use `sudo --preserve-env env PATH=$PATH`";
        fs::File::open(format!("/proc/{node}/ns/net")).map(drop).map_err(|_| Missing(advice.into()).into())
    }
}

/// Removes the local files about the cluster.
pub(crate) fn forget(layout: &Layout) -> Result<()> {
    let lock = Lock::acquire(&layout.lock(), "asking the same cluster", Duration::from_mins(5), &progress::quiet)?;
    forget_locked(layout, lock)
}

/// The same for a caller that holds the lock of the folder, which goes, too.
pub(crate) fn forget_locked(layout: &Layout, lock: Lock) -> Result<()> {
    let folder = layout.folder();
    if folder.is_dir() {
        fs::remove_dir_all(folder).with_context(|| format!("could not remove {}", folder.display()))?;
    }
    lock.remove();
    Ok(())
}

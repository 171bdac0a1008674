//! What runs the nodes of kind: the user's own Docker or Podman, with a published node image; or on a machine without either, or
//! without a registry, the Docker of [`daemon`](super::daemon), with a node image that this repository builds.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::daemon::Daemon;
use super::says;
use crate::missing::{Missing, program};
use crate::progress::{self, Progress};
use crate::tools::{self, Tool, Tools};

/// The environment variable that chooses the engine: `docker`, `podman` or `built`.
pub(super) const ENGINE: &str = "KIND_ENGINE";
/// The environment variable that names a published node image, for another version of Kubernetes. The built engine builds one with
/// the same minor version.
pub const NODE_IMAGE: &str = "KIND_NODE_IMAGE";
/// kind's own variable for the program that runs the nodes.
const PROVIDER: &str = "KIND_EXPERIMENTAL_PROVIDER";

/// An engine that runs.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) which: Which,
    /// The image of nodes; `None` for kind's default.
    pub(super) image: Option<String>,
    environment: Vec<(&'static str, OsString)>,
}

/// The engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Which {
    Docker,
    Podman,
    /// The Docker that this repository unpacks, with the node image that it builds.
    Built,
}

/// What connects the pods of different nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// kind's own network plugin, which also enforces network policies.
    OfKind,
    /// Routes that this crate sets.
    Routes,
}

impl Which {
    /// The engine that the user has chosen, or else one that runs, or else the built one. Of two that run, it is the one that `provider`
    /// names, as for kind itself.
    fn choose(wanted: &str, provider: &str, runs: impl Fn(Self) -> bool) -> Result<Self> {
        let of_user = if provider == "podman" { [Self::Podman, Self::Docker] } else { [Self::Docker, Self::Podman] };
        Ok(match wanted {
            "docker" => Self::Docker,
            "podman" => Self::Podman,
            "built" => Self::Built,
            "" => of_user.into_iter().find(|engine| runs(*engine)).unwrap_or(Self::Built),
            other => bail!("{ENGINE} is {other:?}: choose docker, podman or built"),
        })
    }

    pub(super) fn chosen() -> Result<Self> {
        Self::choose(&variable(ENGINE), &variable(PROVIDER), Self::runs)
    }

    /// The engine with the nodes of a cluster: the recorded one, whatever runs now, or else the chosen one.
    pub(super) fn of_cluster(recorded: Option<Self>) -> Result<Self> {
        recorded.map_or_else(Self::chosen, Ok)
    }

    /// The same for a cluster that the caller wants to run. Its engine cannot change.
    pub(super) fn for_cluster(recorded: Option<Self>, name: &str) -> Result<Self> {
        Self::agreed(recorded, name, &variable(ENGINE), |wanted| Self::choose(wanted, &variable(PROVIDER), Self::runs))
    }

    fn agreed(recorded: Option<Self>, name: &str, wanted: &str, choose: impl Fn(&str) -> Result<Self>) -> Result<Self> {
        let Some(recorded) = recorded.filter(|_| !wanted.is_empty()) else {
            return recorded.map_or_else(|| choose(wanted), Ok);
        };
        if choose(wanted)? != recorded {
            let advice = format!("take it down first with `cargo xtask cluster down --name {name}`, or unset {ENGINE}");
            bail!("the kind cluster {name} was created with {ENGINE}={}, not {wanted}: {advice}", recorded.name());
        }
        Ok(recorded)
    }

    /// The value of the variable that chooses it.
    fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Built => "built",
        }
    }

    fn program(self) -> &'static str {
        if self == Self::Podman { "podman" } else { "docker" }
    }

    /// Whether a daemon of the user answers.
    fn runs(self) -> bool {
        let Some(program) = program(self.program()) else { return false };
        let quiet = || Stdio::null();
        let answer = Command::new(program).arg("info").stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
        answer.is_ok_and(|status| status.success())
    }
}

impl Engine {
    /// This engine, for nodes of this image or of the one that the user names. Builds and starts what it needs.
    pub(super) fn ready(which: Which, image: Option<&str>, progress: Progress<'_>) -> Result<Self> {
        let wanted = image.map(str::to_owned).or_else(node_image);
        match which {
            Which::Built => {
                if !rustix::process::geteuid().is_root() {
                    let advice = "start one of them, or use `sudo --preserve-env env PATH=$PATH`: root can run kind without \
                                  them";
                    return Err(Missing(format!("neither Docker nor Podman runs: {advice}")).into());
                }
                let (daemon, image) = Daemon::ready(kubernetes(wanted.as_deref())?, progress)?;
                Ok(Self::built(&daemon, Some(image)))
            }
            users => Self::of_user(users, wanted),
        }
    }

    /// This engine, if it runs. That of the user must run.
    pub(super) fn running(which: Which) -> Result<Option<Self>> {
        match which {
            Which::Built => Ok(Daemon::running().map(|daemon| Self::built(&daemon, None))),
            users => Self::of_user(users, None).map(Some),
        }
    }

    fn of_user(which: Which, image: Option<String>) -> Result<Self> {
        if !which.runs() {
            let program = which.program();
            let advice = format!("start it, or set {ENGINE}=built to run kind without it");
            return Err(Missing(format!("{program} does not answer: {advice}")).into());
        }
        Ok(Self { which, image, environment: Vec::new() })
    }

    fn built(daemon: &Daemon, image: Option<String>) -> Self {
        Self { which: Which::Built, image, environment: daemon.environment() }
    }

    /// Whether this daemon runs nodes.
    pub(super) fn is_used(daemon: &Daemon) -> Result<bool> {
        Ok(!Self::built(daemon, None).clusters()?.is_empty())
    }

    pub(super) fn network(&self) -> Network {
        if self.which == Which::Built { Network::Routes } else { Network::OfKind }
    }

    /// A command of the engine, such as `docker inspect`.
    pub(super) fn command<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = Command::new(self.which.program());
        if let Some((_, path)) = self.environment.iter().find(|(name, _)| *name == "PATH") {
            // `Command` looks the program up in the PATH of this process.
            let folders = std::env::split_paths(path);
            if let Some(file) = folders.map(|folder| folder.join(self.which.program())).find(|file| file.is_file()) {
                command = Command::new(file);
            }
        }
        command.args(args);
        self.set_up(&mut command);
        command
    }

    /// A command of kind.
    pub(super) fn kind<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Command> {
        let tools = Tools::locate_or_build(&[Tool::Kind], &progress::to_stderr)?;
        let mut command = Command::new(tools.binary("kind")?);
        command.args(args);
        self.set_up(&mut command);
        Ok(command)
    }

    fn set_up(&self, command: &mut Command) {
        if self.which == Which::Built {
            // What configures the user's own Docker is not for this one, and proxies are out of its reach.
            for name in ["DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"] {
                command.env_remove(name);
            }
            for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"] {
                command.env_remove(name);
            }
        }
        // Whatever the user has set there: kind must run the nodes in the engine that this module asks about them.
        command.env(PROVIDER, self.which.program());
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
    }

    /// The names of all clusters of kind.
    pub(super) fn clusters(&self) -> Result<Vec<String>> {
        Ok(says(self.kind(["get", "clusters"])?)?.lines().map(str::to_owned).collect())
    }

    /// Whether kind has a cluster with this name.
    pub(super) fn has(&self, cluster: &str) -> Result<bool> {
        Ok(self.clusters()?.iter().any(|name| name == cluster))
    }

    /// Deletes the nodes of a cluster, and its entries in this kubeconfig.
    pub(super) fn delete(&self, cluster: &str, kubeconfig: &Path) -> Result<()> {
        says(self.kind(deletion(cluster.as_ref(), kubeconfig.as_ref()))?).map(drop)
    }

    /// The number of workers of a cluster.
    pub(super) fn workers(&self, cluster: &str) -> Result<usize> {
        Ok(self.nodes(cluster)?.iter().filter(|node| !node.contains("control-plane")).count())
    }

    /// The names of the nodes of a cluster.
    pub(super) fn nodes(&self, cluster: &str) -> Result<Vec<String>> {
        Ok(says(self.kind(["get", "nodes", "--name", cluster])?)?.lines().map(str::to_owned).collect())
    }

    /// The image of a node, as the engine keeps its name.
    pub(super) fn image_of(&self, node: &str) -> Result<String> {
        Ok(says(self.command(["inspect", "--format={{.Config.Image}}", node]))?.trim().to_owned())
    }

    /// The id, on this machine, of the first process of a node. `None` if its processes are elsewhere, as with a remote Docker.
    pub(super) fn process_of(&self, node: &str) -> Result<Option<i32>> {
        let inspected = says(self.command(["inspect", "--format={{.State.Pid}} {{.Id}}", node]))?;
        let Some((pid, id)) = inspected.trim().split_once(' ') else {
            bail!("{} printed no process id: {inspected:?}", self.which.program())
        };
        Ok(crate::list::outside(pid.parse()?, id))
    }

    /// Runs a shell script in a node.
    pub(super) fn run_in(&self, node: &str, script: &str) -> Result<()> {
        says(self.command(["exec", "--privileged", node, "sh", "-c", script])).map(drop)
    }
}

/// The arguments of kind that delete a cluster. Without a file, kind would change the user's own kubeconfig.
fn deletion<'a>(cluster: &'a OsStr, kubeconfig: &'a OsStr) -> [&'a OsStr; 6] {
    let [delete, what, name, file] = ["delete", "cluster", "--name", "--kubeconfig"].map(OsStr::new);
    [delete, what, name, cluster, file, kubeconfig]
}

/// What the user has set; empty if there is nothing.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// The node image that the user names.
fn node_image() -> Option<String> {
    std::env::var(NODE_IMAGE).ok().filter(|image| !image.is_empty())
}

/// The tool from which the built engine takes the Kubernetes of its nodes: that with the minor version of this node image, or the usual
/// one. Another minor is refused, or else users would test another Kubernetes than they believe.
fn kubernetes(image: Option<&str>) -> Result<Tool> {
    const TOOLS: [Tool; 2] = [Tool::Kubernetes, Tool::KubernetesOldest];
    let Some(image) = image else { return Ok(Tool::Kubernetes) };
    let versions = TOOLS.iter().map(|tool| tools::kubernetes_version_of(*tool)).collect::<Result<Vec<_>>>()?;
    let tag = image.split('@').next().and_then(|name| name.rsplit_once(':')).map(|(_, tag)| tag);
    let found = tag.and_then(minor).and_then(|wanted| versions.iter().position(|have| minor(have) == Some(wanted)));
    if let Some(found) = found {
        return Ok(TOOLS[found]);
    }
    let advice = format!("start Docker or Podman, or unset {NODE_IMAGE}");
    bail!("{NODE_IMAGE} is {image:?}, but the built engine has only {}: {advice}", versions.join(" and "))
}

/// The major and the minor version of a version such as "v1.31.4".
fn minor(version: &str) -> Option<&str> {
    version.trim_start_matches('v').rsplit_once('.').map(|(minor, _patch)| minor)
}

/// The folder with `docker`, before the folders of the PATH.
pub(super) fn path_with(folder: PathBuf) -> OsString {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&rest))).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_engine_is_the_default_and_the_built_one_stands_in_for_it() {
        let choose = |wanted, running: &[Which]| Which::choose(wanted, "", |engine| running.contains(&engine)).unwrap();
        assert_eq!(choose("", &[Which::Docker, Which::Podman]), Which::Docker);
        assert_eq!(choose("", &[Which::Podman]), Which::Podman);
        assert_eq!(choose("", &[]), Which::Built);
        assert_eq!(choose("built", &[Which::Docker]), Which::Built);
        assert_eq!(choose("docker", &[]), Which::Docker, "the error then says that it does not run");
        let error = Which::choose("nerdctl", "", |_| false).unwrap_err().to_string();
        assert_eq!(error, "KIND_ENGINE is \"nerdctl\": choose docker, podman or built");
    }

    #[test]
    fn variable_of_kind_chooses_between_engines_that_run_and_never_splits_them() {
        let choose =
            |provider, running: &[Which]| Which::choose("", provider, |engine| running.contains(&engine)).unwrap();
        assert_eq!(choose("podman", &[Which::Docker, Which::Podman]), Which::Podman);
        assert_eq!(choose("docker", &[Which::Docker, Which::Podman]), Which::Docker);
        assert_eq!(choose("podman", &[Which::Docker]), Which::Docker);
        for (which, provider) in [(Which::Docker, "docker"), (Which::Podman, "podman"), (Which::Built, "docker")] {
            let engine = Engine { which, image: None, environment: Vec::new() };
            let command = engine.command(["version"]);
            let set: Vec<_> = command.get_envs().filter(|(name, _)| *name == PROVIDER).collect();
            assert_eq!(set, [(OsStr::new(PROVIDER), Some(OsStr::new(provider)))], "{which:?}");
            assert_eq!(command.get_program(), provider);
        }
    }

    #[test]
    fn engine_of_a_cluster_stays_the_one_that_created_it() {
        let agreed = |recorded, wanted, running: &[Which]| {
            let choose = |wanted: &str| Which::choose(wanted, "", |engine| running.contains(&engine));
            Which::agreed(recorded, "dev", wanted, choose).map_err(|error| error.to_string())
        };
        assert_eq!(agreed(None, "", &[Which::Docker]), Ok(Which::Docker));
        assert_eq!(agreed(Some(Which::Built), "", &[Which::Docker]), Ok(Which::Built), "Docker started later");
        assert_eq!(agreed(Some(Which::Podman), "", &[]), Ok(Which::Podman), "the error then says that it does not run");
        assert_eq!(agreed(Some(Which::Built), "built", &[Which::Docker]), Ok(Which::Built));
        let refused = agreed(Some(Which::Built), "docker", &[Which::Docker]).unwrap_err();
        assert!(refused.contains("created with KIND_ENGINE=built, not docker"), "{refused}");
        assert!(refused.contains("`cargo xtask cluster down --name dev`"), "{refused}");
        assert_eq!(Which::of_cluster(Some(Which::Podman)).unwrap(), Which::Podman);
    }

    #[test]
    fn deletion_leaves_the_users_kubeconfig_alone() {
        let arguments = deletion("dev".as_ref(), "/state/dev/kind.kubeconfig".as_ref());
        assert_eq!(arguments[..4], ["delete", "cluster", "--name", "dev"]);
        assert_eq!(arguments[4..], ["--kubeconfig", "/state/dev/kind.kubeconfig"]);
    }

    #[test]
    fn built_engine_has_the_minor_version_of_the_image_or_refuses_it() {
        let usual = tools::kubernetes_version().unwrap();
        for (image, tool) in [
            (None, Tool::Kubernetes),
            (Some(format!("kindest/node:{usual}")), Tool::Kubernetes),
            (Some("registry.example.com:5000/node:v1.31.14@sha256:00".to_owned()), Tool::KubernetesOldest),
        ] {
            assert_eq!(kubernetes(image.as_deref()).unwrap(), tool, "{image:?}");
        }
        for image in ["kindest/node:v1.30.2", "kindest/node:latest", "kindest/node", "localhost:5000/node"] {
            let error = kubernetes(Some(image)).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("KIND_NODE_IMAGE is {image:?}, but the built engine has only v1.")),
                "{error}"
            );
            assert!(error.ends_with("or unset KIND_NODE_IMAGE"), "{error}");
        }
    }
}

//! Clusters of kind, whose nodes are Docker containers. This module only calls kind and docker.

use std::borrow::BorrowMut;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::foreign::{self, Foreign};
use crate::layout::Layout;
use crate::missing::{last_line, require};
use crate::progress::{self, Event};
use crate::tools::{Lock, Tool, Tools};

/// The time limit for creating a cluster, which may have to pull the node's image first.
const PATIENCE: Duration = Duration::from_mins(15);

/// The cluster with this name. Creates it if it does not exist.
pub(crate) fn up(name: &str, workers: usize) -> Result<(Layout, Foreign)> {
    let layout = Layout::of(name)?;
    require("docker", "docker.io")?; // the nodes are Docker containers
    let what = format!("creating the kind cluster {name}");
    let _lock = Lock::acquire(&layout.lock(), &what, PATIENCE, &progress::to_stderr)?;
    fs::create_dir_all(layout.folder()).with_context(|| format!("could not create {}", layout.folder().display()))?;
    let file = layout.folder().join("kind.kubeconfig");
    if says(kind(["get", "clusters"])?)?.lines().any(|line| line == name) {
        says(kind(["export", "kubeconfig", "--name", name])?.arg("--kubeconfig").arg(&file))?;
    } else {
        progress::to_stderr(Event::Note(&format!(
            "{what}: takes a minute or two, and longer if kind has to pull its images"
        )));
        create(name, workers, &file)?;
    }
    let config = foreign::current_context(Some(&file))?;
    let known = foreign::keep(&layout, name.to_owned(), &config)?;
    Ok((layout, Foreign { node: Some(process_of_node(name)?), workers: Some(workers), ..known }))
}

/// Creates the cluster with kind's default version of Kubernetes, or with the published node image that `KIND_NODE_IMAGE` names.
fn create(name: &str, workers: usize, kubeconfig: &Path) -> Result<()> {
    let mut create = kind(["create", "cluster", "--config=-", "--wait=5m", "--name", name])?;
    create.arg("--kubeconfig").arg(kubeconfig);
    if let Some(image) = std::env::var_os("KIND_NODE_IMAGE").filter(|image| !image.is_empty()) {
        create.arg("--image").arg(image);
    }
    let mut child = create
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("could not run kind")?;
    child.stdin.take().context("kind has no standard input")?.write_all(configuration(workers).as_bytes())?;
    succeeded("kind", child.wait_with_output()?).map(drop)
}

/// The configuration for kind, as JSON, which is valid YAML.
fn configuration(workers: usize) -> String {
    let worker = json!({"role": "worker"});
    let nodes: Vec<_> =
        std::iter::once(json!({"role": "control-plane"})).chain(std::iter::repeat_n(worker, workers)).collect();
    json!({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes}).to_string()
}

/// Deletes the cluster and the local files about it.
pub fn down(name: &str) -> Result<()> {
    says(kind(["delete", "cluster", "--name", name])?)?;
    foreign::forget(&Layout::of(name)?)
}

/// Loads the images of an archive into all nodes of the cluster.
pub(crate) fn load(name: &str, archive: &Path) -> Result<()> {
    let mut load = kind(["load", "image-archive", "--name", name])?;
    load.arg(archive);
    says(load).map(drop)
}

/// The id of the first process of the control-plane node. Its network reaches all pods.
fn process_of_node(name: &str) -> Result<i32> {
    let mut inspect = Command::new(require("docker", "docker.io")?);
    let pid = says(inspect.args(["inspect", "--format={{.State.Pid}}", &format!("{name}-control-plane")]))?;
    pid.trim().parse().with_context(|| format!("docker printed no process id: {pid:?}"))
}

fn kind<const N: usize>(args: [&str; N]) -> Result<Command> {
    let tools = Tools::locate_or_build(&[Tool::Kind], &progress::to_stderr)?;
    let mut command = Command::new(tools.binary("kind")?);
    command.args(args);
    Ok(command)
}

/// Runs the command and returns its standard output. The error contains the last line of its standard error.
fn says(mut command: impl BorrowMut<Command>) -> Result<String> {
    let command = command.borrow_mut();
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("could not run {program}"))?;
    succeeded(&program, output)
}

fn succeeded(program: &str, Output { status, stdout, stderr }: Output) -> Result<String> {
    if !status.success() {
        bail!("{program} failed: {}", last_line(&stderr));
    }
    String::from_utf8(stdout).with_context(|| format!("the output of {program} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_config_has_control_plane_and_requested_workers() {
        let roles = |workers| {
            let config: serde_json::Value = serde_json::from_str(&configuration(workers)).unwrap();
            let nodes = config["nodes"].as_array().unwrap().clone();
            nodes.iter().map(|node| node["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(roles(0), ["control-plane"]);
        assert_eq!(roles(2), ["control-plane", "worker", "worker"]);
    }
}

//! Clusters whose nodes are containers: kind does all of it, and is only asked here.

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

/// Creating one may have to pull the node's image first.
const PATIENCE: Duration = Duration::from_mins(15);

/// The cluster of that name; created unless it is there.
pub(crate) fn up(name: &str, workers: usize) -> Result<(Layout, Foreign)> {
    let layout = Layout::of(name)?;
    require("docker", "docker.io")?; // nodes are its containers
    let what = format!("creating the kind cluster {name}");
    let _lock = Lock::acquire(&layout.lock(), &what, PATIENCE, &progress::to_stderr)?;
    fs::create_dir_all(layout.folder()).with_context(|| format!("could not create {}", layout.folder().display()))?;
    let file = layout.folder().join("kind.kubeconfig");
    if says(kind(["get", "clusters"])?)?.lines().any(|line| line == name) {
        says(kind(["export", "kubeconfig", "--name", name])?.arg("--kubeconfig").arg(&file))?;
    } else {
        progress::to_stderr(Event::Note(&format!(
            "{what}: a minute or two, and longer if its images are to be pulled"
        )));
        create(name, workers, &file)?;
    }
    let config = foreign::current_context(Some(&file))?;
    let known = foreign::keep(&layout, name.to_owned(), &config)?;
    Ok((layout, Foreign { node: Some(process_of_node(name)?), workers: Some(workers), ..known }))
}

/// kind's own choice of a version, unless `KIND_NODE_IMAGE` names one that kind has published.
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
    child.stdin.take().context("kind reads nothing")?.write_all(configuration(workers).as_bytes())?;
    succeeded("kind", child.wait_with_output()?).map(drop)
}

/// JSON, which kind reads as the YAML it is.
fn configuration(workers: usize) -> String {
    let worker = json!({"role": "worker"});
    let nodes: Vec<_> =
        std::iter::once(json!({"role": "control-plane"})).chain(std::iter::repeat_n(worker, workers)).collect();
    json!({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes}).to_string()
}

/// Deletes it, and what we keep about it.
pub fn down(name: &str) -> Result<()> {
    says(kind(["delete", "cluster", "--name", name])?)?;
    foreign::forget(&Layout::of(name)?)
}

/// Puts the images of an archive into all of its nodes.
pub(crate) fn load(name: &str, archive: &Path) -> Result<()> {
    let mut load = kind(["load", "image-archive", "--name", name])?;
    load.arg(archive);
    says(load).map(drop)
}

/// The first process of a node, which is in the network that leads to all pods.
fn process_of_node(name: &str) -> Result<i32> {
    let mut inspect = Command::new(require("docker", "docker.io")?);
    let pid = says(inspect.args(["inspect", "--format={{.State.Pid}}", &format!("{name}-control-plane")]))?;
    pid.trim().parse().with_context(|| format!("docker names no process: {pid:?}"))
}

fn kind<const N: usize>(args: [&str; N]) -> Result<Command> {
    let tools = Tools::locate_or_build(&[Tool::Kind], &progress::to_stderr)?;
    let mut command = Command::new(tools.binary("kind")?);
    command.args(args);
    Ok(command)
}

/// What it prints; the error is its last word.
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
    String::from_utf8(stdout).with_context(|| format!("{program} does not answer in text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_control_plane_and_as_many_workers_as_asked_for() {
        let roles = |workers| {
            let config: serde_json::Value = serde_json::from_str(&configuration(workers)).unwrap();
            let nodes = config["nodes"].as_array().unwrap().clone();
            nodes.iter().map(|node| node["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(roles(0), ["control-plane"]);
        assert_eq!(roles(2), ["control-plane", "worker", "worker"]);
    }
}

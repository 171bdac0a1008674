//! Clusters of kind, whose nodes are containers. This module calls kind and the container engine.
//!
//! Reading order: [`engine`] chooses what runs the nodes. On a machine without Docker, [`daemon`] prepares one, from [`debian`]
//! packages, and [`node_image`] builds the image of nodes, with the [`system_images`] of the control plane in it. From `kind create`
//! on, both ways are the same, but for the [`network`] between pods.

mod config;
mod daemon;
mod debian;
mod engine;
mod network;
mod node_image;
mod steps;
mod system_images;

use std::borrow::BorrowMut;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

pub use self::engine::NODE_IMAGE;
use self::engine::{Engine, Network, Which};
use self::steps::Steps;
use crate::foreign::{self, Foreign};
use crate::layout::Layout;
use crate::missing::{Missing, last_line};
use crate::progress::Progress;
use crate::supervisor::docker;
use crate::tools::Lock;
use crate::{kept_logs, remove, supervisor_program};

/// The time limit for creating a cluster, which may have to build or to pull the node's image first.
const PATIENCE: Duration = Duration::from_hours(1);

/// The cluster with this name. Creates it if it does not exist, with nodes of this image or of the usual one.
pub(crate) fn up(name: &str, workers: usize, image: Option<&str>, progress: Progress<'_>) -> Result<(Layout, Foreign)> {
    let layout = Layout::of(name)?;
    let what = format!("creating the kind cluster {name}");
    let _lock = Lock::acquire(&layout.lock(), &what, PATIENCE, progress)?;
    let engine = Engine::ready(image, progress)?;
    fs::create_dir_all(layout.folder()).with_context(|| format!("could not create {}", layout.folder().display()))?;
    if !engine.clusters()?.iter().any(|cluster| cluster == name) {
        let mut steps = Steps::new(if engine.network() == Network::Routes { 2 } else { 1 }, progress);
        if engine.which == Which::Built {
            check_watches(workers + 1)?;
        }
        steps.next(&what, |tick| create(&engine, name, workers, &layout, tick))?;
        if engine.network() == Network::Routes {
            let known = join(&engine, &layout, name)?;
            steps.next("connecting the pods of all nodes", |tick| connect(&engine, &layout, &known, tick))?;
        }
    }
    let known = join(&engine, &layout, name)?;
    Ok((layout, known))
}

/// Whether the user's own Docker or Podman runs the nodes. It also runs published images of nodes with another version of Kubernetes,
/// and it keeps kind's network, with its interfaces and rules, when the last cluster is gone.
pub fn is_of_user() -> Result<bool> {
    Ok(Which::chosen()? != Which::Built)
}

/// The cluster with this name, if kind has it and this module has created it.
pub(crate) fn open(name: &str) -> Result<Option<(Layout, Foreign)>> {
    let layout = Layout::of(name)?;
    if !exists(&layout) {
        return Ok(None);
    }
    let Some(engine) = Engine::running()? else { return Ok(None) };
    if !engine.clusters()?.iter().any(|cluster| cluster == name) {
        return Ok(None);
    }
    let known = join(&engine, &layout, name)?;
    Ok(Some((layout, known)))
}

/// Whether this module has created the cluster of this folder.
pub(crate) fn exists(layout: &Layout) -> bool {
    kubeconfig(layout).is_file()
}

/// The kubeconfig as kind writes it.
fn kubeconfig(layout: &Layout) -> PathBuf {
    layout.folder().join("kind.kubeconfig")
}

fn create(engine: &Engine, name: &str, workers: usize, layout: &Layout, tick: &dyn Fn()) -> Result<()> {
    let config = layout.folder().join("kind.json");
    fs::write(&config, config::render(workers, engine.network()).to_string())?;
    let mut create = engine.kind(["create", "cluster", "--name", name, "--config"])?;
    create.arg(&config).arg("--kubeconfig").arg(kubeconfig(layout));
    // Without a network plugin, no node becomes ready before `connect`.
    create.arg(if engine.network() == Network::OfKind { "--wait=5m" } else { "--wait=0s" });
    if let Some(image) = &engine.image {
        create.arg("--image").arg(image);
    }
    let done = steps::finish(&mut create, &layout.folder().join("kind.log"), tick);
    if done.is_err() {
        let _ = fs::remove_file(kubeconfig(layout)); // kind removes the nodes of a cluster that it could not create
    }
    let advice = || format!("if no registry can be reached here, set {}=built", engine::ENGINE);
    if engine.which == Which::Built { done } else { done.with_context(advice) }
}

/// What is known of a cluster that runs. If its API server is reachable only in a network of its own, opens the way to it.
fn join(engine: &Engine, layout: &Layout, name: &str) -> Result<Foreign> {
    let file = kubeconfig(layout);
    says(engine.kind(["export", "kubeconfig", "--name", name])?.arg("--kubeconfig").arg(&file))?;
    let config = foreign::current_context(Some(&file))?;
    let node = engine.process_of(&format!("{name}-control-plane"))?;
    if engine.which == Which::Built {
        let server = config.server().context("kind wrote no server")?;
        forward(layout, node.context("the control plane has no process")?, port(&server)?)?;
    }
    let known = foreign::keep(layout, name.to_owned(), &config)?;
    let workers = engine.nodes(name)?.iter().filter(|node| !node.contains("control-plane")).count();
    Ok(Foreign { node, workers: Some(workers), ..known })
}

/// The port in the address of an API server.
fn port(server: &str) -> Result<u16> {
    let port = server.rsplit_once(':').and_then(|(_, port)| port.trim_end_matches('/').parse().ok());
    port.with_context(|| format!("the address {server} has no port"))
}

/// The port of the API server in its node.
const API_PORT: u16 = 6443;

/// Forwards the port of this machine to the API server of this node, unless that happens already.
fn forward(layout: &Layout, node: i32, port: u16) -> Result<()> {
    let is_open = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    if is_open() {
        return Ok(());
    }
    let log = layout.folder().join("forward.log");
    let mut child = docker::background(&supervisor_program::locate()?, layout.folder(), &log)?
        .arg("forward")
        .args([node.to_string(), port.to_string(), API_PORT.to_string()])
        .spawn()
        .context("could not start the forwarder")?;
    let begun = Instant::now();
    while !is_open() {
        if child.try_wait()?.is_some() || begun.elapsed() > Duration::from_secs(20) {
            bail!("the API server cannot be reached: {}", last_line(&fs::read(&log).unwrap_or_default()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Connects the pods of all nodes, and waits until all nodes and DNS are ready.
fn connect(engine: &Engine, layout: &Layout, known: &Foreign, tick: &dyn Fn()) -> Result<()> {
    let kubectl = |args: &[&str]| -> Result<Command> {
        let tools = &known.tools;
        let mut kubectl = Command::new(tools.binary("kubectl")?);
        kubectl.args(args).env("KUBECONFIG", layout.kubeconfig());
        Ok(kubectl)
    };
    let begun = Instant::now();
    let members = loop {
        let list: Value = serde_json::from_str(&says(kubectl(&["get", "nodes", "--output=json"])?)?)?;
        match network::members(&list)? {
            Some(members) if !members.is_empty() => break members,
            _ if begun.elapsed() > Duration::from_mins(2) => bail!("the nodes have no addresses for pods"),
            _ => std::thread::sleep(Duration::from_millis(500)),
        }
        tick();
    };
    for member in &members {
        engine.run_in(&member.name, &network::script(member, &members))?;
    }
    let log = layout.folder().join("connect.log");
    let ready = ["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=5m"];
    steps::finish(&mut kubectl(&ready)?, &log, tick)?;
    let dns = ["--namespace=kube-system", "rollout", "status", "deployment/coredns", "--timeout=5m"];
    steps::finish(&mut kubectl(&dns)?, &log, tick)
}

/// Deletes the cluster and the local files about it. Ends the built Docker if it has no other cluster.
pub fn down(name: &str) -> Result<()> {
    delete(name)?;
    let others = match Engine::running()? {
        Some(engine) if engine.which == Which::Built => engine.clusters()?,
        _ => return Ok(()),
    };
    if others.is_empty() {
        daemon::stop()?;
    }
    Ok(())
}

/// Like [`down`], but the built Docker stays for the next cluster. It ends by itself after some minutes.
pub(crate) fn delete(name: &str) -> Result<()> {
    let layout = Layout::of(name)?;
    if let Some(engine) = Engine::running()? {
        says(engine.kind(["delete", "cluster", "--name", name])?)?;
    }
    remove::end_processes(layout.folder())?; // the forwarder
    foreign::forget(&layout)
}

/// Keeps the logs of the cluster's creation and of its nodes in the folder of this name in [`FAILED_CLUSTERS`](crate::FAILED_CLUSTERS).
/// Returns this folder, which has nothing of an earlier call.
pub fn keep_logs(name: &str, kept_as: &str) -> Result<PathBuf> {
    let folder = kept_logs::folder(kept_as);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("could not remove {}", folder.display()))?;
    }
    kept_logs::copy(Layout::of(name)?.folder(), &folder)?;
    if let Some(engine) = Engine::running()? {
        let exported = says(engine.kind(["export", "logs", "--name", name])?.arg(&folder));
        kept_logs::let_all_read(&folder)?; // also of what there was before a failure
        exported?;
    }
    Ok(folder)
}

/// The names of the cluster's nodes, by the label that kind gives to their containers; none if no engine runs.
pub fn nodes(name: &str) -> Result<Vec<String>> {
    Engine::running()?.map_or_else(|| Ok(Vec::new()), |engine| engine.nodes(name))
}

/// Loads the images of an archive into all nodes of the cluster.
pub(crate) fn load(name: &str, archive: &Path) -> Result<()> {
    let engine = Engine::running()?.context("no engine for kind runs")?;
    let mut load = engine.kind(["load", "image-archive", "--name", name])?;
    load.arg(archive);
    says(load).map(drop)
}

/// The number of inotify instances, the kernel's watches for files, that one node has: 17 to 20 were counted.
const WATCHES: usize = 20;

/// Checks that the kernel has enough watches for this many nodes. Otherwise some program of a node fails much later, and does not
/// say why.
fn check_watches(nodes: usize) -> Result<()> {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap_or_default();
    let Ok(limit) = limit.trim().parse::<usize>() else { return Ok(()) };
    let used = watches();
    match too_few(limit, used, nodes) {
        Some(why) => Err(Missing(why).into()),
        None => Ok(()),
    }
}

fn too_few(limit: usize, used: usize, nodes: usize) -> Option<String> {
    let needed = nodes * WATCHES;
    (used + needed > limit).then(|| {
        format!(
            "{nodes} nodes of kind need about {needed} inotify instances, but other programs use {used} of {limit}: stop other \
             clusters (`cargo xtask cluster list`), or raise fs.inotify.max_user_instances"
        )
    })
}

/// The number of inotify instances that processes of this machine have open.
fn watches() -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let files = processes.flat_map(|process| fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten());
    files.filter(|file| is_watch(&file.path())).count()
}

/// Whether this open file of a process is an inotify instance.
fn is_watch(file: &Path) -> bool {
    fs::read_link(file).is_ok_and(|target| target == Path::new("anon_inode:inotify"))
}

/// Runs the command and returns its standard output. The error contains the last line of its standard error.
fn says(mut command: impl BorrowMut<Command>) -> Result<String> {
    let command = command.borrow_mut();
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("could not run {program}"))?;
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
    fn port_is_the_end_of_the_address() {
        assert_eq!(port("https://127.0.0.1:41234").unwrap(), 41234);
        assert!(port("https://kind").is_err());
    }

    #[test]
    fn exhausted_watches_are_reported_before_the_nodes_start() {
        assert_eq!(too_few(128, 128 - 3 * WATCHES, 3), None);
        let why = too_few(128, 100, 3).unwrap();
        assert!(why.contains("use 100 of 128") && why.contains("cargo xtask cluster list"), "{why}");
    }

    #[test]
    fn open_watch_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("one");
        std::os::unix::fs::symlink("anon_inode:inotify", &link).unwrap();
        assert!(is_watch(&link));
        assert!(!is_watch(Path::new("/proc/self/fd/0")));
    }
}

//! Clusters of kind, whose nodes are containers. This module calls kind and the container engine.
//!
//! Reading order: [`engine`] chooses what runs the nodes, and the [`record`] of the cluster keeps the choice. On a machine without
//! Docker, [`daemon`] prepares one, from [`debian`] packages, and [`node_image`] builds the image of nodes, with the [`system_images`]
//! of the control plane in it. From `kind create` on, both ways are the same, but for the [`network`] between pods. [`present`]
//! compares a present cluster with the one that a caller wants.

mod config;
mod daemon;
mod debian;
mod engine;
mod network;
mod node_image;
mod present;
mod record;
mod steps;
mod system_images;
mod watches;

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
use self::record::{Record, Stage};
use self::steps::Steps;
use crate::cluster::FRESH;
use crate::foreign::{self, Foreign};
use crate::layout::Layout;
use crate::list::Summary;
use crate::missing::last_line;
use crate::network::IpFamily;
use crate::progress::{self, Progress};
use crate::supervisor::docker;
use crate::tools::Lock;
use crate::{kept_logs, remove, spec, start, supervisor_program};

/// The time limit for creating a cluster, which may have to build or to pull the node's image first.
const PATIENCE: Duration = Duration::from_hours(1);

/// The cluster with this name. Creates it if it does not exist, with nodes of this image or of the usual one. Continues after a call
/// that was interrupted.
pub(crate) fn up(name: &str, workers: usize, image: Option<&str>, progress: Progress<'_>) -> Result<(Layout, Foreign)> {
    let layout = Layout::of(name)?;
    let what = format!("creating the kind cluster {name}");
    let _lock = Lock::acquire(&layout.lock(), &what, PATIENCE, progress)?;
    if layout.spec().is_file() {
        bail!("the cluster {name} was created without kind: take it down first, or choose another name");
    }
    let recorded = Record::read(&layout);
    let which = Which::for_cluster(recorded.as_ref().and_then(|record| record.engine), name)?;
    let engine = Engine::ready(which, image, progress)?;
    fs::create_dir_all(layout.folder()).with_context(|| format!("could not create {}", layout.folder().display()))?;
    release_kubeconfig(&layout);
    let task = Task::of(engine.has(name)?, recorded.as_ref().map(|record| record.stage));
    let is_new = matches!(task, Task::Create | Task::Replace);
    let connects = engine.network() == Network::Routes && task != Task::Join;
    let count = usize::from(task == Task::Replace) + usize::from(is_new) + usize::from(connects);
    let mut steps = Steps::new(count, progress);
    if task == Task::Replace {
        let what = "removing the nodes that an interrupted call has left";
        steps.next(what, |_| engine.delete(name, &kubeconfig(&layout)))?;
    }
    let mut record = if is_new {
        if which == Which::Built {
            watches::check(workers + 1)?;
        }
        let version = String::new();
        let created = start::now().as_secs();
        let image = engine.image.clone();
        let record = Record { engine: Some(which), image, workers, version, created, stage: Stage::Creating };
        record.write(&layout)?; // before the first node
        steps.next(&what, |tick| create(&engine, name, workers, &layout, tick))?;
        Record { stage: Stage::Created, ..record }
    } else {
        let record = recorded.clone().unwrap_or_default();
        present::check(&engine, name, workers, record.image.as_deref())?;
        let created = if record.created == 0 { start::now().as_secs() } else { record.created };
        Record { engine: Some(which), workers, created, ..record }
    };
    if recorded.as_ref() != Some(&record) {
        record.write(&layout)?;
    }
    let known = join(&engine, &layout, name)?;
    if connects {
        steps.next("connecting the pods of all nodes", |tick| connect(&engine, &layout, &known, tick))?;
    }
    if record.stage != Stage::Ready || record.version != known.version {
        record.stage = Stage::Ready;
        record.version.clone_from(&known.version);
        record.write(&layout)?;
    }
    Ok((layout, known))
}

/// What a call of [`up`] has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Create,
    /// An interrupted call has left some nodes of a cluster.
    Replace,
    /// An interrupted call has left a cluster whose pods may not be connected.
    Connect,
    Join,
}

impl Task {
    /// The task, if kind has the cluster or not, and this stage is recorded.
    fn of(is_there: bool, recorded: Option<Stage>) -> Self {
        match recorded {
            _ if !is_there => Self::Create,
            Some(Stage::Creating) => Self::Replace,
            Some(Stage::Created) => Self::Connect,
            Some(Stage::Ready) | None => Self::Join,
        }
    }
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
    let Some(engine) = engine_of(&layout)? else { return Ok(None) };
    if !engine.has(name)? {
        return Ok(None);
    }
    let known = join(&engine, &layout, name)?;
    Ok(Some((layout, known)))
}

/// Whether this module has created the cluster of this folder, or has begun to.
pub(crate) fn exists(layout: &Layout) -> bool {
    record::exists(layout)
}

/// The state of the cluster in this folder; `None` if this module has not created it.
pub(crate) fn summary(name: &str, layout: &Layout) -> Option<Summary> {
    let Record { workers, version, created, stage, .. } = Record::read(layout)?;
    Some(Summary {
        name: name.to_owned(),
        nodes: spec::Nodes::Real,
        is_kind: true,
        workers,
        ip_family: IpFamily::default(),
        version: if version.is_empty() { "unknown".to_owned() } else { version },
        age: if created == 0 { Duration::ZERO } else { start::now().saturating_sub(Duration::from_secs(created)) },
        kubeconfig: layout.kubeconfig(),
        folder: layout.folder().to_path_buf(),
        pid: None,
        status: None,
        ready: stage == Stage::Ready && foreign::is_ready(layout),
    })
}

/// The names of the clusters that tests have created with kind for themselves. Each test deletes its own, unless it was killed.
pub fn fresh() -> Vec<String> {
    fresh_among(Layout::all(), |name| Layout::of(name).is_ok_and(|layout| exists(&layout)))
}

fn fresh_among(names: Vec<String>, is_of_kind: impl Fn(&str) -> bool) -> Vec<String> {
    names.into_iter().filter(|name| name.starts_with(FRESH) && is_of_kind(name)).collect()
}

/// Deletes the clusters of tests that were killed. If their engine does not run, neither do their nodes, and another call may just start
/// it: then they wait.
pub(crate) fn delete_abandoned() {
    let runs = |name: &String| Layout::of(name).and_then(|layout| engine_of(&layout)).is_ok_and(|it| it.is_some());
    for name in fresh().into_iter().filter(|name| !may_be_used(name)).filter(runs) {
        if let Err(error) = delete(&name) {
            eprintln!("the cluster {name}, whose test was killed, was not removed: {error:#}");
        }
    }
}

/// Whether the test may run that has created the cluster with this name, which has the id of its process.
fn may_be_used(name: &str) -> bool {
    let id = name.strip_prefix(FRESH).and_then(|rest| rest.split('-').next()).filter(|id| id.parse::<u32>().is_ok());
    // Without this folder, nothing is known about processes.
    let processes = Path::new("/proc/self").exists().then_some(Path::new("/proc"));
    id.zip(processes).is_none_or(|(id, processes)| processes.join(id).exists())
}

/// The engine with the nodes of the cluster in this folder, if it runs.
fn engine_of(layout: &Layout) -> Result<Option<Engine>> {
    Engine::running(which(layout)?)
}

/// What runs the nodes of the cluster in this folder.
fn which(layout: &Layout) -> Result<Which> {
    Which::of_cluster(Record::read(layout).and_then(|record| record.engine))
}

/// The kubeconfig as kind writes it.
fn kubeconfig(layout: &Layout) -> PathBuf {
    layout.folder().join("kind.kubeconfig")
}

/// Removes the lock that a killed kind leaves beside its kubeconfig, and that each later one would respect. The caller must hold the lock
/// of the folder, so that no other kind uses the file.
fn release_kubeconfig(layout: &Layout) {
    let _ = fs::remove_file(layout.folder().join("kind.kubeconfig.lock")); // mostly there is none
}

fn create(engine: &Engine, name: &str, workers: usize, layout: &Layout, tick: &dyn Fn()) -> Result<()> {
    let config = layout.folder().join("kind-config.json");
    fs::write(&config, config::render(workers, engine.network()).to_string())?;
    let mut create = engine.kind(["create", "cluster", "--name", name, "--config"])?;
    create.arg(&config).arg("--kubeconfig").arg(kubeconfig(layout));
    // Without a network plugin, no node becomes ready before `connect`.
    create.arg(if engine.network() == Network::OfKind { "--wait=5m" } else { "--wait=0s" });
    if let Some(image) = &engine.image {
        create.arg("--image").arg(image);
    }
    let done = steps::finish(&mut create, &layout.folder().join("kind.log"), tick);
    // kind removes the nodes of a cluster that it could not create, unless it was killed itself.
    if done.is_err() && !engine.has(name).unwrap_or(true) {
        Record::remove(layout);
        let _ = fs::remove_file(kubeconfig(layout)); // kind writes it late
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
    Ok(Foreign { node, workers: Some(engine.workers(name)?), ..known })
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
    if remove_cluster(name)? == Which::Built {
        daemon::stop_unless(Engine::is_used)?;
    }
    Ok(())
}

/// Like [`down`], but the built Docker stays for the next cluster. It ends by itself after some minutes.
pub(crate) fn delete(name: &str) -> Result<()> {
    remove_cluster(name).map(drop)
}

/// Deletes the nodes and the local files of the cluster. Returns what has run the nodes.
fn remove_cluster(name: &str) -> Result<Which> {
    let layout = Layout::of(name)?;
    let what = format!("creating or removing the kind cluster {name}");
    let lock = Lock::acquire(&layout.lock(), &what, Duration::from_mins(5), &progress::quiet)?;
    let which = which(&layout)?;
    release_kubeconfig(&layout);
    delete_nodes(which, name, &layout).with_context(|| format!("could not delete the nodes of {name}"))?;
    remove::end_processes(layout.folder())?; // the forwarder
    foreign::forget_locked(&layout, lock)?;
    Ok(which)
}

fn delete_nodes(which: Which, name: &str, layout: &Layout) -> Result<()> {
    let file = kubeconfig(layout);
    if let Some(engine) = Engine::running(which)? {
        return engine.delete(name, &file);
    }
    // The daemon of this repository does not answer. Whatever is left of it ends with it, nodes too.
    if daemon::stop_unless(Engine::is_used)? {
        return Ok(());
    }
    let engine = Engine::running(which)?.context("another call has started and ended Docker meanwhile: try again")?;
    engine.delete(name, &file)
}

/// Keeps the logs of the cluster's creation and of its nodes in the folder of this name in [`FAILED_CLUSTERS`](crate::FAILED_CLUSTERS).
/// Returns this folder, which has nothing of an earlier call.
pub fn keep_logs(name: &str, kept_as: &str) -> Result<PathBuf> {
    let folder = kept_logs::folder(kept_as);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("could not remove {}", folder.display()))?;
    }
    let layout = Layout::of(name)?;
    kept_logs::copy(layout.folder(), &folder)?;
    if let Some(engine) = engine_of(&layout)? {
        let exported = says(engine.kind(["export", "logs", "--name", name])?.arg(&folder));
        kept_logs::let_all_read(&folder)?; // also of what there was before a failure
        exported?;
    }
    Ok(folder)
}

/// The names of the cluster's nodes, by the label that kind gives to their containers; none if no engine runs.
pub fn nodes(name: &str) -> Result<Vec<String>> {
    engine_of(&Layout::of(name)?)?.map_or_else(|| Ok(Vec::new()), |engine| engine.nodes(name))
}

/// Loads the images of an archive into all nodes of the cluster.
pub(crate) fn load(name: &str, archive: &Path) -> Result<()> {
    let engine = engine_of(&Layout::of(name)?)?.context("no engine for kind runs")?;
    let mut load = engine.kind(["load", "image-archive", "--name", name])?;
    load.arg(archive);
    says(load).map(drop)
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
    fn interrupted_calls_are_continued_and_half_a_cluster_is_replaced() {
        for recorded in [None, Some(Stage::Creating), Some(Stage::Created), Some(Stage::Ready)] {
            assert_eq!(Task::of(false, recorded), Task::Create, "{recorded:?}");
        }
        assert_eq!(Task::of(true, Some(Stage::Creating)), Task::Replace);
        assert_eq!(Task::of(true, Some(Stage::Created)), Task::Connect);
        assert_eq!([Task::of(true, Some(Stage::Ready)), Task::of(true, None)], [Task::Join; 2]);
    }

    #[test]
    fn cluster_exists_as_soon_as_kind_may_have_made_a_node() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        assert!(!exists(&layout) && summary("dev", &layout).is_none());
        let engine = Some(Which::Built);
        let record = Record { engine, workers: 2, stage: Stage::Creating, ..Record::default() };
        record.write(&layout).unwrap();
        assert!(exists(&layout), "kind writes its kubeconfig late");
        assert_eq!(which(&layout).unwrap(), Which::Built);
        let summary = summary("dev", &layout).unwrap();
        assert!(summary.is_kind && !summary.ready && summary.pid.is_none());
        assert_eq!((summary.name.as_str(), summary.workers, summary.version.as_str()), ("dev", 2, "unknown"));
    }

    #[test]
    fn cluster_of_a_test_that_has_ended_is_abandoned() {
        let own = format!("{FRESH}{}-0-2dc3", std::process::id());
        for used in [own.as_str(), "fresh-of-a-user", "operators-e2e"] {
            assert!(may_be_used(used), "{used}");
        }
        assert!(!may_be_used("fresh-4194305-0-2dc3"), "more than the kernel counts to");
    }

    #[test]
    fn only_clusters_of_kind_that_tests_have_created_are_fresh() {
        let names = ["dev", "fresh-1", "fresh-2", "operators-e2e"].map(str::to_owned).to_vec();
        assert_eq!(fresh_among(names, |name| name != "fresh-2"), ["fresh-1"]);
    }
}

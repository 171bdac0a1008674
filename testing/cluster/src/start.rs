//! Starts a cluster, or joins a running one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::layout::Layout;
use crate::missing::{Missing, bare, last_line};
use crate::network::IpFamily;
use crate::ports::{Ports, TAKEN};
use crate::progress::{Event, Progress, TICK};
use crate::protocol::{Connection, Phase};
use crate::spec::{Controllers, Nodes, Spec};
use crate::supervisor::MEMBER_OF;
use crate::tools::{Lock, Tool, Tools};
use crate::{kind, prerequisites, remove, supervisor_program, tools};

/// The options of a cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name, which distinguishes clusters on one machine.
    pub name: String,
    /// The kind of nodes.
    pub nodes: Nodes,
    /// The controllers that run. Used only without nodes; with nodes, all controllers run.
    pub controllers: Controllers,
    /// The number of nodes with [`Nodes::Simulated`].
    pub simulated: u16,
    /// The number of nodes with [`Nodes::Real`], from 1 to [`MOST_WORKERS`].
    pub workers: u8,
    /// The addresses of a cluster with [`Nodes::Real`].
    pub ip_family: IpFamily,
    /// How long a real node may be silent before its pods count as not ready, and then before they are replaced. `None` means the
    /// times of Kubernetes, 50 and 300 s. A short time makes tests of node failures quick. A kubelet reports every 5 s.
    pub node_patience: Option<Duration>,
    /// The cluster stops itself after this time without users; `None` for never.
    pub idle: Option<Duration>,
    /// The images that a real node can pull: an OCI layout. `None` means the store of the crate `images`, with its fixtures.
    pub images: Option<PathBuf>,
}

/// A running cluster, and a connection that keeps it running.
pub(crate) struct Started {
    pub(crate) spec: Spec,
    pub(crate) connection: Connection,
    /// The supervisor's process, if this process has started it.
    pub(crate) child: Option<Child>,
}

/// The largest number of real nodes. Each costs memory for a kubelet, a containerd and a kube-proxy.
pub const MOST_WORKERS: u8 = 9;

/// How long to wait for another call that builds all tools and starts the cluster.
const PATIENCE: Duration = Duration::from_mins(90);

impl Options {
    /// The default options for these nodes. The cluster runs until `down`.
    pub fn new(name: impl Into<String>, nodes: Nodes) -> Self {
        let controllers = Controllers::Reduced;
        let name = name.into();
        let ip_family = IpFamily::default();
        Self {
            name,
            nodes,
            controllers,
            simulated: 5,
            workers: 1,
            ip_family,
            node_patience: None,
            idle: None,
            images: None,
        }
    }
}

/// Starts the cluster, or joins it if it runs already. Of several simultaneous calls, one starts it and the others join.
pub(crate) fn start(options: &Options, progress: Progress<'_>) -> Result<Started> {
    let layout = Layout::of(&options.name)?;
    if !(1..=MOST_WORKERS).contains(&options.workers) {
        bail!("a cluster cannot have {} workers: choose 1 to {MOST_WORKERS}", options.workers);
    }
    let what = format!("starting or removing the cluster {}", options.name);
    let _lock = Lock::acquire(&layout.lock(), &what, PATIENCE, progress)?;
    if kind::exists(&layout) {
        bail!("the cluster {} was created with kind: take it down first, or choose another name", options.name);
    }
    if let Some(running) = join(&layout)? {
        if running.spec.nodes != options.nodes {
            let (name, nodes) = (&options.name, running.spec.nodes);
            bail!("the cluster {name} already runs with nodes {nodes}: take it down first, or choose another name");
        }
        if running.spec.workers != options.workers {
            let (name, workers) = (&options.name, running.spec.workers);
            bail!("the cluster {name} already runs with {workers} workers: take it down first, or choose another name");
        }
        if running.spec.ip_family != options.ip_family {
            let (name, family) = (&options.name, running.spec.ip_family);
            bail!("the cluster {name} already runs with {family}: take it down first, or choose another name");
        }
        return Ok(running);
    }
    prerequisites::check(options.nodes, &layout)?;
    remove::clean(&layout)?; // a crash may have left files and processes

    if options.nodes == Nodes::Real {
        let nft = Tools::locate_or_build(&[Tool::Nft], progress)?; // takes seconds, and the check needs it
        prerequisites::check_nft(nft.binary("nft")?)?;
    }
    let tools = Tools::locate_or_build(options.nodes.tools(), progress)?;
    let images = prepare_images(options, progress)?;
    let version = version(&tools)?;
    let program = supervisor_program::locate()?;

    for attempt in 0..3 {
        let spec = Spec {
            name: options.name.clone(),
            folder: layout.folder().to_path_buf(),
            nodes: options.nodes,
            controllers: options.controllers,
            simulated: options.simulated,
            workers: options.workers,
            ip_family: options.ip_family,
            node_patience: options.node_patience,
            tools: tools.clone(),
            version: version.clone(),
            ports: Ports::choose(seed() ^ attempt)?,
            idle: options.idle,
            images: images.clone(),
            created: now().as_secs(),
        };
        match launch(&program, spec, progress) {
            // Another program has taken a port since the choice: try other ports.
            Err(error) if format!("{error:#}").contains(TAKEN) && attempt < 2 => remove::clean(&layout)?,
            Err(error) => {
                remove::end(&layout)?; // keeps the logs
                return Err(error);
            }
            started => return started,
        }
    }
    bail!("other programs have taken the chosen ports three times: try again")
}

/// Joins the cluster if it is ready.
pub(crate) fn join(layout: &Layout) -> Result<Option<Started>> {
    let Some(mut connection) = Connection::open(layout) else { return Ok(None) };
    match connection.status() {
        Ok(status) if status.phase == Phase::Ready => {
            Ok(Some(Started { spec: Spec::read(layout)?, connection, child: None }))
        }
        _ => Ok(None), // it ends, has failed, or its start was interrupted
    }
}

fn launch(program: &Path, spec: Spec, progress: Progress<'_>) -> Result<Started> {
    let layout = spec.layout();
    let log = layout.log("supervisor");
    fs::create_dir_all(log.with_file_name(""))
        .with_context(|| format!("could not create {}", spec.folder.display()))?;
    spec.write()?;
    let output = File::create(&log).with_context(|| format!("could not create {}", log.display()))?;
    let mut child = bare(program)
        .arg("run")
        .arg(&spec.folder)
        .env(MEMBER_OF, &spec.folder)
        .current_dir(&spec.folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("could not start the cluster's supervisor")?;

    let begun = Instant::now();
    let mut told = Instant::now();
    let mut connection = None;
    while begun.elapsed() < Duration::from_mins(3) {
        if let Some(status) = child.try_wait()? {
            bail!("the cluster's supervisor ended ({status}): {}", last_line(&fs::read(&log).unwrap_or_default()));
        }
        if connection.is_none() {
            connection = Connection::open(&layout);
        }
        match connection.as_mut().map(|it| it.status().map(|status| status.phase)) {
            Some(Ok(Phase::Ready)) => {
                let what = format!("starting the cluster {}", spec.name);
                progress(Event::Done { what: &what, n: 1, of: 1, elapsed: begun.elapsed() });
                let connection = connection.context("not connected")?;
                return Ok(Started { spec, connection, child: Some(child) });
            }
            Some(Ok(Phase::Failed(why))) => {
                bail!("the cluster did not start: {why} (logs: {})", log.with_file_name("").display())
            }
            Some(Ok(Phase::Starting(what))) if told.elapsed() >= TICK => {
                told = Instant::now();
                let what = format!("starting the cluster {}: waiting for {what}", spec.name);
                progress(Event::Working { what: &what, n: 1, of: 1, elapsed: begun.elapsed() });
            }
            Some(_) | None => {} // no news, no connection yet, or an end that the next `try_wait` notices
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the cluster did not start in three minutes (logs: {})", log.with_file_name("").display())
}

/// The image store from which a real node pulls, with the images of samples and tests in it. `None` without a real node.
fn prepare_images(options: &Options, progress: Progress<'_>) -> Result<Option<PathBuf>> {
    if options.nodes != Nodes::Real {
        return Ok(None);
    }
    let store = match &options.images {
        Some(store) => store.clone(),
        None => images::default_store()?,
    };
    match images::ensure_fixtures(&store, &mut |text| progress(Event::Note(text))) {
        Ok(()) => Ok(Some(store)),
        // `Missing`, because the images need packages of the host and Go, and a failure mostly means that one is missing.
        Err(error) => Err(Missing(format!("could not build the images for a real node: {error:#}")).into()),
    }
}

/// The version of the API server: the pinned one, or the version of the user's own program.
fn version(tools: &Tools) -> Result<String> {
    let program = tools.binary("kube-apiserver")?;
    if program.starts_with(tools::cache()) && !tools::is_ready_made(program) {
        return tools::kubernetes_version();
    }
    let output = bare(program).arg("--version").output().context("could not ask kube-apiserver for its version")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("Kubernetes ").to_owned())
}

fn seed() -> u64 {
    u64::from(now().subsec_nanos()) ^ (u64::from(std::process::id()) << 32)
}

pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

//! Brings a cluster up, or joins the one that is up.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::layout::Layout;
use crate::missing::{Missing, bare, last_line};
use crate::ports::{Ports, TAKEN};
use crate::progress::{Event, Progress, TICK};
use crate::protocol::{Connection, Phase};
use crate::spec::{Controllers, Nodes, Spec};
use crate::supervisor::MEMBER_OF;
use crate::tools::{Lock, Tool, Tools};
use crate::{prerequisites, remove, supervisor_program, tools};

/// What a cluster is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Several can run side by side; the name tells them apart.
    pub name: String,
    /// What stands behind the API server.
    pub nodes: Nodes,
    /// How much of the controller-manager runs. Only asked without nodes; with them it is always all.
    pub controllers: Controllers,
    /// How many nodes pretend, with [`Nodes::Simulated`].
    pub simulated: u16,
    /// Without users for so long, the cluster ends itself.
    pub idle: Option<Duration>,
    /// The images that a real node can pull, an OCI layout; `None` is the store of the crate `images`, with its fixtures.
    pub images: Option<PathBuf>,
}

/// A cluster that runs, and a connection that keeps it running.
pub(crate) struct Started {
    pub(crate) spec: Spec,
    pub(crate) connection: Connection,
    /// The supervisor, if this process has started it.
    pub(crate) child: Option<Child>,
}

/// The longest that a cold build and a start may take together.
const PATIENCE: Duration = Duration::from_mins(90);

impl Options {
    /// A cluster with what is usual for its kind, until someone takes it down.
    pub fn new(name: impl Into<String>, nodes: Nodes) -> Self {
        let controllers = Controllers::Reduced;
        Self { name: name.into(), nodes, controllers, simulated: 5, idle: None, images: None }
    }
}

/// Starts the cluster, or joins it when it runs. Of several calls at once, one starts it and the others join.
pub(crate) fn start(options: &Options, progress: Progress<'_>) -> Result<Started> {
    let layout = Layout::of(&options.name)?;
    let what = format!("starting or removing the cluster {}", options.name);
    let _lock = Lock::acquire(&layout.lock(), &what, PATIENCE, progress)?;
    if let Some(running) = join(&layout)? {
        if running.spec.nodes != options.nodes {
            let (name, nodes) = (&options.name, running.spec.nodes);
            bail!("the cluster {name} runs with nodes {nodes}: take it down first, or choose another name");
        }
        return Ok(running);
    }
    prerequisites::check(options.nodes, &layout)?;
    remove::clean(&layout)?; // what a crash has left

    if options.nodes == Nodes::Real {
        let nft = Tools::locate_or_build(&[Tool::Nft], progress)?; // seconds, and then the kernel can be asked
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
            tools: tools.clone(),
            version: version.clone(),
            ports: Ports::choose(seed() ^ attempt)?,
            idle: options.idle,
            images: images.clone(),
            created: now().as_secs(),
        };
        match launch(&program, spec, progress) {
            // Someone else was quicker; the next ports will do.
            Err(error) if format!("{error:#}").contains(TAKEN) && attempt < 2 => remove::clean(&layout)?,
            Err(error) => {
                remove::end(&layout)?; // the logs stay
                return Err(error);
            }
            started => return started,
        }
    }
    bail!("three choices of ports were all taken by others")
}

/// Joins the cluster if it runs and has not failed.
pub(crate) fn join(layout: &Layout) -> Result<Option<Started>> {
    let Some(mut connection) = Connection::open(layout) else { return Ok(None) };
    match connection.status() {
        Ok(status) if status.phase == Phase::Ready => {
            Ok(Some(Started { spec: Spec::read(layout)?, connection, child: None }))
        }
        _ => Ok(None), // ending, failed, or given up half-way by whoever started it
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
            Some(_) | None => {} // nothing new, not there yet, or about to be seen as ended
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the cluster did not start in three minutes (logs: {})", log.with_file_name("").display())
}

/// The store that a real node pulls from, with the images of samples and tests in it.
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
        // They are made of the host's packages and of Go, so what fails is most likely missing.
        Err(error) => Err(Missing(format!("the images for a real node cannot be made here: {error:#}")).into()),
    }
}

/// The version of the API server: the pinned one, unless someone has brought their own.
fn version(tools: &Tools) -> Result<String> {
    let program = tools.binary("kube-apiserver")?;
    if program.starts_with(tools::cache()) {
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

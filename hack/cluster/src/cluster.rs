//! The handle by which tests and tasks use a cluster.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::api::Api;
use crate::foreign::Foreign;
use crate::layout::Layout;
use crate::missing::Unsupported;
use crate::pki::{self, Authority};
use crate::progress::{self, Progress};
use crate::protocol::{Connection, PartState, Reply, Request, Status};
use crate::spec::{Controllers, Nodes, Spec};
use crate::start::{self, Options, Started};
use crate::supervisor::SOURCE;
use crate::tools::{self, Tools};
use crate::{foreign, kind, kubeconfig, parts, remove};

/// A running cluster. As long as a handle exists, a cluster of ours does not end itself.
///
/// All calls block; in asynchronous code, make them in `spawn_blocking`. A handle can be shared between threads.
#[derive(Debug)]
#[must_use = "a cluster without a user may end itself, and a fresh one ends with its handle"]
pub struct Cluster {
    name: String,
    layout: Layout,
    runner: Runner,
    ends_on_drop: bool,
}

/// Who runs it.
#[derive(Debug)]
enum Runner {
    /// A supervisor of this machine.
    Supervisor(Supervised),
    /// Somebody else: all we have is a kubeconfig, and for kind the containers that are its nodes.
    Foreign(Foreign),
}

#[derive(Debug)]
pub(crate) struct Supervised {
    pub(crate) spec: Spec,
    pub(crate) pid: i32,
    connection: Mutex<Connection>,
    /// Present if we started the supervisor: then it is ours to wait for.
    child: Option<Child>,
}

/// What a test may want of a cluster beyond its API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To reach pods and Services by their addresses.
    Network,
    /// To see the processes of pods on this machine, and to stop the parts of the control plane.
    Machine,
    /// To drain one of at least two workers.
    Workers,
}

/// What the names of shared clusters begin with.
const SHARED: &str = "shared-";
/// How long a shared cluster waits for its next user.
const SHARED_IDLE: Duration = Duration::from_mins(5);
/// How long a fresh one outlives a test that was killed.
const FRESH_IDLE: Duration = Duration::from_secs(10);

impl Cluster {
    /// The cluster of that kind that all tests of this checkout share. The first user starts it; some minutes after the
    /// last, it ends itself. Use a namespace of your own, and change nothing that is not in it.
    pub fn shared(nodes: Nodes) -> Result<Self> {
        let key = tools::pins_key(nodes.tools(), SOURCE)?;
        let options = Options { idle: Some(SHARED_IDLE), ..Options::new(format!("{SHARED}{nodes}-{key}"), nodes) };
        Self::up(&options, &progress::to_stderr)
    }

    /// A cluster for this test alone; it ends with the handle. About three seconds and half a gigabyte: prefer
    /// [`shared`](Self::shared) unless the test breaks things.
    pub fn fresh(nodes: Nodes) -> Result<Self> {
        Self::fresh_with(nodes, Controllers::Reduced)
    }

    /// As [`fresh`](Self::fresh), and says which controllers run when there are no nodes.
    pub fn fresh_with(nodes: Nodes, controllers: Controllers) -> Result<Self> {
        let options = Options { controllers, idle: Some(FRESH_IDLE), ..Options::new(fresh_name(), nodes) };
        let mut cluster = Self::up(&options, &progress::to_stderr)?;
        cluster.ends_on_drop = true;
        Ok(cluster)
    }

    /// Starts the cluster, or joins it when it runs. It outlives the handle.
    pub fn up(options: &Options, progress: Progress<'_>) -> Result<Self> {
        Self::of(start::start(options, progress)?)
    }

    /// Joins a cluster that runs.
    pub fn open(name: &str) -> Result<Self> {
        let running = start::join(&Layout::of(name)?)?;
        let advice = || format!("no cluster {name} runs: start it with `cargo xtask cluster up --name {name}`");
        Self::of(running.with_context(advice)?)
    }

    /// The cluster that the current context of `kubeconfig` leads to, whoever runs it; without one, kubectl's own. It is left
    /// as it is.
    pub fn existing(kubeconfig: Option<&Path>) -> Result<Self> {
        let (layout, foreign) = foreign::existing(kubeconfig)?;
        Ok(Self::foreign(layout, foreign, false))
    }

    /// Removes the files that we keep about a cluster of somebody else.
    pub fn forget(self) -> Result<()> {
        match &self.runner {
            Runner::Supervisor(_) => Ok(()), // they are the cluster's, and go with it
            Runner::Foreign(_) => foreign::forget(&self.layout),
        }
    }

    /// The cluster that kind calls so, with this many workers; it is created if need be, and stays.
    pub fn kind(name: &str, workers: usize) -> Result<Self> {
        let (layout, foreign) = kind::up(name, workers)?;
        Ok(Self::foreign(layout, foreign, false))
    }

    /// A cluster of kind's for this test alone; it ends with the handle.
    pub fn fresh_kind() -> Result<Self> {
        let (layout, foreign) = kind::up(&fresh_name(), 0)?;
        Ok(Self::foreign(layout, foreign, true))
    }

    fn foreign(layout: Layout, foreign: Foreign, ends_on_drop: bool) -> Self {
        Self { name: foreign.name.clone(), layout, runner: Runner::Foreign(foreign), ends_on_drop }
    }

    fn of(started: Started) -> Result<Self> {
        let Started { spec, connection, child } = started;
        let pid = connection.pid()?;
        let (name, layout) = (spec.name.clone(), spec.layout());
        let runner = Runner::Supervisor(Supervised { spec, pid, connection: Mutex::new(connection), child });
        Ok(Self { name, layout, runner, ends_on_drop: false })
    }

    pub(crate) fn supervised(&self) -> Result<&Supervised> {
        match &self.runner {
            Runner::Supervisor(ours) => Ok(ours),
            Runner::Foreign(_) => {
                let name = &self.name;
                Err(Unsupported(format!("only clusters of this repository let tests do that, and {name} is none"))
                    .into())
            }
        }
    }

    /// Whether a test can have this; the error says why not, and [`or_skip`](crate::or_skip) skips the test.
    pub fn require(&self, access: Access) -> Result<()> {
        let unsupported = |why: &str| Err(Unsupported(format!("{}: {why}", self.name)).into());
        match (access, &self.runner) {
            (Access::Workers, Runner::Supervisor(ours)) if ours.spec.nodes == Nodes::Real => {
                unsupported("a real cluster of this repository has one node only")
            }
            (Access::Workers, Runner::Foreign(foreign)) => match foreign.workers {
                Some(2..) => Ok(()),
                Some(_) => unsupported("there are no two workers"),
                None => unsupported("the workers of somebody else's cluster are not drained"),
            },
            (_, Runner::Supervisor(_)) => Ok(()),
            (Access::Network, Runner::Foreign(foreign)) => foreign.require_network(),
            (Access::Machine, Runner::Foreign(_)) => self.supervised().map(drop),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether tests share it, so that none may change what the others see.
    pub(crate) fn is_shared(&self) -> bool {
        self.name.starts_with(SHARED)
    }

    /// What stands behind its API server.
    pub fn nodes(&self) -> Nodes {
        match &self.runner {
            Runner::Supervisor(ours) => ours.spec.nodes,
            Runner::Foreign(_) => Nodes::Real,
        }
    }

    /// Whether it is one of this repository's, with all that these offer.
    pub fn is_ours(&self) -> bool {
        matches!(self.runner, Runner::Supervisor(_))
    }

    /// Its Kubernetes version, such as "v1.36.3".
    pub fn version(&self) -> &str {
        match &self.runner {
            Runner::Supervisor(ours) => &ours.spec.version,
            Runner::Foreign(foreign) => &foreign.version,
        }
    }

    /// A kubeconfig for its administrator. It works inside and outside of the cluster's network.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// A kubeconfig for this user with these groups (at most two), who may do what RBAC allows them: at first, nothing.
    ///
    /// The user's name is in every line of the [audit log](Self::audit_log) that the user causes.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        self.supervised()?;
        let authority = Authority::load(&self.layout)?;
        let pair = authority.client(user, groups)?;
        let text = kubeconfig::render(&self.name, &self.server(), &authority.certificate, &pair);
        let fits = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
        let folder = self.layout.folder().join("users");
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        let file = folder.join(format!("{}.kubeconfig", user.chars().map(fits).collect::<String>()));
        pki::write_private(&file, &text)?;
        Ok(file)
    }

    /// The address of the API server, the same inside and outside of the cluster's network.
    pub fn server(&self) -> String {
        match &self.runner {
            Runner::Supervisor(ours) => parts::server(&ours.spec),
            Runner::Foreign(foreign) => foreign.server.clone(),
        }
    }

    /// One line of JSON for each request that was answered, with the user in `user.username`. Only clusters of this
    /// repository have it.
    pub fn audit_log(&self) -> PathBuf {
        self.layout.audit_log()
    }

    /// The folder with all files of the cluster: logs, certificates, configuration. For a cluster of somebody else, with the
    /// files that we keep about it.
    pub fn state_dir(&self) -> &Path {
        self.layout.folder()
    }

    /// What the part of that name has said.
    pub fn log(&self, part: &str) -> PathBuf {
        self.layout.log(part)
    }

    /// The programs that the cluster is made of; of somebody else's, at most kubectl.
    pub fn tools(&self) -> &Tools {
        match &self.runner {
            Runner::Supervisor(ours) => &ours.spec.tools,
            Runner::Foreign(foreign) => &foreign.tools,
        }
    }

    /// `kubectl` as the administrator.
    pub fn kubectl<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.exec("kubectl");
        command.args(args);
        command
    }

    /// A command with `KUBECONFIG` set and the cluster's programs first on the `PATH`; in the network of the cluster if it is
    /// ours.
    ///
    /// Only the network is entered: the command sees the usual files and processes.
    pub fn exec(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match &self.runner {
            Runner::Supervisor(_) => self.inside(program),
            Runner::Foreign(_) => Command::new(program), // where its kubeconfig leads is not known inside
        };
        let cache = self.layout.folder().join("cache");
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("PATH", self.tools().path(std::env::var_os("PATH")))
            .env("KUBECACHEDIR", cache.join("kubectl")) // else it fills the home directory
            .env("HELM_CACHE_HOME", cache.join("helm/cache"))
            .env("HELM_CONFIG_HOME", cache.join("helm/config"))
            .env("HELM_DATA_HOME", cache.join("helm/data"));
        command
    }

    /// A command in the cluster's network, as far as it can be entered from here: see [`Access::Network`].
    pub fn inside(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(pid) = self.network() else { return Command::new(program) };
        let mut nsenter = Command::new("nsenter");
        nsenter.arg(format!("--net=/proc/{pid}/ns/net")).arg("--").arg(program);
        nsenter
    }

    /// Moves the calling thread into the cluster's network, for good: its sockets then reach pods and Services.
    ///
    /// Threads that it starts afterwards follow. Does nothing where the cluster has no network that can be entered.
    pub fn enter_network(&self) -> Result<()> {
        let Some(pid) = self.network() else { return Ok(()) };
        let network = File::open(format!("/proc/{pid}/ns/net")).context("the cluster is gone")?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .context("could not enter the cluster's network")
    }

    /// A process of this machine that is in the cluster's network.
    fn network(&self) -> Option<i32> {
        match &self.runner {
            Runner::Supervisor(ours) => (ours.spec.nodes == Nodes::Real).then_some(ours.pid),
            Runner::Foreign(foreign) => foreign.node,
        }
    }

    /// Puts an image into all nodes, from an OCI archive; of kind only.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        kind::load(&self.name, archive)
    }

    /// How it is now.
    pub fn status(&self) -> Result<Status> {
        self.supervised()?.connection.lock().unwrap_or_else(PoisonError::into_inner).status()
    }

    /// Ends a part such as "etcd" as a crash would, and keeps it away until [`start_part`](Self::start_part).
    pub fn stop_part(&self, name: &str) -> Result<()> {
        self.ask(&Request::Stop(name.to_owned()))
    }

    /// Asks a part to end as an administrator would, with SIGTERM, and keeps it away until
    /// [`start_part`](Self::start_part). A part that has not ended in time is killed; `false` tells of it.
    pub fn terminate_part(&self, name: &str, patience: Duration) -> Result<bool> {
        self.ask(&Request::Terminate(name.to_owned()))?;
        let begun = Instant::now();
        loop {
            if self.status()?.parts.iter().any(|part| part.name == name && part.state == PartState::Stopped) {
                return Ok(true);
            }
            if begun.elapsed() > patience {
                self.stop_part(name)?;
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a part that was stopped.
    pub fn start_part(&self, name: &str) -> Result<()> {
        self.ask(&Request::Start(name.to_owned()))
    }

    /// Ends a part as a crash would, and starts it again.
    pub fn restart_part(&self, name: &str) -> Result<()> {
        self.stop_part(name)?;
        self.start_part(name)
    }

    /// Freezes a part: it keeps its connections and answers nothing.
    pub fn pause_part(&self, name: &str) -> Result<()> {
        self.ask(&Request::Pause(name.to_owned()))
    }

    /// Lets a frozen part go on.
    pub fn resume_part(&self, name: &str) -> Result<()> {
        self.ask(&Request::Resume(name.to_owned()))
    }

    /// Waits until the API server calls itself ready, as after a fault.
    pub fn wait_until_ready(&self, patience: Duration) -> Result<()> {
        let api = self.api()?;
        let begun = Instant::now();
        while !api.is_ready() {
            if begun.elapsed() > patience {
                bail!("the API server of {} was not ready within {} s", self.name, patience.as_secs());
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        Ok(())
    }

    /// A client of its API server.
    pub(crate) fn api(&self) -> Result<Api> {
        Api::new(self.supervised()?.spec.ports.api, &Authority::load(&self.layout)?)
    }

    fn ask(&self, request: &Request) -> Result<()> {
        match self.supervised()?.connection.lock().unwrap_or_else(PoisonError::into_inner).ask(request)? {
            Reply::Done => Ok(()),
            Reply::Refused(why) => bail!("{why}"),
            Reply::Status(_) => bail!("the supervisor answered another question"),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.ends_on_drop {
            return;
        }
        let ended = match &self.runner {
            Runner::Supervisor(_) => remove::down(&self.name).map(drop),
            Runner::Foreign(_) => kind::down(&self.name),
        };
        if let Err(error) = ended {
            eprintln!("the cluster {} was not removed: {error:#}", self.name);
        }
        if let Runner::Supervisor(Supervised { child: Some(child), .. }) = &mut self.runner {
            let _ = child.wait(); // it has ended; this takes it from the kernel's list
        }
    }
}

/// A name that no other cluster has.
fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("fresh-{}-{n}-{:x}", std::process::id(), start::now().subsec_nanos())
}

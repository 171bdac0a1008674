//! [`Cluster`], the handle with which tests and tasks use a cluster.

use parking_lot::Mutex;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::api::Api;
use crate::foreign::Foreign;
use crate::layout::Layout;
use crate::missing::Unsupported;
use crate::network::IpFamily;
use crate::network_namespace::on_thread_in;
use crate::pki::{self, Authority};
use crate::progress::{self, Progress};
use crate::protocol::{Connection, PartState, Reply, Request, Status};
use crate::spec::{Nodes, Spec};
use crate::start::{self, Options, Started};
use crate::supervisor::SOURCE;
use crate::tools::{self, Tools};
use crate::{foreign, kept_logs, kind, kubeconfig, parts, remove};

/// A handle to a running cluster. As long as a handle exists, a cluster of this repository does not stop by itself.
///
/// All calls block; in asynchronous code, make them in `spawn_blocking`. A handle can be shared between threads.
#[derive(Debug)]
#[must_use = "a cluster without a handle may stop itself, and a fresh one stops with its handle"]
pub struct Cluster {
    name: String,
    layout: Layout,
    runner: Runner,
    ends_on_drop: bool,
}

/// What runs the cluster.
#[derive(Debug)]
enum Runner {
    /// A supervisor on this machine.
    Supervisor(Supervised),
    /// A cluster outside of this repository. Only its kubeconfig is known and, with kind, the containers of its nodes.
    Foreign(Foreign),
}

#[derive(Debug)]
pub(crate) struct Supervised {
    pub(crate) spec: Spec,
    pub(crate) pid: i32,
    connection: Mutex<Connection>,
    /// The supervisor's process if this process has started it, and so must wait for its end.
    child: Option<Child>,
}

/// Capabilities of a cluster, beyond its API server, that a test may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The test can reach pods and Services by their addresses.
    Network,
    /// The processes of pods run on this machine, and the test can stop parts of the control plane.
    Machine,
    /// The test may drain one of at least two workers.
    Workers,
}

/// The prefix of the names of shared clusters.
const SHARED: &str = "shared-";
/// The prefix of the names of clusters that tests start for themselves.
pub(crate) const FRESH: &str = "fresh-";
/// The number of real nodes of a shared cluster. Two are enough to drain one and to spread pods.
const SHARED_WORKERS: u8 = 2;
/// How long a shared cluster without a handle waits before it stops.
const SHARED_IDLE: Duration = Duration::from_mins(5);
/// How long a fresh cluster continues to run after its test was killed.
const FRESH_IDLE: Duration = Duration::from_secs(10);

impl Cluster {
    /// Joins the cluster of this kind that all tests of this checkout share. The first caller starts it. It stops some minutes
    /// after the last handle. Use your own namespace, and change nothing outside of it.
    pub fn shared(nodes: Nodes) -> Result<Self> {
        Self::shared_with(nodes, IpFamily::default())
    }

    /// Like [`shared`](Self::shared), with real nodes that have addresses of this family.
    pub fn shared_with(nodes: Nodes, ip_family: IpFamily) -> Result<Self> {
        let key = tools::pins_key(nodes.tools(), SOURCE)?;
        let family = if ip_family == IpFamily::default() { String::new() } else { format!("{ip_family}-") };
        let options = Options {
            workers: SHARED_WORKERS,
            ip_family,
            idle: Some(SHARED_IDLE),
            ..Options::new(format!("{SHARED}{nodes}-{family}{key}"), nodes)
        };
        Self::up(&options, &progress::to_stderr)
    }

    /// Starts a cluster for this test alone; it stops with the handle. It costs about three seconds and half a gigabyte, so
    /// prefer [`shared`](Self::shared) unless the test disturbs the cluster.
    pub fn fresh(nodes: Nodes) -> Result<Self> {
        Self::fresh_with(nodes, |_| {})
    }

    /// Like [`fresh`](Self::fresh), with a change of the options.
    pub fn fresh_with(nodes: Nodes, change: impl FnOnce(&mut Options)) -> Result<Self> {
        let mut options = Options { idle: Some(FRESH_IDLE), ..Options::new(fresh_name(), nodes) };
        change(&mut options);
        let mut cluster = Self::up(&options, &progress::to_stderr)?;
        cluster.ends_on_drop = true;
        Ok(cluster)
    }

    /// Starts the cluster, or joins it if it runs already. It continues to run after the handle.
    pub fn up(options: &Options, progress: Progress<'_>) -> Result<Self> {
        Self::of(start::start(options, progress)?)
    }

    /// Joins a running cluster.
    pub fn open(name: &str) -> Result<Self> {
        if let Some((layout, foreign)) = kind::open(name)? {
            return Ok(Self::foreign(layout, foreign, false));
        }
        let running = start::join(&Layout::of(name)?)?;
        let advice = || format!("no cluster {name} runs: start it with `cargo xtask cluster up --name {name}`");
        Self::of(running.with_context(advice)?)
    }

    /// A handle to the existing cluster in the current context of `kubeconfig`, or of kubectl's own configuration if that is
    /// `None`. The handle never starts or stops this cluster.
    pub fn existing(kubeconfig: Option<&Path>) -> Result<Self> {
        let (layout, foreign) = foreign::existing(kubeconfig)?;
        Ok(Self::foreign(layout, foreign, false))
    }

    /// Removes the local files about an existing cluster that does not belong to this repository.
    pub fn forget(self) -> Result<()> {
        match &self.runner {
            Runner::Supervisor(_) => Ok(()), // its files belong to the cluster and go with it
            Runner::Foreign(_) => foreign::forget(&self.layout),
        }
    }

    /// The cluster of kind with this name, created with this many workers if it does not exist. It stays after the handle. Its nodes
    /// get this image, or else that of [`KIND_NODE_IMAGE`](crate::KIND_NODE_IMAGE) or the default one.
    pub fn kind(name: &str, workers: usize, image: Option<&str>, progress: Progress<'_>) -> Result<Self> {
        let (layout, foreign) = kind::up(name, workers, image, progress)?;
        Ok(Self::foreign(layout, foreign, false))
    }

    /// Creates a cluster with kind for this test alone. Dropping the handle deletes it. If the test is killed, the next call deletes it.
    pub fn fresh_kind() -> Result<Self> {
        kind::delete_abandoned();
        let (layout, foreign) = kind::up(&fresh_name(), 0, None, &progress::to_stderr)?;
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
                Err(Unsupported(format!("only clusters of this repository support this, and {name} is not one")).into())
            }
        }
    }

    /// Checks that the cluster offers this capability.
    ///
    /// The error gives the reason why it does not, and [`or_skip`](crate::or_skip) then skips the test.
    pub fn require(&self, access: Access) -> Result<()> {
        let unsupported = |why: &str| Err(Unsupported(format!("{}: {why}", self.name)).into());
        match (access, &self.runner) {
            (Access::Workers, Runner::Supervisor(ours)) if ours.spec.real_nodes().count() == 1 => {
                unsupported("the cluster has only one worker")
            }
            (Access::Workers, Runner::Foreign(foreign)) => match foreign.workers {
                Some(2..) => Ok(()),
                Some(_) => unsupported("the cluster has fewer than two workers"),
                None => unsupported("tests do not drain workers of an existing cluster"),
            },
            (_, Runner::Supervisor(_)) => Ok(()),
            (Access::Network, Runner::Foreign(foreign)) => foreign.require_network(),
            (Access::Machine, Runner::Foreign(_)) => self.supervised().map(drop),
        }
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether tests share the cluster. Then no test may change what the others rely on.
    pub(crate) fn is_shared(&self) -> bool {
        self.name.starts_with(SHARED)
    }

    /// The kind of the cluster's nodes.
    pub fn nodes(&self) -> Nodes {
        match &self.runner {
            Runner::Supervisor(ours) => ours.spec.nodes,
            Runner::Foreign(_) => Nodes::Real,
        }
    }

    /// Whether the cluster belongs to this repository, and so supports all operations.
    pub fn is_ours(&self) -> bool {
        matches!(self.runner, Runner::Supervisor(_))
    }

    /// The cluster's Kubernetes version, such as "v1.36.3".
    pub fn version(&self) -> &str {
        match &self.runner {
            Runner::Supervisor(ours) => &ours.spec.version,
            Runner::Foreign(foreign) => &foreign.version,
        }
    }

    /// The administrator's kubeconfig. It works inside and outside of the cluster's network.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// Writes a kubeconfig for this user with these groups (at most two). RBAC decides what the user may do: at first, nothing.
    ///
    /// Each request of the user is in the [audit log](Self::audit_log) with the user's name.
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

    /// The audit log: a line of JSON for each stage of each request, with the user in `user.username`. Only clusters of this
    /// repository have one.
    pub fn audit_log(&self) -> PathBuf {
        self.layout.audit_log()
    }

    /// The folder with all files of the cluster: logs, certificates, configuration. For an existing cluster, it contains only
    /// the local files about it.
    pub fn state_dir(&self) -> &Path {
        self.layout.folder()
    }

    /// The log of the part with this name.
    pub fn log(&self, part: &str) -> PathBuf {
        self.layout.log(part)
    }

    /// The programs of the cluster. For an existing cluster, this is at most kubectl.
    pub fn tools(&self) -> &Tools {
        match &self.runner {
            Runner::Supervisor(ours) => &ours.spec.tools,
            Runner::Foreign(foreign) => &foreign.tools,
        }
    }

    /// A command that runs `kubectl` as the administrator.
    pub fn kubectl<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.exec("kubectl");
        command.args(args);
        command
    }

    /// A command with `KUBECONFIG` set and the cluster's programs first on the `PATH`. For a cluster of this repository, it runs
    /// in the cluster's network.
    ///
    /// The command enters only the network. It sees the files and processes of this machine as usual.
    pub fn exec(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match &self.runner {
            Runner::Supervisor(_) => self.inside(program),
            Runner::Foreign(_) => Command::new(program), // its server may be unreachable from the cluster's network
        };
        let cache = self.layout.folder().join("cache");
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("PATH", self.tools().path(std::env::var_os("PATH")))
            .env("KUBECACHEDIR", cache.join("kubectl")) // keeps kubectl's cache out of the home directory
            .env("HELM_CACHE_HOME", cache.join("helm/cache"))
            .env("HELM_CONFIG_HOME", cache.join("helm/config"))
            .env("HELM_DATA_HOME", cache.join("helm/data"));
        command
    }

    /// A command in the cluster's network if this machine can enter that network, and otherwise an ordinary command. See
    /// [`Access::Network`].
    pub fn inside(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(pid) = self.network() else { return Command::new(program) };
        let mut nsenter = Command::new("nsenter");
        nsenter.arg(format!("--net=/proc/{pid}/ns/net")).arg("--").arg(program);
        nsenter
    }

    /// Does this work in the cluster's network, and waits for its end. Its sockets reach pods and Services. What it starts, threads
    /// and processes, stays in this network. If this machine cannot enter the cluster's network, the work is in that of the caller.
    ///
    /// # Panics
    ///
    /// If the work panics.
    pub fn in_network<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_thread_in(self.network(), work)
    }

    /// Does this work in the network of a pod, and waits for its end. `process` is the id of a process of that pod on this machine.
    ///
    /// # Panics
    ///
    /// If the work panics.
    pub fn in_network_of<T: Send>(&self, process: i32, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.require(Access::Machine)?;
        on_thread_in(Some(process), work)
    }

    /// The id of a process on this machine that is in the cluster's network.
    fn network(&self) -> Option<i32> {
        match &self.runner {
            Runner::Supervisor(ours) => (ours.spec.nodes == Nodes::Real).then_some(ours.pid),
            Runner::Foreign(foreign) => foreign.node,
        }
    }

    /// Keeps the logs of a cluster whose test has failed.
    fn keep_logs(&self) -> Result<()> {
        match &self.runner {
            Runner::Supervisor(_) => kept_logs::copy(&self.layout.folder().join("log"), &kept_logs::folder(&self.name)),
            Runner::Foreign(_) => kind::keep_logs(&self.name, &self.name).map(drop),
        }
    }

    /// Loads an image from an OCI archive into all nodes. Works only with kind.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        kind::load(&self.name, archive)
    }

    /// Lets the nodes pull images from the registry at this address in the cluster's network. It speaks HTTP without encryption. All
    /// other images come from the image store, as before.
    pub fn pull_from(&self, registry: SocketAddr) -> Result<()> {
        parts::write_registry(&self.supervised()?.spec, &registry.to_string(), registry)
    }

    /// Lets the nodes pull images from the registry at this address alone, whatever registry the name of an image begins with. It is
    /// in the cluster's network, and speaks HTTP without encryption.
    pub fn pull_only_from(&self, registry: SocketAddr) -> Result<()> {
        parts::write_registry(&self.supervised()?.spec, parts::EVERY_REGISTRY, registry)
    }

    /// The present state of the cluster and its parts.
    pub fn status(&self) -> Result<Status> {
        self.supervised()?.connection.lock().status()
    }

    /// Kills a part such as "etcd", like a crash. It stays stopped until [`start_part`](Self::start_part).
    pub fn stop_part(&self, name: &str) -> Result<()> {
        self.ask(&Request::Stop(name.to_owned()))
    }

    /// Stops a part with SIGTERM, like an administrator. It stays stopped until [`start_part`](Self::start_part). Returns `false`
    /// if the part did not end within `patience` and had to be killed.
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

    /// Starts a stopped part.
    pub fn start_part(&self, name: &str) -> Result<()> {
        self.ask(&Request::Start(name.to_owned()))
    }

    /// Kills a part, like a crash, and starts it again.
    pub fn restart_part(&self, name: &str) -> Result<()> {
        self.stop_part(name)?;
        self.start_part(name)
    }

    /// Freezes a part: it keeps its connections but does not answer.
    pub fn pause_part(&self, name: &str) -> Result<()> {
        self.ask(&Request::Pause(name.to_owned()))
    }

    /// Resumes a frozen part.
    pub fn resume_part(&self, name: &str) -> Result<()> {
        self.ask(&Request::Resume(name.to_owned()))
    }

    /// Waits until the API server reports that it is ready, for example after a fault.
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

    /// A client of the cluster's API server.
    pub(crate) fn api(&self) -> Result<Api> {
        Api::new(self.supervised()?.spec.ports.api, &Authority::load(&self.layout)?)
    }

    fn ask(&self, request: &Request) -> Result<()> {
        match self.supervised()?.connection.lock().ask(request)? {
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
        // Only under `CI`: a user would have to remove them.
        if std::thread::panicking()
            && skip::in_ci()
            && let Err(error) = self.keep_logs()
        {
            eprintln!("not all logs of the cluster {} were kept: {error:#}", self.name);
        }
        let ended = match &self.runner {
            Runner::Supervisor(_) => remove::down(&self.name).map(drop),
            Runner::Foreign(_) => kind::delete(&self.name),
        };
        if let Err(error) = ended {
            eprintln!("the cluster {} was not removed: {error:#}", self.name);
        }
        if let Runner::Supervisor(Supervised { child: Some(child), .. }) = &mut self.runner {
            let _ = child.wait(); // reaps the ended process
        }
    }
}

/// A unique name for a cluster.
fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{FRESH}{}-{n}-{:x}", std::process::id(), start::now().subsec_nanos())
}

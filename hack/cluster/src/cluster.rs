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
use crate::layout::Layout;
use crate::pki::{self, Authority};
use crate::progress::{self, Progress};
use crate::protocol::{Connection, Reply, Request, Status};
use crate::spec::{Controllers, Nodes, Spec};
use crate::start::{self, Options, Started};
use crate::supervisor::SOURCE;
use crate::tools::{self, Tools};
use crate::{kubeconfig, parts, remove};

/// A running cluster. As long as a handle exists, the cluster does not end itself.
///
/// All calls block; in asynchronous code, make them in `spawn_blocking`. A handle can be shared between threads.
#[derive(Debug)]
#[must_use = "a cluster without a user may end itself, and a fresh one ends with its handle"]
pub struct Cluster {
    layout: Layout,
    spec: Spec,
    pid: i32,
    connection: Mutex<Connection>,
    /// Present if we started the supervisor: then it is ours to wait for.
    child: Option<Child>,
    ends_on_drop: bool,
}

/// How long a shared cluster waits for its next user.
const SHARED_IDLE: Duration = Duration::from_mins(5);
/// How long a fresh one outlives a test that was killed.
const FRESH_IDLE: Duration = Duration::from_secs(10);

impl Cluster {
    /// The cluster of that kind that all tests of this checkout share. The first user starts it; some minutes after the
    /// last, it ends itself. Use a namespace of your own, and change nothing that is not in it.
    pub fn shared(nodes: Nodes) -> Result<Self> {
        let key = tools::pins_key(nodes.tools(), SOURCE)?;
        let options = Options { idle: Some(SHARED_IDLE), ..Options::new(format!("shared-{nodes}-{key}"), nodes) };
        Self::up(&options, &progress::to_stderr)
    }

    /// A cluster for this test alone; it ends with the handle. About three seconds and half a gigabyte: prefer
    /// [`shared`](Self::shared) unless the test breaks things.
    pub fn fresh(nodes: Nodes) -> Result<Self> {
        Self::fresh_with(nodes, Controllers::Reduced)
    }

    /// As [`fresh`](Self::fresh), and says which controllers run when there are no nodes.
    pub fn fresh_with(nodes: Nodes, controllers: Controllers) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fresh-{}-{n}-{:x}", std::process::id(), start::now().subsec_nanos());
        let options = Options { controllers, idle: Some(FRESH_IDLE), ..Options::new(name, nodes) };
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

    fn of(started: Started) -> Result<Self> {
        let Started { spec, connection, child } = started;
        let pid = connection.pid()?;
        Ok(Self { layout: spec.layout(), spec, pid, connection: Mutex::new(connection), child, ends_on_drop: false })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// What stands behind its API server.
    pub fn nodes(&self) -> Nodes {
        self.spec.nodes
    }

    /// Its Kubernetes version, such as "v1.36.3".
    pub fn version(&self) -> &str {
        &self.spec.version
    }

    /// A kubeconfig for its administrator. It works inside and outside of the cluster's network.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// A kubeconfig for this user with these groups (at most two), who may do what RBAC allows them: at first, nothing.
    ///
    /// The user's name is in every line of the [audit log](Self::audit_log) that the user causes.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let authority = Authority::load(&self.layout)?;
        let pair = authority.client(user, groups)?;
        let text = kubeconfig::render(&self.spec.name, &self.server(), &authority.certificate, &pair);
        let fits = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
        let folder = self.layout.folder().join("users");
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        let file = folder.join(format!("{}.kubeconfig", user.chars().map(fits).collect::<String>()));
        pki::write_private(&file, &text)?;
        Ok(file)
    }

    /// The address of the API server, the same inside and outside of the cluster's network.
    pub fn server(&self) -> String {
        parts::server(&self.spec)
    }

    /// One line of JSON for each request that was answered, with the user in `user.username`.
    pub fn audit_log(&self) -> PathBuf {
        self.layout.audit_log()
    }

    /// The folder with all files of the cluster: logs, certificates, configuration.
    pub fn state_dir(&self) -> &Path {
        self.layout.folder()
    }

    /// What the part of that name has said.
    pub fn log(&self, part: &str) -> PathBuf {
        self.layout.log(part)
    }

    /// The programs that the cluster is made of.
    pub fn tools(&self) -> &Tools {
        &self.spec.tools
    }

    /// `kubectl` as the administrator, in the cluster's network.
    pub fn kubectl<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.exec("kubectl");
        command.args(args);
        command
    }

    /// A command in the cluster's network, with `KUBECONFIG` set and the cluster's programs first on the `PATH`.
    ///
    /// Only the network is entered: the command sees the usual files and processes.
    pub fn exec(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = if self.spec.nodes == Nodes::Real {
            let mut nsenter = Command::new("nsenter");
            nsenter.arg(format!("--net=/proc/{}/ns/net", self.pid)).arg("--").arg(program);
            nsenter
        } else {
            Command::new(program)
        };
        let cache = self.layout.folder().join("cache");
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("PATH", self.spec.tools.path(std::env::var_os("PATH")))
            .env("KUBECACHEDIR", cache.join("kubectl")) // else it fills the home directory
            .env("HELM_CACHE_HOME", cache.join("helm/cache"))
            .env("HELM_CONFIG_HOME", cache.join("helm/config"))
            .env("HELM_DATA_HOME", cache.join("helm/data"));
        command
    }

    /// Moves the calling thread into the cluster's network, for good: its sockets then reach pods and Services.
    ///
    /// Threads that it starts afterwards follow. Does nothing where the cluster has no network of its own.
    pub fn enter_network(&self) -> Result<()> {
        if self.spec.nodes != Nodes::Real {
            return Ok(());
        }
        let network = File::open(format!("/proc/{}/ns/net", self.pid)).context("the cluster is gone")?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .context("could not enter the cluster's network")
    }

    /// How it is now.
    pub fn status(&self) -> Result<Status> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).status()
    }

    /// Ends a part such as "etcd" as a crash would, and keeps it away until [`start_part`](Self::start_part).
    pub fn stop_part(&self, name: &str) -> Result<()> {
        self.ask(&Request::Stop(name.to_owned()))
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
        let api = Api::new(self.spec.ports.api, &Authority::load(&self.layout)?)?;
        let begun = Instant::now();
        while !api.is_ready() {
            if begun.elapsed() > patience {
                bail!("the API server of {} was not ready within {} s", self.spec.name, patience.as_secs());
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        Ok(())
    }

    fn ask(&self, request: &Request) -> Result<()> {
        match self.connection.lock().unwrap_or_else(PoisonError::into_inner).ask(request)? {
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
        if let Err(error) = remove::down(&self.spec.name) {
            eprintln!("the cluster {} was not removed: {error:#}", self.spec.name);
        }
        if let Some(child) = &mut self.child {
            let _ = child.wait(); // it has ended; this takes it from the kernel's list
        }
    }
}

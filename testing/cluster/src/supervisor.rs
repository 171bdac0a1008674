//! The supervisor: the process that owns all other processes of one cluster. It outlives the process that started it.
//!
//! Without a real node, it is an ordinary process. Its children die with it, because each child requests that from the kernel
//! ([`run_part`]). With a real node, it is process 1 of its own Linux namespaces. When it ends, the kernel ends everything in
//! them: processes, mounts, network.
//!
//! Each further real node is a part too: process 1 of Linux namespaces inside of those. The supervisor starts the parts of that
//! node in them. Stopping the node ends everything on it, like a power failure.
//!
//! A single thread (`Supervisor::run`) starts and reaps all children, because the kernel ties a child to the *thread* that
//! started it. The other threads only send events to this one.

mod bootstrap;
mod child;
pub(crate) mod docker;
mod forwarder;
pub(crate) mod namespaces;
mod runc;
mod users;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions};

use self::child::Child;
use crate::cgroups;
use crate::layout::Layout;
use crate::network::Node;
use crate::parts::{self, Begins, Place};
use crate::pki;
use crate::ports::Reservation;
use crate::protocol::{PartState, Phase, Reply, Request, Status};
use crate::spec::{Nodes, Spec};
use crate::tools::Lock;

/// The hash of this crate's sources. A test must not talk to a supervisor that was built from other sources.
pub(crate) const SOURCE: &str = env!("CLUSTER_SOURCE");

/// The environment variable that names the cluster's folder in every process of the cluster. `down` finds the processes by it,
/// even after a crash.
pub(crate) const MEMBER_OF: &str = "CLUSTER_MEMBER_OF";

/// The main function of the program `cluster-supervisor`. Only this library calls that program, never a user.
pub fn main(args: &[OsString]) -> Result<()> {
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let args: Vec<_> = args.iter().map(AsRef::as_ref).collect();
    if std::env::args_os().next().is_some_and(|name| Path::new(&name).ends_with(runc::NAME)) {
        return runc::run(&args);
    }
    match args.as_slice() {
        ["--source"] => {
            use std::io::Write;
            Ok(writeln!(std::io::stdout(), "{SOURCE}")?)
        }
        ["run", folder] => run(&Spec::read(&Layout::at(*folder))?),
        ["node", folder] => run_in_namespaces(Spec::read(&Layout::at(*folder))?),
        ["machine", folder, node] => run_machine(&Spec::read(&Layout::at(*folder))?, Node::nth(node.parse()?)),
        ["part", supervisor, cgroup, program, args @ ..] => run_part(supervisor.parse()?, cgroup, program, args),
        ["docker", folder] => docker::run(Path::new(folder)),
        ["docker-inside", folder] => docker::run_inside(Path::new(folder)),
        ["forward", pid, from, to] => docker::forward(pid.parse()?, from.parse()?, to.parse()?),
        _ => bail!("this program is internal: use `cargo xtask cluster`"),
    }
}

/// Detaches from the terminal and becomes the supervisor.
fn run(spec: &Spec) -> Result<()> {
    let _ = rustix::process::setsid(); // fails only if this process already leads a session
    if spec.nodes == Nodes::Real { namespaces::enter(spec) } else { Supervisor::new(spec.clone())?.run() }
}

/// Runs the supervisor of a real node, already in its namespaces. Standard input is a listening socket of the network outside, on
/// which clients outside reach the API server.
fn run_in_namespaces(spec: Spec) -> Result<()> {
    forwarder::forward_stdin(spec.ports.api)?;
    namespaces::furnish(&spec)?;
    namespaces::serve_images(&spec)?;
    Supervisor::new(spec)?.run()
}

/// Runs process 1 of a node with namespaces of its own. Reports on standard input, which is a socket, that they are prepared.
fn run_machine(spec: &Spec, node: Node) -> Result<()> {
    namespaces::furnish_machine(spec, node)?;
    let ready = std::io::stdin().as_fd().try_clone_to_owned().context("could not take the socket")?;
    UnixStream::from(ready).write_all(b".").context("the supervisor is gone")?;
    loop {
        // Without children, there is nothing to wait for, and orphans may come later.
        if rustix::process::wait(WaitOptions::empty()).is_err() {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

/// Becomes `program`. The kernel kills it when the thread of the supervisor that started it ends. With a `cgroup`, the process is
/// already in the process namespace of a node, and first enters the other namespaces and the cgroup of that node.
fn run_part(supervisor: i32, cgroup: &str, program: &str, args: &[&str]) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getppid, getrlimit, set_parent_process_death_signal, setrlimit};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Pid::from_raw(supervisor) {
        bail!("the supervisor has ended already");
    }
    if !cgroup.is_empty() {
        namespaces::join_machine(cgroup)?;
    }
    let files = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files })?;
    Err(Command::new(program).args(args).exec()).with_context(|| format!("could not start {program}"))
}

/// What the other threads send to the thread that owns the children.
enum Event {
    Joined,
    Left,
    Asked(Request, Sender<Reply>),
    /// The parts that begin at this point can start now.
    MayBegin(Begins),
    Reached(Phase),
}

struct Supervisor {
    spec: Spec,
    children: Vec<Child>,
    /// What has begun; see [`Begins`].
    begun: Vec<Begins>,
    phase: Phase,
    users: usize,
    idle_since: Instant,
    events: Receiver<Event>,
    _ports: Reservation,
}

impl Supervisor {
    /// Prepares all files of the cluster and starts the threads that watch the start and serve users. Starts no part yet.
    fn new(spec: Spec) -> Result<Self> {
        let layout = spec.layout();
        let ports = spec.ports.reserve()?;
        let authority = pki::write(&layout, spec.workers)?;
        parts::write_files(&spec, &authority)?;

        let (sender, events) = mpsc::channel();
        users::listen(&layout, sender.clone())?;
        bootstrap::begin(&spec, &authority, sender)?;
        let children = parts::plans(&spec)?.into_iter().map(Child::new).collect();
        let phase = Phase::Starting("etcd".into());
        let (begun, idle_since) = (Vec::new(), Instant::now());
        Ok(Self { spec, children, begun, phase, users: 0, idle_since, events, _ports: ports })
    }

    /// Runs until the cluster has had no users for the idle time, or until this process is killed.
    fn run(mut self) -> Result<()> {
        self.begin(Begins::AtOnce)?;
        while !self.has_idled_out() {
            match self.events.recv_timeout(Duration::from_millis(50)) {
                Ok(event) => self.handle(event)?,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the threads that send events have ended"),
            }
            self.reap();
            self.restart()?;
        }
        eprintln!("the cluster has had no users for {:?}: it stops", self.spec.idle.unwrap_or_default());
        self.end()
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Joined => self.users += 1,
            Event::Left => {
                self.users = self.users.saturating_sub(1);
                self.idle_since = Instant::now();
            }
            Event::MayBegin(begins) => self.begin(begins)?,
            Event::Reached(phase) if matches!(self.phase, Phase::Failed(_)) => eprintln!("too late: {phase:?}"),
            Event::Reached(phase) => {
                eprintln!("{phase:?}");
                self.phase = phase;
            }
            Event::Asked(request, reply) => {
                let answer = self.answer(&request);
                let _ = reply.send(answer); // the user may have disconnected
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let (name, action): (_, fn(&mut Self, usize) -> Result<()>) = match request {
            Request::Status => {
                let parts = self.children.iter().map(Child::describe).collect();
                return Reply::Status(Status { phase: self.phase.clone(), parts, users: self.users });
            }
            Request::Stop(name) => (name, Self::stop),
            Request::Terminate(name) => (name, |this, n| this.children[n].terminate()),
            Request::Start(name) => (name, Self::start),
            Request::Pause(name) => (name, |this, n| this.children[n].pause(&this.spec)),
            Request::Resume(name) => (name, |this, n| this.children[n].resume(&this.spec)),
        };
        let Some(n) = self.children.iter().position(|child| child.plan.name == *name) else {
            let names: Vec<_> = self.children.iter().map(|child| child.plan.name.as_str()).collect();
            return Reply::Refused(format!("there is no part {name:?}; the parts are {}", names.join(", ")));
        };
        match self.refuse_if_frozen(n).and_then(|()| action(self, n)) {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Refused(format!("{error:#}")),
        }
    }

    /// A frozen process does not end, and a signal to it has no effect until it runs again.
    fn refuse_if_frozen(&self, n: usize) -> Result<()> {
        let Place::On(node) = self.children[n].plan.place else { return Ok(()) };
        if self.children.iter().any(|child| child.boots(node) && child.state == PartState::Paused) {
            bail!("{node} is paused: resume it first");
        }
        Ok(())
    }

    /// Starts the parts that begin at this point.
    fn begin(&mut self, begins: Begins) -> Result<()> {
        self.begun.push(begins);
        self.start_waiting()
    }

    /// Starts all parts whose time has come and whose node runs. A node comes before its parts.
    fn start_waiting(&mut self) -> Result<()> {
        for n in 0..self.children.len() {
            let child = &self.children[n];
            let may = self.begun.contains(&child.plan.begins) && self.is_at_home(child);
            if may && child.state == PartState::Waiting {
                self.start(n)?;
            }
        }
        Ok(())
    }

    /// Starts this part; with a node, also the parts that run on it.
    fn start(&mut self, n: usize) -> Result<()> {
        let machine = self.machine_of(&self.children[n]);
        self.children[n].start(&self.spec, machine)?;
        if matches!(self.children[n].plan.place, Place::Boots(_)) { self.start_waiting() } else { Ok(()) }
    }

    /// Kills this part; with a node, all its processes.
    fn stop(&mut self, n: usize) -> Result<()> {
        if let Place::Boots(node) = self.children[n].plan.place {
            cgroups::thaw(&self.spec.cgroup_of(node))?; // a frozen process does not end
            // First, because process 1 of a node ends only after its other processes, and this process has to reap these.
            for child in self.children.iter_mut().filter(|child| child.plan.place == Place::On(node)) {
                child.stop()?;
                child.state = PartState::Waiting;
            }
        }
        self.children[n].stop()
    }

    /// Restarts the parts that have ended by themselves, after a pause.
    fn restart(&mut self) -> Result<()> {
        for n in 0..self.children.len() {
            let child = &self.children[n];
            if child.is_due_to_restart() && self.is_at_home(child) {
                let machine = self.machine_of(child);
                self.children[n].restart(&self.spec, machine)?;
            }
        }
        Ok(())
    }

    /// Process 1 of the node on which the part runs, if the node has one and runs.
    fn machine_of(&self, child: &Child) -> Option<Pid> {
        let Place::On(node) = child.plan.place else { return None };
        let machine = self.children.iter().find(|child| child.boots(node))?;
        machine.pid.filter(|_| machine.state == PartState::Running)
    }

    /// Whether the namespaces of the part exist.
    fn is_at_home(&self, child: &Child) -> bool {
        !matches!(child.plan.place, Place::On(_)) || self.machine_of(child).is_some()
    }

    /// Reaps ended children and records their end. As process 1, it also reaps orphans that the kernel gave to it.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Some(child) = self.children.iter_mut().find(|child| child.pid == Some(pid)) else { continue };
            eprintln!("{} ended: {status:?}", child.plan.name);
            child.has_ended();
            // Before the first success, the cause is a wrong configuration or a port in use, and a restart does not help.
            let early = child.plan.begins != Begins::WithApi && matches!(self.phase, Phase::Starting(_));
            if early || child.state == PartState::Failed {
                let why = last_words(&self.spec.layout().log(&child.plan.name));
                self.phase = Phase::Failed(format!("{} ended: {why}", child.plan.name));
            }
        }
    }

    fn has_idled_out(&self) -> bool {
        self.users == 0 && self.spec.idle.is_some_and(|idle| self.idle_since.elapsed() > idle)
    }

    /// Stops all parts and removes what the kernel does not remove by itself.
    fn end(mut self) -> Result<()> {
        // If another call holds the lock, it starts this cluster again or removes it. It then removes the rest too.
        let lock = Lock::try_acquire(&self.spec.layout().lock())?;
        for node in self.spec.real_nodes() {
            cgroups::thaw(&self.spec.cgroup_of(node))?;
        }
        for child in self.children.iter_mut().rev() {
            child.stop()?;
        }
        if self.spec.nodes == Nodes::Real {
            namespaces::clear(&self.spec)?;
        }
        std::fs::remove_dir_all(&self.spec.folder).context("could not remove the cluster's folder")?;
        if let Some(lock) = lock {
            lock.remove();
        }
        Ok(())
    }
}

/// The last line of a log.
fn last_words(log: &Path) -> String {
    crate::missing::last_line(&std::fs::read(log).unwrap_or_default())
}

//! The process that owns every other process of one cluster, and outlives whoever started it.
//!
//! Two shapes. Without real nodes it is an ordinary process; its children die with it, because each asks the kernel for
//! that ([`run_part`]). With a real node it is process 1 of namespaces of its own, so the kernel ends everything in them
//! when it ends: processes, mounts, network.
//!
//! One thread (`Supervisor::run`) starts and reaps all children: the kernel ties a child to the *thread* that started
//! it. The others only send it events.

mod bootstrap;
mod child;
mod forwarder;
mod namespaces;
mod users;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions};

use self::child::Child;
use crate::layout::Layout;
use crate::parts::{self, Begins};
use crate::pki;
use crate::ports::Reservation;
use crate::protocol::{PartState, Phase, Reply, Request, Status};
use crate::spec::{Nodes, Spec};
use crate::tools::Lock;

/// Changes with every source file of this crate: a test must not talk to a supervisor of another version.
pub(crate) const SOURCE: &str = env!("CLUSTER_SOURCE");

/// The environment of every process of a cluster names its folder here. `down` finds them by it, whatever has crashed.
pub(crate) const MEMBER_OF: &str = "CLUSTER_MEMBER_OF";

/// What the program `cluster-supervisor` does; people never call it themselves.
pub fn main(args: &[OsString]) -> Result<()> {
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    match args.iter().map(AsRef::as_ref).collect::<Vec<_>>().as_slice() {
        ["--source"] => {
            use std::io::Write;
            Ok(writeln!(std::io::stdout(), "{SOURCE}")?)
        }
        ["run", folder] => run(&Spec::read(&Layout::at(*folder))?),
        ["node", folder] => run_in_namespaces(Spec::read(&Layout::at(*folder))?),
        ["part", supervisor, program, args @ ..] => run_part(supervisor.parse()?, program, args),
        _ => bail!("this runs the clusters of `cargo xtask cluster`, which see"),
    }
}

/// Leaves the terminal of whoever started us, and becomes the supervisor.
fn run(spec: &Spec) -> Result<()> {
    let _ = rustix::process::setsid(); // fails only where it has been done
    if spec.nodes == Nodes::Real { namespaces::enter(spec) } else { Supervisor::new(spec.clone())?.run() }
}

/// The supervisor of a real node, already in its namespaces; standard input is the socket on which the world outside
/// reaches the API server.
fn run_in_namespaces(spec: Spec) -> Result<()> {
    forwarder::forward_stdin(spec.ports.api)?;
    namespaces::furnish(&spec)?;
    namespaces::serve_images(&spec)?;
    Supervisor::new(spec)?.run()
}

/// Becomes `program`, which is killed when the thread of the supervisor that started it ends.
fn run_part(supervisor: i32, program: &str, args: &[&str]) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getppid, getrlimit, set_parent_process_death_signal, setrlimit};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Pid::from_raw(supervisor) {
        bail!("the supervisor has ended already");
    }
    let files = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files })?;
    Err(Command::new(program).args(args).exec()).with_context(|| format!("could not start {program}"))
}

/// What the other threads tell the one that owns the children.
enum Event {
    Joined,
    Left,
    Asked(Request, Sender<Reply>),
    /// What it waited for is there.
    MayBegin(Begins),
    Reached(Phase),
}

/// What can be done to a part on request.
type Action = fn(&mut Child, &Spec) -> Result<()>;

struct Supervisor {
    spec: Spec,
    children: Vec<Child>,
    phase: Phase,
    users: usize,
    idle_since: Instant,
    events: Receiver<Event>,
    _ports: Reservation,
}

impl Supervisor {
    /// Starts what can be started at once.
    fn new(spec: Spec) -> Result<Self> {
        let layout = spec.layout();
        let ports = spec.ports.reserve()?;
        let authority = pki::write(&layout)?;
        parts::write_files(&spec, &authority)?;

        let (sender, events) = mpsc::channel();
        users::listen(&layout, sender.clone())?;
        bootstrap::begin(&spec, &authority, sender)?;
        let children = parts::plans(&spec)?.into_iter().map(Child::new).collect();
        let phase = Phase::Starting("etcd".into());
        Ok(Self { spec, children, phase, users: 0, idle_since: Instant::now(), events, _ports: ports })
    }

    /// Until nobody has used the cluster for long enough, or until we are killed.
    fn run(mut self) -> Result<()> {
        self.start(Begins::AtOnce)?;
        while !self.has_idled_out() {
            match self.events.recv_timeout(Duration::from_millis(50)) {
                Ok(event) => self.handle(event)?,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("nobody can reach us any more"),
            }
            self.reap();
            for child in &mut self.children {
                child.restart_if_due(&self.spec)?;
            }
        }
        eprintln!("nobody has used this cluster for {:?}: it ends", self.spec.idle.unwrap_or_default());
        self.end()
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Joined => self.users += 1,
            Event::Left => {
                self.users = self.users.saturating_sub(1);
                self.idle_since = Instant::now();
            }
            Event::MayBegin(begins) => self.start(begins)?,
            Event::Reached(phase) if matches!(self.phase, Phase::Failed(_)) => eprintln!("too late: {phase:?}"),
            Event::Reached(phase) => {
                eprintln!("{phase:?}");
                self.phase = phase;
            }
            Event::Asked(request, reply) => {
                let answer = self.answer(&request);
                let _ = reply.send(answer); // who asked may have gone
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let (name, action): (&str, Action) = match request {
            Request::Status => {
                let parts = self.children.iter().map(Child::describe).collect();
                return Reply::Status(Status { phase: self.phase.clone(), parts, users: self.users });
            }
            Request::Stop(name) => (name, |child, _| child.stop()),
            Request::Terminate(name) => (name, |child, _| child.terminate()),
            Request::Start(name) => (name, Child::start),
            Request::Pause(name) => (name, |child, _| child.pause()),
            Request::Resume(name) => (name, |child, _| child.signal(Signal::CONT, PartState::Running)),
        };
        let Some(child) = self.children.iter_mut().find(|child| child.plan.name == name) else {
            let names: Vec<_> = self.children.iter().map(|child| child.plan.name).collect();
            return Reply::Refused(format!("there is no part {name:?}; there are {}", names.join(", ")));
        };
        match action(child, &self.spec) {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Refused(format!("{error:#}")),
        }
    }

    fn start(&mut self, begins: Begins) -> Result<()> {
        for child in self.children.iter_mut().filter(|child| child.plan.begins == begins) {
            child.start(&self.spec)?;
        }
        Ok(())
    }

    /// Takes note of children that have ended, ours and, as process 1, those that were left to us.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Some(child) = self.children.iter_mut().find(|child| child.pid == Some(pid)) else { continue };
            eprintln!("{} ended: {status:?}", child.plan.name);
            child.has_ended();
            // Before the first success this is a mistake of ours or a taken port, and repeating does not help.
            let early = child.plan.begins != Begins::WithApi && matches!(self.phase, Phase::Starting(_));
            if early || child.state == PartState::Failed {
                let why = last_words(&self.spec.layout().log(child.plan.name));
                self.phase = Phase::Failed(format!("{} ended: {why}", child.plan.name));
            }
        }
    }

    fn has_idled_out(&self) -> bool {
        self.users == 0 && self.spec.idle.is_some_and(|idle| self.idle_since.elapsed() > idle)
    }

    /// Leaves nothing behind: what the kernel does not take back by itself goes here.
    fn end(mut self) -> Result<()> {
        // Someone who starts this cluster anew at this moment has it, and then they clean up after us.
        let lock = Lock::try_acquire(&self.spec.layout().lock())?;
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

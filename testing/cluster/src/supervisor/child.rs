//! One process of the cluster. The supervisor starts, stops and pauses it, and restarts it after it ends by itself.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{self, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::MEMBER_OF;
use crate::cgroups;
use crate::missing::last_line;
use crate::network::Node;
use crate::parts::{Place, Plan};
use crate::protocol::{Part, PartState};
use crate::spec::Spec;

/// How long to wait before the restart of a part that ended by itself.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a node may take to prepare its namespaces. It needs a tenth of a second.
const BOOT: Duration = Duration::from_secs(30);
/// The maximum number of restarts. A part that ends more often has a defect that restarts do not fix.
const RESTARTS: u32 = 20;

pub(super) struct Child {
    pub(super) plan: Plan,
    pub(super) state: PartState,
    pub(super) pid: Option<Pid>,
    restarts: u32,
    ended: Instant,
}

impl Child {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, state: PartState::Waiting, pid: None, restarts: 0, ended: Instant::now() }
    }

    /// Starts the process. `machine` is process 1 of its node, if that is not the supervisor. Waits for a node until it is prepared.
    pub(super) fn start(&mut self, spec: &Spec, machine: Option<Pid>) -> Result<()> {
        let name = &self.plan.name;
        if self.pid.is_some() {
            bail!("{name} runs already");
        }
        let file = spec.layout().log(name);
        let log = OpenOptions::new().create(true).append(true).open(&file).context("could not open the log")?;
        // A process in the namespace of a node does not see its parent.
        let (parent, cgroup) = match self.plan.place {
            Place::Supervisor => (process::id(), String::new()),
            Place::Boots(_) => (0, String::new()),
            Place::On(node) => (0, spec.cgroup_of(node)),
        };
        let mut command = Command::new("/proc/self/exe"); // this program, even if cargo has replaced its file
        command
            .args(["part", &parent.to_string(), &cgroup])
            .arg(&self.plan.program)
            .args(&self.plan.args)
            .env_clear()
            .env("PATH", spec.tools.path(Some("/usr/sbin:/usr/bin:/sbin:/bin".into())))
            .env("HOME", &spec.folder)
            .env(MEMBER_OF, &spec.folder)
            .current_dir(&spec.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let (ours, theirs) = UnixStream::pair()?;
        let child = match (self.plan.place, machine) {
            (Place::Supervisor, _) => command.spawn().map_err(Into::into),
            (Place::Boots(_), _) => {
                command.stdin(OwnedFd::from(theirs));
                spawn_in(&Processes::New, &mut command)
            }
            (Place::On(_), Some(machine)) => spawn_in(&Processes::Of(machine), &mut command),
            (Place::On(node), None) => bail!("{name} cannot start: {node} does not run"),
        };
        let child = child.with_context(|| format!("could not start {name}"))?;
        drop(command); // and with it their end of the connection
        // Only the id is kept, not the handle: `Supervisor::reap` waits for all children.
        self.pid = Some(Pid::from_child(&child));
        self.state = PartState::Running;
        if matches!(self.plan.place, Place::Boots(_)) {
            ours.set_read_timeout(Some(BOOT))?;
            let why = || format!("{name} did not boot: {}", last_line(&std::fs::read(&file).unwrap_or_default()));
            (&ours).read_exact(&mut [0]).with_context(why)?;
        }
        eprintln!("{} started", self.plan.name);
        Ok(())
    }

    /// Kills the process, like a crash, and does not restart it.
    pub(super) fn stop(&mut self) -> Result<()> {
        if let Some(pid) = self.pid.take() {
            kill_process(pid, Signal::KILL).with_context(|| format!("could not end {}", self.plan.name))?;
            waitpid(Some(pid), WaitOptions::empty())?;
        }
        self.state = PartState::Stopped;
        Ok(())
    }

    /// Sends SIGTERM to the process, like an administrator, and does not restart it. Does not wait for its end.
    pub(super) fn terminate(&mut self) -> Result<()> {
        let Some(pid) = self.pid else {
            self.state = PartState::Stopped;
            return Ok(());
        };
        let name = &self.plan.name;
        kill_process(pid, Signal::TERM).with_context(|| format!("could not signal {name}"))?;
        kill_process(pid, Signal::CONT).with_context(|| format!("could not signal {name}"))?; // it may be paused
        self.state = PartState::Ending;
        Ok(())
    }

    /// Whether this is process 1 of the node.
    pub(super) fn boots(&self, node: Node) -> bool {
        self.plan.place == Place::Boots(node)
    }

    /// Freezes the process; with a node, all its processes. When this returns, none of its threads runs.
    pub(super) fn pause(&mut self, spec: &Spec) -> Result<()> {
        if self.state == PartState::Paused {
            return Ok(()); // the kernel reports a stop only once
        }
        if let (Place::Boots(node), Some(_)) = (self.plan.place, self.pid) {
            cgroups::freeze(&spec.cgroup_of(node))?;
            self.state = PartState::Paused;
            return Ok(());
        }
        self.signal(Signal::STOP, PartState::Paused)?;
        // The signal is on its way until the kernel tells the parent.
        match waitpid(self.pid, WaitOptions::UNTRACED)? {
            Some((_, status)) if !status.stopped() => {
                self.has_ended();
                bail!("{} ended", self.plan.name)
            }
            _ => Ok(()),
        }
    }

    /// Lets the process run again after [`pause`](Self::pause).
    pub(super) fn resume(&mut self, spec: &Spec) -> Result<()> {
        if let Place::Boots(node) = self.plan.place {
            cgroups::thaw(&spec.cgroup_of(node))?;
        }
        self.signal(Signal::CONT, PartState::Running)
    }

    fn signal(&mut self, signal: Signal, then: PartState) -> Result<()> {
        let Some(pid) = self.pid else { bail!("{} does not run", self.plan.name) };
        kill_process(pid, signal).with_context(|| format!("could not signal {}", self.plan.name))?;
        self.state = then;
        Ok(())
    }

    pub(super) fn has_ended(&mut self) {
        self.pid = None;
        self.ended = Instant::now();
        self.state = match self.state {
            PartState::Ending => PartState::Stopped,
            _ if self.restarts < RESTARTS => PartState::Restarting,
            _ => PartState::Failed,
        };
    }

    pub(super) fn is_due_to_restart(&self) -> bool {
        self.state == PartState::Restarting && self.ended.elapsed() > PAUSE
    }

    pub(super) fn restart(&mut self, spec: &Spec, machine: Option<Pid>) -> Result<()> {
        self.restarts += 1;
        self.start(spec, machine)
    }

    pub(super) fn describe(&self) -> Part {
        Part {
            name: self.plan.name.clone(),
            state: self.state,
            restarts: self.restarts,
            pid: self.pid.map(|pid| pid.as_raw_nonzero().get()),
        }
    }
}

/// The process namespace of a child.
enum Processes {
    /// A new one, in which the child is process 1.
    New,
    /// That of this process.
    Of(Pid),
}

/// Starts the command in another process namespace.
fn spawn_in(processes: &Processes, command: &mut Command) -> Result<process::Child> {
    let open = |process: &str| File::open(format!("/proc/{process}/ns/pid")).context("could not open a namespace");
    let enter = |namespace: &File| move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ProcessID));
    let own = open("thread-self")?;
    // Both calls change the namespace of this thread's future children only.
    match processes {
        #[expect(deprecated, reason = "the flag that makes it unsafe is not used")]
        Processes::New => rustix::thread::unshare(UnshareFlags::NEWPID).context("could not create a namespace")?,
        Processes::Of(pid) => {
            enter(&open(&pid.as_raw_nonzero().to_string())?).context("could not enter a namespace")?;
        }
    }
    let child = command.spawn();
    enter(&own).context("could not leave a namespace")?;
    Ok(child?)
}

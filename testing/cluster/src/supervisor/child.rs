//! One process of the cluster. The supervisor starts, stops and pauses it, and restarts it after it ends by itself.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::MEMBER_OF;
use crate::parts::Plan;
use crate::protocol::{Part, PartState};
use crate::spec::Spec;

/// How long to wait before the restart of a part that ended by itself.
const PAUSE: Duration = Duration::from_secs(1);
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

    pub(super) fn start(&mut self, spec: &Spec) -> Result<()> {
        if self.pid.is_some() {
            bail!("{} runs already", self.plan.name);
        }
        let name = self.plan.name;
        let log = spec.layout().log(name);
        let log = OpenOptions::new().create(true).append(true).open(&log).context("could not open the log")?;
        let child = Command::new("/proc/self/exe") // this program, even if cargo has replaced its file
            .args(["part", &std::process::id().to_string()])
            .arg(&self.plan.program)
            .args(&self.plan.args)
            .env_clear()
            .env("PATH", spec.tools.path(Some("/usr/sbin:/usr/bin:/sbin:/bin".into())))
            .env("HOME", &spec.folder)
            .env(MEMBER_OF, &spec.folder)
            .current_dir(&spec.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("could not start {name}"))?;
        // Only the id is kept, not the handle: `Supervisor::reap` waits for all children.
        self.pid = Some(Pid::from_child(&child));
        self.state = PartState::Running;
        eprintln!("{name} started");
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
        let name = self.plan.name;
        kill_process(pid, Signal::TERM).with_context(|| format!("could not signal {name}"))?;
        kill_process(pid, Signal::CONT).with_context(|| format!("could not signal {name}"))?; // it may be paused
        self.state = PartState::Ending;
        Ok(())
    }

    /// Freezes the process. When this returns, none of its threads runs.
    pub(super) fn pause(&mut self) -> Result<()> {
        if self.state == PartState::Paused {
            return Ok(()); // the kernel reports a stop only once
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

    pub(super) fn signal(&mut self, signal: Signal, then: PartState) -> Result<()> {
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

    pub(super) fn restart_if_due(&mut self, spec: &Spec) -> Result<()> {
        if self.state == PartState::Restarting && self.ended.elapsed() > PAUSE {
            self.restarts += 1;
            self.start(spec)?;
        }
        Ok(())
    }

    pub(super) fn describe(&self) -> Part {
        Part {
            name: self.plan.name.to_owned(),
            state: self.state,
            restarts: self.restarts,
            pid: self.pid.map(|pid| pid.as_raw_nonzero().get()),
        }
    }
}

//! A process of the test: one run of an operator's binary.

use std::{
    fs::File,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result};
use cluster::Port;
use rustix::process::{Pid, Signal, kill_process};

/// A running operator. Dropping this handle kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    probes: Port,
    metrics: Port,
}

impl Process {
    /// Starts `binary` with a kubeconfig and additional flags. It watches one namespace, or all if `watched` is empty.
    pub(crate) fn start(
        binary: &Path,
        kubeconfig: &Path,
        namespace: &str,
        watched: &str,
        log: PathBuf,
        flags: &[&str],
    ) -> Result<Self> {
        let file = File::options().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("could not write {}", log.display()))?;
        let (probes, metrics) = (Port::reserve()?, Port::reserve()?);
        let child = Command::new(binary)
            .arg("run")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args((!watched.is_empty()).then(|| format!("--watch-namespaces={watched}")))
            .args(["--metrics-bind-address", &format!("127.0.0.1:{}", metrics.number())])
            .args(["--health-probe-bind-address", &format!("127.0.0.1:{}", probes.number())])
            .args(["--log-level", "info,manager=debug,cache=debug,webhooks=debug"])
            .args(flags)
            .env("OPERATOR_TEST_CLOCK", log.with_file_name(format!("{namespace}.clock")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .with_context(|| format!("could not start {}", binary.display()))?;
        Ok(Self { child, log, probes, metrics })
    }

    /// The log of this run and of earlier runs in the same world.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The answer of a probe: status code and body. `None` while the operator does not listen.
    pub fn probe(&self, path: &str) -> Option<(u16, String)> {
        get(&self.probes, path)
    }

    /// The metrics in Prometheus' text format. `None` while the operator does not listen.
    pub fn metrics(&self) -> Option<String> {
        get(&self.metrics, "/metrics").map(|(_, text)| text)
    }

    /// Whether all caches are filled, and no key is queued or being reconciled. Delayed keys do not count.
    pub fn is_idle(&self) -> bool {
        let ready = self.probe("/readyz").is_some_and(|(code, _)| code == 200);
        let busy = |line: &str| {
            ["workqueue_depth{", "controller_runtime_active_workers{"].iter().any(|name| line.starts_with(name))
                && !line.ends_with(" 0")
        };
        ready && self.metrics().is_some_and(|text| !text.lines().any(busy))
    }

    /// Kills the process without a graceful shutdown, as a crash does.
    pub fn kill(&mut self) {
        // Errors do not matter: the process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Sends SIGTERM, as Kubernetes does, and waits until the process has ended.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.wait().expect("the process ends")
    }

    /// Suspends the process, as on a suspended or overloaded node. The process does not notice it.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the suspended process.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process runs");
    }

    /// The exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn get(port: &Port, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port.number())).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split_whitespace().nth(1)?.parse().ok()?, body.to_owned()))
}

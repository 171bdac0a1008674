//! The program under test: its process, and its requests to the API server.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use cluster::{Cluster, Port, audit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Where `cargo xtask image build` leaves the program.
pub(crate) const BUILT: &str = "target/image/x86_64-unknown-linux-gnu/release/controller-manager";
/// The user of the program. It is in the group of service accounts, as in a pod, because the API server treats that group
/// specially.
pub(crate) const USER: &str = "system:serviceaccount:default:bench";
/// Clock ticks a second in `/proc`. The value is the same on all supported Linux systems.
const TICKS: f64 = 100.0;

pub(crate) struct Operator {
    child: Child,
    probes: Port,
    metrics: Port,
    pub(crate) started: Instant,
}

/// The resident memory of a process, in MiB.
pub(crate) struct Memory {
    pub(crate) anonymous: f64,
    file: f64,
}

impl Memory {
    pub(crate) fn rss(&self) -> f64 {
        self.anonymous + self.file
    }
}

impl Operator {
    /// Starts the program for one of its kinds, with additional flags.
    pub(crate) fn start(program: &Path, cluster: &Cluster, name: &str, flags: &[String]) -> Result<Self> {
        Self::start_with(program, &kubeconfig(cluster)?, name, flags, Stdio::null())
    }

    /// Starts the program for several of its kinds, with any kubeconfig and a file for its log.
    pub(crate) fn start_with(
        program: &Path,
        kubeconfig: &Path,
        names: &str,
        flags: &[String],
        log: Stdio,
    ) -> Result<Self> {
        let (probes, metrics) = (Port::reserve()?, Port::reserve()?);
        let child = Command::new(program)
            .args(["run", "--leader-elect", "--leader-election-namespace=default"])
            .arg(format!("--operators={names}"))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{}", probes.number()))
            .arg(format!("--metrics-bind-address=127.0.0.1:{}", metrics.number()))
            .args(flags)
            .envs(images::operator::ENVIRONMENT.iter().copied())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("could not start {}", program.display()))?;
        Ok(Self { child, probes, metrics, started: Instant::now() })
    }

    /// Waits until the program is ready. Returns the seconds since its start.
    pub(crate) async fn until_ready(&mut self) -> Result<f64> {
        while self.started.elapsed() < Duration::from_secs(30) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the program ended: {status}");
            }
            if self.is_ready().await.unwrap_or_default() {
                return Ok(self.started.elapsed().as_secs_f64());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("not ready after 30 s")
    }

    async fn is_ready(&self) -> Result<bool> {
        Ok(get(&self.probes, "/readyz").await?.starts_with("HTTP/1.1 200"))
    }

    /// The program's metrics page for Prometheus.
    pub(crate) async fn metrics(&self) -> Result<String> {
        get(&self.metrics, "/metrics").await
    }

    /// The exit status; `None` while the program runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// The CPU time so far, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = text.rsplit_once(')').context("no name in /proc/PID/stat")?;
        let ticks: f64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        Ok(ticks / TICKS)
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let status = self.status()?;
        let mebibytes = |name: &str| Ok::<_, anyhow::Error>(number(&status, name)? / 1_024.0);
        Ok(Memory { anonymous: mebibytes("RssAnon:")?, file: mebibytes("RssFile:")? })
    }

    pub(crate) fn threads(&self) -> Result<f64> {
        number(&self.status()?, "Threads:")
    }

    /// The number of open files and sockets.
    pub(crate) fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count())
    }

    fn status(&self) -> Result<String> {
        Ok(fs::read_to_string(format!("/proc/{}/status", self.child.id()))?)
    }

    pub(crate) async fn terminate(&mut self) -> Result<()> {
        let status = Command::new("kill").arg(self.child.id().to_string()).status()?;
        ensure!(status.success(), "could not send SIGTERM");
        self.until_ended().await
    }

    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.until_ended().await
    }

    async fn until_ended(&mut self) -> Result<()> {
        while self.child.try_wait()?.is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A kubeconfig for [`USER`].
pub(crate) fn kubeconfig(cluster: &Cluster) -> Result<PathBuf> {
    cluster.kubeconfig_for(USER, &["system:serviceaccounts"])
}

/// A line of `/proc/PID/status`, without its unit.
fn number(status: &str, name: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

async fn get(port: &Port, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port.number())).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The number of requests of each kind, such as `patch memcacheds/status`.
#[derive(Default)]
pub(crate) struct Requests(BTreeMap<String, usize>);

impl Requests {
    pub(crate) fn of(user: &str, cluster: &Cluster) -> Result<Self> {
        let mut counts = BTreeMap::new();
        for request in audit::requests_of(user, &cluster.audit_log())? {
            *counts.entry(request.to_string()).or_default() += 1;
        }
        Ok(Self(counts))
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let more = self.0.iter().map(|(what, count)| (what.clone(), count - before.0.get(what).unwrap_or(&0)));
        Self(more.filter(|(_, count)| *count > 0).collect())
    }

    pub(crate) fn total(&self) -> usize {
        self.0.values().sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(what, count)| (what.as_str(), *count))
    }
}

//! The program under test: its process, and what it asked of the API server.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use cluster::{Cluster, Port, audit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// In the group of service accounts, as in a pod: the API server treats such users alike.
pub(crate) const USER: &str = "system:serviceaccount:default:bench";
/// Clock ticks a second in `/proc`: the same on all of Linux that we run on.
const TICKS: f64 = 100.0;

pub(crate) struct Operator {
    child: Child,
    probes: Port,
    /// So that nobody else is given it.
    _metrics: Port,
    pub(crate) started: Instant,
}

/// In MiB.
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
    /// Starts it for one of its kinds, with more flags.
    pub(crate) fn start(program: &Path, cluster: &Cluster, name: &str, flags: &[String]) -> Result<Self> {
        let kubeconfig = cluster.kubeconfig_for(USER, &["system:serviceaccounts"])?;
        let (probes, metrics) = (Port::reserve()?, Port::reserve()?);
        let child = Command::new(program)
            .args(["run", "--leader-elect", "--leader-election-namespace=default"])
            .arg(format!("--operators={name}"))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{}", probes.number()))
            .arg(format!("--metrics-bind-address=127.0.0.1:{}", metrics.number()))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("could not start {}", program.display()))?;
        Ok(Self { child, probes, _metrics: metrics, started: Instant::now() })
    }

    /// Seconds from its start.
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
        let mut stream = TcpStream::connect(("127.0.0.1", self.probes.number())).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    }

    /// Seconds of CPU so far.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = text.rsplit_once(')').context("no name in /proc/PID/stat")?;
        let ticks: f64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        Ok(ticks / TICKS)
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let mebibytes = |name: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
            let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
            Ok(kibibytes / 1_024.0)
        };
        Ok(Memory { anonymous: mebibytes("RssAnon:")?, file: mebibytes("RssFile:")? })
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

/// How many requests of which kind: `patch memcacheds/status`.
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

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

use crate::soak::exposition::sum;

/// Where `cargo xtask image build` leaves the program.
pub(crate) const BUILT: &str = "target/image/x86_64-unknown-linux-gnu/release/controller-manager";
/// The user of the program. It is in the group of service accounts, as in a pod, because the API server treats that group
/// specially.
pub(crate) const USER: &str = "system:serviceaccount:default:bench";
const RECONCILES: &str = "controller_runtime_reconcile_total";
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

/// What a process has used so far.
pub(crate) struct Usage {
    /// The CPU time, in seconds.
    pub(crate) cpu: f64,
    /// The part of it that the kernel took.
    pub(crate) system: f64,
    /// Page faults that needed no disk.
    pub(crate) faults: f64,
}

impl Usage {
    /// Reads `/proc/PID/stat`. The name of the program, in parentheses, may contain anything.
    pub(crate) fn read(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        let (user, system) = (number(11)? / TICKS, number(12)? / TICKS);
        Some(Self { cpu: user + system, system, faults: number(7)? })
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
        self.until_ready_within(Duration::from_secs(30)).await
    }

    /// The same with another limit.
    pub(crate) async fn until_ready_within(&mut self, limit: Duration) -> Result<f64> {
        while self.started.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                bail!("the program ended: {status}");
            }
            if self.is_ready().await.unwrap_or_default() {
                return Ok(self.started.elapsed().as_secs_f64());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("not ready after {} s", limit.as_secs())
    }

    async fn is_ready(&self) -> Result<bool> {
        Ok(get(&self.probes, "/readyz").await?.split(' ').nth(1) == Some("200"))
    }

    /// The program's metrics page for Prometheus.
    pub(crate) async fn metrics(&self) -> Result<String> {
        get(&self.metrics, "/metrics").await
    }

    /// The number of reconciles so far; zero if the program does not count them. The page leaves something of each object in the
    /// program's memory, so read the memory first.
    pub(crate) async fn reconciles(&self) -> Result<f64> {
        Ok(sum(&self.metrics().await?, RECONCILES))
    }

    /// The exit status; `None` while the program runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// The CPU time so far, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        Ok(self.usage()?.cpu)
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        Usage::read(&text).context("/proc/PID/stat has another form")
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let status = self.status()?;
        let mebibytes = |name: &str| Ok::<_, anyhow::Error>(number(&status, name)? / 1_024.0);
        Ok(Memory { anonymous: mebibytes("RssAnon:")?, file: mebibytes("RssFile:")? })
    }

    /// The largest RSS since the start, or since [`reset_peak`](Self::reset_peak), in MiB.
    pub(crate) fn peak(&self) -> Result<f64> {
        Ok(number(&self.status()?, "VmHWM:")? / 1_024.0)
    }

    pub(crate) fn reset_peak(&self) -> Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")
            .context("could not reset the peak of the memory")
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

/// The present length of the audit log, for [`Requests::after`].
pub(crate) fn audit_length(cluster: &Cluster) -> Result<u64> {
    Ok(fs::metadata(cluster.audit_log())?.len())
}

/// The answer with its head. To HTTP/1.0, no server answers in chunks, whose borders would be inside of lines.
async fn get(port: &Port, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port.number())).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: bench\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The number of requests of each kind, such as `patch memcacheds/status`.
#[derive(Default)]
pub(crate) struct Requests(BTreeMap<String, usize>);

impl Requests {
    /// Those that arrived after the first `offset` bytes of the audit log.
    pub(crate) fn after(user: &str, cluster: &Cluster, offset: u64) -> Result<Self> {
        Ok(Self(audit::count_after(user, &cluster.audit_log(), offset)?))
    }

    pub(crate) fn total(&self) -> usize {
        self.0.values().sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(what, count)| (what.as_str(), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_after_the_name() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194304 1234 0 5 0 250 50 0 0 20 0 4 0 777 0 0";
        let Usage { cpu, system, faults } = Usage::read(stat).unwrap();
        for (value, expected) in [(cpu, 3.0), (system, 0.5), (faults, 1_234.0)] {
            assert!((value - expected).abs() < 1e-9, "{value} {expected}");
        }
        assert!(Usage::read("42 (a) S 1").is_none());
    }
}

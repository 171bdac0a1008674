//! A target as a process of its own.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use crate::{
    aim::Port,
    api_server::{ApiServer, Objects},
    memory,
    probes::{self, Probe},
    requests::Requests,
    target::{self, Target, free_addresses},
};

const START: Duration = Duration::from_secs(30);
/// How often to look whether a program listens.
const LOOK: Duration = Duration::from_millis(20);

/// The file in the folder of a program by which it finds its API server.
const KUBECONFIG: &str = "kubeconfig";
/// Bytes of JSON that the objects of [`Target::LoadedWebhooks`] have together.
const OBJECTS: usize = 10 * 1024 * 1024;

/// Which programs to attack.
#[derive(Debug, Clone)]
pub enum Programs {
    /// The libraries of the servers, in this program, see [`crate::serve`] and [`crate::manage`].
    Libraries(PathBuf),
    /// The programs of the image, which the checkout in this folder has built for release. Its chart has their limits of memory and the
    /// paths of their webhooks.
    Checkout(PathBuf),
}

/// A running target. The process ends when this is dropped.
pub(crate) struct Program {
    child: Child,
    folder: TempDir,
    /// What is attacked.
    pub(crate) port: Port,
    /// What the kubelet asks.
    pub(crate) probes: Vec<Probe>,
    pub(crate) requests: Requests,
    _cluster: Option<ApiServer>,
}

/// Where a program listens.
#[derive(Debug, Clone, Copy)]
struct Addresses {
    main: SocketAddr,
    /// `None` if it has no probes.
    probes: Option<SocketAddr>,
}

impl Programs {
    /// The folder of the chart of the programs.
    pub(crate) fn chart(&self) -> PathBuf {
        match self {
            Self::Libraries(_) => memory::chart(),
            Self::Checkout(folder) => memory::chart_of(folder),
        }
    }

    /// Starts a target, and waits until it listens.
    pub(crate) async fn start(&self, target: Target) -> Result<Program> {
        match self {
            Self::Libraries(binary) if target.needs_the_manager() => start_shipped(binary, target, &self.chart()).await,
            Self::Libraries(binary) => start_library(binary, target).await,
            Self::Checkout(folder) => {
                let binary = folder.join("target/release").join(target.program());
                start_shipped(&binary, target, &self.chart()).await
            }
        }
    }
}

/// Starts `binary serve TARGET FOLDER`, which prints its addresses.
async fn start_library(binary: &Path, target: Target) -> Result<Program> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(binary);
    command.args(["serve", target.name()]).arg(folder.path()).stdout(Stdio::piped()).stdin(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().with_context(|| format!("{}", binary.display()))?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let printed = timeout(START, lines.next_line()).await.context("the target did not start")??;
    let Some(printed) = printed else { bail!("the target ended at once") };
    let read: Result<Vec<SocketAddr>, _> = printed.split_whitespace().map(str::parse).collect();
    let read = read.with_context(|| format!("{printed:?} has no addresses"))?;
    let main = *read.first().with_context(|| format!("{printed:?} has no address"))?;
    let addresses = Addresses { main, probes: read.get(1).copied() };
    Program::new(child, folder, target, addresses, Requests::of_library(target), None)
}

/// Starts a program with the flags that matter of those in the chart in this folder, and an API server for it.
async fn start_shipped(binary: &Path, target: Target, chart: &Path) -> Result<Program> {
    let folder = tempfile::tempdir()?;
    target::write_certificate(folder.path())?;
    let is_loaded = target == Target::LoadedWebhooks;
    let objects = if is_loaded { Objects::of_chart(chart, OBJECTS)? } else { Objects::default() };
    let cluster = ApiServer::start(objects).await?;
    cluster.write_kubeconfig(&folder.path().join(KUBECONFIG))?;
    let (main, probes) = free_addresses()?;
    let mut command = Command::new(binary);
    command.args(arguments(target, folder.path(), &cluster.url, main, probes));
    command.envs(images::operator::ENVIRONMENT.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let child = command.kill_on_drop(true).spawn().with_context(|| format!("{}", binary.display()))?;
    let (addresses, requests) = (Addresses { main, probes: Some(probes) }, Requests::of_shipped(target, chart)?);
    let mut program = Program::new(child, folder, target, addresses, requests, Some(cluster))?;
    let begun = Instant::now();
    let address = program.port.address;
    while TcpStream::connect(address).await.is_err() {
        ensure!(!program.has_ended(), "{} ended at once", binary.display());
        ensure!(begun.elapsed() < START, "{} does not listen at {address}", binary.display());
        sleep(LOOK).await;
    }
    Ok(program)
}

/// The arguments of a program that serves the target: at `main`, and its probes at `probes`. `folder` has its files, and `upstream`
/// metrics.
fn arguments(target: Target, folder: &Path, upstream: &str, main: SocketAddr, probes: SocketAddr) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let pair = || [file("tls-cert-file", "tls.crt"), file("tls-private-key-file", "tls.key")];
    let manager = || {
        let flags = ["run", "--operators=*", "--log-level=error"].map(str::to_owned);
        flags.into_iter().chain([file("kubeconfig", KUBECONFIG), format!("--health-probe-bind-address={probes}")])
    };
    let webhooks = || [format!("--webhook-bind-address={main}"), format!("--webhook-cert-dir={}", folder.display())];
    let metrics = |address: &str| {
        let flags = [format!("--metrics-bind-address={address}"), "--metrics-secure".to_owned()];
        flags.into_iter().chain([format!("--metrics-cert-dir={}", folder.display())])
    };
    let any_port = || "--metrics-bind-address=127.0.0.1:0".to_owned();
    match target {
        Target::Webhooks => manager().chain(webhooks()).chain([any_port()]).collect(),
        Target::LoadedWebhooks => manager().chain(webhooks()).chain(metrics("127.0.0.1:0")).chain(standby()).collect(),
        Target::BuiltinMetrics => {
            manager().chain(metrics(&main.to_string())).chain(["--enable-webhooks=false".to_owned()]).collect()
        }
        Target::ManagerProbes => manager().chain([any_port(), "--enable-webhooks=false".to_owned()]).collect(),
        Target::MetricsProxy | Target::ProxyProbes => [
            file("kubeconfig", KUBECONFIG),
            format!("--secure-listen-address={main}"),
            format!("--proxy-endpoints-port={}", probes.port()),
            format!("--upstream={upstream}/"),
            "--allow-paths=/metrics".to_owned(),
        ]
        .into_iter()
        .chain(pair())
        .chain(target::SHORT_TTLS.map(str::to_owned))
        .collect(),
        Target::BookingServer | Target::BookingProbes => [
            format!("--listen={main}"),
            format!("--admin-listen={probes}"),
            file("db", "bookings.db"),
            // Without tokens, because a server that asks for one would not read the bodies of the attackers.
            "--insecure".to_owned(),
            "--log-level=error".to_owned(),
        ]
        .into_iter()
        .chain(pair())
        .collect(),
    }
}

/// The flags of a manager that never leads: its caches are full, and it changes no object, so that the API server need not play a
/// whole cluster. The lease is that of [`ApiServer`].
fn standby() -> [String; 2] {
    ["--leader-elect", "--leader-election-namespace=default"].map(str::to_owned)
}

impl Program {
    fn new(
        child: Child,
        folder: TempDir,
        target: Target,
        Addresses { main, probes }: Addresses,
        requests: Requests,
        cluster: Option<ApiServer>,
    ) -> Result<Self> {
        let attacked = if target.is_probes() { probes.context("the target has no probes")? } else { main };
        let port = Port { address: attacked, is_tls: target.is_tls() };
        let probes = probes.map(|address| probes::of_container(target.container(), address)).unwrap_or_default();
        Ok(Self { child, folder, port, probes, requests, _cluster: cluster })
    }

    /// The folder with its certificate.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().ok().flatten().is_some()
    }

    /// The peak of its resident memory in bytes; `None` if it has ended.
    pub(crate) fn peak(&self) -> Option<u64> {
        memory::of_process(self.child.id()?, "VmHWM")
    }
}

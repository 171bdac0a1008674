//! A target as a process of its own.

use std::{
    net::{Ipv4Addr, SocketAddr},
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
    api_server::ApiServer,
    memory,
    requests::Requests,
    target::{self, Target},
};

const START: Duration = Duration::from_secs(30);
/// How often to look whether a program listens.
const LOOK: Duration = Duration::from_millis(20);

/// The file in the folder of a program by which it finds its API server.
const KUBECONFIG: &str = "kubeconfig";

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
    pub(crate) address: SocketAddr,
    pub(crate) requests: Requests,
    _cluster: Option<ApiServer>,
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
            Self::Libraries(binary) if target == Target::BuiltinMetrics => {
                start_shipped(binary, target, Requests::of_library(target)).await
            }
            Self::Libraries(binary) => start_library(binary, target).await,
            Self::Checkout(folder) => {
                let binary = folder.join("target/release").join(target.program());
                start_shipped(&binary, target, Requests::of_shipped(target, &self.chart())?).await
            }
        }
    }
}

/// Starts `binary serve TARGET FOLDER`, which prints its address.
async fn start_library(binary: &Path, target: Target) -> Result<Program> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(binary);
    command.args(["serve", target.name()]).arg(folder.path()).stdout(Stdio::piped()).stdin(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().with_context(|| format!("{}", binary.display()))?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let address = timeout(START, lines.next_line()).await.context("the target did not start")??;
    let Some(address) = address else { bail!("the target ended at once") };
    let address = address.parse().with_context(|| format!("{address:?} is no address"))?;
    let requests = Requests::of_library(target);
    Ok(Program { child, folder, address, requests, _cluster: None })
}

/// Starts a program with the flags that matter of those in the chart, and an API server for it.
async fn start_shipped(binary: &Path, target: Target, requests: Requests) -> Result<Program> {
    let folder = tempfile::tempdir()?;
    target::write_certificate(folder.path())?;
    let cluster = ApiServer::start().await?;
    cluster.write_kubeconfig(&folder.path().join(KUBECONFIG))?;
    let address = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut command = Command::new(binary);
    command.args(arguments(target, folder.path(), &cluster.url, address));
    command.envs(images::operator::ENVIRONMENT.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let mut child = command.kill_on_drop(true).spawn().with_context(|| format!("{}", binary.display()))?;
    let begun = Instant::now();
    while TcpStream::connect(address).await.is_err() {
        ensure!(child.try_wait()?.is_none(), "{} ended at once", binary.display());
        ensure!(begun.elapsed() < START, "{} does not listen at {address}", binary.display());
        sleep(LOOK).await;
    }
    Ok(Program { child, folder, address, requests, _cluster: Some(cluster) })
}

/// The arguments of a program that serves the target at this address. `folder` has its files, and `upstream` metrics.
fn arguments(target: Target, folder: &Path, upstream: &str, address: SocketAddr) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let pair = || [file("tls-cert-file", "tls.crt"), file("tls-private-key-file", "tls.key")];
    let manager = || {
        let flags = ["run", "--operators=*", "--health-probe-bind-address=0", "--log-level=error"];
        flags.map(str::to_owned).into_iter().chain([file("kubeconfig", KUBECONFIG)])
    };
    match target {
        Target::Webhooks => manager()
            .chain([
                format!("--webhook-bind-address={address}"),
                format!("--webhook-cert-dir={}", folder.display()),
                "--metrics-bind-address=127.0.0.1:0".to_owned(),
            ])
            .collect(),
        Target::BuiltinMetrics => manager()
            .chain([
                format!("--metrics-bind-address={address}"),
                "--metrics-secure".to_owned(),
                format!("--metrics-cert-dir={}", folder.display()),
                "--enable-webhooks=false".to_owned(),
            ])
            .collect(),
        Target::MetricsProxy => [
            file("kubeconfig", KUBECONFIG),
            format!("--secure-listen-address={address}"),
            format!("--upstream={upstream}/"),
            "--allow-paths=/metrics".to_owned(),
        ]
        .into_iter()
        .chain(pair())
        .chain(target::SHORT_TTLS.map(str::to_owned))
        .collect(),
        Target::BookingServer => [
            format!("--listen={address}"),
            "--admin-listen=127.0.0.1:0".to_owned(),
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

impl Program {
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

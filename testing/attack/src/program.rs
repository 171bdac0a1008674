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

/// Which programs to attack.
#[derive(Debug, Clone)]
pub enum Programs {
    /// The libraries of the servers, in this program, see [`crate::serve`].
    Libraries(PathBuf),
    /// The programs of the image, which are in this folder.
    Shipped(PathBuf),
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
    /// Starts a target, and waits until it listens.
    pub(crate) async fn start(&self, target: Target) -> Result<Program> {
        match self {
            Self::Libraries(binary) => start_library(binary, target).await,
            Self::Shipped(folder) => start_shipped(folder, target).await,
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

/// Starts a program of the image with the flags that matter of those in the chart, and an API server for it.
async fn start_shipped(binaries: &Path, target: Target) -> Result<Program> {
    let folder = tempfile::tempdir()?;
    target::write_certificate(folder.path())?;
    let cluster = ApiServer::start().await?;
    let kubeconfig = folder.path().join("kubeconfig");
    cluster.write_kubeconfig(&kubeconfig)?;
    let address = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
    let file = |name: &str, file: &str| flag(name, &folder.path().join(file));
    let (binary, arguments) = match target {
        Target::Webhooks => (
            "controller-manager",
            vec![
                "run".to_owned(),
                flag("kubeconfig", &kubeconfig),
                format!("--webhook-bind-address={address}"),
                flag("webhook-cert-dir", folder.path()),
                "--health-probe-bind-address=0".to_owned(),
                "--metrics-bind-address=127.0.0.1:0".to_owned(),
                "--operators=*".to_owned(),
                "--log-level=error".to_owned(),
            ],
        ),
        Target::MetricsProxy => (
            "metrics-proxy",
            vec![
                flag("kubeconfig", &kubeconfig),
                format!("--secure-listen-address={address}"),
                format!("--upstream={}/", cluster.url),
                "--allow-paths=/metrics".to_owned(),
                file("tls-cert-file", "tls.crt"),
                file("tls-private-key-file", "tls.key"),
            ]
            .into_iter()
            .chain(target::SHORT_TTLS.map(str::to_owned))
            .collect(),
        ),
        Target::BookingServer => (
            "booking-server",
            vec![
                format!("--listen={address}"),
                "--admin-listen=127.0.0.1:0".to_owned(),
                file("db", "bookings.db"),
                file("tls-cert-file", "tls.crt"),
                file("tls-private-key-file", "tls.key"),
                // Without tokens, because a server that asks for one would not read the bodies of the attackers.
                "--insecure".to_owned(),
                "--log-level=error".to_owned(),
            ],
        ),
    };
    let binary = binaries.join(binary);
    let mut command = Command::new(&binary);
    command.args(arguments).envs(images::operator::ENVIRONMENT.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let mut child = command.kill_on_drop(true).spawn().with_context(|| format!("{}", binary.display()))?;
    let begun = Instant::now();
    while TcpStream::connect(address).await.is_err() {
        ensure!(child.try_wait()?.is_none(), "{} ended at once", binary.display());
        ensure!(begun.elapsed() < START, "{} does not listen at {address}", binary.display());
        sleep(LOOK).await;
    }
    let requests = Requests::of_shipped(target)?;
    Ok(Program { child, folder, address, requests, _cluster: Some(cluster) })
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

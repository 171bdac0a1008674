//! The targets: our real servers, each in a process of its own.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use booking_server::{BookingServer, Options};
use clap::{Parser as _, ValueEnum};
use futures::{FutureExt as _, future::BoxFuture};
use kube::CustomResource;
use metrics_proxy::{
    Decision, Flags, Program, ReviewError, Reviewer,
    policy::{Attributes, User},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::sync::CancellationToken;
use webhooks::{Plan, ValidationResult, Webhook};

use crate::api_server::{REVIEW, TOKEN, metrics};

/// Flags of the metrics proxy with which the honest token and its access are reviewed again many times in each round, during the
/// attack. With the defaults, a round would end before the first answer expires.
pub(crate) const SHORT_TTLS: [&str; 2] =
    ["--authentication-token-webhook-cache-ttl=200ms", "--authorization-webhook-cache-authorized-ttl=200ms"];

/// A server to attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// The server of admission and conversion webhooks.
    Webhooks,
    /// The sidecar in front of metrics.
    MetricsProxy,
    /// The API of the booking server.
    BookingServer,
    /// The manager, as it serves its own metrics without a sidecar.
    BuiltinMetrics,
    /// The probes of the manager.
    ManagerProbes,
    /// The probes of the sidecar in front of metrics.
    ProxyProbes,
    /// The second port of the booking server, which also has its metrics and its status page.
    BookingProbes,
    /// The server of admission and conversion webhooks in a manager that has many large objects in its caches, and serves its own
    /// metrics.
    LoadedWebhooks,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 8] = [
        Self::Webhooks,
        Self::MetricsProxy,
        Self::BookingServer,
        Self::BuiltinMetrics,
        Self::ManagerProbes,
        Self::ProxyProbes,
        Self::BookingProbes,
        Self::LoadedWebhooks,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhooks => "webhooks",
            Self::MetricsProxy => "metrics-proxy",
            Self::BookingServer => "booking-server",
            Self::BuiltinMetrics => "builtin-metrics",
            Self::ManagerProbes => "manager-probes",
            Self::ProxyProbes => "proxy-probes",
            Self::BookingProbes => "booking-probes",
            Self::LoadedWebhooks => "loaded-webhooks",
        }
    }

    /// The name of its program in the image.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Webhooks | Self::BuiltinMetrics | Self::ManagerProbes | Self::LoadedWebhooks => "controller-manager",
            Self::MetricsProxy | Self::ProxyProbes => "metrics-proxy",
            Self::BookingServer | Self::BookingProbes => "booking-server",
        }
    }

    /// The name of its container in the chart.
    pub(crate) fn container(self) -> &'static str {
        match self.program() {
            "controller-manager" => "manager",
            other => other,
        }
    }

    /// Where its resources are in the values of the chart.
    pub(crate) fn resources(self) -> &'static str {
        match self {
            Self::Webhooks | Self::BuiltinMetrics | Self::ManagerProbes | Self::LoadedWebhooks => "/resources",
            Self::MetricsProxy | Self::ProxyProbes => "/metrics/proxy/resources",
            Self::BookingServer | Self::BookingProbes => "/bookingServer/resources",
        }
    }

    /// Whether it is a port for probes, not the main port of its program.
    pub(crate) fn is_probes(self) -> bool {
        matches!(self, Self::ManagerProbes | Self::ProxyProbes | Self::BookingProbes)
    }

    /// Whether it speaks TLS only.
    pub(crate) fn is_tls(self) -> bool {
        !matches!(self, Self::ManagerProbes | Self::BookingProbes)
    }

    /// Whether only the manager as a whole has it.
    pub(crate) fn needs_the_manager(self) -> bool {
        matches!(self, Self::BuiltinMetrics | Self::ManagerProbes | Self::LoadedWebhooks)
    }
}

/// Serves the program of a target on free ports of loopback until the process ends, and prints its address and, if it has probes,
/// theirs. `folder` is for its files, such as `tls.crt`.
pub async fn serve(target: Target, folder: &Path) -> Result<()> {
    write_certificate(folder)?;
    match target {
        Target::Webhooks => serve_webhooks(folder).await,
        Target::MetricsProxy | Target::ProxyProbes => serve_metrics_proxy(folder).await,
        Target::BookingServer | Target::BookingProbes => serve_bookings(folder).await,
        Target::BuiltinMetrics | Target::ManagerProbes | Target::LoadedWebhooks => {
            bail!("the manager takes its flags from the command line")
        }
    }
}

/// Two addresses of loopback at which nothing listens.
pub(crate) fn free_addresses() -> Result<(SocketAddr, SocketAddr)> {
    let bind = || std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (bind()?, bind()?);
    Ok((one.local_addr()?, other.local_addr()?))
}

/// Runs the manager with the arguments of this process, which begin with `run`: only as a whole it serves its own metrics.
pub fn manage() -> ExitCode {
    manager::main(controller_manager::OPERATORS)
}

/// Writes `tls.crt` and `tls.key`, and `ca.crt` beside them.
pub(crate) fn write_certificate(folder: &Path) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    for name in ["tls.crt", "ca.crt"] {
        std::fs::write(folder.join(name), made.cert.pem())?;
    }
    Ok(std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem())?)
}

#[expect(clippy::print_stdout, reason = "the parent process reads it")]
fn announce(address: SocketAddr, probes: Option<SocketAddr>) {
    println!("{address} {}", probes.map(|address| address.to_string()).unwrap_or_default());
}

async fn serve_bookings(folder: &Path) -> Result<()> {
    let tls = Some((folder.join("tls.crt"), folder.join("tls.key")));
    let server = BookingServer::bind(Options { tls, ..Options::for_tests(folder.join("bookings.db")) }).await?;
    announce(server.address(), Some(server.admin_address()));
    server.run().await;
    Ok(())
}

async fn serve_metrics_proxy(folder: &Path) -> Result<()> {
    let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let file = |name: &str| folder.join(name).display().to_string();
    let (probes, _) = free_addresses()?;
    let arguments = [
        "metrics-proxy".to_owned(),
        "--secure-listen-address=127.0.0.1:0".to_owned(),
        format!("--proxy-endpoints-port={}", probes.port()),
        format!("--upstream=http://{}/", upstream.local_addr()?),
        format!("--tls-cert-file={}", file("tls.crt")),
        format!("--tls-private-key-file={}", file("tls.key")),
    ];
    let flags = Flags::try_parse_from(arguments.into_iter().chain(SHORT_TTLS.map(str::to_owned)))?;
    let program = Program::with_reviewer(&flags, Arc::new(SlowReviewer)).await?;
    tokio::spawn(serve_metrics(upstream));
    announce(program.secure_address().context("no address")?, Some(probes));
    program.run(CancellationToken::new()).await;
    Ok(())
}

/// Answers every request with some metrics.
async fn serve_metrics(upstream: TcpListener) {
    while let Ok((mut stream, _)) = upstream.accept().await {
        tokio::spawn(async move {
            let mut head = [0; 4096];
            while stream.read(&mut head).await.unwrap_or(0) > 0 {
                let body = metrics();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// An API server that knows one token, and answers for others only after seconds.
struct SlowReviewer;

impl Reviewer for SlowReviewer {
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>> {
        async move {
            if token == TOKEN {
                return Ok(Some(User { name: TOKEN.to_owned(), ..User::default() }));
            }
            tokio::time::sleep(REVIEW).await;
            Ok(None)
        }
        .boxed()
    }

    fn access<'a>(&'a self, _: &'a User, _: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>> {
        async { Ok(Decision { allowed: true, reason: String::new() }) }.boxed()
    }
}

/// A kind that gives attackers some freedom: maps and lists of any size.
#[derive(Debug, Clone, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Thing", namespaced)]
struct ThingSpec {
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    numbers: Vec<i64>,
    /// The elements of a list that need the most memory.
    #[serde(default)]
    volumes: Vec<k8s_openapi::api::core::v1::Volume>,
}

/// What the webhook server serves.
pub(crate) fn hooks() -> Vec<Webhook> {
    vec![
        Webhook::defaulting(|thing: &mut Thing| drop(thing.spec.labels.insert("default".to_owned(), String::new()))),
        Webhook::validating(|_: Option<&Thing>, _: &Thing| ValidationResult::none()),
        Webhook::converting::<Thing>(&["v1", "v2"], |thing, _| Ok(thing)),
    ]
}

async fn serve_webhooks(folder: &Path) -> Result<()> {
    let (address, _) = free_addresses()?;
    let plan = Plan::Folder { address, folder: PathBuf::from(folder), endpoint: None };
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse()?))?;
    let (server, _) =
        webhooks::prepare(plan, hooks(), Vec::new(), &client, Arc::new(Silent), fastrand::Rng::new()).await?;
    announce(address, None);
    server.run(CancellationToken::new()).await;
    Ok(())
}

/// Ignores all reports.
struct Silent;

impl serving::Observer for Silent {}

impl webhooks::Observer for Silent {
    fn serves(&self, _: &str) {}
    fn started(&self, _: &str) {}
    fn answered(&self, _: &str, _: u16, _: Duration) {}
    fn panicked(&self, _: &str) {}
    fn converts(&self, _: &webhooks::Conversion<'_>) {}
    fn converted(&self, _: &webhooks::Conversion<'_>) {}
}

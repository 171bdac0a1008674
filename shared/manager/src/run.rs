//! The life of the process, from the flags to the last event.
//!
//! Probes and metrics listen first, so that a busy port is an error at once. Then the informers list and watch, also on a
//! standby. Each controller's workers start when its caches are filled and, with an election, this process leads.
//!
//! On SIGTERM or SIGINT readiness goes false, and the workers take no new keys. Running reconciles finish, or are cancelled at
//! the time-out. **Then** the lease is released, and the events still in the buffer are sent. A second signal ends the process
//! at once. When the leadership is lost, running reconciles are cancelled and the process stands by again.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use leader_election::{Config, ConfigError, Elector};
use serving::{Limits, Listener};
use tokio::{
    sync::Mutex,
    task::{JoinSet, spawn_blocking},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    assembly::{Assembly, Connections, Wired, wire},
    build_info, client, clock,
    metrics::{Metrics, WebhookMetrics, secure},
    operator::Manager,
    probes::{self, Probes},
    random::Random,
    settings::BindAddress,
    telemetry::Traces,
};

/// The limit of open connections for probes, and for metrics: enough even if some clients only hold a connection.
const CONNECTIONS: usize = 64;
/// How long the end of the process waits for running answers of a server.
const DRAIN: Duration = Duration::from_secs(1);

/// Why the process could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fatal {
    #[error("{0}")]
    Client(#[from] client::Error),
    #[error("cannot listen on {address} for {purpose}: {source}; choose another address with {flag}")]
    Listen { address: SocketAddr, purpose: &'static str, flag: &'static str, source: std::io::Error },
    #[error(transparent)]
    Metrics(#[from] secure::Error),
    #[error("leader election: {0}")]
    Election(ConfigError),
    #[error("cannot receive signals")]
    Signals(#[source] std::io::Error),
    #[error("{0} ended unexpectedly")]
    Task(String),
    #[error("stopped by a second signal")]
    SecondSignal,
}

/// Named tasks. If one ends early, the process ends with an error that names it, instead of running on without it.
struct Tasks {
    set: JoinSet<String>,
}

/// Runs all controllers of `manager` until a signal.
pub(crate) async fn run(
    mut manager: Manager,
    election: Option<Config>,
    webhooks: Option<webhooks::Plan>,
    traces: Traces,
) -> Result<(), Fatal> {
    let (clock, random) = (clock::clock(), Random::default());
    let settings = manager.settings().clone();
    let metrics = Arc::new(Metrics::new(manager.metrics()));
    let probes_listener =
        listen(settings.health_probe_bind_address, "health probes", "--health-probe-bind-address").await?;
    let metrics_listener = listen(settings.metrics_bind_address, "metrics", "--metrics-bind-address").await?;
    let client = client::connect(&settings, &metrics).await?;
    let converted = manager.webhooks.iter().filter_map(webhooks::Webhook::definition).collect();
    let webhooks = match webhooks.filter(|_| !manager.webhooks.is_empty()) {
        Some(plan) => {
            let (address, purpose, flag) = (plan.address(), "webhooks", "--webhook-bind-address");
            let (own, foreign) = (std::mem::take(&mut manager.webhooks), std::mem::take(&mut manager.foreign_webhooks));
            let observer = Arc::new(WebhookMetrics(metrics.clone()));
            let prepared = webhooks::prepare(plan, own, foreign, &client, observer, random.rng()).await;
            Some(prepared.map_err(|source| Fatal::Listen { address, purpose, flag, source })?)
        }
        None => None,
    };

    let elector = match election {
        Some(config) => {
            let client = client::for_election(&settings, config.renew_deadline).await?;
            Some((Elector::new(client, config.clone()).map_err(Fatal::Election)?, config))
        }
        None => None,
    };
    let mut signals = Signals::new()?; // before anything starts that has to be shut down in order
    let connections = Connections { client, clock, random, metrics: metrics.clone(), instance: instance(), elector };
    let Wired { assembly, tasks: named, events, workers, election, stop, finished } = wire(manager, connections);

    let mut tasks = Tasks { set: JoinSet::new() };
    let serving = CancellationToken::new();
    let probes = Probes {
        informers: assembly.informers.clone(),
        controllers: assembly.controllers.clone(),
        started: Instant::now(),
        cache_sync_timeout: settings.cache_sync_timeout,
        reconcile_timeout: settings.reconcile_timeout,
        stopping: stop.clone(),
        election,
        converted: if webhooks.is_some() { converted } else { Vec::new() },
        webhooks: webhooks.as_ref().map(|(_, health)| health.clone()),
    };
    if let Some(listener) = probes_listener {
        tasks.serve("probes", listener, probes::routes(Arc::new(probes)), &serving);
    }
    if let Some(listener) = metrics_listener {
        let routes = metrics_routes(metrics.clone(), assembly.clone(), traces);
        let (listener, routes) = if settings.metrics_secure {
            let reviews = client::for_reviews(&settings, &metrics).await?;
            secure::secure(listener, routes, settings.metrics_cert_dir.as_deref(), reviews)?
        } else {
            (listener, routes)
        };
        tasks.serve("metrics", listener, routes, &serving);
    }
    if let Some((server, _)) = webhooks {
        tasks.spawn("server of webhooks".to_owned(), server.run(serving.clone()));
    }
    let mut events = tokio::spawn(events);
    for (name, task) in named {
        tasks.spawn(name, task);
    }
    let mut working = tokio::spawn(workers);
    tracing::info!(
        version = build_info::VERSION,
        commit = build_info::COMMIT,
        controllers = assembly.controllers.len(),
        "Started"
    );

    let result = tokio::select! {
        () = signals.next() => Ok(()),
        ended = tasks.ended() => Err(Fatal::Task(ended)),
        _ = &mut working => return Err(Fatal::Task("a controller".to_owned())),
        _ = &mut events => return Err(Fatal::Task("the sender of events".to_owned())),
    };
    tracing::info!("Stopping");
    stop.cancel();
    tokio::select! {
        _ = working => {} // running reconciles first, then the lease
        () = signals.next() => return Err(Fatal::SecondSignal),
    }
    finished.cancel();
    drop(events.await);
    serving.cancel();
    tasks.finish().await;
    result
}

fn metrics_routes(metrics: Arc<Metrics>, assembly: Assembly, traces: Traces) -> Router {
    let scrape = move || {
        metrics.scrape(|| {
            metrics.spans_dropped.inc_by(traces.dropped().saturating_sub(metrics.spans_dropped.get()));
            assembly.show(&metrics);
        })
    };
    let (scrape, turns) = (Arc::new(scrape), Arc::new(Mutex::new(())));
    let answer = move || {
        let (scrape, turns) = (scrape.clone(), turns.clone());
        async move {
            // Scrapes take turns, so that only one of them occupies a thread. The turn ends with the work, also if the client leaves.
            let turn = turns.lock_owned().await;
            // A scrape decodes all objects, which takes seconds if there are a hundred thousand. Reconciles must not wait for it.
            let work = spawn_blocking(move || {
                let _turn = turn;
                scrape()
            });
            match work.await {
                Ok(text) => {
                    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
                }
                Err(error) => {
                    tracing::error!(%error, "Metrics cannot be collected");
                    StatusCode::INTERNAL_SERVER_ERROR.into_response()
                }
            }
        }
    };
    Router::new().route("/metrics", get(answer))
}

async fn listen(address: BindAddress, purpose: &'static str, flag: &'static str) -> Result<Option<Listener>, Fatal> {
    let Some(address) = address.0 else { return Ok(None) };
    let listener = Listener::bind(address).await.map_err(|source| Fatal::Listen { address, purpose, flag, source })?;
    Ok(Some(listener.limits(Limits { body_size: 0, connections: CONNECTIONS, drain: DRAIN, ..Limits::default() })))
}

/// Returns the reporting instance of events: the name of the pod or, outside of a cluster, of the host.
fn instance() -> String {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    std::env::var("POD_NAME").or_else(|_| host()).unwrap_or_else(|_| "controller-manager".to_owned())
}

impl Tasks {
    fn spawn(&mut self, name: String, task: impl Future<Output = ()> + Send + 'static) {
        self.set.spawn(async move {
            task.await;
            name
        });
    }

    fn serve(&mut self, name: &str, listener: Listener, routes: Router, stop: &CancellationToken) {
        let stop = stop.clone();
        self.spawn(format!("server of {name}"), async move {
            listener.serve(routes, stop.cancelled_owned()).await;
        });
    }

    /// Returns the name of the first task that ends. Waits for ever if there is none.
    async fn ended(&mut self) -> String {
        match self.set.join_next().await {
            Some(Ok(name)) => name,
            Some(Err(error)) => format!("a task ({error})"),
            None => std::future::pending().await,
        }
    }

    async fn finish(&mut self) {
        let all = async { while self.set.join_next().await.is_some() {} };
        drop(tokio::time::timeout(2 * DRAIN, all).await);
        self.set.shutdown().await;
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    receivers: [tokio::signal::unix::Signal; 2],
}

impl Signals {
    fn new() -> Result<Self, Fatal> {
        use tokio::signal::unix::{SignalKind, signal};
        let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        Ok(Self { receivers: [terminate.map_err(Fatal::Signals)?, interrupt.map_err(Fatal::Signals)?] })
    }

    async fn next(&mut self) {
        let [terminate, interrupt] = &mut self.receivers;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use axum::{body::Body, http::Request};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tower::ServiceExt;
    use workqueue::WorkQueue;

    use super::*;
    use crate::{controller::Running, metrics::MetricRegistry};

    #[tokio::test]
    async fn metrics_listener_serves_only_metrics() {
        let assembly = Assembly { controllers: Arc::default(), informers: Vec::new() };
        let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
        let routes = metrics_routes(metrics, assembly, Traces::default());
        for (path, code) in
            [("/metrics", 200), ("/", 404), ("/metrics/", 404), ("/debug/pprof/", 404), ("/healthz", 404)]
        {
            let request = Request::get(path).body(Body::empty()).expect("a request");
            let answer = routes.clone().oneshot(request).await.expect("an answer");
            assert_eq!(answer.status().as_u16(), code, "{path}");
        }
    }

    /// The test has one thread, on which a scrape that waits for another task would wait for ever.
    #[tokio::test]
    async fn scrape_does_not_delay_other_tasks() {
        const SCRAPES: usize = 3;
        let (wake, woken) = std::sync::mpsc::channel();
        let woken = parking_lot::Mutex::new(woken);
        let running = Running::with(WorkQueue::default(), || Box::pin(async {})).on_scrape(move |_| {
            woken.lock().recv_timeout(Duration::from_secs(10)).expect("another task runs meanwhile");
        });
        let assembly = Assembly { controllers: Arc::new(vec![running]), informers: Vec::new() };
        let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
        let routes = metrics_routes(metrics, assembly, Traces::default());
        let scrapes = futures::future::join_all((0..SCRAPES).map(|_| {
            let request = Request::get("/metrics").body(Body::empty()).expect("a request");
            routes.clone().oneshot(request)
        }));
        let other = async { (0..SCRAPES).for_each(|_| wake.send(()).expect("the scrapes wait")) };
        let (answers, ()) = tokio::join!(scrapes, other);
        for answer in answers {
            assert_eq!(answer.expect("an answer").status().as_u16(), 200);
        }
    }

    #[tokio::test]
    async fn scrape_that_panics_is_an_error() {
        let running = Running::with(WorkQueue::default(), || Box::pin(async {})).on_scrape(|_| panic!("a defect"));
        let assembly = Assembly { controllers: Arc::new(vec![running]), informers: Vec::new() };
        let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
        let routes = metrics_routes(metrics, assembly, Traces::default());
        for _ in 0..2 {
            let request = Request::get("/metrics").body(Body::empty()).expect("a request");
            let answer = routes.clone().oneshot(request).await.expect("an answer");
            assert_eq!(answer.status().as_u16(), 500);
        }
    }

    #[tokio::test]
    async fn port_alone_listens_on_ipv4_and_ipv6() {
        let all: BindAddress = ":0".parse().expect("an address");
        let listener = listen(all, "probes", "--probes").await.expect("a port").expect("an address");
        let port = listener.local_addr().port();
        for local in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            if tokio::net::TcpListener::bind((local, 0)).await.is_err() {
                continue; // this machine does not have this address family
            }
            let connected = tokio::net::TcpStream::connect((local, port)).await;
            assert!(connected.is_ok(), "{local}: {connected:?}");
        }
    }

    #[tokio::test]
    async fn oversized_request_headers_get_431() {
        let stop = CancellationToken::new();
        let address = BindAddress(Some(([127, 0, 0, 1], 0).into()));
        let listener = listen(address, "probes", "--probes").await.expect("a port").expect("an address");
        let at = listener.local_addr();
        let mut tasks = Tasks { set: JoinSet::new() };
        tasks.serve("probes", listener, Router::new().route("/healthz", get(async || "ok")), &stop);
        for (size, code) in [(1_000, "200"), (20_000, "431")] {
            let mut stream = tokio::net::TcpStream::connect(at).await.expect("a connection");
            let request = format!("GET /healthz HTTP/1.0\r\nx: {}\r\n\r\n", "y".repeat(size));
            stream.write_all(request.as_bytes()).await.expect("it is taken");
            let mut answer = String::new();
            // The server does not read the rest of the request, which may reset the connection after the answer.
            drop(stream.read_to_string(&mut answer).await);
            assert_eq!(answer.split(' ').nth(1), Some(code), "{size}: {answer}");
        }
        stop.cancel();
        tasks.finish().await;
    }
}

//! The life of the process, from the flags to the last event.
//!
//! Probes and metrics listen first, so that a busy port is an error at once. Then the informers list and watch, also on a
//! standby. Each controller's workers start when its caches are filled and, with an election, this process leads. On
//! SIGTERM or SIGINT readiness goes false, no new work is taken, running reconciles finish or are cancelled at the
//! time-out, **then** the lease is released, and the events still in the buffer are sent. A second signal ends the
//! process at once. When the leadership is lost, running reconciles are cancelled and the process stands by again.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, http::header, response::IntoResponse, routing::get};
use leader_election::{Config, ConfigError, Elector};
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    assembly::Assembly,
    client, clock,
    context::Outside,
    error::chain,
    events::Recorder,
    leading::{Leading, Tell},
    metrics::Metrics,
    operator::Manager,
    probes::{self, Probes},
    settings::BindAddress,
    telemetry::Traces,
    webhook::setup,
    workers::Workers,
};

/// Why the process could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fatal {
    #[error("{0}")]
    Client(#[from] client::Error),
    #[error("cannot listen on {address} for {purpose}: {source}; choose another address with {flag}")]
    Listen { address: SocketAddr, purpose: &'static str, flag: &'static str, source: std::io::Error },
    #[error("leader election: {0}")]
    Election(ConfigError),
    #[error("cannot receive signals")]
    Signals(#[source] std::io::Error),
    #[error("{0} ended unexpectedly")]
    Task(String),
    #[error("stopped by a second signal")]
    SecondSignal,
}

/// Named tasks: if one ends before its time, the process ends with its name. No zombies.
struct Tasks {
    set: JoinSet<String>,
}

/// Runs all controllers of `manager` until a signal.
pub(crate) async fn run(
    manager: Manager,
    election: Option<Config>,
    webhooks: Option<setup::Plan>,
    traces: Traces,
) -> Result<(), Fatal> {
    let settings = manager.settings().clone();
    let stop = CancellationToken::new();
    let metrics = Arc::new(Metrics::new(manager.metrics()));
    let probes_listener =
        listen(settings.health_probe_bind_address, "health probes", "--health-probe-bind-address").await?;
    let metrics_listener = listen(settings.metrics_bind_address, "metrics", "--metrics-bind-address").await?;
    let client = client::connect(&settings, &metrics).await?;
    let webhooks = match webhooks.filter(|_| !manager.webhooks.is_empty()) {
        Some(plan) => Some(setup::prepare(plan, &settings, manager.webhooks, &client, &metrics).await?),
        None => None,
    };

    let flushed = CancellationToken::new();
    let (recorder, events) = Recorder::new(client.clone(), instance(), metrics.clone(), flushed.clone());
    let elector = match &election {
        Some(config) => {
            let tell = Tell { metrics: metrics.clone(), recorder: recorder.clone(), config: config.clone() };
            metrics.leader_status.with_label_values(&[&config.name]).set(0);
            let client = client::for_election(&settings, config.renew_deadline).await?;
            Some(Elector::new(client, config.clone()).map_err(Fatal::Election)?.observed_by(tell))
        }
        None => None,
    };
    let outside = Arc::new(Outside {
        client: client.clone(),
        clock: clock::clock(),
        random: Arc::new(fastrand::f64),
        recorder,
        metrics: metrics.clone(),
        settings: settings.clone(),
        leading: if elector.is_some() { Leading::elected() } else { Leading::default() },
    });
    let (assembly, named) = Assembly::new(manager.controllers, manager.background, &outside, &stop);

    let mut tasks = Tasks { set: JoinSet::new() };
    let serving = CancellationToken::new();
    let probes = Probes {
        informers: assembly.informers.clone(),
        controllers: assembly.controllers.clone(),
        started: Instant::now(),
        cache_sync_timeout: settings.cache_sync_timeout,
        reconcile_timeout: settings.reconcile_timeout,
        stopping: stop.clone(),
        election: elector.as_ref().map(Elector::health),
        webhooks: webhooks.as_ref().map(|(_, health)| health.clone()),
    };
    tasks.serve("probes", probes_listener, probes::routes(Arc::new(probes)), &serving);
    tasks.serve("metrics", metrics_listener, metrics_routes(metrics, assembly.clone(), traces), &serving);
    if let Some((server, _)) = webhooks {
        tasks.spawn("server of webhooks".to_owned(), server.run(serving.clone()));
    }
    let events = tokio::spawn(events);
    for (name, task) in named {
        tasks.spawn(name, task);
    }
    let workers = assembly.workers(&settings);
    let mut working = tokio::spawn(work(workers, elector, outside.leading.clone(), stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), controllers = assembly.controllers.len(), "Started");

    let mut signals = Signals::new()?;
    let result = tokio::select! {
        () = signals.next() => Ok(()),
        ended = tasks.ended() => Err(Fatal::Task(ended)),
        _ = &mut working => return Err(Fatal::Task("a controller".to_owned())),
    };
    tracing::info!("Stopping");
    stop.cancel();
    tokio::select! {
        _ = working => {} // running reconciles first, then the lease
        () = signals.next() => return Err(Fatal::SecondSignal),
    }
    flushed.cancel();
    drop(events.await);
    serving.cancel();
    tasks.finish().await;
    result
}

/// Works at once, or whenever this process leads.
async fn work(workers: Workers, elector: Option<Elector>, leading: Leading, stop: CancellationToken) {
    let Some(elector) = elector else { return workers.run(None, stop).await };
    let ended = elector
        .run(stop.clone(), |leadership| {
            leading.begin(leadership.clone());
            workers.clone().run(Some(leadership), stop.clone())
        })
        .await;
    tracing::debug!(?ended, "The election has ended");
}

fn metrics_routes(metrics: Arc<Metrics>, assembly: Assembly, traces: Traces) -> Router {
    let scrape = move || {
        metrics.scrape(|| {
            metrics.spans_dropped.inc_by(traces.dropped().saturating_sub(metrics.spans_dropped.get()));
            assembly.show(&metrics);
        })
    };
    Router::new().route(
        "/metrics",
        get(async move || {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], scrape()).into_response()
        }),
    )
}

async fn listen(address: BindAddress, purpose: &'static str, flag: &'static str) -> Result<Option<TcpListener>, Fatal> {
    let Some(address) = address.0 else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    listener.map(Some).map_err(|source| Fatal::Listen { address, purpose, flag, source })
}

/// Who reports events: the pod, or the machine and process outside a cluster.
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

    fn serve(&mut self, name: &str, listener: Option<TcpListener>, routes: Router, stop: &CancellationToken) {
        let Some(listener) = listener else { return };
        let stop = stop.clone();
        self.spawn(format!("server of {name}"), async move {
            let served = axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::error!(error = chain(&error), "A server failed");
            }
        });
    }

    /// The first task that ends; never, if there is none.
    async fn ended(&mut self) -> String {
        match self.set.join_next().await {
            Some(Ok(name)) => name,
            Some(Err(error)) => format!("a task ({error})"),
            None => std::future::pending().await,
        }
    }

    async fn finish(&mut self) {
        let all = async { while self.set.join_next().await.is_some() {} };
        drop(tokio::time::timeout(Duration::from_secs(1), all).await);
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
    use axum::{body::Body, http::Request};
    use tower::ServiceExt;

    use super::*;
    use crate::metrics::MetricRegistry;

    #[tokio::test]
    async fn nothing_but_metrics_is_served() {
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
}

//! The life of the process, from the flags to the last event.
//!
//! Probes and metrics listen first, so that a busy port is an error at once. Then the informers list and watch; each
//! controller's workers start when its caches are filled. On SIGTERM or SIGINT readiness goes false, no new work is
//! taken, running reconciles finish or are cancelled at the time-out, and the events still in the buffer are sent. A
//! second signal ends the process at once.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, http::header, response::IntoResponse, routing::get};
use jiff::Timestamp;
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use workqueue::Shutdown;

use crate::{
    client,
    context::Outside,
    controller::Running,
    error::chain,
    events::Recorder,
    informer::InformerHealth,
    informers::Informers,
    metrics::Metrics,
    operator::Manager,
    probes::{self, Probes},
    settings::BindAddress,
};

/// Why the process could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fatal {
    #[error("{0}")]
    Client(#[from] client::Error),
    #[error("cannot listen on {address} for {purpose}: {source}; choose another address with {flag}")]
    Listen { address: SocketAddr, purpose: &'static str, flag: &'static str, source: std::io::Error },
    #[error("metrics do not register")]
    Metrics(#[from] prometheus::Error),
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
pub(crate) async fn run(manager: Manager) -> Result<(), Fatal> {
    let settings = manager.settings().clone();
    let stop = CancellationToken::new();
    let metrics = Arc::new(Metrics::new()?);
    let probes_listener =
        listen(settings.health_probe_bind_address, "health probes", "--health-probe-bind-address").await?;
    let metrics_listener = listen(settings.metrics_bind_address, "metrics", "--metrics-bind-address").await?;
    let client = client::connect(&settings, &metrics).await?;

    let mut informers = Informers::new(metrics.clone());
    let built: Vec<_> = manager.controllers.into_iter().map(|declared| (declared.build)(&mut informers)).collect();
    let flushed = CancellationToken::new();
    let (recorder, events) = Recorder::new(client.clone(), instance(), metrics.clone(), flushed.clone());
    let outside = Arc::new(Outside {
        client: client.clone(),
        clock: Arc::new(Timestamp::now),
        recorder,
        metrics: metrics.clone(),
        settings: settings.clone(),
    });
    let controllers: Arc<Vec<Running>> =
        Arc::new(built.into_iter().map(|built| built.start(outside.clone())).collect());
    let (states, informer_tasks) = informers.start(&client, &settings.watch_namespaces, &stop);

    let mut tasks = Tasks { set: JoinSet::new() };
    let serving = CancellationToken::new();
    let probes = Probes {
        informers: states.clone(),
        controllers: controllers.clone(),
        started: Instant::now(),
        cache_sync_timeout: settings.cache_sync_timeout,
        reconcile_timeout: settings.reconcile_timeout,
        stopping: stop.clone(),
    };
    tasks.serve("probes", probes_listener, probes::routes(Arc::new(probes)), &serving);
    tasks.serve(
        "metrics",
        metrics_listener,
        metrics_routes(metrics.clone(), states.clone(), controllers.clone()),
        &serving,
    );
    let events = tokio::spawn(events);
    for (name, task) in informer_tasks {
        tasks.spawn(name, task);
    }
    let mut workers = JoinSet::new();
    for index in 0..controllers.len() {
        let controllers = controllers.clone();
        let workers_of = settings.max_concurrent_reconciles.of(&controllers[index].kind, &controllers[index].group);
        metrics.prepare(&controllers[index].name, workers_of);
        workers.spawn(work(controllers.clone(), index, workers_of, states.clone(), stop.clone()));
        tasks.spawn(
            format!("resync of {}", controllers[index].kind),
            resync(controllers, index, settings.resync_interval, stop.clone()),
        );
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), controllers = controllers.len(), "Started");

    let mut signals = Signals::new()?;
    let result = tokio::select! {
        () = signals.next() => Ok(()),
        ended = tasks.ended() => Err(Fatal::Task(ended)),
        Some(_) = workers.join_next(), if !workers.is_empty() => Err(Fatal::Task("a controller".to_owned())),
    };
    tracing::info!("Stopping");
    stop.cancel();
    for controller in controllers.iter() {
        controller.queue.shutdown(Shutdown::Drop);
    }
    let finished = async { while workers.join_next().await.is_some() {} };
    tokio::select! {
        late = tokio::time::timeout(settings.graceful_shutdown_timeout, finished) => {
            if late.is_err() {
                tracing::warn!("Some reconciles did not finish in time and are cancelled");
                workers.shutdown().await;
            }
        }
        () = signals.next() => return Err(Fatal::SecondSignal),
    }
    flushed.cancel();
    drop(events.await);
    serving.cancel();
    tasks.finish().await;
    result
}

/// Waits for all caches of the process, then runs the workers of one controller.
async fn work(
    controllers: Arc<Vec<Running>>,
    index: usize,
    workers: usize,
    states: Vec<Arc<InformerHealth>>,
    stop: CancellationToken,
) {
    let controller = &controllers[index];
    let needed = states.iter().filter(|state| controller.needs.contains(&state.resource));
    let synced = futures::future::join_all(needed.map(|state| state.until_synced()));
    tokio::select! {
        _ = synced => {}
        () = stop.cancelled() => return,
    }
    tracing::info!(controller = &*controller.name, workers, "Workers started");
    let mut set = JoinSet::new();
    for _ in 0..workers {
        set.spawn((controller.work)());
    }
    while set.join_next().await.is_some() {}
}

async fn resync(controllers: Arc<Vec<Running>>, index: usize, interval: Duration, stop: CancellationToken) {
    loop {
        // ± 10 %, so that controllers do not all resync at once.
        let wait = interval.mul_f64(fastrand::f64().mul_add(0.2, 0.9));
        tokio::select! {
            () = tokio::time::sleep(wait) => {
                tracing::debug!(controller = &*controllers[index].name, "Resync");
                (controllers[index].resync)();
            }
            () = stop.cancelled() => return,
        }
    }
}

fn metrics_routes(
    metrics: Arc<Metrics>,
    informers: Vec<Arc<InformerHealth>>,
    controllers: Arc<Vec<Running>>,
) -> Router {
    let scrape = move || {
        for informer in &informers {
            metrics.show(informer);
        }
        for controller in controllers.iter() {
            controller.queue.len(); // counts keys whose delay has run out
            metrics.show_queue(&controller.name, controller.queue.unfinished());
        }
        metrics.text()
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

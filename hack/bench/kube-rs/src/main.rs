//! The peer for the comparison in runtime-bench: a Memcached operator on kube's own Controller, tuned as its documentation advises.
//! It accepts the flags that runtime-bench passes to the operators of this repository.

use std::{
    fmt::Debug,
    future::{pending, ready},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result, bail};
use axum::{Router, routing::get};
use clap::{Parser, Subcommand};
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Config, Resource,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        Config as ControllerConfig, Controller, PredicateConfig, WatchStreamExt, controller,
        events::{Event, Recorder},
        predicates,
        reflector::{self, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};

use crate::{
    api::Memcached,
    election::Elector,
    reconcile::{Context, after_error, reconcile},
};

mod api;
mod children;
mod election;
mod reconcile;

/// The name of this program: of its lease, in its writes and in the label of its children.
const PEER: &str = "kube-rs-peer";
/// As in the peer in Go.
const CONCURRENCY: u16 = 2;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the operator.
    Run(Flags),
}

#[derive(clap::Args)]
struct Flags {
    /// Wait for the lease before working.
    #[arg(long)]
    leader_elect: bool,
    /// Where the lease is.
    #[arg(long, default_value = "default")]
    leader_election_namespace: String,
    /// The configuration of the client, if not that of the environment.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Where /healthz and /readyz are.
    #[arg(long, default_value = "0.0.0.0:8081")]
    health_probe_bind_address: SocketAddr,
    /// Where /metrics is.
    #[arg(long, default_value = "0.0.0.0:8080")]
    metrics_bind_address: SocketAddr,
    /// Accepted because runtime-bench passes it; there is only one operator.
    #[arg(long = "operators", default_value = "memcached")]
    _operators: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Task::Run(flags) = Arguments::parse().task;
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        terminate.recv().await;
    }
    .boxed()
    .shared();
    let client = Client::try_from(config(&flags).await?)?;

    let reconciles = Arc::new(AtomicU64::new(0));
    tokio::spawn(axum::serve(listen(flags.health_probe_bind_address).await?, probes()).into_future());
    tokio::spawn(axum::serve(listen(flags.metrics_bind_address).await?, metrics(reconciles.clone())).into_future());
    let (events, queue) = mpsc::unbounded_channel();
    tokio::spawn(publish(Recorder::new(client.clone(), PEER.into()), queue));

    let (memcacheds, changes) = reflected(Api::<Memcached>::all(client.clone()), watcher::Config::default());
    let (deployments, of_deployments) = owned(&client);
    let (services, of_services) = owned(&client);
    let (disruption_budgets, of_budgets) = owned(&client);
    let (work, works) = watch::channel(false);
    let context = Context {
        client: client.clone(),
        memcacheds,
        deployments,
        services,
        disruption_budgets,
        works,
        stop: stop.clone(),
        events,
    };

    let (deployments, services) = (context.deployments.clone(), context.services.clone());
    let budgets = context.disruption_budgets.clone();
    // The Controller waits only for the store of its main kind. Not in the reconciler: a store wakes only the last one that waits.
    let filled = async move {
        let waits = (deployments.wait_until_ready(), services.wait_until_ready(), budgets.wait_until_ready());
        let _ = tokio::join!(waits.0, waits.1, waits.2); // fails only if the Controller has ended
    };

    // The generation leaves out changes of the status, which are the reconciler's own.
    let changes = changes.applied_objects().predicate_filter(predicates::generation, PredicateConfig::default());
    let controller = Controller::for_stream(changes, context.memcacheds.clone())
        .owns_stream(of_deployments)
        .owns_stream(of_services)
        .owns_stream(of_budgets)
        // Without `debounce`: it would add its time to every latency, and an unneeded reconcile sends no request.
        .with_config(ControllerConfig::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(stop)
        .run(reconcile, after_error, Arc::new(context))
        .for_each(|result| {
            match result {
                Ok(_) => {
                    reconciles.fetch_add(1, Ordering::Relaxed);
                }
                // The object was deleted, and then one of its children.
                Err(controller::Error::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(%error, "reconcile failed"),
            }
            ready(())
        });

    let mut elector = flags.leader_elect.then(|| Elector::new(client, &flags.leader_election_namespace));
    tokio::select! {
        () = controller => {}
        () = election(elector.as_mut(), filled, work) => bail!("the lease is lost"),
    }
    if let Some(elector) = &mut elector {
        elector.release().await;
    }
    Ok(())
}

async fn config(flags: &Flags) -> Result<Config> {
    let Some(file) = &flags.kubeconfig else { return Ok(Config::infer().await?) };
    Ok(Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &KubeConfigOptions::default()).await?)
}

/// Tells the reconciler when this process may work. Returns when it no longer may.
async fn election(elector: Option<&mut Elector>, filled: impl Future<Output = ()>, work: watch::Sender<bool>) {
    let begin = async {
        filled.await;
        work.send_replace(true);
        pending::<()>().await;
    };
    let Some(elector) = elector else { return begin.await };
    elector.acquire().await;
    tracing::info!("leads");
    tokio::select! {
        () = elector.renew() => {}
        () = begin => {}
    }
}

/// A store of all objects, without their managedFields, and the events that fill it.
fn reflected<K>(
    api: Api<K>,
    config: watcher::Config,
) -> (Store<K>, impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(api, config.streaming_lists())
        .default_backoff()
        .modify(|object: &mut K| object.meta_mut().managed_fields = None)
        .reflect(writer);
    (store, events)
}

/// A store of the children of one kind, and those that were changed or deleted.
fn owned<K>(client: &Client) -> (Store<K>, impl Stream<Item = Result<K, watcher::Error>> + Send + 'static + use<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let ours = watcher::Config::default().labels(&format!("{}={PEER}", children::MANAGED_BY));
    let (store, events) = reflected(Api::all(client.clone()), ours);
    // By resourceVersion, because a deletion need not change the generation.
    let changes = events.touched_objects().predicate_filter(predicates::resource_version, PredicateConfig::default());
    (store, changes)
}

/// Sends the events one after another, beside the reconciles, as client-go does.
async fn publish(recorder: Recorder, mut queue: mpsc::UnboundedReceiver<(Event, ObjectReference)>) {
    while let Some((event, object)) = queue.recv().await {
        if let Err(error) = recorder.publish(&event, &object).await {
            tracing::warn!(%error, "could not write an event");
        }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("could not listen on {address}"))
}

/// As in the peer in Go, both say only that the process answers.
fn probes() -> Router {
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(|| async { "ok" }))
}

/// kube has no metrics. This one has the name that runtime-bench reads.
fn metrics(reconciles: Arc<AtomicU64>) -> Router {
    let page = move || {
        let count = reconciles.load(Ordering::Relaxed);
        ready(format!("controller_runtime_reconcile_total{{controller=\"memcached\",result=\"success\"}} {count}\n"))
    };
    Router::new().route("/metrics", get(page))
}

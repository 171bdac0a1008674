//! Wires the controllers to their caches, client and clock. A real process (`run`) and an in-memory test (`harness`) share it.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use jiff::SignedDuration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    context::{Clock, Environment},
    controller::{Cause, Declared, Running},
    informer::InformerHealth,
    informers::Informers,
    metrics::{ChildMetrics, Metrics},
    operator::Background,
    random::Random,
    settings::Settings,
    workers::Workers,
};

/// The wired controllers and informers, for probes, metrics and workers. Clones share them.
#[derive(Clone)]
pub(crate) struct Assembly {
    pub(crate) controllers: Arc<Vec<Running>>,
    pub(crate) informers: Vec<Arc<InformerHealth>>,
}

/// The name of a task, and the task, which runs until the process stops.
pub(crate) type Named = (String, Pin<Box<dyn Future<Output = ()> + Send>>);

impl Assembly {
    /// Wires everything. The caller runs the returned tasks, which keep the caches up to date and wake objects, and starts the
    /// workers.
    pub(crate) fn new(
        declared: Vec<(Declared, ChildMetrics)>,
        background: Vec<Background>,
        environment: &Arc<Environment>,
        stop: &CancellationToken,
    ) -> (Self, Vec<Named>) {
        let settings = &environment.settings;
        let mut informers = Informers::new(environment.metrics.clone(), environment.random.clone());
        let built: Vec<_> =
            declared.into_iter().map(|(declared, children)| (declared.build)(&mut informers, children)).collect();
        let controllers: Arc<Vec<Running>> =
            Arc::new(built.into_iter().map(|built| built.start(environment.clone())).collect());
        let (informers, mut tasks) = informers.start(&environment.client, &settings.watch_namespaces, stop);
        for Background { name, start } in background {
            tasks.push((name.to_owned(), start(stop.clone())));
        }
        for (index, controller) in controllers.iter().enumerate() {
            let concurrency =
                settings.max_concurrent_reconciles.of(&controller.kind, &controller.group, controller.workers);
            environment.metrics.prepare(&controller.name, concurrency);
            let task =
                resync(controllers.clone(), index, settings.resync_interval, environment.random.clone(), stop.clone());
            tasks.push((format!("resync of {}", controller.kind), Box::pin(task)));
            // An optional kind may be installed later. All other kinds are there when the workers start.
            let optional = controller.optional.iter().map(|health| (health, true));
            for (health, arrives) in optional.chain([(&controller.primary, false)]) {
                let task = whenever_back(controllers.clone(), index, health.clone(), arrives, stop.clone());
                tasks.push((format!("{} that come back, for {}", health.kind, controller.kind), Box::pin(task)));
            }
        }
        let task = follow_clock(controllers.clone(), environment.clock.clone(), stop.clone());
        tasks.push(("jumps of the clock".to_owned(), Box::pin(task)));
        (Self { controllers, informers }, tasks)
    }

    /// Returns the workers of all controllers.
    pub(crate) fn workers(&self, settings: &Settings) -> Workers {
        Workers {
            controllers: self.controllers.clone(),
            informers: self.informers.clone(),
            concurrency: settings.max_concurrent_reconciles.clone(),
            graceful_shutdown: settings.graceful_shutdown_timeout,
        }
    }

    /// Updates the metrics that are computed on a scrape.
    pub(crate) fn show(&self, metrics: &Metrics) {
        for informer in &self.informers {
            metrics.show(informer);
        }
        for controller in self.controllers.iter() {
            controller.queue.len(); // so that the depth counts keys whose delay has run out
            metrics.show_queue(&controller.name, controller.queue.unfinished());
            (controller.scrape)(metrics);
        }
    }
}

async fn resync(
    controllers: Arc<Vec<Running>>,
    index: usize,
    interval: Duration,
    random: Random,
    stop: CancellationToken,
) {
    loop {
        // ± 10 %, so that controllers do not all resync at once.
        let wait = interval.mul_f64(random.fraction().mul_add(0.2, 0.9));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {
                tracing::debug!(controller = &*controllers[index].name, "Resync");
                (controllers[index].wake_all)(&Cause::Resync);
            }
        }
    }
}

/// The interval between two checks of the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(10);
/// A correction of the clock by no more than this is not a jump.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// Wakes all objects whenever the time of day jumps: when an administrator sets it, or when a suspended machine resumes. An
/// object that waits for a time of day needs this, because the queue waits by a monotonic clock.
async fn follow_clock(controllers: Arc<Vec<Running>>, clock: Clock, stop: CancellationToken) {
    loop {
        let (time, begun) = (clock(), Instant::now());
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CLOCK_INTERVAL) => {}
        }
        let passed = SignedDuration::try_from(begun.elapsed()).unwrap_or(SignedDuration::MAX);
        let ahead = clock().duration_since(time) - passed;
        if ahead.abs() > CLOCK_TOLERANCE {
            tracing::info!(seconds = ahead.as_secs_f64(), "The clock has jumped; all objects are reconciled");
            controllers.iter().for_each(|controller| (controller.wake_all)(&Cause::Clock));
        }
    }
}

/// Wakes all objects whenever a kind becomes available again. So an outage ends for all of them at once, and not for each
/// at the end of its back-off, which has grown as long as the outage. With `arrives` the first time counts too.
async fn whenever_back(
    controllers: Arc<Vec<Running>>,
    index: usize,
    health: Arc<InformerHealth>,
    arrives: bool,
    stop: CancellationToken,
) {
    let come_and_go = async {
        health.until(true).await;
        if arrives {
            (controllers[index].wake_all)(&Cause::Resync);
        }
        loop {
            health.until(false).await;
            health.until(true).await;
            tracing::debug!(controller = &*controllers[index].name, kind = health.kind, "Back");
            (controllers[index].wake_all)(&Cause::Resync);
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = come_and_go => {}
    }
}

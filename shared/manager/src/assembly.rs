//! The controllers wired to their caches and to the outside world: what a process and a test of one have in common.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use jiff::SignedDuration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    context::{Clock, Outside},
    controller::{Cause, Declared, Running},
    informer::InformerHealth,
    informers::Informers,
    metrics::{ChildMetrics, Metrics},
    operator::Background,
    random::Random,
    settings::Settings,
    workers::Workers,
};

/// What works, as probes, metrics and workers see it. A clone is the same.
#[derive(Clone)]
pub(crate) struct Assembly {
    pub(crate) controllers: Arc<Vec<Running>>,
    pub(crate) informers: Vec<Arc<InformerHealth>>,
}

/// A task that runs until the stop, and its name.
pub(crate) type Named = (String, Pin<Box<dyn Future<Output = ()> + Send>>);

impl Assembly {
    /// Wires everything. What keeps it going is in the tasks; the workers are the caller's to start.
    pub(crate) fn new(
        declared: Vec<(Declared, ChildMetrics)>,
        background: Vec<Background>,
        outside: &Arc<Outside>,
        stop: &CancellationToken,
    ) -> (Self, Vec<Named>) {
        let settings = &outside.settings;
        let mut informers = Informers::new(outside.metrics.clone(), outside.random.clone());
        let built: Vec<_> =
            declared.into_iter().map(|(declared, children)| (declared.build)(&mut informers, children)).collect();
        let controllers: Arc<Vec<Running>> =
            Arc::new(built.into_iter().map(|built| built.start(outside.clone())).collect());
        let (informers, mut tasks) = informers.start(&outside.client, &settings.watch_namespaces, stop);
        for Background { name, start } in background {
            tasks.push((name.to_owned(), start(stop.clone())));
        }
        for (index, controller) in controllers.iter().enumerate() {
            let concurrency =
                settings.max_concurrent_reconciles.of(&controller.kind, &controller.group, controller.workers);
            outside.metrics.prepare(&controller.name, concurrency);
            let task =
                resync(controllers.clone(), index, settings.resync_interval, outside.random.clone(), stop.clone());
            tasks.push((format!("resync of {}", controller.kind), Box::pin(task)));
            // What is declared optional may come later; everything else is there when work begins.
            let optional = controller.optional.iter().map(|health| (health, true));
            for (health, arrives) in optional.chain([(&controller.primary, false)]) {
                let task = whenever_back(controllers.clone(), index, health.clone(), arrives, stop.clone());
                tasks.push((format!("{} that come back, for {}", health.kind, controller.kind), Box::pin(task)));
            }
        }
        let task = follow_clock(controllers.clone(), outside.clock.clone(), stop.clone());
        tasks.push(("jumps of the clock".to_owned(), Box::pin(task)));
        (Self { controllers, informers }, tasks)
    }

    /// The workers of all controllers.
    pub(crate) fn workers(&self, settings: &Settings) -> Workers {
        Workers {
            controllers: self.controllers.clone(),
            informers: self.informers.clone(),
            concurrency: settings.max_concurrent_reconciles.clone(),
            graceful_shutdown: settings.graceful_shutdown_timeout,
        }
    }

    /// Brings up to date what is computed on a scrape.
    pub(crate) fn show(&self, metrics: &Metrics) {
        for informer in &self.informers {
            metrics.show(informer);
        }
        for controller in self.controllers.iter() {
            controller.queue.len(); // counts keys whose delay has run out
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

/// Between two looks at the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(10);
/// A clock that is corrected by less does not jump.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// Looks at all objects whenever the time of day jumps, as it does when it is set, and when a machine goes on that was
/// suspended: who waits for a time of day waits by a clock that does not jump.
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
            tracing::info!(seconds = ahead.as_secs_f64(), "The clock has jumped; all objects are looked at");
            controllers.iter().for_each(|controller| (controller.wake_all)(&Cause::Clock));
        }
    }
}

/// Looks at all objects whenever a kind is there that was not: so an outage ends for all of them at once, not for each
/// when its back-off, which has grown as long as the outage, is over. `arrives` counts the first time too.
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

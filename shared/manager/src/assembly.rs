//! Wires the controllers to their caches, client and clock. A real process ([`run`](crate::run)) and an in-memory test
//! ([`harness`](crate::harness)) differ only in the [`Connections`] that they bring.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use cache::InformerHealth;
use kube::Client;
use leader_election::{Config, Elector, Health};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, Jumps},
    context::Environment,
    controller::Running,
    election::LeadershipMetrics,
    events::Recorder,
    leading::Leading,
    metrics::Metrics,
    namespaces,
    operator::{Background, Manager},
    random::Random,
    settings::Settings,
    wake::Cause,
    workers::Workers,
};

/// The wired controllers and informers, for probes, metrics and workers. Clones share them.
#[derive(Clone)]
pub(crate) struct Assembly {
    pub(crate) controllers: Arc<Vec<Running>>,
    pub(crate) informers: Vec<Arc<InformerHealth>>,
}

/// What the controllers need from outside: a process takes it from the machine and the network, a test from a model.
pub(crate) struct Connections {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) metrics: Arc<Metrics>,
    /// The reporting instance of events.
    pub(crate) instance: String,
    /// The elector and its configuration; `None` where there is no election.
    pub(crate) elector: Option<(Elector, Config)>,
}

/// Everything that the caller has to run, and how to end it.
pub(crate) struct Wired {
    pub(crate) assembly: Assembly,
    /// The tasks that keep the caches up to date and wake objects, with their names.
    pub(crate) tasks: Vec<(String, Task)>,
    /// Sends events until [`finished`](Self::finished) is cancelled, and then those that are still in the buffer.
    pub(crate) events: Task,
    /// Runs the workers until `stop` is cancelled; with an election, whenever this process leads.
    pub(crate) workers: Task,
    /// The health of the election, if there is one.
    pub(crate) election: Option<Health>,
    pub(crate) stop: CancellationToken,
    /// To be cancelled when the workers have ended: until then, they need the caches, and emit events.
    pub(crate) finished: CancellationToken,
}

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Wires everything that `manager` has collected. Runs nothing yet.
pub(crate) fn wire(manager: Manager, connections: Connections) -> Wired {
    let Connections { client, clock, random, metrics, instance, elector } = connections;
    let (stop, finished) = (CancellationToken::new(), CancellationToken::new());
    let (recorder, events) =
        Recorder::new(client.clone(), instance, metrics.clone(), clock.clone(), random.clone(), finished.clone());
    let elector = elector.map(|(elector, config)| {
        metrics.leader_status.with_label_values(&[&config.name]).set(0);
        elector.observed_by(LeadershipMetrics { metrics: metrics.clone(), recorder: recorder.clone(), config })
    });
    let leading = if elector.is_some() { Leading::elected() } else { Leading::default() };
    let settings = manager.settings().clone();
    let environment = Environment {
        client,
        clock,
        random,
        recorder,
        metrics,
        settings,
        leading: leading.clone(),
        guarded: Mutex::default(),
    };
    let environment = Arc::new(environment);
    for token in &manager.tokens {
        token.connect(&environment);
    }
    for certificate in &manager.certificates {
        certificate.connect(&environment);
    }
    let (assembly, tasks) = Assembly::new(manager, &environment, &stop, &finished);
    let election = elector.as_ref().map(Elector::health);
    let workers = Box::pin(work(assembly.workers(&environment.settings), elector, leading, stop.clone()));
    Wired { assembly, tasks, events: Box::pin(events), workers, election, stop, finished }
}

/// Runs the workers at once or, with an election, whenever this process leads.
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

impl Assembly {
    /// Returns the controllers and informers, and the tasks that keep the caches up to date and wake objects.
    fn new(
        manager: Manager,
        environment: &Arc<Environment>,
        stop: &CancellationToken,
        finished: &CancellationToken,
    ) -> (Self, Vec<(String, Task)>) {
        let settings = &environment.settings;
        let (mut informers, select) = namespaces::choose(settings);
        let built: Vec<_> = manager
            .controllers
            .into_iter()
            .map(|(declared, children)| (declared.build)(environment, &mut informers, children))
            .collect();
        let (controllers, streams): (Vec<Running>, Vec<_>) =
            built.into_iter().map(|built| built.start(environment.clone())).unzip();
        let controllers = Arc::new(controllers);
        let (informers, mut tasks) = informers.start(&environment.client, environment.random.rng(), finished);
        tasks.extend(select.map(|task| ("selector of namespaces".to_owned(), until(task, stop))));
        for (controller, streams) in controllers.iter().zip(streams) {
            let name = format!("stream that wakes objects of kind {}", controller.kind);
            tasks.extend(streams.into_iter().map(|stream| (name.clone(), until(stream, stop))));
        }
        for Background { name, start } in manager.background {
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
                let task = resync_on_recovery(controllers.clone(), index, health.clone(), arrives, stop.clone());
                tasks.push((format!("{} that come back, for {}", health.kind, controller.kind), Box::pin(task)));
            }
            let is_read = |health: &&Arc<InformerHealth>| {
                controller.needs.contains(&health.resource)
                    || controller.optional.iter().any(|optional| Arc::ptr_eq(optional, health))
            };
            for health in informers.iter().filter(is_read) {
                let task = wake_waiting(controllers.clone(), index, health.clone(), stop.clone());
                tasks.push((format!("lists of {}, for {}", health.kind, controller.kind), Box::pin(task)));
            }
        }
        let task = watch_clock(controllers.clone(), environment.clock.clone(), stop.clone());
        tasks.push(("jumps of the clock".to_owned(), Box::pin(task)));
        (Self { controllers, informers }, tasks)
    }

    /// Returns the workers of all controllers.
    fn workers(&self, settings: &Settings) -> Workers {
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
            metrics.show_informer(&informer.figures());
        }
        for controller in self.controllers.iter() {
            controller.queue.update_depth();
            metrics.show_queue(&controller.name, controller.queue.unfinished());
            metrics.show_waiting(&controller.kind, controller.count_waiting());
            (controller.scrape)(metrics);
        }
    }
}

/// Returns a task that ends with `work` or when `stop` is cancelled.
fn until(work: Task, stop: &CancellationToken) -> Task {
    let stop = stop.clone();
    Box::pin(async move {
        stop.run_until_cancelled(work).await;
    })
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
                controllers[index].resync(interval);
            }
        }
    }
}

/// The interval between two checks of the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(10);

/// Wakes all objects whenever the time of day jumps: when an administrator sets it, or when a suspended machine resumes. An
/// object that waits for a time of day needs this, because the queue waits by a monotonic clock.
async fn watch_clock(controllers: Arc<Vec<Running>>, clock: Clock, stop: CancellationToken) {
    let mut jumps = Jumps::after(clock(), Instant::now());
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CLOCK_INTERVAL) => {}
        }
        if let Some(ahead) = jumps.look(clock(), Instant::now()) {
            tracing::info!(seconds = ahead.as_secs_f64(), "The clock has jumped; all objects are reconciled");
            controllers.iter().for_each(|controller| controller.enqueue_all(&Cause::Clock));
        }
    }
}

/// Wakes all objects whenever a kind becomes available again. So an outage ends for all of them at once, and not for each
/// at the end of its back-off, which has grown as long as the outage. With `arrives` the first time counts too. With several
/// watched namespaces this holds for each on its own: another may stay unavailable for ever, and one after another comes back.
async fn resync_on_recovery(
    controllers: Arc<Vec<Running>>,
    index: usize,
    health: Arc<InformerHealth>,
    arrives: bool,
    stop: CancellationToken,
) {
    let come_and_go = async {
        let mut known = Vec::new();
        loop {
            let namespaces = health.until_back(&mut known, arrives).await;
            tracing::debug!(controller = &*controllers[index].name, kind = health.kind, ?namespaces, "Back");
            controllers[index].enqueue_in(&namespaces, &Cause::Served);
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = come_and_go => {}
    }
}

/// Wakes the objects that wait for a list, whenever an informer has completed one, or has found out that it cannot.
async fn wake_waiting(
    controllers: Arc<Vec<Running>>,
    index: usize,
    health: Arc<InformerHealth>,
    stop: CancellationToken,
) {
    let heed_lists = async {
        let mut known = 0;
        loop {
            known = health.until_news(known).await;
            controllers[index].wake_waiting();
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = heed_lists => {}
    }
}

//! Runs an operator without a process: no signals, no ports, any client, any clock. It is for tests, which pause its time and
//! check its requests to a model of the API server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clap::FromArgMatches;
use jiff::Timestamp;
use kube::Client;
use leader_election::{Config, Elector};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    assembly::Assembly,
    context::{Clock, Environment},
    events::Recorder,
    leading::{Leading, Tell, election},
    metrics::Metrics,
    operator::{Manager, Operator},
    random::Random,
    run::work,
    settings::Settings,
};

/// The running controllers of an operator. Dropping it is a crash.
pub struct Harness {
    assembly: Assembly,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    flushed: CancellationToken,
    workers: JoinSet<()>,
    tasks: JoinSet<()>,
}

/// tokio's time, which tests pause.
struct TokioClock {
    zero: Instant,
    wall: Clock,
}

impl leader_election::Clock for TokioClock {
    fn now(&self) -> Duration {
        self.zero.elapsed()
    }

    fn wall(&self) -> Timestamp {
        (self.wall)()
    }
}

impl Harness {
    /// Starts the operator as `run` with these flags does. Must be called within a tokio runtime.
    ///
    /// # Panics
    ///
    /// When the flags are wrong.
    pub fn start(
        operator: &dyn Operator,
        flags: &[&str],
        client: Client,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        // Each start gets its own seed: replicas must differ in their identities, which are random numbers.
        static STARTS: AtomicU64 = AtomicU64::new(0);
        Self::start_with_seed(operator, flags, client, clock, STARTS.fetch_add(1, Ordering::Relaxed))
    }

    /// Like [`start`](Self::start), with every random number drawn from this seed. Two replicas need different seeds.
    ///
    /// # Panics
    ///
    /// When the flags are wrong.
    pub fn start_with_seed(
        operator: &dyn Operator,
        flags: &[&str],
        client: Client,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
        seed: u64,
    ) -> Self {
        let random = Random::with_seed(seed);
        let command = crate::entry::flags(&[operator]).no_binary_name(true);
        let matches = command.try_get_matches_from(flags).unwrap_or_else(|error| panic!("{error}"));
        let settings = Settings::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{error}"));
        let mut manager = Manager::new(settings.clone(), matches);
        manager.take(operator);

        let (stop, flushed) = (CancellationToken::new(), CancellationToken::new());
        let metrics = Arc::new(Metrics::new(manager.metrics()));
        let clock: Clock = Arc::new(clock);
        let (recorder, events) = Recorder::new(
            client.clone(),
            operator.name().to_owned(),
            metrics.clone(),
            clock.clone(),
            random.clone(),
            flushed.clone(),
        );
        let config = election(&settings).unwrap_or_else(|error| panic!("{error}"));
        let elector = config.map(|config| {
            let config = Config { identity: format!("{}_{}", operator.name(), random.uuid()), ..config };
            let tell = Tell { metrics: metrics.clone(), recorder: recorder.clone(), config: config.clone() };
            let time = TokioClock { zero: Instant::now(), wall: clock.clone() };
            let elector = Elector::new(client.clone(), config).unwrap_or_else(|error| panic!("{error}"));
            elector.observed_by(tell).with_clock(Arc::new(time)).with_seed(random.number())
        });
        let leading = if elector.is_some() { Leading::elected() } else { Leading::default() };
        let environment = Arc::new(Environment {
            client,
            clock,
            random,
            recorder,
            metrics: metrics.clone(),
            settings: settings.clone(),
            leading: leading.clone(),
        });
        for token in &manager.tokens {
            token.connect(&environment);
        }
        let (assembly, named) = Assembly::new(manager.controllers, manager.background, &environment, &stop);
        let (mut workers, mut tasks) = (JoinSet::new(), JoinSet::new());
        tasks.spawn(events);
        for (_, task) in named {
            tasks.spawn(task);
        }
        workers.spawn(work(assembly.workers(&settings), elector, leading, stop.clone()));
        Self { assembly, metrics, stop, flushed, workers, tasks }
    }

    /// Returns what a scrape of the metrics would return.
    pub fn scrape(&self) -> String {
        self.metrics.scrape(|| self.assembly.show(&self.metrics))
    }

    /// Stops as a process does on SIGTERM.
    pub async fn stop(&mut self) {
        self.stop.cancel();
        while self.workers.join_next().await.is_some() {}
        self.flushed.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Ends like a process that is killed: after this returns, it sends no more requests.
    pub async fn crash(mut self) {
        self.workers.shutdown().await;
        self.tasks.shutdown().await;
    }
}

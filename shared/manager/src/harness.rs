//! Runs operators without a process: no signals, no ports, any client, any clock. It is for tests, which pause their time and
//! check their requests to a model of the API server.

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
use tracing::Instrument;

use crate::{
    assembly::{Assembly, Connections, wire},
    clock::Clock,
    election::election,
    metrics::Metrics,
    operator::{Manager, Operator, run_command},
    random::Random,
    settings::Settings,
};

/// The running controllers of the operators of one process. Dropping it is a crash.
pub struct Harness {
    assembly: Assembly,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    finished: CancellationToken,
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
        Self::start_with_seed(&[operator], flags, client, clock, STARTS.fetch_add(1, Ordering::Relaxed))
    }

    /// Like [`start`](Self::start), for all operators of one process, with every random number drawn from this seed. Two
    /// replicas need different seeds. All tasks of the process are in the tracing span of the caller, which tells processes
    /// apart.
    ///
    /// # Panics
    ///
    /// When the flags are wrong.
    pub fn start_with_seed(
        operators: &[&dyn Operator],
        flags: &[&str],
        client: Client,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
        seed: u64,
    ) -> Self {
        let random = Random::with_seed(seed);
        let command = run_command(operators).no_binary_name(true);
        let matches = command.try_get_matches_from(flags).unwrap_or_else(|error| panic!("{error}"));
        let settings = Settings::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{error}"));
        let mut manager = Manager::new(settings.clone(), matches);
        for operator in operators {
            manager.take(*operator);
        }
        let instance = operators.iter().map(|operator| operator.name()).collect::<Vec<_>>().join("+");

        let metrics = Arc::new(Metrics::new(manager.metrics()));
        let clock: Clock = Arc::new(clock);
        let config = election(&settings).unwrap_or_else(|error| panic!("{error}"));
        let elector = config.map(|config| {
            let config = Config { identity: format!("{instance}_{}", random.uuid()), ..config };
            let time = TokioClock { zero: Instant::now(), wall: clock.clone() };
            let elector = Elector::new(client.clone(), config.clone()).unwrap_or_else(|error| panic!("{error}"));
            (elector.with_clock(Arc::new(time)).with_seed(random.number()), config)
        });
        let connections = Connections { client, clock, random, metrics: metrics.clone(), instance, elector };
        let wired = wire(manager, connections);
        let (mut workers, mut tasks) = (JoinSet::new(), JoinSet::new());
        tasks.spawn(wired.events.in_current_span());
        for (_, task) in wired.tasks {
            tasks.spawn(task.in_current_span());
        }
        workers.spawn(wired.workers.in_current_span());
        Self { assembly: wired.assembly, metrics, stop: wired.stop, finished: wired.finished, workers, tasks }
    }

    /// Returns what a scrape of the metrics would return.
    pub fn scrape(&self) -> String {
        self.metrics.scrape(|| self.assembly.show(&self.metrics))
    }

    /// Stops as a process does on SIGTERM.
    pub async fn stop(&mut self) {
        self.stop.cancel();
        while self.workers.join_next().await.is_some() {}
        self.finished.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Ends like a process that is killed: after this returns, it sends no more requests.
    pub async fn crash(mut self) {
        self.workers.shutdown().await;
        self.tasks.shutdown().await;
    }
}

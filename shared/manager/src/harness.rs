//! An operator at work without a process: no signals, no ports, any client, any clock. For tests, which stop its time and
//! look at what it asks of a model of the API server.

use std::sync::Arc;

use clap::FromArgMatches;
use jiff::Timestamp;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    assembly::Assembly,
    context::Outside,
    events::Recorder,
    leading::Leading,
    metrics::Metrics,
    operator::{Manager, Operator},
    settings::Settings,
};

/// An operator's controllers at work. Dropping it is a crash.
pub struct Harness {
    assembly: Assembly,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    flushed: CancellationToken,
    workers: JoinSet<()>,
    tasks: JoinSet<()>,
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
        let command = crate::entry::flags(&[operator]).no_binary_name(true);
        let matches = command.try_get_matches_from(flags).unwrap_or_else(|error| panic!("{error}"));
        let settings = Settings::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{error}"));
        let mut manager = Manager::new(settings.clone(), matches);
        manager.take(operator);

        let (stop, flushed) = (CancellationToken::new(), CancellationToken::new());
        let metrics = Arc::new(Metrics::new(manager.metrics()));
        let (recorder, events) =
            Recorder::new(client.clone(), operator.name().to_owned(), metrics.clone(), flushed.clone());
        let outside = Arc::new(Outside {
            client,
            clock: Arc::new(clock),
            random: Arc::new(|| 0.5),
            recorder,
            metrics: metrics.clone(),
            settings: settings.clone(),
            leading: Leading::default(),
        });
        let (assembly, named) = Assembly::new(manager.controllers, manager.background, &outside, &stop);
        let (mut workers, mut tasks) = (JoinSet::new(), JoinSet::new());
        tasks.spawn(events);
        for (_, task) in named {
            tasks.spawn(task);
        }
        workers.spawn(assembly.workers(&settings).run(None, stop.clone()));
        Self { assembly, metrics, stop, flushed, workers, tasks }
    }

    /// What a scrape of the metrics would be answered.
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

    /// Ends as a process does that is killed: when this returns, nothing is asked any more.
    pub async fn crash(mut self) {
        self.workers.shutdown().await;
        self.tasks.shutdown().await;
    }
}

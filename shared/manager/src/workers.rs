//! The workers of all controllers: from filled caches until a signal, or until the leadership is lost.

use std::{sync::Arc, time::Duration};

use leader_election::Leadership;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use workqueue::Shutdown;

use crate::{controller::Running, informer::InformerHealth, settings::Concurrency};

/// Everything that one leadership's work needs. A clone starts the same work again.
#[derive(Clone)]
pub(crate) struct Workers {
    pub(crate) controllers: Arc<Vec<Running>>,
    pub(crate) informers: Vec<Arc<InformerHealth>>,
    pub(crate) concurrency: Concurrency,
    pub(crate) graceful_shutdown: Duration,
}

impl Workers {
    /// Works until `stop`, then lets running reconciles finish; or until the leadership is lost, then cancels them.
    ///
    /// Returns early only if a worker ends by itself, which none should.
    pub(crate) async fn run(self, leadership: Option<Leadership>, stop: CancellationToken) {
        let mut running = JoinSet::new();
        for index in 0..self.controllers.len() {
            running.spawn(self.clone().work(index, stop.clone()));
        }
        let lost = async {
            match &leadership {
                Some(leadership) => leadership.lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = lost => {
                tracing::warn!("Leadership is lost: running reconciles are cancelled");
                running.shutdown().await;
            }
            () = stop.cancelled() => self.finish(running).await,
            _ = running.join_next(), if !self.controllers.is_empty() => {}
        }
    }

    /// Waits for the caches of one controller, then runs its workers.
    async fn work(self, index: usize, stop: CancellationToken) {
        let controller = &self.controllers[index];
        let needed = self.informers.iter().filter(|informer| controller.needs.contains(&informer.resource));
        let synced = futures::future::join_all(needed.map(|informer| informer.until(true)));
        tokio::select! {
            _ = synced => {}
            () = stop.cancelled() => return,
        }
        let workers = self.concurrency.of(&controller.kind, &controller.group, controller.workers);
        tracing::info!(controller = &*controller.name, workers, "Workers started");
        let mut set = JoinSet::new();
        for _ in 0..workers {
            set.spawn((controller.work)());
        }
        while set.join_next().await.is_some() {}
    }

    async fn finish(&self, mut running: JoinSet<()>) {
        for controller in self.controllers.iter() {
            controller.queue.shutdown(Shutdown::Drop);
        }
        let finished = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(self.graceful_shutdown, finished).await.is_err() {
            tracing::warn!("Some reconciles did not finish in time and are cancelled");
            running.shutdown().await;
        }
    }
}

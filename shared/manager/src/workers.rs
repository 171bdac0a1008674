//! Runs the workers of all controllers: from filled caches until a signal, or until the leadership is lost.

use std::{sync::Arc, time::Duration};

use cache::InformerHealth;
use leader_election::Leadership;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use workqueue::Shutdown;

use crate::{controller::Running, settings::Concurrency};

/// Everything that the work under one leadership needs. A clone can start the same work again.
#[derive(Clone)]
pub(crate) struct Workers {
    pub(crate) controllers: Arc<Vec<Running>>,
    pub(crate) informers: Vec<Arc<InformerHealth>>,
    pub(crate) concurrency: Concurrency,
    pub(crate) graceful_shutdown: Duration,
}

impl Workers {
    /// Works until `stop`, and then lets running reconciles finish. If the leadership is lost, cancels them, also after the stop.
    ///
    /// Returns early only if a worker ends by itself, which is a bug.
    pub(crate) async fn run(self, leadership: Option<Leadership>, stop: CancellationToken) {
        let (mut running, cancelled) = (JoinSet::new(), CancellationToken::new());
        for index in 0..self.controllers.len() {
            let work = self.clone().work(index, stop.clone(), cancelled.clone());
            running.spawn(work.in_current_span());
        }
        let lost = async {
            match &leadership {
                Some(leadership) => leadership.lost().await,
                None => std::future::pending().await,
            }
        };
        let mut lost = std::pin::pin!(lost);
        let warn = || tracing::warn!("Leadership is lost: running reconciles are cancelled");
        tokio::select! {
            biased;
            () = &mut lost => {
                warn();
                cancelled.cancel();
                if !self.have_ended(&mut running).await {
                    tracing::warn!("Some reconciles block their threads and are not cancelled yet");
                }
                self.controllers.iter().for_each(Running::demote);
            }
            () = stop.cancelled() => {
                let finished = self.finish(running);
                tokio::select! {
                    biased;
                    () = lost => warn(),
                    () = finished => {}
                }
            }
            _ = running.join_next(), if !self.controllers.is_empty() => {}
        }
    }

    /// Waits until each cache of one controller is synced in some namespace, then runs its workers. Each object waits until the
    /// caches cover its own namespace. So a namespace that cannot be listed does not hold up the others. When it returns because it
    /// is `cancelled`, nothing of a reconcile is left.
    async fn work(self, index: usize, stop: CancellationToken, cancelled: CancellationToken) {
        let controller = &self.controllers[index];
        let needed = self.informers.iter().filter(|informer| controller.needs.contains(&informer.resource));
        let synced = futures::future::join_all(needed.map(|informer| informer.until_partly_synced()));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = cancelled.cancelled() => return,
            _ = synced => {}
        }
        let workers = self.concurrency.of(&controller.kind, &controller.group, controller.workers);
        tracing::info!(controller = &*controller.name, workers, "Workers started");
        let mut set = JoinSet::new();
        for _ in 0..workers {
            set.spawn((controller.work)().in_current_span());
        }
        loop {
            let ended = tokio::select! {
                biased;
                () = cancelled.cancelled() => return set.shutdown().await, // a set that is only dropped ends its tasks later
                ended = set.join_next() => ended,
            };
            match ended {
                Some(Ok(())) => {}
                // A worker that dies ends the process. Otherwise fewer and fewer workers would be left for its kind.
                Some(Err(error)) => {
                    tracing::error!(controller = &*controller.name, %error, "A worker has died");
                    return;
                }
                None => return,
            }
        }
    }

    async fn finish(&self, mut running: JoinSet<()>) {
        for controller in self.controllers.iter() {
            controller.queue.shutdown(Shutdown::Drop);
        }
        if !self.have_ended(&mut running).await {
            tracing::warn!("Some reconciles did not finish in time and are cancelled");
            running.shutdown().await;
        }
    }

    /// Waits until all have ended, for as long as a shutdown may take. Returns whether they have.
    async fn have_ended(&self, running: &mut JoinSet<()>) -> bool {
        let ended = async { while running.join_next().await.is_some() {} };
        tokio::time::timeout(self.graceful_shutdown, ended).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use leader_election::{BootClock, Epoch};
    use workqueue::WorkQueue;

    use super::*;

    /// Returns a controller whose first worker dies at once. The others wait for ever.
    fn dying() -> Running {
        let begun = AtomicUsize::new(0);
        Running::with(WorkQueue::default(), move || {
            let first = begun.fetch_add(1, Ordering::Relaxed) == 0;
            Box::pin(async move {
                assert!(!first, "this test lets the first worker die");
                std::future::pending::<()>().await;
            })
        })
    }

    #[tokio::test(start_paused = true)]
    async fn death_of_one_worker_stops_all_workers() {
        let workers = Workers {
            controllers: Arc::new(vec![dying()]),
            informers: Vec::new(),
            concurrency: "3".parse().expect("a number"),
            graceful_shutdown: Duration::from_secs(1),
        };
        let work = workers.run(None, CancellationToken::new());
        assert!(tokio::time::timeout(Duration::from_hours(1), work).await.is_ok(), "the work goes on");
    }

    /// A runtime with several threads drops aborted tasks later.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_of_a_reconcile_is_left_when_its_controller_is_demoted() {
        let held = Arc::new(());
        let (guard, left) = (held.clone(), Arc::new(AtomicUsize::new(usize::MAX)));
        let at_demotion = left.clone();
        let work = move || -> Pin<Box<dyn Future<Output = ()> + Send>> {
            let guard = guard.clone();
            Box::pin(async move {
                std::future::pending::<()>().await;
                drop(guard);
            })
        };
        let working = Running::with(WorkQueue::default(), work)
            .on_demotion(move || at_demotion.store(Arc::strong_count(&held), Ordering::Relaxed));
        let workers = Workers {
            controllers: Arc::new(vec![working]),
            informers: Vec::new(),
            concurrency: "64".parse().expect("a number"),
            graceful_shutdown: Duration::from_secs(30),
        };
        let epoch = Epoch { lease_uid: "uid".into(), transitions: 3 };
        let leadership = Leadership::scripted(epoch, Arc::new(BootClock), Duration::from_millis(50));
        workers.run(Some(leadership), CancellationToken::new()).await;
        assert_eq!(left.load(Ordering::Relaxed), 2, "only those of this test");
    }
}

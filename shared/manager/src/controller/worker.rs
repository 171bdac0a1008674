//! One worker: takes a key, runs the reconciler with everything that protects the others from it, and says what is next.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;
use workqueue::{Item, Outcome, WorkQueue};

use super::{Action, Reconcile};
use crate::{
    conditions::{Halt, Problem},
    context::{Context, Root, Scope},
    error::{Error, Retry},
    events::EventType,
    object::ObjectKey,
};

/// What the workers of one controller share.
pub(super) struct Worker<K: Root, F> {
    pub(super) scope: Arc<Scope<K>>,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) reconciler: F,
}

/// How one reconcile ended, for the metrics.
enum Ended {
    Success(Option<Duration>),
    Failed(Retry),
}

impl<K: Root, F: Reconcile<K>> Worker<K, F> {
    /// Until the queue is shut down.
    pub(super) async fn work(self: Arc<Self>) {
        while let Some(item) = self.queue.get().await {
            let metrics = &self.scope.outside.metrics;
            let controller = [&*self.scope.names.app];
            let active = metrics.active_workers.with_label_values(&controller);
            active.inc();
            let started = Instant::now();
            let span = tracing::info_span!(
                "reconcile",
                controller = %self.scope.names.app,
                controllerGroup = %self.scope.names.group,
                controllerKind = %self.scope.names.kind,
                namespace = %item.key().namespace,
                name = %item.key().name,
                reconcileID = %uuid::Uuid::new_v4(),
            );
            let ended = self.attempt(&item).instrument(span).await;
            metrics.reconcile_seconds.with_label_values(&controller).observe(started.elapsed().as_secs_f64());
            active.dec();
            let (result, outcome) = match ended {
                Ended::Success(None) => ("success", Outcome::Success),
                Ended::Success(Some(after)) => ("requeue_after", Outcome::RequeueAfter(after)),
                Ended::Failed(Retry::Backoff) => ("error", Outcome::Failure),
                Ended::Failed(Retry::After(wait)) => ("error", Outcome::RetryAfter(wait)),
                Ended::Failed(Retry::WhenChanged) => ("error", Outcome::WaitForChange),
            };
            metrics.reconcile_total.with_label_values(&[controller[0], result]).inc();
            item.done(outcome);
        }
    }

    async fn attempt(&self, item: &Item<ObjectKey>) -> Ended {
        let key = item.key();
        let Some(object) = self.scope.primary.store.get(key) else {
            self.scope.forget(key);
            return Ended::Success(None);
        };
        if object.meta().deletion_timestamp.is_some() {
            return Ended::Success(None); // the garbage collector removes the children
        }
        let context = Context::new(self.scope.clone(), object.clone(), key.clone());
        let result = self.guarded(object, &context).await;
        let remains = context.finish();
        match result {
            Ok(_) if remains.unfinished => Ended::Failed(Retry::Backoff),
            Ok(action) => Ended::Success(soonest(action, remains.wake, context.now())),
            Err(error) => self.failed(&error, item, &context),
        }
    }

    /// Runs the reconciler with everything that protects the others from it: a deadline, and a net for panics.
    async fn guarded(&self, object: Arc<K>, context: &Context<K>) -> Result<Action, Error> {
        let paused = format!("{}/paused", self.scope.names.group);
        if context.annotation(&paused) == Some("true") {
            context.halt(&Halt::Paused(format!("Reconciliation is paused by annotation {paused}"))).await?;
            return Ok(Action::Done);
        }
        let limit = self.scope.outside.settings.reconcile_timeout;
        let work = AssertUnwindSafe(self.reconciler.call(object, context.clone())).catch_unwind();
        let metrics = &self.scope.outside.metrics;
        let controller = [&*self.scope.names.app];
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(Err(Error::Invalid { field, why }))) => {
                let problem = Problem::new("InvalidSpec", format!("{field}: {why}"));
                context.halt(&Halt::Invalid(problem)).await?;
                Err(Error::Invalid { field, why })
            }
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => {
                metrics.panics.with_label_values(&controller).inc();
                Err(Error::Other(format!("panic: {} [recovered]", panic_message(&*panic)).into()))
            }
            Err(_) => {
                metrics.timeouts.with_label_values(&controller).inc();
                Err(Error::Other(format!("reconcile took longer than {}s and was cancelled", limit.as_secs()).into()))
            }
        }
    }

    fn failed(&self, error: &Error, item: &Item<ObjectKey>, context: &Context<K>) -> Ended {
        let metrics = &self.scope.outside.metrics;
        let controller = [&*self.scope.names.app];
        metrics.reconcile_errors.with_label_values(&controller).inc();
        let retry = error.retry();
        match retry {
            // People have been told by the condition; a namespace that is going away is nobody's error.
            Retry::WhenChanged => {
                metrics.terminal_errors.with_label_values(&controller).inc();
                tracing::debug!(error = error.chain(), "Reconciler error");
            }
            Retry::Backoff | Retry::After(_) => {
                tracing::error!(error = error.chain(), "Reconciler error");
                if item.failures() >= 2 {
                    context.event(EventType::Warning, error.reason(), error.chain());
                    context.finish();
                }
            }
        }
        Ended::Failed(retry)
    }
}

/// The earlier of what the reconciler and its Context asked for.
fn soonest(action: Action, wake: Option<Instant>, now: jiff::Timestamp) -> Option<Duration> {
    let asked = match action {
        Action::Done => None,
        Action::After(wait) => Some(wait),
        Action::At(time) => Some(time.duration_since(now).max(jiff::SignedDuration::ZERO).unsigned_abs()),
    };
    let wake = wake.map(|at| at.saturating_duration_since(Instant::now()));
    asked.into_iter().chain(wake).min()
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}

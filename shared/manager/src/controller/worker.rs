//! One worker: takes a key, runs the reconciler with everything that protects the others from it, and says what is next.

use std::{
    any::Any,
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use tokio::time::Instant;
use tracing::{Instrument, Span, field::Empty};
use workqueue::{Item, Outcome, WorkQueue};

use super::{Action, Cleanup, Deletion, Gone, Reconcile};
use crate::{
    conditions::{Halt, Problem},
    context::{Context, Root, Scope, annotation, has_finalizer, lock},
    error::{Error, Retry},
    events::EventType,
    object::ObjectKey,
    telemetry::TARGET,
};

/// What the workers of one controller share.
pub(super) struct Worker<K: Root, F> {
    pub(super) scope: Arc<Scope<K>>,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) reconciler: F,
    pub(super) cleanup: Option<Cleanup<K>>,
    pub(super) gone: Option<Gone>,
    /// Until when objects are left alone, because somebody has asked for it: no event brings them back earlier.
    pub(super) spared: Mutex<HashMap<ObjectKey, Instant>>,
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
            if let Some(wait) = self.is_spared(item.key()) {
                item.done(Outcome::RetryAfter(wait));
                continue;
            }
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
            let traced = span.in_scope(|| self.trace(&item));
            let ended = self.attempt(&item).instrument(traced.clone()).instrument(span).await;
            if matches!(ended, Ended::Failed(_)) {
                traced.record("otel.status_code", "ERROR");
            }
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
            if let Outcome::RetryAfter(wait) = outcome {
                lock(&self.spared).insert(item.key().clone(), Instant::now() + wait);
            }
            item.done(outcome);
        }
    }

    /// How much longer this object is left alone.
    fn is_spared(&self, key: &ObjectKey) -> Option<Duration> {
        let mut spared = lock(&self.spared);
        let wait = spared.get(key)?.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            spared.remove(key);
            return None;
        }
        Some(wait)
    }

    /// The root of this reconcile's trace; nothing when traces are off.
    fn trace(&self, item: &Item<ObjectKey>) -> Span {
        tracing::debug_span!(
            target: TARGET,
            "reconcile",
            "otel.name" = format!("reconcile {}", self.scope.names.kind),
            "otel.status_code" = Empty,
            controller = %self.scope.names.app,
            namespace = %item.key().namespace,
            name = %item.key().name,
            queue_wait_ms = u64::try_from(item.waited().as_millis()).unwrap_or(u64::MAX),
        )
    }

    async fn attempt(&self, item: &Item<ObjectKey>) -> Ended {
        let key = item.key();
        let Some(object) = self.scope.primary.store.get(key) else {
            self.scope.forget(key);
            if let Some(gone) = &self.gone {
                gone(key);
            }
            return Ended::Success(None);
        };
        let context = Context::new(self.scope.clone(), object.clone(), key.clone());
        let result = if object.meta().deletion_timestamp.is_none() {
            self.reconcile(object, &context).await
        } else {
            self.clean_up(object, &context).await
        };
        let remains = context.finish();
        match result {
            Ok(_) if remains.unfinished => Ended::Failed(Retry::Backoff),
            Ok(action) => Ended::Success(soonest(action, remains.wake, context.now())),
            Err(error) => self.failed(&error, item, &context),
        }
    }

    /// What is done for an object that is there to stay.
    async fn reconcile(&self, object: Arc<K>, context: &Context<K>) -> Result<Action, Error> {
        let paused = format!("{}/paused", self.scope.names.group);
        if annotation(&*object, &paused) == Some("true") {
            context.halt(&Halt::Paused(format!("Reconciliation is paused by annotation {paused}"))).await?;
            return Ok(Action::Done);
        }
        match self.guarded(self.reconciler.call(object, context.clone())).await {
            Err(Error::Invalid { field, why }) => {
                let problem = Problem::new("InvalidSpec", format!("{field}: {why}"));
                context.halt(&Halt::Invalid(problem)).await?;
                Err(Error::Invalid { field, why })
            }
            result => result,
        }
    }

    /// What is done for an object that is being deleted: nothing, if it holds nothing outside of the cluster. Its
    /// children are the garbage collector's.
    async fn clean_up(&self, object: Arc<K>, context: &Context<K>) -> Result<Action, Error> {
        let Some(cleanup) = &self.cleanup else { return Ok(Action::Done) };
        if !has_finalizer(&*object, context.finalizer()) {
            return Ok(Action::Done);
        }
        match self.guarded(cleanup(object, context.clone())).await? {
            Deletion::Pending(action) => Ok(action),
            Deletion::Finished => context.remove_finalizer().await.map(|()| Action::Done),
        }
    }

    /// Runs an operator's code with everything that protects the others from it: a deadline, and a net for panics.
    async fn guarded<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.scope.outside.settings.reconcile_timeout;
        let metrics = &self.scope.outside.metrics;
        let controller = [&*self.scope.names.app];
        match tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
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

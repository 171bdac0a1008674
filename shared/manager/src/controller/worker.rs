//! One worker: takes a key, runs the reconciler with everything that protects the others from it, and says what is next.

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use prometheus::IntGauge;
use tokio::time::Instant;
use tracing::{Instrument, Span, field::Empty};
use workqueue::{Item, Outcome, WorkQueue};

use super::{
    Action, Cause, Cleanup, Deletion, Gone, Reconcile,
    wake::{explain, start},
};
use crate::{
    conditions::{Halt, Problem},
    context::{Context, Root, Scope, annotation, has_finalizer, lock},
    error::{Error, Retry, panic_message},
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
    /// With when it is looked at again at the latest, whenever it is tried again.
    Failed(Retry, Option<Duration>),
}

/// A worker that is counted as active; also one that is cancelled, as when leadership is lost, is no more when this goes.
struct Active(IntGauge);

impl Active {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl<K: Root, F: Reconcile<K>> Worker<K, F> {
    /// Until the queue is shut down.
    pub(super) async fn work(self: Arc<Self>) {
        while let Some(item) = self.queue.get().await {
            if let Some(wait) = self.is_spared(item.key()) {
                explain(item.key(), &Cause::Asked(wait));
                item.done(Outcome::RetryAfter(wait));
                continue;
            }
            start(item.key());
            let metrics = &self.scope.outside.metrics;
            let controller = [&*self.scope.names.app];
            let active = Active::new(metrics.active_workers.with_label_values(&controller));
            let started = Instant::now();
            let span = tracing::info_span!(
                "reconcile",
                controller = %self.scope.names.app,
                controllerGroup = %self.scope.names.group,
                controllerKind = %self.scope.names.kind,
                namespace = %item.key().namespace,
                name = %item.key().name,
                reconcileID = %self.scope.outside.random.uuid(),
            );
            let traced = span.in_scope(|| self.trace(&item));
            let attempt = self.attempt(&item).instrument(traced.clone()).instrument(span);
            let ended = AssertUnwindSafe(attempt).catch_unwind().await.unwrap_or_else(|panic| {
                let error = self.panicked(&*panic);
                metrics.reconcile_errors.with_label_values(&controller).inc();
                tracing::error!(object = %item.key(), error = error.chain(), "Reconciler error");
                Ended::Failed(Retry::Backoff, None)
            });
            if matches!(ended, Ended::Failed(..)) {
                traced.record("otel.status_code", "ERROR");
            }
            metrics.reconcile_seconds.with_label_values(&controller).observe(started.elapsed().as_secs_f64());
            drop(active);
            let (result, outcome) = match ended {
                Ended::Success(None) => ("success", Outcome::Success),
                Ended::Success(Some(after)) => ("requeue_after", Outcome::RequeueAfter(after)),
                Ended::Failed(Retry::Backoff, None) => ("error", Outcome::Failure),
                Ended::Failed(Retry::Backoff, Some(latest)) => ("error", Outcome::FailureOrAfter(latest)),
                Ended::Failed(Retry::After(wait), _) => ("error", Outcome::RetryAfter(wait)),
                Ended::Failed(Retry::WhenChanged, None) => ("error", Outcome::WaitForChange),
                Ended::Failed(Retry::WhenChanged, Some(latest)) => ("error", Outcome::RequeueAfter(latest)),
            };
            metrics.reconcile_total.with_label_values(&[controller[0], result]).inc();
            if let Outcome::RetryAfter(wait) = outcome {
                lock(&self.spared).insert(item.key().clone(), Instant::now() + wait);
            }
            match outcome {
                Outcome::Success | Outcome::WaitForChange => {}
                Outcome::RequeueAfter(wait) => explain(item.key(), &Cause::Asked(wait)),
                _ => explain(item.key(), &Cause::Failure),
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
            // Not tried again: it would fail in the same way.
            if let Some(gone) = &self.gone
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| gone(key)))
            {
                let error = self.panicked(&*panic);
                tracing::error!(object = %key, error = error.chain(), "on_gone failed");
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
        let (retry, action) = match result {
            Ok(action) => (remains.unfinished.then_some(Retry::Backoff), action),
            Err(error) => {
                let spread = context.random().mul_add(0.25, 1.0);
                let latest = error.no_later_than().map(|wait| Action::After(wait.mul_f64(spread)));
                (Some(self.failed(&error, item, &context)), latest.unwrap_or(Action::Done))
            }
        };
        let again = soonest(action, remains.wake, context.now());
        retry.map_or(Ended::Success(again), |retry| Ended::Failed(retry, again))
    }

    /// What is done for an object that is there to stay.
    async fn reconcile(&self, object: Arc<K>, context: &Context<K>) -> Result<Action, Error> {
        let paused = format!("{}/paused", self.scope.names.group);
        if annotation(&*object, &paused) == Some("true") {
            context.halt(&Halt::Paused(format!("Reconciliation is paused by annotation {paused}"))).await?;
            return Ok(Action::Done);
        }
        match self.guarded(async { self.reconciler.call(object, context.clone()).await }).await {
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
            Ok(Err(panic)) => Err(self.panicked(&*panic)),
            Err(_) => {
                metrics.timeouts.with_label_values(&controller).inc();
                Err(Error::Other(format!("reconcile took longer than {}s and was cancelled", limit.as_secs()).into()))
            }
        }
    }

    /// Counts a panic, and makes an error of it.
    fn panicked(&self, panic: &(dyn Any + Send)) -> Error {
        self.scope.outside.metrics.panics.with_label_values(&[&*self.scope.names.app]).inc();
        Error::Other(format!("panic: {} [recovered]", panic_message(panic)).into())
    }

    /// Tells of the error. Says when it is tried again.
    fn failed(&self, error: &Error, item: &Item<ObjectKey>, context: &Context<K>) -> Retry {
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
        retry
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

//! One worker: takes a key from the queue, runs the reconciler with a deadline, catches its panics, and decides when the key
//! comes back.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use api_errors::panic_message;
use cache::{Coverage, ObjectKey, Origin};
use futures::FutureExt;
use prometheus::IntGauge;
use tokio::time::Instant;
use tracing::{Instrument, Span, field::Empty};
use workqueue::{Item, Outcome, Priority, WorkQueue};

use super::{Action, Cleanup, Deletion, Gone, Observe, Reconcile, Waiting, WakeFilter};
use crate::{
    conditions::{NotReconciled, Problem, ProblemKind},
    context::{Context, ControllerState, Shared, has_finalizer, is_paused, paused_annotation},
    error::{Error, Retry},
    events::EventType,
    status::Primary,
    telemetry::TARGET,
    wake::{Cause, explain, start, wake},
};

/// How soon to look again whether all caches have listed a namespace, after the start or after it has joined, if no list wakes
/// the object before.
const PENDING: Duration = Duration::from_secs(1);
/// The same if the API server refuses or fails a list, or does not have the kind of the object. This may last for ever, and the
/// list that ends it wakes the object.
const UNLISTED: Duration = Duration::from_mins(1);

/// The state that the workers of one controller share.
pub(super) struct Worker<K: Primary, S, F> {
    pub(super) config: Arc<S>,
    pub(super) controller: Arc<ControllerState<K>>,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) filter: Arc<WakeFilter<K>>,
    /// The objects that wait for lists of their namespaces.
    pub(super) waiting: Waiting,
    pub(super) reconciler: F,
    pub(super) cleanup: Option<Cleanup<K, S>>,
    pub(super) gone: Option<Gone>,
    pub(super) observe: Option<Observe<K, S>>,
}

/// How one reconcile ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    /// The label of the metric: `success`, `requeue`, `requeue_after` or `error`.
    result: &'static str,
    outcome: Outcome,
}

/// Counts a worker as active until it is dropped. So a worker that is cancelled, as when leadership is lost, no longer counts.
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

/// Explains why an object comes back whose reconcile is cancelled: the queue counts a dropped item as a failure.
struct Unended<'a> {
    controller: &'a str,
    /// `None` when the reconcile has ended.
    key: Option<&'a ObjectKey>,
}

impl Unended<'_> {
    fn end(mut self) {
        self.key = None;
    }
}

impl Drop for Unended<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            explain(self.controller, key, &Cause::Cancelled);
        }
    }
}

impl<K: Primary, S: Shared, F: Reconcile<K, S>> Worker<K, S, F> {
    /// Works until the queue is shut down.
    pub(super) async fn work(self: Arc<Self>) {
        let app = &*self.controller.names.app;
        while let Some(item) = self.queue.get().await {
            if let Some(wait) = self.hold_back(item.key()) {
                explain(app, item.key(), &Cause::RequeueAfter(wait));
                item.done(Outcome::RequeueAfter(wait));
                continue;
            }
            start(app, item.key());
            let metrics = &self.controller.environment.metrics;
            let controller = [app];
            let active = Active::new(metrics.active_workers.with_label_values(&controller));
            let started = Instant::now();
            let span = tracing::info_span!(
                "reconcile",
                controller = %app,
                controllerGroup = %self.controller.names.group,
                controllerKind = %self.controller.names.kind,
                namespace = %item.key().namespace,
                name = %item.key().name,
                reconcileID = %self.controller.environment.random.uuid(),
            );
            let traced = span.in_scope(|| self.trace(&item));
            let attempt = self.attempt(&item).instrument(traced.clone()).instrument(span);
            let unended = Unended { controller: app, key: Some(item.key()) };
            let ended = AssertUnwindSafe(attempt).catch_unwind().await.unwrap_or_else(|panic| {
                let error = self.panicked(&*panic);
                metrics.reconcile_errors.with_label_values(&controller).inc();
                tracing::error!(object = %item.key(), error = error.chain(), "Reconciler error");
                Ended { result: ERROR, outcome: Outcome::FAILURE }
            });
            unended.end();
            if ended.result == ERROR {
                traced.record("otel.status_code", "ERROR");
            }
            metrics.reconcile_seconds.with_label_values(&controller).observe(started.elapsed().as_secs_f64());
            metrics.reconcile_total.with_label_values(&[controller[0], ended.result]).inc();
            match ended.outcome {
                Outcome::Success | Outcome::WaitForChange => {}
                Outcome::RequeueAfter(wait) => explain(app, item.key(), &Cause::RequeueAfter(wait)),
                _ => explain(app, item.key(), &Cause::Failure),
            }
            item.done(ended.outcome);
            drop(active); // last, so that no worker is active only if each result is counted and each key that woke again is queued
        }
    }

    /// Returns the root span of this reconcile's trace, which is disabled when traces are off.
    fn trace(&self, item: &Item<ObjectKey>) -> Span {
        tracing::debug_span!(
            target: TARGET,
            "reconcile",
            "otel.name" = format!("reconcile {}", self.controller.names.kind),
            "otel.status_code" = Empty,
            controller = %self.controller.names.app,
            namespace = %item.key().namespace,
            name = %item.key().name,
            queue_wait_ms = u64::try_from(item.waited().as_millis()).unwrap_or(u64::MAX),
        )
    }

    /// How long the object has to wait at most, if it cannot be reconciled yet. The next list of a cache wakes it.
    fn hold_back(&self, key: &ObjectKey) -> Option<Duration> {
        if self.wait(key).is_some() {
            self.waiting.lock().insert(key.clone());
            // A list that has completed since the first look did not wake the object.
            if let Some(wait) = self.wait(key) {
                return Some(wait);
            }
        }
        self.waiting.lock().remove(key);
        None
    }

    /// How long to wait until the caches have what a reconcile of this object reads; `None` if they have it, or if the object is
    /// gone. Decodes nothing: many objects may wait for long.
    fn wait(&self, key: &ObjectKey) -> Option<Duration> {
        let primary = &self.controller.primary;
        let is_known = || primary.store.contains(key);
        if !primary.holds(key) {
            // The namespace has left, and the next list removes the object. If the namespace joins again before that list, no
            // change wakes the object. That list may fail, perhaps for ever.
            let wait = if primary.is_synced(&key.namespace) { PENDING } else { UNLISTED };
            return is_known().then_some(wait);
        }
        let unlisted = |coverage| match coverage {
            Coverage::Complete => None,
            Coverage::Pending => Some(PENDING),
            Coverage::Failing => Some(UNLISTED),
        };
        let listed = primary.coverage(&key.namespace);
        // If the list fails, perhaps for ever, it is unknown whether the object exists. If it does, its first list wakes it.
        if listed != Coverage::Pending && !is_known() {
            return None;
        }
        if let Some(wait) = unlisted(listed) {
            return Some(wait);
        }
        let coverage = self.controller.caches.coverage(&key.namespace);
        // The object went with the definition of its kind, although the cache still holds it: a child of it would be garbage. The
        // return of the kind wakes all objects.
        let missing = primary.is_missing(&key.namespace).then_some(UNLISTED);
        let wait = unlisted(coverage).or(missing)?;
        // A clean-up outside of the cluster is due even if a kind is missing or a list is refused, perhaps for ever.
        let is_due = coverage != Coverage::Pending && primary.store.is_deleting(key);
        (!is_due).then_some(wait)
    }

    /// Does for the ready keys of objects that are gone what a worker would do. A standby has no workers: its queue would keep the key
    /// of each object that comes and goes, and of each unknown one that labels or the function of `watches` name.
    ///
    /// No wake-up is lost. As a worker does, this takes a key before it looks for the object, so a later wake-up brings the key back.
    pub(super) fn sweep(&self) {
        for key in self.queue.ready_keys().into_iter().filter(|key| self.is_gone(key)) {
            let Some(item) = self.queue.try_get_key(&key) else { continue };
            if self.is_gone(&key) {
                self.forget(&key);
            } else {
                self.queue.add(key, item.priority()); // it has appeared since the first look
            }
            item.done(Outcome::Success);
        }
    }

    /// Whether the cache knows that there is no such object.
    fn is_gone(&self, key: &ObjectKey) -> bool {
        !self.controller.primary.store.contains(key) && self.wait(key).is_none()
    }

    /// Forgets an object that is gone.
    fn forget(&self, key: &ObjectKey) {
        self.controller.memory.forget(key);
        self.controller.gate.forget(key);
        // A panic is not retried: the next call would panic in the same way.
        if let Some(gone) = &self.gone
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| gone(key)))
        {
            let error = self.panicked(&*panic);
            tracing::error!(object = %key, error = error.chain(), "on_gone failed");
        }
    }

    async fn attempt(&self, item: &Item<ObjectKey>) -> Ended {
        let key = item.key();
        let primary = &self.controller.primary;
        self.controller.recent.expire();
        let Some(object) = primary.store.get(key) else {
            self.forget(key);
            return Ended::of(Action::Done, None, None);
        };
        let acting = self.filter.begin(key);
        let context = Context::new(self.controller.clone(), self.config.clone(), object.clone(), key.clone());
        let result = if object.meta().deletion_timestamp.is_none() {
            self.reconcile(object, &context).await
        } else {
            self.clean_up(object, &context).await
        };
        let requeue = context.finish();
        if acting.end(&context.object()) {
            let name = &self.controller.names.app;
            wake(&self.queue, name, key.clone(), Priority::LIVE, &Cause::Change(Origin::Live));
        }
        let (retry, action) = match result {
            Ok(action) => (requeue.unfinished.then_some(Retry::Backoff), action),
            Err(error) => {
                let spread = context.random().mul_add(0.25, 1.0);
                let latest = error.no_later_than().map(|wait| Action::After(wait.mul_f64(spread)));
                (Some(self.failed(&error, item, &context)), latest.unwrap_or(Action::Done))
            }
        };
        Ended::of(action, requeue.wake.map(|at| at.saturating_duration_since(Instant::now())), retry)
    }

    /// Reconciles an object that is not being deleted.
    async fn reconcile(&self, object: Arc<K>, context: &Context<K, S>) -> Result<Action, Error> {
        if is_paused(&*object) {
            let message = format!("Reconciliation is paused by annotation {}", paused_annotation::<K>());
            context.halt(&NotReconciled::Paused(message), self.observe.as_ref()).await?;
            return Ok(Action::Done);
        }
        match self.run_with_timeout(async { self.reconciler.call(object, context.clone()).await }).await {
            Err(Error::Invalid { field, why }) => {
                let problem = Problem::new(ProblemKind::INVALID_SPEC, format!("{field}: {why}"));
                context.halt(&NotReconciled::Invalid(problem), self.observe.as_ref()).await?;
                Err(Error::Invalid { field, why })
            }
            result => result,
        }
    }

    /// Runs the clean-up for an object that is being deleted. Does nothing if the object does not carry our finalizer. The
    /// garbage collector deletes its children.
    async fn clean_up(&self, object: Arc<K>, context: &Context<K, S>) -> Result<Action, Error> {
        let Some(cleanup) = &self.cleanup else { return Ok(Action::Done) };
        if !has_finalizer(&*object, context.finalizer()) {
            return Ok(Action::Done);
        }
        match self.run_with_timeout(cleanup(object, context.clone())).await? {
            Deletion::Pending(action) => Ok(action),
            Deletion::Finished => context.remove_finalizer().await.map(|()| Action::Done),
        }
    }

    /// Runs an operator's code with a deadline, and catches its panics, so that one object cannot harm the others.
    async fn run_with_timeout<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.controller.environment.settings.reconcile_timeout;
        let metrics = &self.controller.environment.metrics;
        let controller = [&*self.controller.names.app];
        match tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(self.panicked(&*panic)),
            Err(_) => {
                metrics.timeouts.with_label_values(&controller).inc();
                Err(Error::Other(format!("reconcile took longer than {}s and was cancelled", limit.as_secs()).into()))
            }
        }
    }

    /// Counts a panic, and turns it into an error.
    fn panicked(&self, panic: &(dyn Any + Send)) -> Error {
        self.controller.environment.metrics.panics.with_label_values(&[&*self.controller.names.app]).inc();
        Error::Other(format!("panic: {} [recovered]", panic_message(panic)).into())
    }

    /// Logs and counts the error; from the third failure in a row it also emits an event. Returns how to retry.
    fn failed(&self, error: &Error, item: &Item<ObjectKey>, context: &Context<K, S>) -> Retry {
        let metrics = &self.controller.environment.metrics;
        let controller = [&*self.controller.names.app];
        metrics.reconcile_errors.with_label_values(&controller).inc();
        let retry = error.retry();
        match retry {
            // Only at debug level: a condition already reports an invalid object, and a terminating namespace is no error.
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

/// The result of a reconcile that failed.
const ERROR: &str = "error";

impl Ended {
    /// Combines the action of a reconciler, the time at which its Context requested the next reconcile at the latest, and how to
    /// retry if the reconcile failed. The earliest time counts, except that nothing comes before a time that another system has
    /// named.
    fn of(action: Action, wake: Option<Duration>, retry: Option<Retry>) -> Self {
        let (requeue, base) = match action {
            Action::Done => (None, None),
            Action::After(wait) => (Some(wait), None),
            Action::Retry(base) => (None, Some(base)),
            Action::NotBefore(wait) => {
                let result = if retry.is_some() { ERROR } else { "requeue_after" };
                return Self { result, outcome: Outcome::NotBefore(wait) };
            }
        };
        let latest = requeue.into_iter().chain(wake).min();
        let (result, outcome) = match (retry, base, latest) {
            (Some(Retry::After(wait)), ..) => (ERROR, Outcome::NotBefore(wait)),
            (Some(Retry::WhenChanged), _, None) => (ERROR, Outcome::WaitForChange),
            (Some(Retry::WhenChanged), _, Some(latest)) => (ERROR, Outcome::RequeueAfter(latest)),
            (Some(Retry::Backoff), base, latest) => (ERROR, Outcome::Failure { base, latest }),
            (None, Some(_), latest) => ("requeue", Outcome::Failure { base, latest }),
            (None, None, Some(after)) => ("requeue_after", Outcome::RequeueAfter(after)),
            (None, None, None) => ("success", Outcome::Success),
        };
        Self { result, outcome }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use parking_lot::Mutex;
    use tracing::{Event, Subscriber, field::Field};
    use tracing_subscriber::layer::{self, Layer, SubscriberExt};

    use super::*;

    /// The causes that are logged.
    #[derive(Clone, Default)]
    struct Causes(Arc<Mutex<Vec<String>>>);

    impl<C: Subscriber> Layer<C> for Causes {
        fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, C>) {
            event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
                if field.name() == "cause" {
                    self.0.lock().push(format!("{value:?}"));
                }
            });
        }
    }

    #[test]
    fn cancelled_reconcile_is_the_cause_of_the_next_one_and_an_ended_one_is_not() {
        let (causes, key) = (Causes::default(), ObjectKey::new("shop", "a"));
        let begin = || Unended { controller: "toy", key: Some(&key) };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(causes.clone()), || begin().end());
        assert!(causes.0.lock().is_empty());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(causes.clone()), || drop(begin()));
        assert_eq!(*causes.0.lock(), ["its reconcile was cancelled"]);
    }

    #[test]
    fn outcome_follows_from_action_wake_up_and_failure() {
        let seconds = Duration::from_secs;
        let with = |base, latest| Outcome::Failure { base, latest };
        for (action, wake, retry, result, outcome) in [
            (Action::Done, None, None, "success", Outcome::Success),
            (Action::Done, Some(seconds(3)), None, "requeue_after", Outcome::RequeueAfter(seconds(3))),
            (Action::After(seconds(5)), Some(seconds(3)), None, "requeue_after", Outcome::RequeueAfter(seconds(3))),
            (Action::After(seconds(2)), Some(seconds(3)), None, "requeue_after", Outcome::RequeueAfter(seconds(2))),
            (Action::Retry(seconds(1)), None, None, "requeue", with(Some(seconds(1)), None)),
            (Action::Retry(seconds(1)), Some(seconds(3)), None, "requeue", with(Some(seconds(1)), Some(seconds(3)))),
            (Action::NotBefore(seconds(7)), Some(seconds(3)), None, "requeue_after", Outcome::NotBefore(seconds(7))),
            (Action::Done, None, Some(Retry::Backoff), "error", Outcome::FAILURE),
            (Action::After(seconds(5)), None, Some(Retry::Backoff), "error", with(None, Some(seconds(5)))),
            (Action::Retry(seconds(1)), None, Some(Retry::Backoff), "error", with(Some(seconds(1)), None)),
            (Action::NotBefore(seconds(7)), None, Some(Retry::Backoff), "error", Outcome::NotBefore(seconds(7))),
            (Action::Done, Some(seconds(3)), Some(Retry::After(seconds(9))), "error", Outcome::NotBefore(seconds(9))),
            (Action::Done, None, Some(Retry::WhenChanged), "error", Outcome::WaitForChange),
            (Action::Done, Some(seconds(3)), Some(Retry::WhenChanged), "error", Outcome::RequeueAfter(seconds(3))),
        ] {
            assert_eq!(Ended::of(action, wake, retry), Ended { result, outcome }, "{action:?} {wake:?} {retry:?}");
        }
    }
}

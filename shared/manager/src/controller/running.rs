//! A controller between its declaration and its workers: [`WiredController`] has its caches, [`Running`] also has a client and a
//! clock.

use std::{
    collections::BTreeSet,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use api_errors::panic_message;
use cache::{Full, Informer, InformerHealth, ObjectKey, Subscriber, Undecodable};
use futures::StreamExt;
use parking_lot::Mutex;
use workqueue::{Priority, WorkQueue};

use super::{ControllerOptions, Demoted, KeyStream, Reconcile, WakeFilter, worker::Worker};
use crate::{
    context::{Caches, ControllerState, Environment, Memory, Names, Recent, Shared},
    events::{EventType, Note, Reference},
    metrics::{ChildMetrics, Metrics},
    status::{Primary, Status, StatusGate},
    wake::{Cause, wake, wake_unless_due},
};

/// A controller with its caches, which can be started with a client and a clock.
pub(crate) trait Start {
    /// Returns the running controller, and the tasks that wake its objects when something outside of the cluster changes.
    fn start(self: Box<Self>, environment: Arc<Environment>) -> (Running, Vec<Work>);
}

/// A started controller: what the manager needs to run and to observe it.
pub(crate) struct Running {
    pub(crate) name: Arc<str>,
    pub(crate) kind: String,
    pub(crate) group: String,
    /// The resources whose caches must be filled before the workers start.
    pub(crate) needs: Vec<String>,
    /// The health of the informer of its own kind.
    pub(crate) primary: Arc<InformerHealth>,
    /// The health of informers whose kinds may be installed later.
    pub(crate) optional: Vec<Arc<InformerHealth>>,
    /// The number of workers, if the controller sets its own.
    pub(crate) workers: Option<usize>,
    pub(crate) queue: WorkQueue<ObjectKey>,
    /// The objects that wait for lists of their namespaces.
    waiting: Waiting,
    /// Updates the metrics that are computed from objects, before a scrape.
    pub(crate) scrape: Box<dyn Fn(&Metrics) + Send + Sync>,
    /// The operator's function for the loss of the leadership.
    demoted: Demoted,
    /// Drops the ready keys of objects that are gone.
    sweep: Box<dyn Fn() + Send + Sync>,
    /// Returns the keys of all objects of the kind.
    pub(crate) keys: Box<dyn Fn() -> Vec<ObjectKey> + Send + Sync>,
    /// Runs one worker, which takes keys until the queue is shut down.
    pub(crate) work: Box<dyn Fn() -> Work + Send + Sync>,
}

/// Keys of objects, which a controller and its workers share.
pub(super) type Waiting = Arc<Mutex<BTreeSet<ObjectKey>>>;

pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Running {
    /// Puts every object of the kind into the queue.
    pub(crate) fn enqueue_all(&self, cause: &Cause<'_>) {
        for key in (self.keys)() {
            wake(&self.queue, &self.name, key, Priority::LOW, cause);
        }
    }

    /// Puts the objects of these namespaces into the queue. An empty name stands for all namespaces. A cluster-scoped object is in
    /// none, and may depend on each.
    pub(crate) fn enqueue_in(&self, namespaces: &[String], cause: &Cause<'_>) {
        let is_in = |key: &ObjectKey| {
            key.namespace.is_empty() || namespaces.iter().any(|name| name.is_empty() || **name == *key.namespace)
        };
        for key in (self.keys)().into_iter().filter(is_in) {
            wake(&self.queue, &self.name, key, Priority::LOW, cause);
        }
    }

    /// The number of objects that wait for lists of their namespaces.
    pub(crate) fn count_waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Puts the objects into the queue that wait for lists of their namespaces.
    pub(crate) fn wake_waiting(&self) {
        self.end_wait(&Cause::Served);
    }

    /// Forgets what reconciles have left behind, after this process has lost its leadership. It also queues the objects that wait for
    /// lists, for the workers of the next term: nothing else would wake them at once if the lists complete in the meantime.
    pub(crate) fn demote(&self) {
        self.end_wait(&Cause::Demotion);
        (self.demoted)();
    }

    fn end_wait(&self, cause: &Cause<'_>) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for key in waiting {
            wake(&self.queue, &self.name, key, Priority::LOW, cause);
        }
    }

    /// Puts every object of the kind into the queue, except those that are reconciled within this time anyway. Drops the keys of
    /// objects that are gone.
    pub(crate) fn resync(&self, interval: Duration) {
        (self.sweep)();
        for key in (self.keys)() {
            wake_unless_due(&self.queue, &self.name, key, Priority::LOW, interval, &Cause::Resync);
        }
    }
}

#[cfg(test)]
impl Running {
    /// Returns a controller that has only this queue and these workers.
    pub(crate) fn with(queue: WorkQueue<ObjectKey>, work: impl Fn() -> Work + Send + Sync + 'static) -> Self {
        Self {
            name: "toy".into(),
            kind: "Toy".to_owned(),
            group: String::new(),
            needs: Vec::new(),
            primary: Arc::new(InformerHealth::new("Toy".to_owned(), "toys".to_owned())),
            optional: Vec::new(),
            workers: None,
            queue,
            waiting: Waiting::default(),
            scrape: Box::new(|_| ()),
            demoted: Box::new(|| ()),
            sweep: Box::new(|| ()),
            keys: Box::new(Vec::new),
            work: Box::new(work),
        }
    }

    /// Calls this function at a scrape.
    pub(crate) fn on_scrape(self, scrape: impl Fn(&Metrics) + Send + Sync + 'static) -> Self {
        Self { scrape: Box::new(scrape), ..self }
    }

    /// Calls this function at a demotion.
    pub(crate) fn on_demotion(self, demoted: impl Fn() + Send + Sync + 'static) -> Self {
        Self { demoted: Box::new(demoted), ..self }
    }
}

/// Calls a function of an operator. Counts and logs its panic.
fn catch_panic(function: &str, controller: &str, metrics: &Metrics, call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        metrics.panics.with_label_values(&[controller]).inc();
        tracing::error!(controller, panic = panic_message(&*panic), "{function} failed");
    }
}

pub(super) struct WiredController<K: Primary, S, F> {
    pub(super) names: Names,
    pub(super) streams: Vec<KeyStream>,
    pub(super) children: ChildMetrics,
    pub(super) primary: Arc<Informer<Full<K>>>,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) filter: Arc<WakeFilter<K>>,
    pub(super) memory: Arc<Memory>,
    pub(super) caches: Caches,
    pub(super) options: ControllerOptions<K, S>,
    pub(super) config: Arc<S>,
    pub(super) reconciler: F,
}

impl<K: Primary, S: Shared, F: Reconcile<K, S>> Start for WiredController<K, S, F> {
    fn start(self: Box<Self>, environment: Arc<Environment>) -> (Running, Vec<Work>) {
        let Self { names, streams, children, primary, queue, filter, memory, caches, options, config, reconciler } =
            *self;
        let ControllerOptions { needs, capabilities, cleanup, gone, scraped, demoted, observe, workers, wakes_on: _ } =
            options;
        let optional = caches.optional.clone();
        let (name, kind, group) = (names.app.clone(), names.kind.clone(), names.group.clone());
        let (metrics, clock) = (environment.metrics.clone(), environment.clock.clone());
        let controller = Arc::new(ControllerState {
            environment,
            names,
            children,
            queue: queue.clone(),
            primary: primary.clone(),
            caches,
            capabilities,
            gate: StatusGate::default(),
            memory,
            recent: Recent::default(),
        });
        primary.subscribe(report_undecodable(&controller));
        let (shown, limit) = (primary.clone(), controller.environment.settings.metrics_max_objects);
        let waiting = Waiting::default();
        let worker = Arc::new(Worker {
            controller,
            config,
            queue: queue.clone(),
            filter,
            waiting: waiting.clone(),
            reconciler,
            cleanup,
            gone,
            observe,
        });
        let (counted, led, swept) = (name.clone(), name.clone(), worker.clone());
        let wakes = |stream| wake_from(stream, name.clone(), queue.clone(), primary.clone());
        let streams = streams.into_iter().map(wakes).collect();
        let running = Running {
            name,
            kind,
            group,
            needs,
            primary: primary.health.clone(),
            optional,
            workers,
            queue,
            waiting,
            scrape: Box::new(move |metrics| {
                let kind = &shown.health.kind;
                let aggregated = shown.store.counts().0 > limit;
                metrics.show_aggregated(kind, aggregated);
                // One at a time: the objects are decoded for the scrape, which must not hold all of them in memory at once.
                let mut objects = shown.store.each().map(|(key, object)| {
                    let conditions = object.status().map_or(&[][..], Status::conditions);
                    metrics.show_conditions(kind, &key, conditions, aggregated);
                    object
                });
                let guarded = |work: &mut dyn FnMut()| catch_panic("on_scrape", &counted, metrics, work);
                if let Some(scraped) = &scraped {
                    guarded(&mut || scraped(&mut objects, clock()));
                }
                guarded(&mut || objects.by_ref().for_each(drop));
            }),
            demoted: Box::new(move || {
                if let Some(demoted) = &demoted {
                    catch_panic("on_demotion", &led, &metrics, demoted);
                }
            }),
            sweep: Box::new(move || swept.sweep()),
            keys: Box::new(move || primary.store.keys()),
            work: Box::new(move || Box::pin(worker.clone().work())),
        };
        (running, streams)
    }
}

/// Wakes the objects whose keys the stream delivers, until it ends.
///
/// Keys of unknown objects are dropped: on a standby nothing takes keys from the queue, so it would grow without bound. No object
/// misses its key by this: when the cache learns of it, that wakes it.
fn wake_from<K: Primary>(
    stream: KeyStream,
    controller: Arc<str>,
    queue: WorkQueue<ObjectKey>,
    primary: Arc<Informer<Full<K>>>,
) -> Work {
    Box::pin(async move {
        let mut keys = stream();
        while let Some(key) = keys.next().await {
            if primary.store.contains(&key) {
                wake(&queue, &controller, key, Priority::LIVE, &Cause::External);
            }
        }
    })
}

/// Logs an object that does not decode, and emits an event about it. Such an object never reaches a reconciler.
fn report_undecodable<K: Primary>(controller: &Arc<ControllerState<K>>) -> Subscriber<K> {
    let controller = controller.clone();
    Box::new(move |delta, _| {
        let Some(Undecodable { uid, error }) = &delta.undecodable else { return };
        let message = format!("The object does not match its schema and is skipped: {error}");
        tracing::warn!(kind = controller.names.kind, object = %delta.key, %error, "Undecodable object is skipped");
        let regarding = Reference {
            api_version: controller.names.api_version.clone(),
            kind: controller.names.kind.clone(),
            key: delta.key.clone(),
            uid: uid.to_string(),
        };
        let note = Note { type_: EventType::Warning, reason: "Undecodable".into(), message, related: None };
        controller.environment.recorder.post(&controller.names.manager, regarding, note);
    })
}

#[cfg(test)]
mod tests {
    use workqueue::Outcome;

    use super::*;

    /// The list for which it waits may complete while this process is a standby.
    #[tokio::test]
    async fn object_that_waits_for_a_list_at_a_demotion_is_for_the_next_term_to_look_at() {
        let running = Running::with(WorkQueue::default(), || Box::pin(async {}));
        running.waiting.lock().insert(ObjectKey::new("a", "x"));
        running.demote();
        assert_eq!(running.count_waiting(), 0);
        assert_eq!(running.queue.try_get().map(|item| item.key().to_string()).as_deref(), Some("a/x"));
    }

    #[tokio::test]
    async fn namespace_that_comes_back_wakes_its_objects_and_cluster_scoped_ones() {
        let running = Running {
            keys: Box::new(|| ["", "a", "b"].map(|namespace| ObjectKey::new(namespace, "x")).to_vec()),
            ..Running::with(WorkQueue::default(), || Box::pin(async {}))
        };
        for (back, expected) in [("a", vec!["", "a"]), ("c", vec![""]), ("", vec!["", "a", "b"])] {
            running.enqueue_in(&[back.to_owned()], &Cause::Served);
            let mut woken = Vec::new();
            while let Some(item) = running.queue.try_get() {
                woken.push(item.key().namespace.to_string());
                item.done(Outcome::Success);
            }
            assert_eq!(woken, expected, "{back}");
        }
    }
}

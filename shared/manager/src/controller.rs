//! Declaring a controller. What its workers do is in `controller::worker`.
//!
//! ```ignore
//! manager.add(
//!     Controller::of::<Memcached>()
//!         .owns::<Deployment>()
//!         .watches_labelled::<Pod>()
//!         .reconcile(controller::reconcile),
//! );
//! ```
//!
//! The declaration does no I/O, and it is all there is: which informers run, what wakes an object, and which permissions
//! the operator needs are derived from it.

use std::{future::Future, marker::PhantomData, pin::Pin, sync::Arc, time::Duration};

use workloads::{Child, Viewed};
use workqueue::{Priority, WorkQueue};

use crate::{
    api::{Namespaced, Requests},
    context::{Caches, Context, Names, Outside, Root, Scope, StateMap},
    error::Error,
    events::{EventType, Note, Reference},
    informer::{Informer, Origin, Subscriber, resource_name},
    informers::Informers,
    object::ObjectKey,
    rbac::Rule,
    status::StatusGate,
    store::Delta,
    wire::{AppKey, Owner, Undecodable, Whole},
};

mod queue_metrics;
mod worker;

use queue_metrics::QueueMetrics;
use worker::Worker;

/// What a successful reconcile says about the next one. Changes to the object and to what it owns always bring it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing more to do until something changes.
    Done,
    /// Look again after this time.
    After(Duration),
    /// Look again at this time of day.
    At(jiff::Timestamp),
}

/// A plain async function that reconciles: `async fn(Arc<K>, Context<K>) -> Result<Action, Error>`.
///
/// Implemented for every such function; nobody implements it by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a reconciler of `{K}`",
    label = "expected `async fn(Arc<{K}>, Context<{K}>) -> Result<Action, Error>`",
    note = "the Error is `manager::Error`, and everything held across an await must be `Send`"
)]
pub trait Reconcile<K: Root>: Send + Sync + 'static {
    /// Calls the function.
    fn call(&self, object: Arc<K>, context: Context<K>) -> impl Future<Output = Result<Action, Error>> + Send;
}

impl<K, F, R> Reconcile<K> for F
where
    K: Root,
    F: Fn(Arc<K>, Context<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, Error>> + Send,
{
    fn call(&self, object: Arc<K>, context: Context<K>) -> impl Future<Output = Result<Action, Error>> + Send {
        self(object, context)
    }
}

/// Where a declaration begins: [`Controller::of`].
#[derive(Debug, Clone, Copy)]
pub struct Controller;

impl Controller {
    /// A controller of all objects of kind `K`.
    pub fn of<K: Root>() -> ControllerBuilder<K> {
        let rules =
            vec![Rule::of::<K>(&["get", "list", "watch"]), Rule::of::<K>(&["get", "patch"]).subresource("status")];
        ControllerBuilder {
            sources: Vec::new(),
            needs: vec![resource_name::<K>()],
            rules,
            state: StateMap::default(),
            kind: PhantomData,
        }
    }
}

/// A controller that is being declared. Does nothing until [`reconcile`](ControllerBuilder::reconcile) completes it and
/// [`Manager::add`](crate::Manager::add) takes it.
#[must_use = "a controller does nothing until it is given a reconciler and added to the manager"]
pub struct ControllerBuilder<K: Root> {
    sources: Vec<Source<K>>,
    needs: Vec<String>,
    rules: Vec<Rule>,
    state: StateMap,
    kind: PhantomData<fn() -> K>,
}

/// Adds one cache to a controller, and what wakes it from there.
type Source<K> =
    Box<dyn FnOnce(&mut Informers, &Arc<Informer<Whole<K>>>, &WorkQueue<ObjectKey>, &Arc<str>, &mut Caches)>;

impl<K: Root> ControllerBuilder<K> {
    /// Objects of kind `C` are children: changes to them wake their owner, and the Context may write them.
    ///
    /// They are watched by `app.kubernetes.io/managed-by`, so strangers' objects cost nothing.
    pub fn owns<C: Child + Namespaced>(mut self) -> Self {
        self.rules.push(Rule::of::<C>(&["get", "list", "watch", "create", "patch", "delete"]));
        self.needs.push(resource_name::<C>());
        self.sources.push(Box::new(|informers, primary, queue, app, caches| {
            let informer = informers.seen::<C>(app);
            let (primary, queue, app) = (primary.clone(), queue.clone(), app.clone());
            informer.subscribe(Box::new(move |delta, origin| {
                for key in woken(delta, &app, |owner, namespace| owner_key(&primary, owner, namespace)) {
                    queue.add(key, priority(origin));
                }
            }));
            caches.insert(informer);
        }));
        self
    }

    /// Objects of kind `C` that carry the labels of an object of ours are read, and wake it when they change: pods that
    /// a child's own controller makes.
    pub fn watches_labelled<C: Viewed + Namespaced>(mut self) -> Self {
        self.rules.push(Rule::of::<C>(&["get", "list", "watch"]));
        self.needs.push(resource_name::<C>());
        self.sources.push(Box::new(|informers, _, queue, app, caches| {
            let informer = informers.seen::<C>(app);
            let (queue, app) = (queue.clone(), app.clone());
            informer.subscribe(Box::new(move |delta, origin| {
                for key in woken(delta, &app, |_, _| None) {
                    queue.add(key, priority(origin));
                }
            }));
            caches.insert(informer);
        }));
        self
    }

    /// A value that reconciles can read with [`Context::config`]: the operator's configuration, a client it brings.
    pub fn config<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state = self.state.with(value);
        self
    }

    /// Completes the controller with its reconciler.
    pub fn reconcile<F: Reconcile<K>>(self, reconciler: F) -> Declared {
        let names = Names::of::<K>();
        Declared {
            rules: self.rules.clone(),
            build: Box::new(move |informers| self.build(names, reconciler, informers)),
        }
    }

    fn build<F: Reconcile<K>>(self, names: Names, reconciler: F, informers: &mut Informers) -> Box<dyn Start> {
        let primary = informers.whole::<K>();
        let queue = WorkQueue::new(workqueue::Config {
            metrics: Arc::new(QueueMetrics::of(&names.app, informers.metrics())),
            ..workqueue::Config::default()
        });
        let woken = queue.clone();
        primary.subscribe(Box::new(move |delta, origin| woken.add(delta.key.clone(), priority(origin))));
        let mut caches = Caches::default();
        for source in self.sources {
            source(informers, &primary, &queue, &names.app, &mut caches);
        }
        Box::new(Built { names, needs: self.needs, primary, queue, caches, state: self.state, reconciler })
    }
}

/// A complete controller, ready for [`Manager::add`](crate::Manager::add).
#[must_use = "a controller does nothing until it is added to the manager"]
pub struct Declared {
    pub(crate) rules: Vec<Rule>,
    pub(crate) build: Build,
}

/// Wires the caches.
type Build = Box<dyn FnOnce(&mut Informers) -> Box<dyn Start>>;

/// A controller with its caches wired, waiting for the outside world.
pub(crate) trait Start {
    fn start(self: Box<Self>, outside: Arc<Outside>) -> Running;
}

/// A controller with a handle to everything the manager needs of it.
pub(crate) struct Running {
    pub(crate) name: Arc<str>,
    pub(crate) kind: String,
    pub(crate) group: String,
    /// The resources whose caches must be filled before it works.
    pub(crate) needs: Vec<String>,
    pub(crate) queue: WorkQueue<ObjectKey>,
    /// Puts every object of the kind into the queue again.
    pub(crate) resync: Box<dyn Fn() + Send + Sync>,
    /// One worker: takes keys until the queue is shut down.
    pub(crate) work: Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>,
}

struct Built<K: Root, F> {
    names: Names,
    needs: Vec<String>,
    primary: Arc<Informer<Whole<K>>>,
    queue: WorkQueue<ObjectKey>,
    caches: Caches,
    state: StateMap,
    reconciler: F,
}

impl<K: Root, F: Reconcile<K>> Start for Built<K, F> {
    fn start(self: Box<Self>, outside: Arc<Outside>) -> Running {
        let Self { names, needs, primary, queue, caches, state, reconciler } = *self;
        let requests = Requests::of::<K>(outside.client.clone(), &names.manager, outside.leading.clone());
        let (name, kind, group) = (names.app.clone(), names.kind.clone(), names.group.clone());
        let scope = Arc::new(Scope {
            outside,
            names,
            requests,
            primary: primary.clone(),
            caches,
            state,
            gate: StatusGate::default(),
            rollouts: std::sync::Mutex::default(),
        });
        primary.subscribe(tell_undecodable(&scope));
        let worker = Arc::new(Worker { scope, queue: queue.clone(), reconciler });
        let resynced = queue.clone();
        Running {
            name,
            kind,
            group,
            needs,
            queue,
            resync: Box::new(move || {
                for key in primary.store.keys() {
                    resynced.add(key, Priority::LOW);
                }
            }),
            work: Box::new(move || Box::pin(worker.clone().work())),
        }
    }
}
/// An object that does not decode never reaches a reconciler, so its owner is told here.
fn tell_undecodable<K: Root>(scope: &Arc<Scope<K>>) -> Subscriber {
    let scope = scope.clone();
    Box::new(move |delta, _| {
        let Some(Undecodable { uid, error }) = &delta.undecodable else { return };
        let message = format!("The object does not match its schema and is skipped: {error}");
        tracing::warn!(kind = scope.names.kind, object = %delta.key, %error, "Undecodable object is skipped");
        let regarding = Reference {
            api_version: scope.names.api_version.clone(),
            kind: scope.names.kind.clone(),
            key: delta.key.clone(),
            uid: uid.to_string(),
        };
        let note = Note { type_: EventType::Warning, reason: "Undecodable", message, related: None };
        scope.outside.recorder.post(&scope.names.manager, regarding, note);
    })
}
/// What a child's change wakes: the objects it belongs to by label, before and after, and its owner.
fn woken(delta: &Delta, app: &Arc<str>, owner: impl Fn(&Owner, &Arc<str>) -> Option<ObjectKey>) -> Vec<ObjectKey> {
    let labelled = delta.apps.iter().flatten().filter(|belongs: &&AppKey| belongs.is_of(app));
    let mut keys: Vec<ObjectKey> = labelled.map(|belongs| belongs.instance.clone()).collect();
    keys.extend(delta.owners.iter().flatten().filter_map(|found| owner(found, &delta.key.namespace)));
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The object that an owner reference means, if it is one of ours and the uid is its own.
fn owner_key<K: Root>(primary: &Informer<Whole<K>>, owner: &Owner, namespace: &Arc<str>) -> Option<ObjectKey> {
    let key = ObjectKey { namespace: namespace.clone(), name: owner.name.clone() };
    primary.store.known(&key).filter(|known| known.uid == owner.uid).map(|_| key)
}

/// Live changes overtake the work that a start or a gap in the watch brings.
fn priority(origin: Origin) -> Priority {
    match origin {
        Origin::Live => Priority::LIVE,
        Origin::List => Priority::LOW,
    }
}

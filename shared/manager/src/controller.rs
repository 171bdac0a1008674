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

use std::{collections::HashSet, future::Future, marker::PhantomData, pin::Pin, sync::Arc, time::Duration};

use workloads::{Child, Viewed};
use workqueue::{Priority, WorkQueue};

use crate::{
    api::{Namespaced, Requests},
    context::{Caches, Context, Names, Outside, Root, Scope, StateMap},
    error::Error,
    events::{EventType, Note, Reference},
    informer::{Informer, Origin, Subscriber, resource_name},
    informers::Informers,
    metrics::Metrics,
    object::ObjectKey,
    rbac::Rule,
    status::{Status, StatusGate},
    store::Delta,
    wire::{AppKey, Owner, Undecodable, Whole},
};

mod deletion;
mod queue_metrics;
mod worker;

use deletion::Cleanup;
pub use deletion::{Deletion, Finalize};

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
            role: Role::default(),
            cleanup: None,
            gone: None,
            scraped: None,
            kind: PhantomData,
        }
    }
}

/// What a controller may do beside what every one does.
#[derive(Debug, Clone)]
pub(crate) struct Role {
    /// Resources that are read by name, without a cache: `secrets`.
    pub(crate) reads: HashSet<String>,
    /// The finalizer of `on_delete`.
    pub(crate) finalizer: Option<&'static str>,
    /// Whether the object's own metadata may be written.
    pub(crate) annotates: bool,
    /// Whether an orphan that fits is taken over.
    pub(crate) adopts: bool,
}

impl Default for Role {
    fn default() -> Self {
        Self { reads: HashSet::new(), finalizer: None, annotates: false, adopts: true }
    }
}

/// Called with all objects of the kind, before a scrape.
type Scraped<K> = Box<dyn Fn(Objects<'_, K>) + Send + Sync>;

/// The cached objects of a kind, in no order, one at a time.
pub type Objects<'a, K> = &'a mut dyn Iterator<Item = Arc<K>>;

/// Called with the name of an object that has gone.
type Gone = Box<dyn Fn(&ObjectKey) + Send + Sync>;

/// A controller that is being declared. Does nothing until [`reconcile`](ControllerBuilder::reconcile) completes it and
/// [`Manager::add`](crate::Manager::add) takes it.
#[must_use = "a controller does nothing until it is given a reconciler and added to the manager"]
pub struct ControllerBuilder<K: Root> {
    sources: Vec<Source<K>>,
    needs: Vec<String>,
    rules: Vec<Rule>,
    state: StateMap,
    role: Role,
    cleanup: Option<Cleanup<K>>,
    gone: Option<Gone>,
    scraped: Option<Scraped<K>>,
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
        // Clusters that enforce owner references (OpenShift does) ask for this right before a child may block its owner.
        self.rules.push(Rule::of::<K>(&["update"]).subresource("finalizers"));
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

    /// Objects of kind `C` are read by name when a reconcile asks ([`Context::secret`]): no cache, no watch, and no right
    /// to list them.
    pub fn reads<C: Namespaced>(mut self) -> Self {
        self.rules.push(Rule::of::<C>(&["get"]));
        self.role.reads.insert(C::plural(&()).into_owned());
        self
    }

    /// Reconciles write annotations of the object itself ([`Context::annotate`]).
    pub fn annotates(mut self) -> Self {
        self.rules.push(Rule::of::<K>(&["patch"]));
        self.role.annotates = true;
        self
    }

    /// Children that an earlier object of the same name left behind are strangers too, instead of being taken over.
    pub fn never_adopts(mut self) -> Self {
        self.role.adopts = false;
        self
    }

    /// Runs `cleanup` when an object that carries `finalizer` is being deleted, also while it is paused; for what lives
    /// outside of the cluster. Owned children need none of this.
    ///
    /// The finalizer is never added by itself: [`Context::ensure_finalizer`] adds it, before the first thing is done
    /// outside. It is removed when `cleanup` returns [`Deletion::Finished`].
    pub fn on_delete<F: Finalize<K>>(mut self, finalizer: &'static str, cleanup: F) -> Self {
        self.role.finalizer = Some(finalizer);
        let cleanup = Arc::new(cleanup);
        self.cleanup = Some(Box::new(move |object, context| {
            let cleanup = cleanup.clone();
            Box::pin(async move { cleanup.call(object, context).await })
        }));
        self.annotates()
    }

    /// Calls `gone` when an object has gone: to drop its metrics. Does not see an object that is created again at once.
    pub fn on_gone(mut self, gone: impl Fn(&ObjectKey) + Send + Sync + 'static) -> Self {
        self.gone = Some(Box::new(gone));
        self
    }

    /// Calls `scraped` with all cached objects before the metrics are read, so that an operator can count them by what
    /// they say.
    pub fn on_scrape(mut self, scraped: impl Fn(Objects<'_, K>) + Send + Sync + 'static) -> Self {
        self.scraped = Some(Box::new(scraped));
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

    fn build<F: Reconcile<K>>(mut self, names: Names, reconciler: F, informers: &mut Informers) -> Box<dyn Start> {
        let primary = informers.whole::<K>();
        let queue = WorkQueue::new(workqueue::Config {
            metrics: Arc::new(QueueMetrics::of(&names.app, informers.metrics())),
            ..workqueue::Config::default()
        });
        let woken = queue.clone();
        primary.subscribe(Box::new(move |delta, origin| woken.add(delta.key.clone(), priority(origin))));
        let mut caches = Caches::default();
        for source in std::mem::take(&mut self.sources) {
            source(informers, &primary, &queue, &names.app, &mut caches);
        }
        let Self { needs, state, role, cleanup, gone, scraped, .. } = self;
        Box::new(Built { names, needs, primary, queue, caches, state, role, cleanup, gone, scraped, reconciler })
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
    /// Brings the metrics that are computed from objects up to date, before a scrape.
    pub(crate) scrape: Box<dyn Fn(&Metrics) + Send + Sync>,
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
    role: Role,
    cleanup: Option<Cleanup<K>>,
    gone: Option<Gone>,
    scraped: Option<Scraped<K>>,
    reconciler: F,
}

impl<K: Root, F: Reconcile<K>> Start for Built<K, F> {
    fn start(self: Box<Self>, outside: Arc<Outside>) -> Running {
        let Self { names, needs, primary, queue, caches, state, role, cleanup, gone, scraped, reconciler } = *self;
        let requests = Requests::of::<K>(outside.client.clone(), &names.manager, outside.leading.clone());
        let (name, kind, group) = (names.app.clone(), names.kind.clone(), names.group.clone());
        let scope = Arc::new(Scope {
            outside,
            names,
            requests,
            primary: primary.clone(),
            caches,
            state,
            role,
            gate: StatusGate::default(),
            rollouts: std::sync::Mutex::default(),
        });
        primary.subscribe(tell_undecodable(&scope));
        let (shown, limit) = (primary.clone(), scope.outside.settings.metrics_max_objects);
        let worker = Arc::new(Worker { scope, queue: queue.clone(), reconciler, cleanup, gone });
        let resynced = queue.clone();
        Running {
            name,
            kind,
            group,
            needs,
            queue,
            scrape: Box::new(move |metrics| {
                let (kind, keys) = (&shown.health.kind, shown.store.keys());
                let aggregated = keys.len() > limit;
                metrics.show_aggregated(kind, aggregated);
                // One at a time: they are decoded for this, and a scrape must not hold all of them at once.
                let mut objects = keys.iter().filter_map(|key| {
                    let object = shown.store.get(key)?;
                    let conditions = object.status().map_or(&[][..], Status::conditions);
                    metrics.show_conditions(kind, key, conditions, aggregated);
                    Some(object)
                });
                if let Some(scraped) = &scraped {
                    scraped(&mut objects);
                }
                objects.for_each(drop);
            }),
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
    primary.store.uid(&key).filter(|uid| *uid == owner.uid).map(|_| key)
}

/// Live changes overtake the work that a start or a gap in the watch brings.
fn priority(origin: Origin) -> Priority {
    match origin {
        Origin::Live => Priority::LIVE,
        Origin::List => Priority::LOW,
    }
}

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

use std::{collections::HashSet, future::Future, sync::Arc, time::Duration};

use workloads::{Child, Viewed};
use workqueue::{Priority, WorkQueue};

use crate::{
    api::Namespaced,
    context::{Caches, Context, Names, Root, StateMap},
    error::Error,
    informer::{Informer, InformerHealth, Origin, resource_name},
    informers::Informers,
    metrics::ChildMetrics,
    object::ObjectKey,
    rbac::Rule,
    store::{Delta, Values},
    wire::{AppKey, Owner, Whole},
};

mod deletion;
mod queue_metrics;
mod running;
mod wake;
mod worker;

use deletion::Cleanup;
pub use deletion::{Deletion, Finalize};

use queue_metrics::QueueMetrics;
use running::Built;
pub(crate) use running::{Running, Start};
pub(crate) use wake::{Cause, wake, wake_after};

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
        let rules = vec![Rule::of::<K>(&["get", "list", "watch"]), Rule::of::<K>(&["patch"]).subresource("status")];
        let behaviour = Behaviour {
            needs: vec![resource_name::<K>()],
            state: StateMap::default(),
            role: Role::default(),
            cleanup: None,
            gone: None,
            scraped: None,
            workers: None,
        };
        ControllerBuilder { sources: Vec::new(), children: Vec::new(), rules, indices: Vec::new(), behaviour }
    }
}

/// What a controller may do beside what every one does.
#[derive(Debug, Clone)]
pub(crate) struct Role {
    /// Resources that are read by name, without a cache: `secrets`.
    pub(crate) reads: HashSet<String>,
    /// Kinds of children that a cluster may not have.
    pub(crate) optional: HashSet<String>,
    /// The finalizer of `on_delete`.
    pub(crate) finalizer: Option<&'static str>,
    /// Whether the object's own metadata may be written.
    pub(crate) annotates: bool,
    /// Whether an orphan that fits is taken over.
    pub(crate) adopts: bool,
}

impl Default for Role {
    fn default() -> Self {
        Self { reads: HashSet::new(), optional: HashSet::new(), finalizer: None, annotates: false, adopts: true }
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
    /// Kinds of children.
    children: Vec<String>,
    rules: Vec<Rule>,
    indices: Vec<(&'static str, Values<K>)>,
    behaviour: Behaviour<K>,
}

/// What sets one controller apart while it runs.
struct Behaviour<K: Root> {
    /// The resources whose caches must be filled before it works.
    needs: Vec<String>,
    state: StateMap,
    role: Role,
    cleanup: Option<Cleanup<K>>,
    gone: Option<Gone>,
    scraped: Option<Scraped<K>>,
    /// How many workers it wants, if it has a wish of its own.
    workers: Option<usize>,
}

/// Adds one cache to a controller, and what wakes it from there.
type Source<K> =
    Box<dyn FnOnce(&mut Informers, &Arc<Informer<Whole<K>>>, &WorkQueue<ObjectKey>, &Arc<str>, &mut Caches)>;

impl<K: Root> ControllerBuilder<K> {
    /// Objects of kind `C` are children: changes to them wake their owner, and the Context may write them.
    ///
    /// They are watched by `app.kubernetes.io/managed-by`, so strangers' objects cost nothing.
    pub fn owns<C: Child + Namespaced>(mut self) -> Self {
        self.behaviour.needs.push(resource_name::<C>());
        self.source_of_children::<C>(|_, health| health.need())
    }

    /// As [`owns`](Self::owns), for a kind that not every cluster has, such as `ServiceMonitor`. Where its definition is not
    /// installed, such children are left out ([`Context::installed`]); when it comes, all objects are reconciled again.
    pub fn owns_if_installed<C: Child + Namespaced>(mut self) -> Self {
        self.behaviour.role.optional.insert(resource_name::<C>());
        self.source_of_children::<C>(|caches, health| caches.optional.push(health.clone()))
    }

    fn source_of_children<C: Child + Namespaced>(mut self, note: fn(&mut Caches, &Arc<InformerHealth>)) -> Self {
        self.rules.push(Rule::of::<C>(&["get", "list", "watch", "create", "patch", "delete"]));
        // Clusters that enforce owner references (OpenShift does) ask for this right before a child may block its owner.
        self.rules.push(Rule::of::<K>(&["update"]).subresource("finalizers"));
        self.children.push(C::kind(&()).into_owned());
        self.sources.push(Box::new(move |informers, primary, queue, app, caches| {
            let informer = informers.seen::<C>(app);
            let (primary, queue, app, out_of_sight) =
                (primary.clone(), queue.clone(), app.clone(), caches.out_of_sight.clone());
            informer.subscribe(Box::new(move |delta, origin| {
                let owner = |owner: &Owner, namespace: &Arc<str>| {
                    let key = owner_key(&primary, owner, namespace)?;
                    out_of_sight.heed(&key, &C::kind(&()), delta);
                    Some(key)
                };
                wake_related::<C>(&queue, woken(delta, &app, owner), delta, origin);
            }));
            note(caches, &informer.health);
            caches.insert(informer);
        }));
        self
    }

    /// Objects of kind `C` that carry the labels of an object of ours are read, and wake it when they change: pods that
    /// a child's own controller makes.
    pub fn watches_labelled<C: Viewed + Namespaced>(mut self) -> Self {
        self.rules.push(Rule::of::<C>(&["list", "watch"]));
        self.behaviour.needs.push(resource_name::<C>());
        self.sources.push(Box::new(|informers, _, queue, app, caches| {
            let informer = informers.seen::<C>(app);
            informer.health.need();
            let (queue, app) = (queue.clone(), app.clone());
            informer.subscribe(Box::new(move |delta, origin| {
                wake_related::<C>(&queue, woken(delta, &app, |_, _| None), delta, origin);
            }));
            caches.insert(informer);
        }));
        self
    }

    /// Objects of kind `C` are read by name when a reconcile asks ([`Context::secret`]): no cache, no watch, and no right
    /// to list them.
    pub fn reads<C: Namespaced>(mut self) -> Self {
        self.rules.push(Rule::of::<C>(&["get"]));
        self.behaviour.role.reads.insert(C::plural(&()).into_owned());
        self
    }

    /// Reconciles write annotations of the object itself ([`Context::annotate`]).
    pub fn annotates(mut self) -> Self {
        self.rules.push(Rule::of::<K>(&["patch"]));
        self.behaviour.role.annotates = true;
        self
    }

    /// Children that an earlier object of the same name left behind are strangers too, instead of being taken over.
    pub fn never_adopts(mut self) -> Self {
        self.behaviour.role.adopts = false;
        self
    }

    /// Runs `cleanup` when an object that carries `finalizer` is being deleted, also while it is paused; for what lives
    /// outside of the cluster. Owned children need none of this.
    ///
    /// The finalizer is never added by itself: [`Context::ensure_finalizer`] adds it, before the first thing is done
    /// outside. It is removed when `cleanup` returns [`Deletion::Finished`].
    pub fn on_delete<F: Finalize<K>>(mut self, finalizer: &'static str, cleanup: F) -> Self {
        self.behaviour.role.finalizer = Some(finalizer);
        let cleanup = Arc::new(cleanup);
        self.behaviour.cleanup = Some(Box::new(move |object, context| {
            let cleanup = cleanup.clone();
            Box::pin(async move { cleanup.call(object, context).await })
        }));
        self.annotates()
    }

    /// Calls `gone` when an object has gone: to drop its metrics. Does not see an object that is created again at once.
    pub fn on_gone(mut self, gone: impl Fn(&ObjectKey) + Send + Sync + 'static) -> Self {
        self.behaviour.gone = Some(Box::new(gone));
        self
    }

    /// Calls `scraped` with all cached objects before the metrics are read, so that an operator can count them by what
    /// they say.
    pub fn on_scrape(mut self, scraped: impl Fn(Objects<'_, K>) + Send + Sync + 'static) -> Self {
        self.behaviour.scraped = Some(Box::new(scraped));
        self
    }

    /// Works on so many objects at once, unless `--max-concurrent-reconciles` names the kind: for reconciles that mostly wait
    /// for somebody outside.
    pub fn workers(mut self, workers: usize) -> Self {
        self.behaviour.workers = Some(workers);
        self
    }

    /// Keeps the objects findable by what they say: [`Context::indexed`] gives those that have a value among `values`. What
    /// `values` returns may be none, one or many; it must depend on the object alone.
    ///
    /// An object with one value takes about 75 bytes more, and each further value about 45, however long it is.
    pub fn index(mut self, name: &'static str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.indices.push((name, Box::new(values)));
        self
    }

    /// A value that reconciles can read with [`Context::config`]: the operator's configuration, a client it brings.
    pub fn config<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.behaviour.state = self.behaviour.state.with(value);
        self
    }

    /// Completes the controller with its reconciler.
    pub fn reconcile<F: Reconcile<K>>(self, reconciler: F) -> Declared {
        let names = Names::of::<K>();
        Declared {
            names: names.clone(),
            rules: self.rules.clone(),
            children: self.children.clone(),
            build: Box::new(move |informers, children| self.build(names, reconciler, informers, children)),
        }
    }

    fn build<F: Reconcile<K>>(
        mut self,
        names: Names,
        reconciler: F,
        informers: &mut Informers,
        children: ChildMetrics,
    ) -> Box<dyn Start> {
        let primary = informers.whole::<K>();
        primary.health.need();
        for (name, values) in std::mem::take(&mut self.indices) {
            primary.store.index(name, values);
        }
        let queue = WorkQueue::new(workqueue::Config {
            metrics: Arc::new(QueueMetrics::of(&names.app, informers.metrics())),
            seed: Some(informers.random().number()),
            ..workqueue::Config::default()
        });
        let woken = queue.clone();
        primary.subscribe(Box::new(move |delta, origin| {
            wake(&woken, delta.key.clone(), priority(origin), &Cause::Change(origin));
        }));
        let mut caches = Caches::default();
        for source in std::mem::take(&mut self.sources) {
            source(informers, &primary, &queue, &names.app, &mut caches);
        }
        Box::new(Built { names, children, primary, queue, caches, behaviour: self.behaviour, reconciler })
    }
}

/// A complete controller, ready for [`Manager::add`](crate::Manager::add).
#[must_use = "a controller does nothing until it is added to the manager"]
pub struct Declared {
    pub(crate) names: Names,
    pub(crate) rules: Vec<Rule>,
    /// Kinds of children.
    pub(crate) children: Vec<String>,
    pub(crate) build: Build,
}

/// Wires the caches.
type Build = Box<dyn FnOnce(&mut Informers, ChildMetrics) -> Box<dyn Start>>;

/// What a child's change wakes: the objects it belongs to by label, before and after, and its owner.
fn woken(delta: &Delta, app: &Arc<str>, owner: impl Fn(&Owner, &Arc<str>) -> Option<ObjectKey>) -> Vec<ObjectKey> {
    let labelled = delta.apps.iter().flatten().filter(|belongs: &&AppKey| belongs.is_of(app));
    let mut keys: Vec<ObjectKey> = labelled.map(|belongs| belongs.instance.clone()).collect();
    keys.extend(delta.owners.iter().flatten().filter_map(|found| owner(found, &delta.key.namespace)));
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn wake_related<C: Namespaced>(queue: &WorkQueue<ObjectKey>, woken: Vec<ObjectKey>, delta: &Delta, origin: Origin) {
    for key in woken {
        wake(queue, key, priority(origin), &Cause::Related { kind: &C::kind(&()), key: &delta.key, origin });
    }
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

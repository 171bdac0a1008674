//! The [`Context`] of a reconcile: reads the cache, writes children and status, and emits events.
//!
//! A reconciler reaches everything outside of it through its [`Context`], so the same code runs on a real cluster and in a
//! test. The Context also collects what the status and the worker need afterwards: which writes were refused, and when to
//! requeue.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt::Debug,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cache::{AppKey, Coverage, Full, Informer, InformerHealth, ObjectKey, Projected, Representation, Store, Uid};
use jiff::Timestamp;
use kube::{Client, Resource, ResourceExt, core::NamespaceResourceScope};
use parking_lot::Mutex;
use tokio::time::Instant;
use workloads::{Live, Viewed};
use workqueue::WorkQueue;

use crate::{
    api::Requests,
    client,
    clock::Clock,
    conditions::Problem,
    error::Error,
    events::{EventType, Note, Recorder, Reference, gather},
    leading::{Leading, Term},
    metrics::{ChildMetrics, Metrics},
    random::Random,
    settings::Settings,
    status::{Primary, StatusGate},
};

mod answer;
mod apply;
mod capabilities;
mod create;
mod lost_children;
mod memory;
mod primary;
mod read;
mod recent;
mod status_writer;

pub(crate) use capabilities::Capabilities;
pub use create::Creation;
use memory::Rollout;
pub(crate) use memory::{LastReconciled, Memory};
pub(crate) use primary::{has_finalizer, is_paused, paused_annotation, reconcile_request};
pub use read::SecretValues;
pub(crate) use recent::Recent;

/// The handle of one reconcile of one object of kind `K`. Clones belong to the same reconcile. `S` is the type of the controller's
/// [`config`](crate::ControllerBuilder::config).
pub struct Context<K: Primary, S = ()> {
    controller: Arc<ControllerState<K>>,
    reconciliation: Arc<Reconciliation<K>>,
    config: Arc<S>,
}

/// A type that reconciles share.
pub trait Shared: Send + Sync + 'static {}
impl<S: Send + Sync + 'static> Shared for S {}

/// The state that all reconciles of one controller share.
pub(crate) struct ControllerState<K: Primary> {
    pub(crate) environment: Arc<Environment>,
    pub(crate) names: Names,
    pub(crate) children: ChildMetrics,
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) primary: Arc<Informer<Full<K>>>,
    pub(crate) caches: Caches,
    pub(crate) gate: StatusGate,
    pub(crate) capabilities: Capabilities,
    pub(crate) memory: Arc<Memory>,
    /// Children that were just created. If one is missing again, its owner may be gone.
    pub(crate) recent: Recent,
}

/// What a process shares among its controllers: client, clock, random numbers, events and metrics.
pub(crate) struct Environment {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: Settings,
    pub(crate) leading: Leading,
    /// The client that [`Context::client`] returned last, and its term. All reconciles of a term share it.
    pub(crate) guarded: Mutex<Option<(Term, Client)>>,
}

/// The names under which a controller writes. They are part of the API and never change.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// `Memcached`.
    pub(crate) kind: String,
    /// `memcached`, the value of `app.kubernetes.io/name`.
    pub(crate) app: Arc<str>,
    /// `memcached-operator`.
    pub(crate) managed_by: String,
    /// `memcached-controller`: field manager and reporting controller.
    pub(crate) manager: String,
    /// `memcached.cache.example.com/v1`.
    pub(crate) api_version: String,
    pub(crate) group: String,
}

/// The caches that a controller declared, by the type of their informer.
#[derive(Default)]
pub(crate) struct Caches {
    by_type: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// The health of informers whose kinds may not be installed.
    pub(crate) optional: Vec<Arc<InformerHealth>>,
    /// For each cache, whether it has what reconciles in a namespace read from it.
    coverages: Vec<CoverageOf>,
}

type CoverageOf = Box<dyn Fn(&str) -> Coverage + Send + Sync>;

/// The state of one reconcile.
struct Reconciliation<K> {
    /// The object that this reconcile acts on. It is replaced when the reconcile reads the object again, and updated with the
    /// reconcile's own writes. Changes of other clients must not slip in, because `observedGeneration` is taken from it.
    object: Mutex<Arc<K>>,
    key: ObjectKey,
    uid: String,
    id: Uid,
    /// The term in which it began. It writes in no other.
    term: Term,
    /// The requests for the object itself.
    requests: Requests,
    notes: Mutex<Vec<Note>>,
    /// Kinds of children in the order in which the reconciler wrote them. Events name them in this order.
    kinds: Mutex<Vec<String>>,
    refusals: Mutex<Vec<Problem>>,
    /// The kinds and keys of the children that the reconcile leaves as they are, although something else is wanted.
    left: Mutex<Vec<(String, ObjectKey)>>,
    wake: Mutex<Option<Instant>>,
    /// Whether a refused write has to be retried with back-off.
    unfinished: AtomicBool,
    changed_children: AtomicBool,
}

/// What the worker needs to know after the reconciler has returned.
#[derive(Debug, Default)]
pub(crate) struct Requeue {
    pub(crate) wake: Option<Instant>,
    pub(crate) unfinished: bool,
}

impl<K: Primary, S: Shared> Context<K, S> {
    pub(crate) fn new(controller: Arc<ControllerState<K>>, config: Arc<S>, object: Arc<K>, key: ObjectKey) -> Self {
        let uid = object.uid().unwrap_or_default();
        let Environment { client, leading, .. } = &*controller.environment;
        let term = leading.term();
        let reconciliation = Reconciliation {
            requests: Requests::of::<K>(client.clone(), &controller.names.manager, term.clone()),
            term,
            object: Mutex::new(object),
            key,
            id: Uid::of(&uid),
            uid,
            notes: Mutex::default(),
            kinds: Mutex::default(),
            refusals: Mutex::default(),
            left: Mutex::default(),
            wake: Mutex::default(),
            unfinished: AtomicBool::new(false),
            changed_children: AtomicBool::new(false),
        };
        Self { controller, reconciliation: Arc::new(reconciliation), config }
    }

    /// Returns the reconciled object, with this reconcile's own writes.
    pub fn object(&self) -> Arc<K> {
        self.reconciliation.object.lock().clone()
    }

    /// Returns the objects of kind `C` that carry this object's selector labels, sorted by name. From the cache.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind.
    pub fn labelled<C: Viewed>(&self) -> Vec<Arc<Live<C::View>>>
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        let app = AppKey::new(&self.controller.names.app, self.reconciliation.key.clone());
        self.store::<C>().labelled(&app)
    }

    /// Returns the value that the controller was declared with, such as the operator's configuration or a client.
    pub fn config(&self) -> &S {
        &self.config
    }

    /// Returns a client for objects that are not children, such as to patch an object of another owner. It sends a write only while
    /// this process leads, and not in a later term than that of this reconcile. [`permits`](crate::ControllerBuilder::permits)
    /// declares what it may do.
    ///
    /// Nothing slows its writes down: if another client, or another object of the same kind, undoes a write each time, both go on
    /// for ever at full speed. A reconciler has to make sure that only one object writes a field.
    ///
    /// For children use [`apply`](Self::apply) and its relatives: only they keep the cache in step and report what they do.
    pub fn client(&self) -> Client {
        let Environment { client, guarded, .. } = &*self.controller.environment;
        let (term, mut guarded) = (&self.reconciliation.term, guarded.lock());
        if let Some((of, client)) = &*guarded
            && of == term
        {
            return client.clone();
        }
        let client = client::guarded(client.clone(), term.clone());
        *guarded = Some((term.clone(), client.clone()));
        client
    }

    /// Returns the same Context for a function that does not take the value.
    pub(crate) fn without_config(self) -> Context<K> {
        Context { controller: self.controller, reconciliation: self.reconciliation, config: Arc::new(()) }
    }

    /// Returns a random number in `0.0..1.0`, for jitter.
    pub fn random(&self) -> f64 {
        self.controller.environment.random.fraction()
    }

    /// Returns 64 hexadecimal digits, random enough for a password.
    pub fn secret_token(&self) -> String {
        self.controller.environment.random.token()
    }

    /// Returns the time of day.
    pub fn now(&self) -> Timestamp {
        (self.controller.environment.clock)()
    }

    /// Emits an event about the object. Events of one reconcile with the same type and reason are sent as one.
    pub fn event(&self, type_: EventType, reason: &'static str, message: impl Into<String>) {
        self.reconciliation.notes.lock().push(Note {
            type_,
            reason: reason.into(),
            message: message.into(),
            related: None,
        });
    }

    /// Runs independent writes concurrently. All of them run to their end, even if one fails; then the first error is
    /// returned.
    pub async fn all<W: JoinAll>(&self, writes: W) -> Result<W::Output, Error> {
        writes.join_all().await
    }

    /// Requeues the object at `time` at the latest.
    pub fn requeue_at(&self, time: Timestamp) {
        let wait = time.duration_since(self.now()).max(jiff::SignedDuration::ZERO).unsigned_abs();
        // Wake slightly late: `time` must have passed then. Times in conditions are whole seconds.
        self.wake(Instant::now() + wait + Duration::from_millis(20));
    }

    /// Posts the collected events, and returns what is left to do.
    pub(crate) fn finish(&self) -> Requeue {
        let kinds = std::mem::take(&mut *self.reconciliation.kinds.lock());
        let mut notes = std::mem::take(&mut *self.reconciliation.notes.lock());
        // Children are written concurrently, so their notes arrive in any order.
        notes.sort_by_key(|note| note.related.as_ref().map(|child| kinds.iter().position(|kind| *kind == child.kind)));
        for note in gather(notes) {
            self.controller.environment.recorder.post(&self.controller.names.manager, self.reference(), note);
        }
        Requeue {
            wake: *self.reconciliation.wake.lock(),
            unfinished: self.reconciliation.unfinished.load(Ordering::Relaxed),
        }
    }

    fn wake(&self, at: Instant) {
        let mut wake = self.reconciliation.wake.lock();
        *wake = Some(wake.map_or(at, |other| other.min(at)));
    }

    fn store<C: Viewed>(&self) -> &Store<Projected<C>> {
        &self.informer::<C>().store
    }

    fn informer<C: Viewed>(&self) -> &Informer<Projected<C>> {
        let informer = self.controller.caches.get::<Informer<Projected<C>>>();
        match informer {
            Some(informer) => informer,
            None => panic!(
                "{}'s controller uses {1} but does not declare it: add .owns::<{1}>()",
                self.controller.names.kind,
                C::kind(&())
            ),
        }
    }

    fn reference(&self) -> Reference {
        Reference {
            api_version: self.controller.names.api_version.clone(),
            kind: self.controller.names.kind.clone(),
            key: self.reconciliation.key.clone(),
            uid: self.reconciliation.uid.clone(),
        }
    }

    /// Records a problem that a user has to fix. Other children are still written, and the status reports the problem.
    fn refuse(&self, problem: Problem, again: Again) {
        match again {
            Again::Backoff => self.reconciliation.unfinished.store(true, Ordering::Relaxed),
            Again::After(wait) => self.wake(Instant::now() + wait),
        }
        self.reconciliation.refusals.lock().push(problem);
    }
}

/// When to retry a refused write.
#[derive(Debug, Clone, Copy)]
enum Again {
    Backoff,
    After(Duration),
}

impl<K: Primary, S> Clone for Context<K, S> {
    fn clone(&self) -> Self {
        let Self { controller, reconciliation, config } = self;
        Self { controller: controller.clone(), reconciliation: reconciliation.clone(), config: config.clone() }
    }
}

impl<K: Primary, S> Debug for Context<K, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, key) = (&self.controller.names.kind, &self.reconciliation.key);
        f.debug_struct("Context").field("kind", kind).field("key", key).finish_non_exhaustive()
    }
}

impl<K: Primary> Debug for ControllerState<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerState").field("kind", &self.names.kind).finish_non_exhaustive()
    }
}

impl Names {
    pub(crate) fn of<K: Resource<DynamicType = ()>>() -> Self {
        let kind = K::kind(&()).into_owned();
        let app = kind.to_lowercase();
        Self {
            managed_by: format!("{app}-operator"),
            manager: format!("{app}-controller"),
            api_version: K::api_version(&()).into_owned(),
            group: K::group(&()).into_owned(),
            app: app.into(),
            kind,
        }
    }
}

impl Caches {
    /// Adds a cache from which a reconcile reads the objects in its own namespace.
    pub(crate) fn insert<R: Representation>(&mut self, informer: Arc<Informer<R>>) {
        self.by_type.insert(TypeId::of::<Informer<R>>(), informer.clone());
        let is_optional = self.optional.iter().any(|health| Arc::ptr_eq(health, &informer.health));
        self.coverages.push(Box::new(move |namespace| {
            match informer.coverage(namespace) {
                // The kind is not installed, or counts as not installed in this namespace.
                Coverage::Failing if is_optional => Coverage::Complete,
                other => other,
            }
        }));
    }

    /// Adds a cache from which a reconcile reads objects in any namespace.
    pub(crate) fn insert_of_all_namespaces<R: Representation>(&mut self, informer: Arc<Informer<R>>) {
        self.by_type.insert(TypeId::of::<Informer<R>>(), informer.clone());
        self.coverages.push(Box::new(move |namespace| informer.coverage("").max(informer.coverage(namespace))));
    }

    /// Whether the caches have what a reconcile in this namespace reads: the worst of them counts.
    pub(crate) fn coverage(&self, namespace: &str) -> Coverage {
        self.coverages.iter().map(|coverage| coverage(namespace)).max().unwrap_or(Coverage::Complete)
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.by_type.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

/// A tuple of writes that can run concurrently: the argument of [`Context::all`].
pub trait JoinAll {
    /// The tuple of their results.
    type Output;

    /// Runs all of them to their end.
    fn join_all(self) -> impl Future<Output = Result<Self::Output, Error>> + Send;
}

macro_rules! join_all {
    ($join:ident: $($future:ident $value:ident $out:ident),+) => {
        impl<$($future, $out),+> JoinAll for ($($future,)+)
        where
            $($future: Future<Output = Result<$out, Error>> + Send, $out: Send,)+
        {
            type Output = ($($out,)+);

            async fn join_all(self) -> Result<Self::Output, Error> {
                let ($($value,)+) = self;
                let ($($value,)+) = futures::$join!($($value),+);
                Ok(($($value?,)+))
            }
        }
    };
}

join_all!(join: A a X, B b Y);
join_all!(join: A a X, B b Y, C c Z);
join_all!(join: A a X, B b Y, C c Z, D d W);
join_all!(join: A a X, B b Y, C c Z, D d W, E e V);

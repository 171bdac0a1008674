//! What a reconcile may do: read the cache, write children and status, and leave word for people.
//!
//! Everything that touches the outside reaches a reconciler through its [`Context`], so the same code runs on a real
//! cluster and in a test. The Context also remembers what a reconcile must not forget: which children were refused, and
//! when to look again.

use std::{
    any::{Any, TypeId, type_name},
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Debug,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use kube::{Client, Resource, ResourceExt, core::object::HasStatus};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;
use workloads::{Live, Viewed};
use workqueue::WorkQueue;

use crate::{
    api::{Namespaced, Requests},
    conditions::Problem,
    controller::Role,
    error::Error,
    events::{EventType, Note, Recorder, Reference, gather},
    informer::{Informer, InformerHealth},
    leading::Leading,
    metrics::{ChildMetrics, Metrics},
    object::{ObjectKey, Uid},
    random::Random,
    settings::Settings,
    status::{Status, StatusGate},
    store::Store,
    wire::{AppKey, Seen, Whole},
};

mod answer;
mod apply;
mod out_of_sight;
mod read;
mod recent;
mod report;
mod root;

use out_of_sight::OutOfSight;
pub use read::SecretValues;
pub(crate) use recent::Recent;
pub(crate) use report::annotation;
pub use root::Creation;
pub(crate) use root::has_finalizer;

/// A custom resource that a controller reconciles: any `#[derive(CustomResource)]` type with a [`Status`].
pub trait Root:
    Namespaced + HasStatus<Status: Status> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

impl<K> Root for K where
    K: Namespaced + HasStatus<Status: Status> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

/// One reconcile's view of the world, for one object of kind `K`. A clone is the same reconcile.
#[derive(Debug)]
pub struct Context<K: Root> {
    scope: Arc<Scope<K>>,
    pass: Arc<Pass<K>>,
}

/// What all reconciles of one controller share.
pub(crate) struct Scope<K: Root> {
    pub(crate) outside: Arc<Outside>,
    pub(crate) names: Names,
    pub(crate) children: ChildMetrics,
    pub(crate) requests: Requests,
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) primary: Arc<Informer<Whole<K>>>,
    pub(crate) caches: Caches,
    pub(crate) state: StateMap,
    pub(crate) gate: StatusGate,
    pub(crate) role: Role,
    /// Roll-outs that we started, until they are through.
    pub(crate) rollouts: Mutex<HashMap<ObjectKey, Rollout>>,
    /// Objects whose people know that a kind of child is not installed.
    pub(crate) told_missing: Mutex<HashMap<ObjectKey, HashSet<String>>>,
    /// Children that should be there, and if they are not, their owner may be gone.
    pub(crate) recent: Recent,
    /// Children whose creation was sent and not answered, by the object that they are for: they may be there.
    pub(crate) unanswered: Mutex<HashMap<ObjectKey, BTreeSet<ChildName>>>,
}

/// Kind and name.
type ChildName = (String, Arc<str>);

/// A pod template on its way to all pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rollout {
    since: Instant,
    /// How many pods a change is for. None: they are the first, of which people are not told.
    replicas: Option<i64>,
}

/// The outside world: API server, clock, people.
pub(crate) struct Outside {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: Settings,
    pub(crate) leading: Leading,
}

/// Where the time of day comes from.
pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The names under which a controller writes: they are part of the API and never change.
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

/// The caches that a controller declared, by representation.
#[derive(Default)]
pub(crate) struct Caches {
    by_type: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// Those of kinds that a cluster may not have.
    pub(crate) optional: Vec<Arc<InformerHealth>>,
    pub(crate) out_of_sight: Arc<OutOfSight>,
}

/// Values that an operator brings along, by type.
#[derive(Default, Clone)]
pub(crate) struct StateMap(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

/// What one reconcile has gathered.
#[derive(Debug)]
struct Pass<K> {
    /// The object that this reconcile acts on: replaced when it reads the object anew, and brought up to date with what it
    /// writes itself. Changes of others never get in here unseen, as `observedGeneration` is taken from it.
    object: Mutex<Arc<K>>,
    key: ObjectKey,
    uid: String,
    id: Uid,
    notes: Mutex<Vec<Note>>,
    /// Kinds of children in the order in which they were asked for: people are told in that order.
    asked: Mutex<Vec<String>>,
    refusals: Mutex<Vec<Problem>>,
    wake: Mutex<Option<Instant>>,
    /// A refusal that is tried again with back-off.
    unfinished: AtomicBool,
    changed_children: AtomicBool,
}

/// What the worker has to know when the reconciler has returned.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    pub(crate) wake: Option<Instant>,
    pub(crate) unfinished: bool,
}

impl<K: Root> Context<K> {
    pub(crate) fn new(scope: Arc<Scope<K>>, object: Arc<K>, key: ObjectKey) -> Self {
        let uid = object.uid().unwrap_or_default();
        let pass = Pass {
            object: Mutex::new(object),
            key,
            id: Uid::of(&uid),
            uid,
            notes: Mutex::default(),
            asked: Mutex::default(),
            refusals: Mutex::default(),
            wake: Mutex::default(),
            unfinished: AtomicBool::new(false),
            changed_children: AtomicBool::new(false),
        };
        Self { scope, pass: Arc::new(pass) }
    }

    /// The object that is reconciled, with what this reconcile itself has written.
    pub fn object(&self) -> Arc<K> {
        lock(&self.pass.object).clone()
    }

    /// The objects of kind `C` that carry this object's selector labels, sorted by name. From the cache.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns` or `watches_labelled`.
    pub fn labelled<C: Viewed + Namespaced>(&self) -> Vec<Arc<Live<C::View>>> {
        let app = AppKey::new(&self.scope.names.app, self.pass.key.clone());
        self.store::<C>().labelled(&app)
    }

    /// An operator's own value, registered with its controller: its configuration, a client.
    ///
    /// # Panics
    ///
    /// When the controller was registered without a value of this type.
    pub fn config<T: Send + Sync + 'static>(&self) -> &T {
        let value = self.scope.state.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref());
        value.unwrap_or_else(|| {
            panic!("{}'s controller has no {}: register it with .config(…)", self.scope.names.kind, type_name::<T>())
        })
    }

    /// A random number in `0.0..1.0`, for jitter.
    pub fn random(&self) -> f64 {
        self.scope.outside.random.fraction()
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        (self.scope.outside.clock)()
    }

    /// Leaves an event on the object. Events of one reconcile with the same type and reason are sent as one.
    pub fn event(&self, type_: EventType, reason: &'static str, message: impl Into<String>) {
        lock(&self.pass.notes).push(Note { type_, reason: reason.into(), message: message.into(), related: None });
    }

    /// Runs writes that do not depend on each other at the same time. All of them run to their end, also when one
    /// fails; then the first error is returned.
    pub async fn all<W: Together>(&self, writes: W) -> Result<W::Output, Error> {
        writes.together().await
    }

    /// Asks to be reconciled again at `time` at the latest.
    pub fn wake_at(&self, time: Timestamp) {
        let wait = time.duration_since(self.now()).max(jiff::SignedDuration::ZERO).unsigned_abs();
        // Times in conditions are whole seconds: a moment later they have certainly passed.
        self.wake(Instant::now() + wait + Duration::from_millis(20));
    }

    /// Sends the gathered events, and says what is left to do.
    pub(crate) fn finish(&self) -> Remains {
        let asked = std::mem::take(&mut *lock(&self.pass.asked));
        let mut notes = std::mem::take(&mut *lock(&self.pass.notes));
        // Children are written at the same time, so their notes come in any order.
        notes.sort_by_key(|note| note.related.as_ref().map(|child| asked.iter().position(|kind| *kind == child.kind)));
        for note in gather(notes) {
            self.scope.outside.recorder.post(&self.scope.names.manager, self.reference(), note);
        }
        Remains { wake: *lock(&self.pass.wake), unfinished: self.pass.unfinished.load(Ordering::Relaxed) }
    }

    fn wake(&self, at: Instant) {
        let mut wake = lock(&self.pass.wake);
        *wake = Some(wake.map_or(at, |other| other.min(at)));
    }

    fn store<C: Viewed + Namespaced>(&self) -> &Store<Seen<C>> {
        &self.informer::<C>().store
    }

    fn informer<C: Viewed + Namespaced>(&self) -> &Informer<Seen<C>> {
        let informer = self.scope.caches.get::<Informer<Seen<C>>>();
        match informer {
            Some(informer) => informer,
            None => panic!(
                "{}'s controller uses {1} but does not declare it: add .owns::<{1}>()",
                self.scope.names.kind,
                C::kind(&())
            ),
        }
    }

    fn reference(&self) -> Reference {
        Reference {
            api_version: self.scope.names.api_version.clone(),
            kind: self.scope.names.kind.clone(),
            key: self.pass.key.clone(),
            uid: self.pass.uid.clone(),
        }
    }

    /// Something that a person has to mend: the other children go on, and the status tells.
    fn refuse(&self, problem: Problem, again: Again) {
        match again {
            Again::Backoff => self.pass.unfinished.store(true, Ordering::Relaxed),
            Again::After(wait) => self.wake(Instant::now() + wait),
        }
        lock(&self.pass.refusals).push(problem);
    }
}

/// When a refused write is tried again.
#[derive(Debug, Clone, Copy)]
enum Again {
    Backoff,
    After(Duration),
}

impl<K: Root> Clone for Context<K> {
    fn clone(&self) -> Self {
        Self { scope: self.scope.clone(), pass: self.pass.clone() }
    }
}

impl<K: Root> Debug for Scope<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").field("kind", &self.names.kind).finish_non_exhaustive()
    }
}

impl<K: Root> Scope<K> {
    /// The object is gone: nothing is kept for it.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.gate.forget(key);
        lock(&self.rollouts).remove(key);
        lock(&self.told_missing).remove(key);
        lock(&self.unanswered).remove(key);
        self.caches.out_of_sight.forget(key);
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
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, cache: Arc<T>) {
        self.by_type.insert(TypeId::of::<T>(), cache);
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.by_type.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl StateMap {
    pub(crate) fn with<T: Send + Sync + 'static>(&self, value: T) -> Self {
        let mut map = (*self.0).clone();
        map.insert(TypeId::of::<T>(), Arc::new(value));
        Self(Arc::new(map))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tuple of writes that can run at the same time: what [`Context::all`] takes.
pub trait Together {
    /// The tuple of their results.
    type Output;

    /// Runs all of them to their end.
    fn together(self) -> impl Future<Output = Result<Self::Output, Error>> + Send;
}

macro_rules! together {
    ($join:ident: $($future:ident $value:ident $out:ident),+) => {
        impl<$($future, $out),+> Together for ($($future,)+)
        where
            $($future: Future<Output = Result<$out, Error>> + Send, $out: Send,)+
        {
            type Output = ($($out,)+);

            async fn together(self) -> Result<Self::Output, Error> {
                let ($($value,)+) = self;
                let ($($value,)+) = futures::$join!($($value),+);
                Ok(($($value?,)+))
            }
        }
    };
}

together!(join: A a X, B b Y);
together!(join: A a X, B b Y, C c Z);
together!(join: A a X, B b Y, C c Z, D d W);
together!(join: A a X, B b Y, C c Z, D d W, E e V);

//! The informer: keeps the [`Store`] of one kind in step with the API server, and passes each change to its subscribers.
//!
//! There is one informer per kind and representation, however many controllers read it. It has a [`watch`] of all namespaces, or one
//! of each. A missing CRD or a 403 is a state that heals by itself ([`health`]). That a missing CRD appears, a watch of it shows
//! ([`definition`]); where the cache has named namespaces, a list shows it.

use std::{ops::Range, sync::Arc};

use fastrand::Rng;
use kube::{Client, Resource};
use parking_lot::RwLock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use workloads::Scoped;

use crate::{
    decode::{CachedMeta, Decoded, Representation},
    namespaces::Namespaces,
    object::{ObjectKey, Uid},
    observed::Observed,
    selection::Selection,
    store::{Delta, Observation, Store, Writer},
};

mod definition;
#[cfg(test)]
mod fuzzing;
mod health;
mod page_size;
mod reflector;
mod restore_alarm;
#[cfg(test)]
mod tests;
mod watch;
mod watch_connection;

use definition::Definition;
pub use health::{InformerFigures, InformerHealth, Phase};
use reflector::{Failure, Page, Reflector};
pub use restore_alarm::RestoreAlarm;
use watch::Watch;
use watch_connection::{RetryDelay, WatchConnection};

/// The informer of one kind: its store, its state and its subscribers.
pub struct Informer<R: Representation> {
    /// The objects.
    pub store: Arc<Store<R>>,
    /// The state of the watches.
    pub health: Arc<InformerHealth>,
    /// Cleared at the end of [`Informer::run`]: a subscriber holds references back to the informer, which would leak as a cycle.
    subscribers: RwLock<Vec<Subscriber<R::Item>>>,
    /// The newest term for which a caller requested a list, see [`Informer::list_for`].
    wanted: Observed<u64>,
    /// For each watch, when its last complete list began.
    listed: Observed<Vec<Option<Began>>>,
    namespaces: Namespaces,
    /// One instance, shared by all informers.
    alarm: Arc<RestoreAlarm>,
}

/// When a list began.
#[derive(Debug, Clone, Copy)]
struct Began {
    term: u64,
    /// The revision of the namespaces.
    revision: u64,
}

/// Whether a cache has the objects of a namespace, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coverage {
    /// It has listed them.
    Complete,
    /// It is about to list them.
    Pending,
    /// It cannot list them: the API server refuses or fails the list.
    Failing,
}

/// Called for each change: by the informer's task in order, and by reconciles for their own writes. It must not block.
pub type Subscriber<I> = Box<dyn Fn(&Delta<I>, Origin) + Send + Sync>;

/// How the cache learnt of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From the list at start-up, or from one after a gap in the watch.
    List,
    /// From the watch.
    Live,
    /// From the answer to a request of this process.
    Answer,
}

/// The resource name as in `kubectl get`: `memcacheds.memcached.cache.example.com`.
pub fn resource_name<K: Resource<DynamicType = ()>>() -> String {
    let (plural, group) = (K::plural(&()), K::group(&()));
    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
}

impl<R: Representation> Informer<R> {
    /// An informer that does not run yet. All informers of a process share `alarm`.
    pub fn new(namespaces: Namespaces, alarm: Arc<RestoreAlarm>) -> Self {
        Self {
            store: Arc::default(),
            health: Arc::new(InformerHealth::new(R::Kind::kind(&()).into_owned(), resource_name::<R::Kind>())),
            subscribers: RwLock::default(),
            wanted: Observed::new(0),
            listed: Observed::default(),
            namespaces,
            alarm,
        }
    }

    /// Whether the object of this name is in a namespace of the cache.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        self.namespaces.contain(&key.namespace)
    }

    /// Whether the cache has the objects of this namespace, or of all namespaces if the name is empty. Each cache lists on its
    /// own, and some do later than others: after the start, and when a namespace is added at run time. RBAC may permit the lists
    /// in one namespace and forbid them in another.
    pub fn coverage(&self, namespace: &str) -> Coverage {
        // Objects of a cluster-scoped kind do not join.
        let joined_in = if R::Kind::IS_NAMESPACED { self.namespaces.joined_in(namespace) } else { 0 };
        let scopes = self.scopes_of(namespace);
        if self.have_listed(scopes.clone(), |began| began.revision >= joined_in) {
            Coverage::Complete
        } else if self.health.are_failing(scopes) {
            Coverage::Failing
        } else {
            Coverage::Pending
        }
    }

    /// Whether the cache is synced now in this namespace, or in all namespaces if the name is empty.
    pub fn is_synced(&self, namespace: &str) -> bool {
        self.health.are_synced(self.scopes_of(namespace))
    }

    /// Whether the cluster has the kind and the cache has its objects of this namespace, or of all namespaces if the name is empty.
    /// Also false if the API server refuses or fails the list there.
    pub fn is_installed(&self, namespace: &str) -> bool {
        self.health.are_installed(self.scopes_of(namespace)) && self.coverage(namespace) == Coverage::Complete
    }

    /// Whether the API server has said that it does not have the kind, and has not listed this namespace since. What the cache
    /// holds of the namespace may then be gone. With an empty name, any namespace counts.
    pub fn is_missing(&self, namespace: &str) -> bool {
        self.health.are_missing(self.scopes_of(namespace))
    }

    fn scopes_of(&self, namespace: &str) -> Range<usize> {
        self.namespaces.scopes_of(namespace, R::Kind::IS_NAMESPACED)
    }

    /// Whether these watches have completed a list that began late enough.
    fn have_listed(&self, watches: Range<usize>, is_enough: impl Fn(Began) -> bool) -> bool {
        self.listed.get().get(watches).is_some_and(|it| it.iter().all(|began| began.is_some_and(&is_enough)))
    }

    /// Stores the API server's answer to one of our requests, see [`Store::observe`]. Returns whether the cache now holds that
    /// answer.
    pub fn observe(&self, decoded: &Decoded<R::Item>, writer: Writer) -> bool {
        if !self.holds(&decoded.key) {
            return false;
        }
        let (Observation { is_known, contradicts }, delta) = self.store.observe(decoded);
        self.notify_others(delta, writer);
        if contradicts {
            self.raise_alarm(&decoded.key, "A resource version came back with other content");
        }
        is_known
    }

    /// Does the same for the answer to a read, but only if the watch delivers the changes of the object. Otherwise the cache would hold
    /// for ever what was read once.
    pub fn observe_read(&self, decoded: &Decoded<R::Item>, writer: Writer) {
        if self.store.selects(&decoded.meta) {
            self.observe(decoded, writer);
        }
    }

    /// Removes an object that this writer has deleted, see [`Store::observe_gone`]. `kept` is the metadata in the answer if the
    /// object exists for a while, because of a finalizer for instance.
    pub fn observe_gone(&self, key: &ObjectKey, uid: Uid, kept: Option<&CachedMeta>, writer: Writer) {
        self.notify_others(self.store.observe_gone(key, uid, kept, Instant::now()), writer);
    }

    /// Passes on a change by a request of this process. The watch will not: for the cache, its event is no news.
    fn notify_others(&self, delta: Option<Delta<R::Item>>, writer: Writer) {
        if let Some(delta) = delta {
            self.notify(&Delta { writer: Some(writer), ..delta }, Origin::Answer);
        }
    }

    fn notify(&self, delta: &Delta<R::Item>, origin: Origin) {
        for subscriber in &*self.subscribers.read() {
            subscriber(delta, origin);
        }
    }

    /// Checks a read of an object that the watch selects, and that was absent from the cache when the read began: `absent_at` is
    /// [`Store::absent_at`] of that moment. If the object is older than that, its deletion belongs to a former history of the
    /// cluster, so all informers relist.
    ///
    /// Of a namespace that the cache does not hold or has not listed, it knows nothing, so nothing contradicts it.
    pub fn check_absence(&self, absent_at: Option<u64>, key: &ObjectKey, uid: Uid, version: u64) {
        let is_contradiction = absent_at.is_some_and(|known| version <= known)
            && !self.store.is_gone(uid)
            && self.holds(key)
            && self.coverage(&key.namespace) == Coverage::Complete
            // A list may have brought the object meanwhile, such as that of a namespace that has joined.
            && self.store.absent_at(key).is_some();
        if is_contradiction {
            self.raise_alarm(key, "An object exists that was deleted");
        }
    }

    /// Makes all informers relist because of this object. Logs the reason, unless they are about to do so for an earlier one.
    fn raise_alarm(&self, key: &ObjectKey, reason: &str) {
        if let Some(wait) = self.alarm.raise() {
            let kind = &*R::Kind::kind(&());
            tracing::warn!(kind, object = %key, in_seconds = wait.as_secs(), "{reason}; all informers relist");
        }
    }

    /// Adds a subscriber. A subscriber must not add another one.
    pub fn subscribe(&self, subscriber: Subscriber<R::Item>) {
        self.subscribers.write().push(subscriber);
    }

    /// Returns when the cache holds every object of this namespace that existed when this was first called with `term`; of all
    /// namespaces if the name is empty. A watch always lags a little, so the informer relists once for a new term. All callers
    /// with the same term share that list.
    pub async fn list_for(&self, term: u64, namespace: &str) {
        self.wanted.modify(|wanted| {
            let is_new = *wanted < term;
            *wanted = term.max(*wanted);
            is_new
        });
        let watches = self.scopes_of(namespace);
        let covers = |listed: &Vec<Option<Began>>| {
            let listed = listed.get(watches.clone());
            listed.is_some_and(|it| it.iter().all(|began| began.is_some_and(|began| began.term >= term)))
        };
        self.listed.until(covers).await;
    }

    /// Like [`list_for`](Self::list_for), but returns the reason as soon as the API server refuses one of the lists. The
    /// informer goes on trying.
    pub async fn try_list_for(&self, term: u64, namespace: &str) -> Result<(), String> {
        tokio::select! {
            biased;
            () = self.list_for(term, namespace) => Ok(()),
            reason = self.health.until_refused(self.scopes_of(namespace)) => Err(reason),
        }
    }

    /// Lists and watches until `stop`: the whole cluster in one watch, or one watch for each named namespace. Objects of a
    /// cluster-scoped kind are in no namespace, so one watch reads them all.
    pub async fn run(self: Arc<Self>, client: Client, mut random: Rng, selection: Selection, stop: CancellationToken) {
        let _end = ClearSubscribers(&self);
        let scopes = self.namespaces.scopes(R::Kind::IS_NAMESPACED);
        self.health.begin(&scopes);
        let selector = selection.selector();
        self.store.watch(&scopes, selection);
        *self.listed.get() = vec![None; scopes.len()];
        // For named namespaces, the process has Roles alone. These cannot grant the watch of a definition, which is in no namespace.
        let may_watch = !matches!(self.namespaces, Namespaces::Named(_));
        let definition = may_watch.then(|| Definition::of::<R::Kind>(client.clone()));
        let definition = definition.as_ref();
        let watches = scopes.iter().enumerate().map(|(index, scope)| {
            let connection = WatchConnection::new(self.health.clone(), index);
            let reflector = Reflector::new::<R::Kind>(connection.over(client.clone()), scope, selector.clone());
            // Cluster-scoped kinds are read at once: the namespaces are such a kind.
            let namespaces = if R::Kind::IS_NAMESPACED { self.namespaces.clone() } else { Namespaces::All };
            let watch = Watch { informer: &*self, index, namespaces, connection, reflector, definition };
            watch.run(random.fork())
        });
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = futures::future::join_all(watches) => {}
        }
    }
}

/// The end of [`Informer::run`], also if it is dropped.
struct ClearSubscribers<'a, R: Representation>(&'a Informer<R>);

impl<R: Representation> Drop for ClearSubscribers<'_, R> {
    fn drop(&mut self) {
        let subscribers = std::mem::take(&mut *self.0.subscribers.write());
        drop(subscribers); // after the lock: it may drop the last reference to something that uses the informer
    }
}

//! The informer: keeps the [`Store`] of one kind in step with the API server, and passes each change to its subscribers.
//!
//! There is one informer per kind and representation, however many controllers read it. It lists and watches ([`reflector`])
//! and decodes objects one by one. A missing CRD or a 403 is a state that heals by itself ([`health`]). Time-outs and back-off
//! of its connection are in [`watch_connection`].

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api_errors::chain;
use fastrand::Rng;
use futures::StreamExt;
use kube::{Client, Resource, core::WatchEvent};
use parking_lot::RwLock;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use workloads::Scoped;

use crate::{
    decode::{Decoded, Representation},
    namespaces::Namespaces,
    object::{ObjectKey, Uid},
    observed::Observed,
    store::{Delta, Observation, Store, Writer},
};

#[cfg(test)]
mod fuzzing;
mod health;
mod page_size;
mod reflector;
mod restore_alarm;
#[cfg(test)]
mod tests;
mod watch_connection;

pub use health::{InformerFigures, InformerHealth, Phase};
use page_size::PageSize;
use reflector::{Failure, Page, Reflector};
pub use restore_alarm::RestoreAlarm;
use watch_connection::{RetryDelay, WatchConnection};

/// A watch that lasted less than this is restarted with back-off instead of at once.
const BRIEF: Duration = Duration::from_secs(1);
/// How often a page is requested before the whole list begins again.
const PAGE_ATTEMPTS: u32 = 5;
/// A list begins again if a page fails for longer than this. The API server may have been restored from a backup meanwhile, and
/// the remaining pages would be those of another history. A restore takes longer than this.
const PAGE_OUTAGE: Duration = Duration::from_secs(5);

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
        if contradicts && self.alarm.raise() {
            let kind = &*R::Kind::kind(&());
            tracing::warn!(kind, object = %decoded.key, "A resource version came back with other content; all informers relist");
        }
        is_known
    }

    /// Removes an object that this writer has deleted, see [`Store::observe_gone`].
    pub fn observe_gone(&self, key: &ObjectKey, uid: Uid, writer: Writer) {
        self.notify_others(self.store.observe_gone(key, uid), writer);
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
        if is_contradiction && self.alarm.raise() {
            let kind = &*R::Kind::kind(&());
            tracing::warn!(kind, object = %key, "An object exists that was deleted; all informers relist");
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
    pub async fn run(
        self: Arc<Self>,
        client: Client,
        mut random: Rng,
        selector: Option<String>,
        stop: CancellationToken,
    ) {
        let _end = ClearSubscribers(&self);
        let scopes = self.namespaces.scopes(R::Kind::IS_NAMESPACED);
        self.health.begin(&scopes);
        self.store.watch(&scopes);
        *self.listed.get() = vec![None; scopes.len()];
        let watches = scopes.iter().enumerate().map(|(index, scope)| {
            let connection = WatchConnection::new(self.health.clone(), index);
            let reflector = Reflector::new::<R::Kind>(connection.over(client.clone()), scope, selector.clone());
            // Cluster-scoped kinds are read at once: the namespaces are such a kind.
            let namespaces = if R::Kind::IS_NAMESPACED { self.namespaces.clone() } else { Namespaces::All };
            let watch = Watch { informer: &*self, index, namespaces, connection, reflector };
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

/// One running watch of an informer, of all namespaces or of one.
struct Watch<'a, R: Representation> {
    informer: &'a Informer<R>,
    index: usize,
    namespaces: Namespaces,
    connection: Arc<WatchConnection>,
    reflector: Reflector,
}

impl<R: Representation> Watch<'_, R> {
    /// Lists and watches, and never returns.
    async fn run(self, mut random: Rng) {
        let Informer { wanted, alarm, health, .. } = self.informer;
        let mut retry_delay = self.connection.retry_delay(random.fork());
        let mut relist_delay = self.connection.retry_delay(random.fork());
        // The version to watch from; `None` until a list is complete.
        let mut position: Option<u64> = None;
        // Of the beginning of the last list.
        let (mut term, mut revision) = (0, 0);
        // When the next list is due because the namespaces have changed since the last one.
        let mut relist_due: Option<Instant> = None;
        let mut heeded = alarm.count();
        // Whether a list, perhaps an unfinished one, has shown that the cluster was restored to an earlier state.
        let mut was_restored = false;
        self.namespaces.known().await;
        loop {
            let (begun, watched) = (Instant::now(), position.is_some());
            if !watched {
                (term, revision) = (*wanted.get(), self.namespaces.revision());
                relist_due = None;
            }
            // A list that an alarm caused must not raise another one.
            let is_free = alarm.count() == heeded;
            heeded = alarm.count();
            let went_back = AtomicBool::new(false);
            let work = async {
                if let Some(version) = &mut position {
                    return self.watch(version).await;
                }
                position = Some(self.list(Began { term, revision }, &went_back, &mut random).await?);
                Ok(())
            };
            let done = tokio::select! {
                biased;
                () = wanted.until(|it| *it != term) => None,
                () = alarm.raised_after(heeded) => None,
                () = self.until_relist(revision, &mut relist_due, &mut relist_delay), if watched => None,
                done = work => Some(done),
            };
            was_restored |= went_back.into_inner() && is_free;
            let pause = match done {
                None => {
                    position = None;
                    continue;
                }
                Some(Ok(())) => {
                    if std::mem::take(&mut was_restored) && alarm.raise() {
                        heeded = alarm.count(); // this watch has just listed
                    }
                    watched && begun.elapsed() < BRIEF
                }
                Some(Err(failure)) => {
                    health.failed(self.index, &failure);
                    if matches!(failure, Failure::WentBack(_)) {
                        alarm.raise();
                    }
                    if failure.wants_a_list() {
                        position = None;
                    }
                    true
                }
            };
            if pause {
                tokio::select! {
                    biased;
                    () = wanted.until(|it| *it != term) => position = None,
                    () = alarm.raised_after(heeded) => position = None,
                    () = sleep(retry_delay.next_wait()) => {}
                }
            }
        }
    }

    /// Returns when a list is due because the namespaces have another revision than this. A namespace whose label flaps must not
    /// make the informer list without a pause, or never complete a list. Meanwhile the watch goes on, for the other namespaces.
    ///
    /// `due` keeps the time of the list, so that a watch that ends meanwhile does not put it off.
    async fn until_relist(&self, revision: u64, due: &mut Option<Instant>, delay: &mut RetryDelay) {
        self.namespaces.changed_after(revision).await;
        sleep_until(*due.get_or_insert_with(|| Instant::now() + delay.next_wait())).await;
    }

    /// Lists the scope and brings the store to that state. Returns the version of the list. Sets `went_back` as soon as the list
    /// shows that the cluster was restored to an earlier state.
    async fn list(&self, began: Began, went_back: &AtomicBool, random: &mut Rng) -> Result<u64, Failure> {
        let Informer { store, health, listed, .. } = self.informer;
        store.begin_list(self.index);
        let (mut next, mut version, mut size) = (String::new(), None, PageSize::FIRST);
        loop {
            let text = self.page(&next, size, random).await?;
            let page = Page::read(&text)?;
            if version.is_none() {
                let shown = page.version()?;
                version = Some(shown);
                if let Err(back) = store.listed_at(self.index, shown) {
                    health.went_back(Some(back));
                    went_back.store(true, Ordering::Relaxed);
                }
            }
            let objects = page.items.unwrap_or_default();
            size = PageSize::after(objects.len(), text.len());
            for object in objects {
                let object = decode::<R>(object).filter(|object| self.namespaces.contain(&object.key.namespace));
                if let Some(delta) = object.and_then(|object| store.list(self.index, &object)) {
                    self.notify(&delta, Origin::List);
                }
            }
            next = page.metadata.next;
            if next.is_empty() {
                break;
            }
        }
        let (gone, rewritten) = store.end_list(self.index);
        for delta in gone {
            self.notify(&delta, Origin::List);
        }
        if rewritten {
            health.went_back(None);
            went_back.store(true, Ordering::Relaxed);
        }
        // The workers wait for a synced cache, and then ask what it has listed.
        listed.modify(|listed| {
            listed[self.index] = Some(began);
            true
        });
        health.listed(self.index);
        health.count(store.counts());
        Ok(version.unwrap_or_default())
    }

    /// Requests a page until it is there: in parts if it is too long, and again if it fails for a moment. So a large list does
    /// not begin again with each error. The first page has nothing to continue from, so its failure ends the list.
    async fn page(&self, next: &str, mut size: PageSize, random: &mut Rng) -> Result<String, Failure> {
        let (begun, mut attempts, mut retry_delay) = (Instant::now(), 0, None);
        let mut last_failure: Option<Failure> = None;
        loop {
            let failure = match self.reflector.page(next, size).await {
                Ok(text) => {
                    // An attempt takes time too, and after so much of it the page may belong to another history.
                    let too_late = last_failure.filter(|_| begun.elapsed() > PAGE_OUTAGE);
                    return too_late.map_or(Ok(text), Err);
                }
                Err(failure) => failure,
            };
            if failure.is_too_long()
                && let Some(smaller) = size.smaller()
            {
                size = smaller;
                continue;
            }
            attempts += 1;
            if next.is_empty() || attempts == PAGE_ATTEMPTS || !failure.is_temporary() {
                return Err(failure);
            }
            let retry_delay = retry_delay.get_or_insert_with(|| self.connection.retry_delay(random.fork()));
            let Some(wait) = retry_delay.next_wait_within(PAGE_OUTAGE.saturating_sub(begun.elapsed())) else {
                return Err(failure);
            };
            tracing::debug!(kind = self.informer.health.kind, error = chain(&failure), "A page is requested again");
            last_failure = Some(failure);
            sleep(wait).await;
        }
    }

    /// Stores the changes after `version` until the watch ends. Advances `version` with each event.
    async fn watch(&self, version: &mut u64) -> Result<(), Failure> {
        let Informer { store, health, .. } = self.informer;
        let mut events = std::pin::pin!(self.reflector.watch(*version).await?);
        while let Some(event) = events.next().await {
            let (delta, now) = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let Some(object) = decode::<R>(&object) else { continue };
                    let delta = if self.namespaces.contain(&object.key.namespace) {
                        store.deliver(self.index, &object)?
                    } else {
                        store.deliver_bookmark(self.index, object.meta.version)?;
                        None
                    };
                    (delta, object.meta.version)
                }
                WatchEvent::Deleted(object) => {
                    let Some(object) = decode::<R>(&object) else { continue };
                    (store.deliver_gone(self.index, &object)?, object.meta.version)
                }
                WatchEvent::Bookmark(bookmark) => {
                    let now = bookmark.metadata.resource_version.parse().unwrap_or_default();
                    store.deliver_bookmark(self.index, now)?;
                    (None, now)
                }
                WatchEvent::Error(_) => continue, // the reflector turns it into a `Failure`
            };
            *version = now.max(*version);
            if let Some(delta) = delta {
                self.notify(&delta, Origin::Live);
            }
            health.count(store.counts());
        }
        Ok(())
    }

    fn notify(&self, delta: &Delta<R::Item>, origin: Origin) {
        self.informer.notify(delta, origin);
    }
}

/// Decodes an object of a list or an event. `None` if even its name is unreadable.
fn decode<R: Representation>(json: &RawValue) -> Option<Decoded<R::Item>> {
    let skipped = |error: &serde_json::Error| {
        tracing::error!(kind = %R::Kind::kind(&()), %error, "An object without a name is skipped");
    };
    Decoded::read::<R>(json.get()).inspect_err(skipped).ok()
}

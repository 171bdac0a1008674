//! Keeps the [`Store`] of one kind in step with the API server, and tells subscribers what changed.
//!
//! One informer per kind and scope, however many controllers read it. It runs over `kube`'s watcher (paged list,
//! bookmarks, relist on 410) and adds what that leaves open: objects decode one by one, a missing CRD or a 403 is a
//! state that heals by itself, and a connection that has gone silent is given up.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, Event},
    },
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    error::chain,
    store::{Delta, Store},
    wire::{Representation, Wire},
};

/// The server ends a watch after this; the client gives a silent connection up a few seconds later.
const WATCH_TIMEOUT_SECONDS: u32 = 230;
/// A page is in memory as a whole while it is decoded; four kinds list at the same time.
const PAGE_SIZE: u32 = 100;

/// The informer of one kind: its store, its state and its subscribers.
pub(crate) struct Informer<R: Representation> {
    pub(crate) store: Arc<Store<R>>,
    pub(crate) health: Arc<InformerHealth>,
    /// Until [`Informer::run`] takes them: they hold what holds the informer.
    subscribers: Mutex<Vec<Subscriber>>,
}

/// Called for each change, in order, from the informer's task: must not block.
pub(crate) type Subscriber = Box<dyn Fn(&Delta, Origin) + Send + Sync>;

/// Whether a change was seen as it happened or found in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// In the list at start-up, or after a gap in the watch.
    List,
    /// In the watch.
    Live,
}

/// `memcacheds.memcached.cache.example.com`, as in `kubectl get`.
pub(crate) fn resource_name<K: Resource<DynamicType = ()>>() -> String {
    let (plural, group) = (K::plural(&()), K::group(&()));
    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
}

/// What one informer is doing, for probes and metrics.
#[derive(Debug)]
pub(crate) struct InformerHealth {
    /// The kind in `CamelCase`.
    pub(crate) kind: String,
    pub(crate) resource: String,
    phase: watch::Sender<Phase>,
    /// Watch tasks that have not listed yet: one per namespace.
    unsynced: AtomicUsize,
    last_event: AtomicI64,
    restarts: Mutex<std::collections::BTreeMap<&'static str, u64>>,
    pub(crate) objects: AtomicU64,
    pub(crate) undecodable: AtomicU64,
}

/// Where an informer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first list is under way.
    Starting,
    /// Listed, watching.
    Synced,
    /// The API server does not know the kind.
    NotInstalled,
    /// RBAC does not let us.
    Forbidden(String),
    /// Something else, which is tried again.
    Failing(String),
}

impl<R> Informer<R>
where
    R: Representation,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    pub(crate) fn new() -> Self {
        Self {
            store: Arc::default(),
            health: Arc::new(InformerHealth {
                kind: R::Kind::kind(&()).into_owned(),
                resource: resource_name::<R::Kind>(),
                phase: watch::Sender::new(Phase::Starting),
                unsynced: AtomicUsize::new(0),
                last_event: AtomicI64::new(0),
                restarts: Mutex::default(),
                objects: AtomicU64::new(0),
                undecodable: AtomicU64::new(0),
            }),
            subscribers: Mutex::default(),
        }
    }

    /// Adds a subscriber; only before [`Informer::run`].
    pub(crate) fn subscribe(&self, subscriber: Subscriber) {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(subscriber);
    }

    /// Watches until `stop`: all namespaces, or each of `namespaces` by itself.
    pub(crate) async fn run(
        self: Arc<Self>,
        client: Client,
        namespaces: Vec<String>,
        selector: Option<String>,
        stop: CancellationToken,
    ) {
        let subscribers = std::mem::take(&mut *self.subscribers.lock().unwrap_or_else(PoisonError::into_inner));
        let apis: Vec<(&str, Api<Wire<R>>)> = if namespaces.is_empty() {
            vec![("", Api::all(client))]
        } else {
            namespaces.iter().map(|scope| (scope.as_str(), Api::namespaced(client.clone(), scope))).collect()
        };
        self.health.unsynced.store(apis.len(), Ordering::Relaxed);
        let watches = apis.into_iter().map(|(scope, api)| self.watch(scope, api, selector.as_deref(), &subscribers));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = futures::future::join_all(watches) => {}
        }
    }

    /// Watches one namespace, or all with an empty `scope`, for ever.
    async fn watch(&self, scope: &str, api: Api<Wire<R>>, selector: Option<&str>, subscribers: &[Subscriber]) {
        let mut config = watcher::Config::default().timeout(WATCH_TIMEOUT_SECONDS).page_size(PAGE_SIZE);
        if let Some(selector) = selector {
            config = config.labels(selector);
        }
        let stream = watcher::watcher(api, config).backoff(Patience::default());
        self.follow(scope, std::pin::pin!(stream), subscribers).await;
    }

    /// Follows the events of one watch. When it fails to start anew after the first list, kube tries again every few
    /// seconds and says nothing when it succeeds: so it has, when nothing is heard for longer than that.
    async fn follow(
        &self,
        scope: &str,
        mut stream: impl Stream<Item = watcher::Result<Event<Wire<R>>>> + Unpin,
        subscribers: &[Subscriber],
    ) {
        let mut synced = false;
        let mut listing = false;
        loop {
            let may_be_over = synced && !listing && self.health.phase() != Phase::Synced;
            let heard = if may_be_over {
                let Ok(heard) = tokio::time::timeout(RECOVERED_AFTER, stream.next()).await else {
                    self.health.synced(&mut synced);
                    continue;
                };
                heard
            } else {
                stream.next().await
            };
            let Some(event) = heard else { return };
            match event {
                Ok(event) => {
                    self.health.touch();
                    listing = match event {
                        Event::Init => true,
                        Event::InitDone => false,
                        _ => listing,
                    };
                    let done = matches!(event, Event::InitDone);
                    let origin = if listing || done { Origin::List } else { Origin::Live };
                    for delta in self.take(scope, event) {
                        for subscriber in subscribers {
                            subscriber(&delta, origin);
                        }
                    }
                    if done {
                        self.health.synced(&mut synced);
                    }
                    if !listing {
                        self.health.count(self.store.counts());
                    }
                }
                Err(error) => self.health.failed(&error),
            }
        }
    }

    /// Takes an event into the store, and says what it changed.
    fn take(&self, scope: &str, event: Event<Wire<R>>) -> Vec<Delta> {
        match event {
            Event::Init => {
                self.store.begin_list(scope);
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => {
                let delta = object.into_decoded().and_then(|decoded| self.store.deliver(&decoded));
                delta.into_iter().collect()
            }
            Event::Delete(object) => {
                let delta = object.into_decoded().and_then(|decoded| self.store.deliver_gone(&decoded));
                delta.into_iter().collect()
            }
            Event::InitDone => self.store.end_list(scope),
        }
    }
}

impl InformerHealth {
    pub(crate) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Waits until the first list is complete.
    pub(crate) async fn until_synced(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        drop(phase.wait_for(|phase| *phase == Phase::Synced).await);
    }

    pub(crate) fn last_event(&self) -> i64 {
        self.last_event.load(Ordering::Relaxed)
    }

    pub(crate) fn restarts(&self) -> Vec<(&'static str, u64)> {
        let restarts = self.restarts.lock().unwrap_or_else(PoisonError::into_inner);
        restarts.iter().map(|(reason, count)| (*reason, *count)).collect()
    }

    fn touch(&self) {
        self.last_event.store(Timestamp::now().as_second(), Ordering::Relaxed);
    }

    fn count(&self, (objects, undecodable): (usize, usize)) {
        self.objects.store(objects as u64, Ordering::Relaxed);
        self.undecodable.store(undecodable as u64, Ordering::Relaxed);
    }

    fn synced(&self, this_one: &mut bool) {
        if !std::mem::replace(this_one, true) {
            self.unsynced.fetch_sub(1, Ordering::Relaxed);
        }
        if self.unsynced.load(Ordering::Relaxed) == 0 {
            self.change(Phase::Synced);
        }
    }

    fn failed(&self, error: &watcher::Error) {
        let (phase, reason) = diagnose(error, &self.resource);
        *self.restarts.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
        if let Some(phase) = phase {
            self.change(phase);
        } else {
            tracing::debug!(kind = self.kind, error = chain(error), "Watch ended and starts again");
        }
    }

    /// One log line per change of state, so that an API server which is away for an hour does not fill a disk.
    fn change(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let same_state = std::mem::discriminant(phase) == std::mem::discriminant(&next);
            if !same_state {
                match &next {
                    Phase::Synced => tracing::debug!(kind = self.kind, "Cache is in step"),
                    other => {
                        tracing::warn!(
                            kind = self.kind,
                            state = other.describe(&self.resource),
                            "Cache is not in step"
                        );
                    }
                }
            }
            let changed = *phase != next;
            *phase = next;
            changed
        });
    }
}

impl Phase {
    /// What is missing, in words a user can act on.
    pub(crate) fn describe(&self, resource: &str) -> String {
        match self {
            Self::Starting => format!("{resource} not listed yet"),
            Self::Synced => "ok".to_owned(),
            Self::NotInstalled => format!("crd {resource} not installed"),
            Self::Forbidden(message) | Self::Failing(message) => message.clone(),
        }
    }
}

/// The state that an error stands for, if it says more than "the connection ended", and a word for the metric.
fn diagnose(error: &watcher::Error, resource: &str) -> (Option<Phase>, &'static str) {
    let (source, starting) = match error {
        watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source) => (source, true),
        watcher::Error::WatchError(status) => return (None, if status.code == 410 { "expired" } else { "error" }),
        watcher::Error::WatchFailed(_) => return (None, "disconnected"),
        watcher::Error::NoResourceVersion => return (None, "error"),
    };
    match source {
        kube::Error::Api(status) if status.code == 404 => (Some(Phase::NotInstalled), "not_installed"),
        kube::Error::Api(status) if status.code == 403 => {
            (Some(Phase::Forbidden(format!("may not list or watch {resource}: {}", status.message))), "forbidden")
        }
        kube::Error::Api(status) if status.code == 410 => (None, "expired"),
        _ if starting => (Some(Phase::Failing(format!("cannot reach {resource}: {}", chain(source)))), "unreachable"),
        _ => (None, "error"),
    }
}

/// Longer than two tries of a watch can be apart: 5 s of patience, 5 s to connect, and as much again.
const RECOVERED_AFTER: Duration = Duration::from_secs(15);

/// How long to wait before the next try: 200 ms, doubling up to 5 s, with jitter, so that a CRD that was just installed
/// is noticed soon and an API server that comes back is not stormed.
#[derive(Debug, Default)]
struct Patience {
    failures: u32,
    last: Option<Instant>,
}

/// A watch that has lasted this long starts anew at the shortest wait.
const FORGIVEN_AFTER: Duration = Duration::from_secs(30);

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.last.is_none_or(|last| last.elapsed() > FORGIVEN_AFTER) {
            self.failures = 0;
        }
        self.last = Some(Instant::now());
        let ceiling = Duration::from_millis(200).saturating_mul(1 << self.failures.min(8)).min(Duration::from_secs(5));
        self.failures += 1;
        Some(ceiling.mul_f64(fastrand::f64().mul_add(0.5, 0.5)))
    }
}

impl Backoff for Patience {
    /// Called for every event, also for the one that only says that a list begins: what counts is time without failure.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::Status;

    use super::*;
    use crate::wire::Seen;

    /// Seen on a real node: the definition of a kind was replaced, the watch was answered with 429 once, and the process
    /// was not ready for as long as nobody wrote an object of that kind.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_started_again_in_silence_is_in_step() {
        let informer = Informer::<Seen<Pod>>::new();
        informer.health.unsynced.store(1, Ordering::Relaxed);
        for code in [429, 403, 503] {
            let refused = kube::Error::Api(Box::new(Status { code, ..Status::default() }));
            let events = [Ok(Event::Init), Ok(Event::InitDone), Err(watcher::Error::WatchStartFailed(refused))];
            let stream = futures::stream::iter(events).chain(futures::stream::pending());
            let following = informer.follow("", stream, &[]);
            let watched = async {
                tokio::time::sleep(RECOVERED_AFTER / 2).await;
                assert_ne!(informer.health.phase(), Phase::Synced, "{code}: it may be refused again");
                tokio::time::sleep(RECOVERED_AFTER).await;
                assert_eq!(informer.health.phase(), Phase::Synced, "{code}");
            };
            tokio::select! {
                () = following => panic!("a watch does not end"),
                () = watched => {}
            }
            informer.health.unsynced.store(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_keeps_failing_is_asked_for_ever_less_often() {
        let mut patience = Patience::default();
        let mut total = Duration::ZERO;
        for _ in 0..10 {
            patience.reset(); // a list begins
            let wait = patience.next().expect("a wait");
            total += wait;
            tokio::time::advance(wait).await;
        }
        assert!(total > Duration::from_secs(12), "{total:?}");
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(patience.next().expect("a wait") <= Duration::from_millis(200), "after a quiet time");
    }
}

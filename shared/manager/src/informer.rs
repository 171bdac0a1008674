//! Keeps the [`Store`] of one kind in step with the API server, and tells subscribers what changed.
//!
//! One informer per kind and scope, however many controllers read it. It runs over `kube`'s watcher (paged list,
//! bookmarks, relist on 410) and adds what that leaves open: objects decode one by one, a missing CRD or a 403 is a
//! state that heals by itself ([`health`]), and what the watcher does not say is heard on its line ([`line`]).

use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    store::{Delta, Store},
    wire::{Representation, Wire},
};

mod health;
mod line;
#[cfg(test)]
mod tests;

pub(crate) use health::{InformerHealth, Phase};
use line::Line;

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
    /// The newest term for which somebody asked for a list, see [`Informer::list_for`].
    wanted: watch::Sender<u64>,
    /// Of each watch, the term in which its last whole list began.
    listed: watch::Sender<Vec<Option<u64>>>,
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

impl<R> Informer<R>
where
    R: Representation,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    pub(crate) fn new() -> Self {
        Self {
            store: Arc::default(),
            health: Arc::new(InformerHealth::new(R::Kind::kind(&()).into_owned(), resource_name::<R::Kind>())),
            subscribers: Mutex::default(),
            wanted: watch::Sender::new(0),
            listed: watch::Sender::default(),
        }
    }

    /// Adds a subscriber; only before [`Informer::run`].
    pub(crate) fn subscribe(&self, subscriber: Subscriber) {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(subscriber);
    }

    /// Returns when the cache holds all that was there when this was first called with `term`. A watch is always a moment
    /// behind; so everything is listed once more for a new term, which is one list for all who ask.
    pub(crate) async fn list_for(&self, term: u64) {
        self.wanted.send_if_modified(|wanted| {
            let is_new = *wanted < term;
            *wanted = term.max(*wanted);
            is_new
        });
        let covers =
            |listed: &Vec<Option<u64>>| !listed.is_empty() && listed.iter().all(|it| it.is_some_and(|it| it >= term));
        // The sender lives in `self`, so waiting cannot fail.
        drop(self.listed.subscribe().wait_for(covers).await);
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
        // An empty scope is all namespaces.
        let scopes = if namespaces.is_empty() { vec![String::new()] } else { namespaces };
        self.health.begin(scopes.len());
        self.listed.send_replace(vec![None; scopes.len()]);
        let watches = scopes.iter().enumerate().map(|(index, scope)| {
            let line = Line::new(self.health.clone(), index);
            let client = line.over(client.clone());
            let api = if scope.is_empty() { Api::all(client) } else { Api::namespaced(client, scope) };
            self.watch(scope, line, api, selector.as_deref(), &subscribers)
        });
        tokio::select! {
            () = stop.cancelled() => {}
            _ = futures::future::join_all(watches) => {}
        }
    }

    /// Watches one namespace, or all with an empty `scope`, for ever.
    async fn watch(
        &self,
        scope: &str,
        line: Arc<Line>,
        api: Api<Wire<R>>,
        selector: Option<&str>,
        subscribers: &[Subscriber],
    ) {
        let mut config = watcher::Config::default().timeout(WATCH_TIMEOUT_SECONDS).page_size(PAGE_SIZE);
        if let Some(selector) = selector {
            config = config.labels(selector);
        }
        let mut wanted = self.wanted.subscribe();
        loop {
            let term = *wanted.borrow_and_update();
            let stream = watcher::watcher(api.clone(), config.clone()).backoff(line.patience());
            let list_and_watch = self.follow(scope, &line, stream, term, subscribers);
            tokio::select! {
                () = list_and_watch => return,
                Ok(()) = wanted.changed() => {}
            }
        }
    }

    /// Takes in what one watch delivers, which began in this term.
    async fn follow(
        &self,
        scope: &str,
        line: &Line,
        stream: impl Stream<Item = Result<Event<Wire<R>>, watcher::Error>> + Send,
        term: u64,
        subscribers: &[Subscriber],
    ) {
        let mut stream = std::pin::pin!(stream);
        let mut listing = false;
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
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
                        self.health.synced(line.watch);
                        self.listed.send_modify(|listed| listed[line.watch] = Some(term));
                    }
                    if !listing {
                        self.health.count(self.store.counts());
                    }
                }
                Err(error) => self.health.failed(line.watch, &error),
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

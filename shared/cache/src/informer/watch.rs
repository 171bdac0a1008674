//! One watch of an informer: the task that lists ([`reflector`]) and watches, decodes objects one by one, and begins again after an
//! end, a failure or a restored cluster. Time-outs and back-off of its connection are in [`watch_connection`].
//!
//! [`reflector`]: super::reflector
//! [`watch_connection`]: super::watch_connection

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api_errors::chain;
use fastrand::Rng;
use futures::StreamExt;
use kube::{Resource, core::WatchEvent};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    Began, Definition, Failure, Informer, Origin, Page, Reflector, RetryDelay, WatchConnection, page_size::PageSize,
};
use crate::{
    decode::{Decoded, Representation},
    namespaces::Namespaces,
    store::Delta,
};

/// A watch that lasted less than this is restarted with back-off instead of at once.
const BRIEF: Duration = Duration::from_secs(1);
/// After this many watches in a row that lasted less than [`SHORT`] and delivered nothing, a list shows what they do not deliver.
/// The next event may be what ends each of them: the API server cannot encode the event, or a proxy does not let it pass.
const BARREN_WATCHES: u32 = 5;
/// A busy API server may take seconds until a watch begins, and its first event then ends it. Proxies that end idle connections wait
/// for longer than this.
pub(super) const SHORT: Duration = Duration::from_secs(10);
/// How often a page is requested before the whole list begins again.
const PAGE_ATTEMPTS: u32 = 5;
/// A list begins again if a page fails for longer than this. The API server may have been restored from a backup meanwhile, and
/// the remaining pages would be those of another history. A restore takes longer than this.
const PAGE_OUTAGE: Duration = Duration::from_secs(5);

/// One running watch of an informer, of all namespaces or of one.
pub(super) struct Watch<'a, R: Representation> {
    pub(super) informer: &'a Informer<R>,
    pub(super) index: usize,
    pub(super) namespaces: Namespaces,
    pub(super) connection: Arc<WatchConnection>,
    pub(super) reflector: Reflector,
    /// `None` where only lists can tell that a missing kind has appeared.
    pub(super) definition: Option<&'a Definition>,
}

impl<R: Representation> Watch<'_, R> {
    /// Lists and watches, and never returns.
    pub(super) async fn run(self, mut random: Rng) {
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
        // The number of watches in a row that were short and delivered nothing.
        let mut barren = 0;
        self.namespaces.known().await;
        loop {
            let raised = alarm.count();
            // A list that an alarm caused must not raise another one.
            let is_free = raised == heeded;
            if !is_free {
                // It may have come while this task did not wait for it. It also tells what this watch has noticed before.
                (position, was_restored) = (None, false);
            }
            heeded = raised;
            let (begun, watched) = (Instant::now(), position.is_some());
            if !watched {
                (term, revision) = (*wanted.get(), self.namespaces.revision());
                relist_due = None;
            }
            let went_back = AtomicBool::new(false);
            let from = position;
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
            // A late list may show a restore that came after the alarm, and after the lists of the others.
            let is_late = begun.elapsed() > PAGE_OUTAGE;
            was_restored |= went_back.into_inner() && (is_free || is_late);
            // A refusal to start a watch says whether it wants a list.
            let is_over = matches!(done, Some(Ok(()) | Err(Failure::Broken(_) | Failure::Status(_))));
            let is_barren = watched && is_over && position == from && begun.elapsed() < SHORT;
            barren = if is_barren { barren + 1 } else { 0 };
            let pause = match done {
                None => {
                    position = None;
                    continue;
                }
                Some(Ok(())) => {
                    if std::mem::take(&mut was_restored) && alarm.raise() == Some(Duration::ZERO) {
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
            if barren == BARREN_WATCHES {
                (position, barren) = (None, 0);
            }
            if pause {
                tokio::select! {
                    biased;
                    () = wanted.until(|it| *it != term) => position = None,
                    () = alarm.raised_after(heeded) => position = None,
                    () = self.until_next_attempt(&mut retry_delay) => {}
                }
            }
        }
    }

    /// Waits before the next attempt. For a missing kind that no controller requires, this lasts until its definition appears,
    /// if the definition may be watched. The pause comes first, in case that the definition says what the next list does not confirm.
    async fn until_next_attempt(&self, retry_delay: &mut RetryDelay) {
        sleep(retry_delay.next_wait()).await;
        if let Some(definition) = self.definition
            && self.connection.waits_for_the_kind()
        {
            definition.until_served(&self.connection).await;
            // A refusal of the watch may say that the list has to wait.
            sleep(self.connection.take_retry_after()).await;
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
        let mut events = std::pin::pin!(self.reflector.watch(Some(*version)).await?);
        while let Some(event) = events.next().await {
            let (delta, now) = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let Some(object) = decode::<R>(&object) else { continue };
                    let delta = if self.namespaces.contain(&object.key.namespace) {
                        store.deliver(self.index, &object)?
                    } else {
                        store.pass(self.index, &object)?;
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
                    if store.deliver_bookmark(self.index, now, Instant::now())? {
                        return Err(Failure::Overdue);
                    }
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

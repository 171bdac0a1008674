//! The progress of one watch: the newest version that it has delivered, and a list that is under way.

use std::collections::BTreeMap;

use super::seen::Seen;
use crate::object::{ObjectKey, Uid};

/// How many writes a watch is expected to deliver, at most. More are on their way only while the API server refuses the watch.
const MOST_EXPECTED: usize = 1_000;

/// The progress of one watch.
#[derive(Debug)]
pub(super) struct Progress {
    /// The watched namespace; empty for all of them.
    scope: Box<str>,
    /// The newest version of all lists, events and bookmarks.
    delivered: u64,
    /// The writes of ours, as answers showed them, that are newer than everything delivered: their versions and objects. At most
    /// [`MOST_EXPECTED`].
    expected: BTreeMap<u64, ObjectKey>,
    /// What an event or a bookmark has shown. The next list reports it again.
    lost: Option<WentBack>,
    listing: Option<Listing>,
}

/// A list that is under way. When it is complete, objects that it did not contain are removed.
#[derive(Debug)]
pub(super) struct Listing {
    /// The version that all its pages show; 0 before the first page.
    pub(super) version: u64,
    pub(super) seen: Seen,
    /// Uids of objects that we had deleted before the list was requested.
    deleted: Vec<Uid>,
    /// Whether the list had an older version of an object than the cache.
    pub(super) rewritten: bool,
}

/// The cluster went back in time, as after etcd is restored from a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WentBack {
    /// A version is lower than one before it.
    #[error("resource versions went back from {known} to {now}: the cluster was restored to an earlier state")]
    Versions {
        /// The highest version before.
        known: u64,
        /// The version now.
        now: u64,
    },
    /// A watch has passed the version of a write of ours, and never delivered the write. The API server had answered it.
    #[error(
        "the watch has reached version {now} without our write of version {lost}: the cluster was restored to an earlier state"
    )]
    Write {
        /// The version in the answer.
        lost: u64,
        /// The version that the watch has reached.
        now: u64,
    },
}

impl Progress {
    pub(super) fn of(scope: &str) -> Self {
        Self { scope: scope.into(), delivered: 0, expected: BTreeMap::new(), lost: None, listing: None }
    }

    pub(super) fn covers(&self, namespace: &str) -> bool {
        self.scope.is_empty() || *self.scope == *namespace
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Expects the watch to deliver this version of the object: the answer to a write of ours showed it.
    pub(super) fn expect(&mut self, version: u64, key: &ObjectKey) {
        if version > self.delivered {
            self.expected.insert(version, key.clone());
        }
        // A restore undoes the newest writes. So these show it.
        if self.expected.len() > MOST_EXPECTED {
            self.expected.pop_first();
        }
    }

    /// Advances to the version of an event about `key`, or to that of a bookmark. A version of 0, which stands for an unreadable
    /// one, changes nothing.
    ///
    /// # Errors
    ///
    /// The version is lower than the newest one. Within one history versions never fall; the same version twice does no harm.
    ///
    /// Or the watch passes a write of ours that it has not delivered. Within one history it delivers all versions in their order.
    pub(super) fn advance(&mut self, version: u64, key: Option<&ObjectKey>) -> Result<(), WentBack> {
        if version == 0 {
            return Ok(());
        }
        if version < self.delivered {
            return Err(WentBack::Versions { known: self.delivered, now: version });
        }
        if self.expected.get(&version).is_some_and(|expected| Some(expected) == key) {
            self.expected.remove(&version);
        }
        // Some storage lets a bookmark overtake the event of the same version (k3s-io/kine#602).
        if let Some((&lost, _)) = self.expected.first_key_value()
            && (lost < version || (lost == version && key.is_some()))
        {
            let back = WentBack::Write { lost, now: version };
            self.lost = Some(back);
            return Err(back);
        }
        self.delivered = version;
        Ok(())
    }

    pub(super) fn begin_list(&mut self, deleted: Vec<Uid>) {
        // What an unfinished list has found out about the cluster is still true, and the next one will not find it again.
        let rewritten = self.listing.take().is_some_and(|unfinished| unfinished.rewritten);
        self.listing = Some(Listing { version: 0, seen: Seen::default(), deleted, rewritten });
    }

    /// Records the version of the first page. Returns the uids that we had deleted before the list.
    pub(super) fn listed_at(&mut self, version: u64) -> Vec<Uid> {
        let Some(listing) = &mut self.listing else { return Vec::new() };
        listing.version = version;
        std::mem::take(&mut listing.deleted)
    }

    /// Resets the progress if the list's version is lower than the newest one, or if the watch has passed a write of ours. A
    /// higher version counts only when the list is complete: until then, an object that is not in the cache may be on a later
    /// page.
    ///
    /// # Errors
    ///
    /// The cluster went back in time.
    pub(super) fn restart(&mut self, version: u64) -> Result<(), WentBack> {
        let lower = (version < self.delivered).then_some(WentBack::Versions { known: self.delivered, now: version });
        let Some(back) = lower.or(self.lost.take()) else { return Ok(()) };
        self.lost = None;
        self.expected.clear();
        self.delivered = 0;
        Err(back)
    }

    /// Notes that the list contains this object, which has this position in the cache now; `None` if no object of this name is there.
    pub(super) fn saw(&mut self, key: &ObjectKey, position: Option<u32>) {
        if let Some(listing) = &mut self.listing {
            listing.seen.mark(key, position);
        }
    }

    /// Notes that this object leaves the cache, and another one may get its position.
    pub(super) fn left(&mut self, key: &ObjectKey, position: u32) {
        if let Some(listing) = &mut self.listing {
            listing.seen.vacate(key, position);
        }
    }

    pub(super) fn listing_version(&self) -> u64 {
        self.listing.as_ref().map_or(0, |listing| listing.version)
    }

    pub(super) fn rewritten(&mut self) {
        if let Some(listing) = &mut self.listing {
            listing.rewritten = true;
        }
    }

    pub(super) fn end_list(&mut self) -> Option<(&Self, Listing)> {
        let listing = self.listing.take()?;
        self.delivered = self.delivered.max(listing.version);
        // The list shows what became of older writes.
        self.expected.retain(|version, _| *version > listing.version);
        Some((self, listing))
    }
}

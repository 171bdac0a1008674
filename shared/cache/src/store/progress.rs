//! The progress of one watch: the newest version that it has delivered, and a list that is under way.

use std::collections::HashSet;

use crate::object::{ObjectKey, Uid};

/// The progress of one watch.
#[derive(Debug)]
pub(super) struct Progress {
    /// The watched namespace; empty for all of them.
    scope: Box<str>,
    /// The newest version of all lists, events and bookmarks.
    delivered: u64,
    listing: Option<Listing>,
}

/// A list that is under way. When it is complete, objects that it did not contain are removed.
#[derive(Debug)]
pub(super) struct Listing {
    /// The version that all its pages show; 0 before the first page.
    pub(super) version: u64,
    pub(super) seen: HashSet<ObjectKey>,
    /// Uids of objects that we had deleted before the list was requested.
    deleted: Vec<Uid>,
    /// Whether the list had an older version of an object than the cache.
    pub(super) rewritten: bool,
}

/// The cluster went back in time, as after etcd is restored from a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("resource versions went back from {known} to {now}: the cluster was restored to an earlier state")]
pub struct WentBack {
    pub known: u64,
    pub now: u64,
}

impl Progress {
    pub(super) fn of(scope: &str) -> Self {
        Self { scope: scope.into(), delivered: 0, listing: None }
    }

    pub(super) fn covers(&self, namespace: &str) -> bool {
        self.scope.is_empty() || *self.scope == *namespace
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Advances to the version of an event or a bookmark. A version of 0, which stands for an unreadable one, changes nothing.
    ///
    /// # Errors
    ///
    /// The version is lower than the newest one. Within one history versions never fall; the same version twice does no harm.
    pub(super) fn advance(&mut self, version: u64) -> Result<(), WentBack> {
        if version != 0 && version < self.delivered {
            return Err(WentBack { known: self.delivered, now: version });
        }
        self.delivered = self.delivered.max(version);
        Ok(())
    }

    pub(super) fn begin_list(&mut self, deleted: Vec<Uid>) {
        // What an unfinished list has found out about the cluster is still true, and the next one will not find it again.
        let rewritten = self.listing.take().is_some_and(|unfinished| unfinished.rewritten);
        self.listing = Some(Listing { version: 0, seen: HashSet::new(), deleted, rewritten });
    }

    /// Records the version of the first page. Returns the uids that we had deleted before the list.
    pub(super) fn listed_at(&mut self, version: u64) -> Vec<Uid> {
        let Some(listing) = &mut self.listing else { return Vec::new() };
        listing.version = version;
        std::mem::take(&mut listing.deleted)
    }

    /// Resets the progress if the list's version is lower than the newest one. A higher version counts only when the list is
    /// complete: until then, an object that is not in the cache may be on a later page.
    ///
    /// # Errors
    ///
    /// The version is lower than the newest one.
    pub(super) fn restart(&mut self, version: u64) -> Result<(), WentBack> {
        if version >= self.delivered {
            return Ok(());
        }
        Err(WentBack { known: std::mem::take(&mut self.delivered), now: version })
    }

    pub(super) fn saw(&mut self, key: &ObjectKey) {
        if let Some(listing) = &mut self.listing {
            listing.seen.insert(key.clone());
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
        Some((self, listing))
    }
}

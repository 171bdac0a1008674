//! Children that were created a moment ago.
//!
//! A child that is missing again so soon has probably lost its owner: the reconciled object was deleted or replaced, its watch
//! lags behind, and the garbage collector removes each new child. Without this memory the controller and the garbage collector
//! would create and delete for as long as the lag lasts.
//!
//! If the object still exists, another client has deleted its child. For such contests (`apply/contest.rs`) the memory lasts
//! longer.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hasher as _,
    time::Duration,
};

use cache::{ObjectKey, Uid};
use parking_lot::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3;

use crate::reverts::CALM;

/// How long a created child counts as recent. The garbage collector needs less time than this.
const WINDOW: Duration = Duration::from_secs(5);

/// Room for more children than this is given back when most of it is empty.
const SMALL: usize = 64;

/// The children that were created within [`CALM`], by a hash of owner, kind and name: 80 to 160 bytes for each.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    created: HashMap<u64, Created>,
    order: VecDeque<(Instant, u64)>,
}

/// The last creation of a child.
#[derive(Debug, Clone, Copy)]
struct Created {
    at: Instant,
    /// The owner; `None` once we have deleted the child ourselves.
    owner: Option<Uid>,
}

impl Recent {
    /// Records a creation. `uid` is that of the owner.
    pub(super) fn created(&self, owner: &ObjectKey, uid: Uid, kind: &str, name: &str) {
        let (now, child) = (Instant::now(), hash(owner, kind, name));
        let mut entries = self.0.lock();
        entries.expire(now);
        entries.created.insert(child, Created { at: now, owner: Some(uid) });
        entries.order.push_back((now, child));
    }

    /// Records that we have deleted the child: its next creation restores nothing.
    pub(super) fn deleted(&self, owner: &ObjectKey, kind: &str, name: &str) {
        if let Some(created) = self.0.lock().created.get_mut(&hash(owner, kind, name)) {
            created.owner = None;
        }
    }

    /// Whether a child of this name was created within [`WINDOW`], for this owner or for an earlier one of its name.
    pub(super) fn contains(&self, owner: &ObjectKey, kind: &str, name: &str) -> bool {
        let now = Instant::now();
        self.last(owner, kind, name, now).is_some_and(|created| now < created.at + WINDOW)
    }

    /// Whether this child was created within [`CALM`] for the same owner, and we have not deleted it. If it is missing, another
    /// client has deleted it.
    pub(super) fn restores(&self, owner: &ObjectKey, uid: Uid, kind: &str, name: &str) -> bool {
        self.last(owner, kind, name, Instant::now()).is_some_and(|created| created.owner == Some(uid))
    }

    /// Forgets the children that were created earlier. Each reconcile calls this: a controller that creates no more children would
    /// keep the memory of all that it created at its start.
    pub(crate) fn expire(&self) {
        self.0.lock().expire(Instant::now());
    }

    fn last(&self, owner: &ObjectKey, kind: &str, name: &str, now: Instant) -> Option<Created> {
        let mut entries = self.0.lock();
        entries.expire(now);
        entries.created.get(&hash(owner, kind, name)).copied()
    }
}

impl Entries {
    fn expire(&mut self, now: Instant) {
        while let Some((created, child)) = self.order.front().copied().filter(|(created, _)| now >= *created + CALM) {
            self.order.pop_front();
            if self.created.get(&child).is_some_and(|last| last.at == created) {
                self.created.remove(&child);
            }
        }
        // Frees what a burst has allocated, also if children are created all the time.
        if self.order.capacity() > SMALL && self.order.len() < self.order.capacity() / 4 {
            self.order.shrink_to(2 * self.order.len());
            self.created.shrink_to(2 * self.created.len());
        }
    }
}

fn hash(owner: &ObjectKey, kind: &str, name: &str) -> u64 {
    let mut hasher = Xxh3::new();
    for part in [&*owner.namespace, &*owner.name, kind, name] {
        hasher.write_usize(part.len());
        hasher.write(part.as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn recent_child_expires_and_frees_its_memory() {
        let (recent, owner, uid) = (Recent::default(), ObjectKey::new("n", "a"), Uid::of("u"));
        for number in 0..100 {
            recent.created(&owner, uid, "Service", &number.to_string());
        }
        assert!(recent.contains(&owner, "Service", "7"));
        assert!(!recent.contains(&owner, "Deployment", "7"));
        tokio::time::advance(WINDOW / 2).await;
        recent.created(&owner, uid, "Service", "7");
        tokio::time::advance(WINDOW / 2).await;
        assert!(recent.contains(&owner, "Service", "7"));
        assert!(!recent.contains(&owner, "Service", "8"));
        tokio::time::advance(WINDOW).await;
        assert!(!recent.contains(&owner, "Service", "7"));
        tokio::time::advance(CALM).await;
        assert!(!recent.contains(&owner, "Service", "7"));
        assert_eq!(recent.0.lock().order.capacity(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn burst_leaves_no_room_behind_although_children_are_created_all_the_time() {
        let (recent, owner, uid) = (Recent::default(), ObjectKey::new("n", "a"), Uid::of("u"));
        for number in 0..1_000 {
            recent.created(&owner, uid, "Service", &number.to_string());
        }
        for _ in 0..4 {
            tokio::time::advance(CALM / 2).await;
            recent.created(&owner, uid, "Service", "a");
        }
        let room = || {
            let entries = recent.0.lock();
            (entries.order.capacity(), entries.created.capacity())
        };
        assert!(room().0 <= SMALL && room().1 <= SMALL, "{:?}", room());
    }

    #[tokio::test(start_paused = true)]
    async fn burst_leaves_no_room_behind_although_no_child_is_created_any_more() {
        let (recent, owner, uid) = (Recent::default(), ObjectKey::new("n", "a"), Uid::of("u"));
        for number in 0..1_000 {
            recent.created(&owner, uid, "Service", &number.to_string());
        }
        tokio::time::advance(CALM).await;
        recent.expire();
        let entries = recent.0.lock();
        assert_eq!((entries.order.capacity(), entries.created.capacity()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_child_that_another_client_deleted_is_restored() {
        let (recent, owner, uid) = (Recent::default(), ObjectKey::new("n", "a"), Uid::of("u"));
        let restores = |uid| recent.restores(&owner, uid, "Service", "a");
        assert!(!restores(uid), "it is new");
        recent.created(&owner, uid, "Service", "a");
        tokio::time::advance(Duration::from_secs(115)).await;
        assert!(restores(uid));
        assert!(!restores(Uid::of("v")), "another object has the name of the owner");
        recent.deleted(&owner, "Service", "a");
        assert!(!restores(uid), "we have deleted it");
        recent.created(&owner, uid, "Service", "a");
        recent.deleted(&owner, "Service", "a");
        assert!(recent.contains(&owner, "Service", "a"), "its owner may be gone all the same");
        recent.created(&owner, uid, "Service", "a");
        tokio::time::advance(CALM).await;
        assert!(!restores(uid), "that was long ago");
    }
}

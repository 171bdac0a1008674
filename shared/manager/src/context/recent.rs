//! Children that were created a moment ago.
//!
//! A child that is missing again so soon has probably lost its owner: the reconciled object was deleted or replaced, its watch
//! lags behind, and the garbage collector removes each new child. Without this memory the controller and the garbage collector
//! would create and delete for as long as the lag lasts.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hasher as _,
    time::Duration,
};

use cache::ObjectKey;
use parking_lot::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3;

/// How long a created child counts as recent. The garbage collector needs less time than this.
const WINDOW: Duration = Duration::from_secs(5);

/// The children that were created within [`WINDOW`], by a hash of owner, kind and name.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    created: HashMap<u64, Instant>,
    order: VecDeque<(Instant, u64)>,
}

impl Recent {
    pub(super) fn created(&self, owner: &ObjectKey, kind: &str, name: &str) {
        let (now, child) = (Instant::now(), hash(owner, kind, name));
        let mut entries = self.0.lock();
        entries.expire(now);
        entries.created.insert(child, now);
        entries.order.push_back((now, child));
    }

    pub(super) fn contains(&self, owner: &ObjectKey, kind: &str, name: &str) -> bool {
        let mut entries = self.0.lock();
        entries.expire(Instant::now());
        entries.created.contains_key(&hash(owner, kind, name))
    }
}

impl Entries {
    fn expire(&mut self, now: Instant) {
        while let Some((created, child)) = self.order.front().copied().filter(|(created, _)| now >= *created + WINDOW) {
            self.order.pop_front();
            if self.created.get(&child) == Some(&created) {
                self.created.remove(&child);
            }
        }
        if self.order.is_empty() && self.order.capacity() > 64 {
            *self = Self::default(); // frees what a burst has allocated
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
        let (recent, owner) = (Recent::default(), ObjectKey::new("n", "a"));
        for number in 0..100 {
            recent.created(&owner, "Service", &number.to_string());
        }
        assert!(recent.contains(&owner, "Service", "7"));
        assert!(!recent.contains(&owner, "Deployment", "7"));
        tokio::time::advance(WINDOW / 2).await;
        recent.created(&owner, "Service", "7");
        tokio::time::advance(WINDOW / 2).await;
        assert!(recent.contains(&owner, "Service", "7"));
        assert!(!recent.contains(&owner, "Service", "8"));
        tokio::time::advance(WINDOW).await;
        assert!(!recent.contains(&owner, "Service", "7"));
        assert_eq!(recent.0.lock().order.capacity(), 0);
    }
}

//! Whether what the caches hold is of the history that the cluster has now.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::observed::Observed;

/// How often an informer found out, by a version that went back or has another content than before, that the cluster was
/// restored to an earlier state. Other informers may not see it: versions of the restored cluster soon overtake what they
/// know, and a watch simply goes on. So every informer lists again what it has, as soon as one of them has a doubt.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    count: Observed<u64>,
    last: Mutex<Option<Instant>>,
}

/// A doubt counts once in this time: a definition that changes its defaults changes each of its objects under its version.
const ONCE_IN: Duration = Duration::from_secs(30);

impl Doubts {
    /// Makes all informers list again. Returns whether this was the first doubt for a while.
    pub(crate) fn raise(&self) -> bool {
        let (mut last, now) = (self.last.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if last.is_some_and(|last| now < last + ONCE_IN) {
            return false;
        }
        *last = Some(now);
        self.count.modify(|count| {
            *count += 1;
            true
        });
        true
    }

    pub(crate) fn count(&self) -> u64 {
        *self.count.get()
    }

    /// Returns when there are more than this.
    pub(crate) async fn beyond(&self, count: u64) {
        self.count.until(|now| *now > count).await;
    }
}

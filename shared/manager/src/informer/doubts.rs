//! Makes all informers relist when one of them notices that the cluster was restored to an earlier state.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::observed::Observed;

/// Counts how often an informer noticed that the cluster was restored to an earlier state: a version went back, or came back
/// with other content. Other informers may not notice it, because versions of the restored cluster soon overtake those that
/// they know, and their watches simply continue. So a doubt of one informer makes all of them relist.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    count: Observed<u64>,
    last: Mutex<Option<Instant>>,
}

/// At most one doubt counts in this time. A CRD that changes its defaults changes the content of each of its objects without
/// a new version, and each of them raises a doubt.
const ONCE_IN: Duration = Duration::from_secs(30);

impl Doubts {
    /// Makes all informers relist. Returns false, and does nothing, if the last doubt is less than [`ONCE_IN`] ago.
    pub(crate) fn raise(&self) -> bool {
        let (mut last, now) = (self.last.lock(), Instant::now());
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

    /// Returns when there are more than `count` doubts.
    pub(crate) async fn beyond(&self, count: u64) {
        self.count.until(|now| *now > count).await;
    }
}

//! Makes all informers relist when one of them notices that the cluster was restored to an earlier state.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::observed::Observed;

/// The alarm that an informer raises when it notices that the cluster was restored to an earlier state: a version went back, or
/// came back with other content. Other informers may not notice it, because versions of the restored cluster soon overtake those
/// that they know, and their watches simply continue. So one alarm makes all informers relist.
#[derive(Debug, Default)]
pub struct RestoreAlarm {
    count: Observed<u64>,
    last: Mutex<Option<Instant>>,
}

/// At most one alarm counts in this time. A CRD that changes its defaults changes the content of each of its objects without
/// a new version, and each of them raises the alarm.
const ONCE_IN: Duration = Duration::from_secs(30);

impl RestoreAlarm {
    /// Makes all informers relist. Returns false, and does nothing, if the last alarm is less than [`ONCE_IN`] ago.
    pub fn raise(&self) -> bool {
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

    /// How often the alarm was raised.
    pub fn count(&self) -> u64 {
        *self.count.get()
    }

    /// Returns when the alarm was raised more than `count` times.
    pub async fn raised_after(&self, count: u64) {
        self.count.until(|now| *now > count).await;
    }
}

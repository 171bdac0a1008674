//! A number that watches wait to see changed.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A number, and a bell for those who wait until it is another. They are woken in the order in which they began to wait;
/// `tokio::sync::watch` wakes them in a random order, and then no run could be repeated.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    number: AtomicU64,
    changed: Notify,
}

impl Bell {
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    pub(crate) fn ring(&self, number: u64) {
        if self.number.swap(number, Ordering::SeqCst) != number {
            self.changed.notify_waiters();
        }
    }

    /// Returns the number when it is not `known`.
    pub(crate) async fn other_than(&self, known: u64) -> u64 {
        loop {
            // It counts from here on: what changes after the look is not missed.
            let changed = self.changed.notified();
            let number = self.number();
            if number != known {
                return number;
            }
            changed.await;
        }
    }
}

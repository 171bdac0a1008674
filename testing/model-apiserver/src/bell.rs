//! A number for whose change watches wait.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A number that wakes its waiting tasks when it changes. It wakes them in the order in which they started to wait.
/// `tokio::sync::watch` wakes tasks in a random order, which would make runs irreproducible.
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

    /// Waits until the number differs from `known`, and returns it.
    pub(crate) async fn other_than(&self, known: u64) -> u64 {
        loop {
            // Register before reading the number, so that no later change is missed.
            let changed = self.changed.notified();
            let number = self.number();
            if number != known {
                return number;
            }
            changed.await;
        }
    }
}

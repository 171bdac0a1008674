//! A shared value that tasks can wait on, such as the state of a cache.

use parking_lot::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// A value with a notification for tasks that wait until it meets a condition. Tasks wake in the order in which they began to
/// wait. `tokio::sync::watch` wakes them in random order, which would make simulations unrepeatable.
#[derive(Debug, Default)]
pub(crate) struct Observed<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Observed<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> MutexGuard<'_, T> {
        self.value.lock()
    }

    /// Applies `change`. Wakes the waiting tasks if it returns true, which means that it has changed the value.
    pub(crate) fn modify(&self, change: impl FnOnce(&mut T) -> bool) {
        if change(&mut self.get()) {
            self.changed.notify_waiters();
        }
    }

    /// Returns when `is_so` holds; at once if it already does.
    pub(crate) async fn until(&self, mut is_so: impl FnMut(&T) -> bool) {
        loop {
            // Register before the check, so that a change right after the check is not missed.
            let changed = self.changed.notified();
            if is_so(&self.get()) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn waiters_wake_in_arrival_order() {
        let (value, order) = (Arc::new(Observed::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (value, order) = (value.clone(), order.clone());
            waiting.spawn(async move {
                value.until(|it| *it > 1).await;
                order.lock().push(number);
            });
        }
        tokio::task::yield_now().await;
        value.modify(|it| std::mem::replace(it, 1) != 1); // not enough
        tokio::task::yield_now().await;
        assert!(order.lock().is_empty());
        value.modify(|it| std::mem::replace(it, 2) != 2);
        while waiting.join_next().await.is_some() {}
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    }
}

//! A value that tasks wait for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value, and a bell for those who wait until it is as they want it. They are woken in the order in which they began to
/// wait; `tokio::sync::watch` wakes them in a random order, and then no run of a simulation could be repeated.
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
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait if `change` says that it has changed something.
    pub(crate) fn modify(&self, change: impl FnOnce(&mut T) -> bool) {
        if change(&mut self.get()) {
            self.changed.notify_waiters();
        }
    }

    /// Returns when `is_so` holds; at once if it does already.
    pub(crate) async fn until(&self, mut is_so: impl FnMut(&T) -> bool) {
        loop {
            // It counts from here on: what changes after the look is not missed.
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
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        let (value, order) = (Arc::new(Observed::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (value, order) = (value.clone(), order.clone());
            waiting.spawn(async move {
                value.until(|it| *it > 1).await;
                order.lock().expect("no panic").push(number);
            });
        }
        tokio::task::yield_now().await;
        value.modify(|it| std::mem::replace(it, 1) != 1); // not enough
        tokio::task::yield_now().await;
        assert!(order.lock().expect("no panic").is_empty());
        value.modify(|it| std::mem::replace(it, 2) != 2);
        while waiting.join_next().await.is_some() {}
        assert_eq!(*order.lock().expect("no panic"), (0..20).collect::<Vec<_>>());
    }
}

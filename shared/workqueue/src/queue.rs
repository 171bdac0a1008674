//! The handle of a queue.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::core::{Core, Next};
use crate::item::Item;
use crate::metrics::Unfinished;
use crate::priority::Priority;
use crate::shared::Shared;
use crate::shutdown::Shutdown;
use crate::waiter::Waiter;

/// A queue of keys. Clones are handles to the same queue.
///
/// * A key is in the queue at most once, and only one worker at a time has it. If it is added during the work, it comes back
///   once.
/// * Adding it again keeps the higher priority and the earlier time. Adding without delay therefore ends every wait, a back-off
///   too, but neither resets nor lengthens the back-off (see [`Outcome::Failure`](crate::Outcome::Failure)).
/// * Higher priorities go first; one hand-out in [`Config::patience`]` + 1` goes to the oldest key instead.
/// * Inside a priority, flows take turns (see [`WorkQueue::with_flows`]), and inside a flow, first come, first served.
/// * An idle key takes no memory. A waiting one takes about 60 bytes in addition to the key, which is stored once, and each flow
///   with ready keys about 100. The memory of a burst is kept until the queue is empty.
///
/// There is no background task. Only [`WorkQueue::get`] needs a runtime, for tokio's timer.
pub struct WorkQueue<K: Clone + Eq + Hash + Send + Sync + 'static> {
    shared: Arc<Shared<K>>,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> WorkQueue<K> {
    /// An empty queue.
    pub fn new(config: Config) -> Self {
        Self::with_flows(config, |_| 0)
    }

    /// An empty queue in which keys of different flows take turns, one key at a time, inside a priority.
    ///
    /// `flow_of` gives the number of a key's flow, always the same for the same key. It runs under the queue's lock, so it must
    /// be quick. With the namespace as the flow, a namespace with a thousand ready keys delays the key of another by one hand-out, and
    /// by those that go to the oldest key.
    pub fn with_flows(config: Config, flow_of: fn(&K) -> u64) -> Self {
        Self { shared: Arc::new(Shared::new(config, flow_of)) }
    }

    /// Makes a key ready.
    pub fn add(&self, key: K, priority: Priority) {
        self.add_after(key, priority, Duration::ZERO);
    }

    /// Makes a key ready after a delay. A ready key stays ready; a delayed one keeps the earlier time.
    ///
    /// A key that a worker has may come back earlier, if its outcome says so.
    pub fn add_after(&self, key: K, priority: Priority, delay: Duration) {
        self.shared.change(|core, now| core.add(now, key, priority, delay));
    }

    /// Makes a key ready, unless it has a delay that ends within this time.
    pub fn add_unless_due(&self, key: K, priority: Priority, within: Duration) {
        self.shared.change(|core, now| core.add_unless_due(now, key, priority, within));
    }

    /// Waits for the next key to work on. Returns `None` after [`WorkQueue::shutdown`].
    ///
    /// Safe to cancel: a key is either returned or still in the queue.
    pub async fn get(&self) -> Option<Item<K>> {
        // Without this, a worker whose reconciler never awaits would block its thread for all other tasks.
        tokio::task::consume_budget().await;
        let mut waiter = Waiter::new(&self.shared);
        match poll_fn(|cx| waiter.poll(cx)).await {
            Next::Work(handed) => Some(Item::new(handed, Arc::clone(&self.shared))),
            Next::Wait(_) | Next::Closed => None,
        }
    }

    /// The next key, if one is ready now.
    pub fn try_get(&self) -> Option<Item<K>> {
        match self.shared.change(Core::take) {
            Next::Work(handed) => Some(Item::new(handed, Arc::clone(&self.shared))),
            Next::Wait(_) | Next::Closed => None,
        }
    }

    /// This key, out of turn, if it is ready now and no worker has it.
    pub fn try_get_key(&self, key: &K) -> Option<Item<K>> {
        let handed = self.shared.change(|core, now| core.take_key(now, key))?;
        Some(Item::new(handed, Arc::clone(&self.shared)))
    }

    /// The keys that are ready now and that no worker has, in no order.
    pub fn ready_keys(&self) -> Vec<K> {
        self.shared.change(|core, _| core.available_keys())
    }

    /// Resets the back-off of a key, without changing when it is due.
    pub fn forget(&self, key: &K) {
        self.shared.change(|core, _| core.forget(key));
    }

    /// The number of failures in a row of a key; 0 for a key that is not in the queue.
    pub fn failures(&self, key: &K) -> u32 {
        self.shared.change(|core, _| core.failures(key))
    }

    /// The number of ready keys, including those that are handed out again when the current work on them ends.
    pub fn len(&self) -> usize {
        self.shared.change(|core, _| core.ready())
    }

    /// Reports the depth to the metrics. Otherwise a key whose delay has run out counts only at the next call.
    pub fn update_depth(&self) {
        self.shared.change(|_, _| ());
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The time until the next delay expires; `None` if no key is delayed.
    #[cfg(test)]
    pub(crate) fn next_ready(&self) -> Option<Duration> {
        self.shared.change(|core, now| core.next_due().map(|due| due.since(now)))
    }

    /// The running work.
    pub fn unfinished(&self) -> Unfinished {
        self.shared.change(|core, now| core.unfinished(now))
    }

    /// Closes the queue. Running work continues, but its outcome (a retry, a requeue) no longer brings the key back.
    ///
    /// Returns at once. When draining, a key that was added during the work is handed out once more after that. The worker that
    /// finishes it gets it, because `get` does not wait for running keys and so cannot hang. A `Drop` may follow a `Drain`.
    pub fn shutdown(&self, how: Shutdown) {
        self.shared.shut_down(how);
    }

    /// Whether the queue has been closed.
    pub fn is_shut_down(&self) -> bool {
        self.shared.change(|core, _| core.is_shut_down())
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("ready", &self.len()).field("unfinished", &self.unfinished()).finish()
    }
}

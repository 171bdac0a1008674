//! The handle of a queue: the core behind a lock, and the workers that wait for keys.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::core::{Core, Next, Slot};
use crate::moment::Moment;
use crate::parking::{Parking, Ticket, Wakes};
use crate::{Backoff, Item, Metrics, Outcome, Unfinished};

/// A queue of keys. Clones are handles to the same queue.
///
/// * A key is in the queue at most once, and only one worker at a time has it. If it is added during the work, it comes back
///   once.
/// * Adding it again keeps the higher priority and the earlier time. Adding without delay therefore ends every wait, a back-off
///   too, but neither resets nor lengthens the back-off (see [`Outcome::Failure`]).
/// * Higher priorities go first; one hand-out in [`Config::patience`]` + 1` goes to the oldest key instead.
/// * An idle key takes no memory. A waiting one takes about 60 bytes in addition to the key, which is stored once. The memory of
///   a burst is kept until the queue is empty.
///
/// There is no background task. Only [`WorkQueue::get`] needs a runtime, for tokio's timer.
pub struct WorkQueue<K: Clone + Eq + Hash + Send + Sync + 'static> {
    shared: Arc<Shared<K>>,
}

/// The settings of a queue.
#[derive(Clone)]
pub struct Config {
    /// The back-off of failing keys.
    pub backoff: Backoff,
    /// How many times in a row more urgent keys may overtake the oldest ready key. `u32::MAX` lets it starve.
    pub patience: u32,
    /// Makes the jitter repeatable.
    pub seed: Option<u64>,
    /// The observer of the queue's events.
    pub metrics: Arc<dyn Metrics>,
}

/// The urgency of a key; the higher number goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

/// What a shutdown does with ready keys. Either way it drops delayed keys, and ignores later adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Hands them out first.
    Drain,
    /// Drops them.
    Drop,
}

impl Default for Config {
    /// Back-off from 5 ms to 5 min, at least one hand-out in ten for the oldest key, no observer.
    fn default() -> Self {
        Self { backoff: Backoff::default(), patience: 9, seed: None, metrics: Arc::new(()) }
    }
}

impl Priority {
    /// For an object that has just changed.
    pub const LIVE: Self = Self(0);
    /// For a reconcile without a change: start-up, resync.
    pub const LOW: Self = Self(-100);
}

struct Shared<K> {
    start: Instant,
    state: Mutex<State<K>>,
}

struct State<K> {
    core: Core<K>,
    parking: Parking,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> WorkQueue<K> {
    /// An empty queue.
    pub fn new(config: Config) -> Self {
        let state = State { core: Core::new(config), parking: Parking::default() };
        Self { shared: Arc::new(Shared { start: Instant::now(), state: Mutex::new(state) }) }
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
        let mut waiter = Waiter { shared: &*self.shared, ticket: None, timer: None };
        match poll_fn(|cx| waiter.poll(cx)).await {
            Next::Work(handed) => Some(Item::new(handed, self.clone())),
            Next::Wait(_) | Next::Closed => None,
        }
    }

    /// The next key, if one is ready now.
    pub fn try_get(&self) -> Option<Item<K>> {
        match self.shared.change(Core::take) {
            Next::Work(handed) => Some(Item::new(handed, self.clone())),
            Next::Wait(_) | Next::Closed => None,
        }
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
    pub fn next_ready(&self) -> Option<Duration> {
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
        let wakers = {
            let mut state = self.shared.state.lock();
            let now = self.shared.now();
            state.core.shut_down(now, how);
            state.parking.wake_all()
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Whether the queue has been closed.
    pub fn is_shut_down(&self) -> bool {
        self.shared.change(|core, _| core.is_shut_down())
    }

    pub(crate) fn finish(&self, slot: Slot, priority: Priority, outcome: Outcome) {
        self.shared.change(|core, now| core.done(now, slot, priority, outcome));
    }
}

impl<K: Clone + Eq + Hash> Shared<K> {
    /// Runs one access to the core under the lock: first makes due keys ready, and at the end wakes the workers that are needed.
    fn change<R>(&self, change: impl FnOnce(&mut Core<K>, Moment) -> R) -> R {
        let mut state = self.state.lock();
        let now = self.now();
        state.core.promote(now);
        let result = change(&mut state.core, now);
        let wakes = state.wake_waiters();
        drop(state);
        wakes.wake();
        result
    }

    /// The current time. To be read under the lock, so that time never goes backwards for the core.
    fn now(&self) -> Moment {
        Moment::at(self.start.elapsed())
    }

    fn timer(&self, due: Moment) -> Pin<Box<Sleep>> {
        // If the moment is beyond the range of this clock, sleep for a day; an early wake-up does no harm.
        let due = self.start.checked_add(due.since(Moment::START));
        Box::pin(sleep_until(due.unwrap_or_else(|| Instant::now() + Duration::from_hours(24))))
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn wake_waiters(&mut self) -> Wakes {
        self.parking.wake_waiters(self.core.available(), self.core.next_due())
    }
}

/// A worker inside [`WorkQueue::get`].
struct Waiter<'a, K: Clone + Eq + Hash> {
    shared: &'a Shared<K>,
    ticket: Option<Ticket>,
    /// Set for the timekeeper only.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<K: Clone + Eq + Hash> Waiter<'_, K> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Next<K>> {
        loop {
            let alarm = match self.look(cx) {
                Ok(next) => return Poll::Ready(next),
                Err(alarm) => alarm,
            };
            self.timer = alarm.map(|due| self.shared.timer(due));
            if let Some(timer) = &mut self.timer {
                ready!(timer.as_mut().poll(cx));
            } else {
                return Poll::Pending;
            }
        }
    }

    /// Takes a key, or parks the worker. Returns the time of the next look for the timekeeper.
    fn look(&mut self, cx: &mut Context<'_>) -> Result<Next<K>, Option<Moment>> {
        let mut state = self.shared.state.lock();
        state.parking.look(&mut self.ticket);
        let next = match state.core.take(self.shared.now()) {
            Next::Wait(due) => {
                let timekeeper = state.parking.park(&mut self.ticket, cx.waker(), due);
                Err(due.filter(|_| timekeeper))
            }
            next => {
                state.parking.leave(&mut self.ticket);
                Ok(next)
            }
        };
        let wakes = state.wake_waiters();
        drop(state);
        wakes.wake();
        next
    }
}

impl<K: Clone + Eq + Hash> Drop for Waiter<'_, K> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            let mut state = self.shared.state.lock();
            state.parking.leave(&mut self.ticket);
            let wakes = state.wake_waiters();
            drop(state);
            wakes.wake();
        }
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

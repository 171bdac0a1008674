//! What the handles, the items and the waiting workers of a queue share: the core and the parked workers, behind one lock.

use std::hash::Hash;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::config::Config;
use crate::core::{Core, Next};
use crate::moment::Moment;
use crate::parking::{Parking, Ticket};
use crate::shutdown::Shutdown;

pub(crate) struct Shared<K> {
    start: Instant,
    state: Mutex<State<K>>,
}

struct State<K> {
    core: Core<K>,
    parking: Parking,
}

impl<K: Clone + Eq + Hash> Shared<K> {
    pub(crate) fn new(config: Config, flow_of: fn(&K) -> u64) -> Self {
        let state = State { core: Core::new(config, flow_of), parking: Parking::default() };
        Self { start: Instant::now(), state: Mutex::new(state) }
    }

    /// Runs one access to the core under the lock: first makes due keys ready, and at the end wakes the workers that are needed.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Core<K>, Moment) -> R) -> R {
        let mut state = self.state.lock();
        let now = self.now();
        state.core.promote(now);
        let result = change(&mut state.core, now);
        State::release(state);
        result
    }

    /// Takes a key, or parks the worker. Returns the time of the next look for the timekeeper.
    pub(crate) fn look(&self, ticket: &mut Option<Ticket>, cx: &Context<'_>) -> Result<Next<K>, Option<Moment>> {
        let mut state = self.state.lock();
        state.parking.look(ticket);
        let next = match state.core.take(self.now()) {
            Next::Wait(due) => {
                let timekeeper = state.parking.park(ticket, cx.waker(), due);
                Err(due.filter(|_| timekeeper))
            }
            next => {
                state.parking.leave(ticket);
                Ok(next)
            }
        };
        State::release(state);
        next
    }

    /// Ends the waiting of a worker that was cancelled.
    pub(crate) fn leave(&self, ticket: &mut Option<Ticket>) {
        let mut state = self.state.lock();
        state.parking.leave(ticket);
        State::release(state);
    }

    /// Closes the core, and wakes every worker so that it sees that.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        let wakers = {
            let mut state = self.state.lock();
            let now = self.now();
            state.core.shut_down(now, how);
            state.parking.wake_all()
        };
        for waker in wakers {
            waker.wake();
        }
    }

    pub(crate) fn timer(&self, due: Moment) -> Pin<Box<Sleep>> {
        // If the moment is beyond the range of this clock, sleep for a day; an early wake-up does no harm.
        let due = self.start.checked_add(due.since(Moment::START));
        Box::pin(sleep_until(due.unwrap_or_else(|| Instant::now() + Duration::from_hours(24))))
    }

    /// Whether a key could be taken now. Unlike [`Shared::change`], wakes no worker.
    #[cfg(test)]
    pub(crate) fn has_work(&self) -> bool {
        let state = self.state.lock();
        state.core.available() > 0 || state.core.next_due().is_some_and(|due| due <= self.now())
    }

    /// The current time. To be read under the lock, so that time never goes backwards for the core.
    fn now(&self) -> Moment {
        Moment::at(self.start.elapsed())
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Releases the lock, and then wakes the workers that are needed.
    fn release(mut state: MutexGuard<'_, Self>) {
        let (available, due) = (state.core.available(), state.core.next_due());
        let wakes = state.parking.wake_waiters(available, due);
        drop(state);
        wakes.wake();
    }
}

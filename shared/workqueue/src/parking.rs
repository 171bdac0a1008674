//! Decides which sleeping worker to wake, and which one watches the clock. Does not depend on keys.
//!
//! Work goes to the worker that was parked last. The one that was parked first is the *timekeeper*: it alone sets a timer for the
//! next due key. So one add wakes one worker, an expired delay wakes one worker, and the queue needs no background task.
//!
//! **Why no wake-up is lost.** After every change, under the same lock, [`Parking::wake_waiters`] restores this invariant: if a
//! key is available and a worker is parked, then at least one woken worker has not looked for work yet. Both looking and dropping
//! a worker end in another `wake_waiters`, so the wake-up of a cancelled worker passes to the next one.

use std::task::Waker;

use crate::moment::Moment;

/// The parked workers. At any time a worker is in `parked`, or counted in `woken`, or not waiting at all.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    parked: Vec<(Ticket, Waker)>,
    /// The number of woken workers that have not looked for work yet.
    woken: usize,
    /// The time for which the timekeeper sets its timer.
    armed: Option<Moment>,
    last_ticket: Ticket,
}

/// Identifies a worker while it waits.
pub(crate) type Ticket = u64;

/// The wakers to call after releasing the lock.
#[must_use = "workers sleep on until they are woken"]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    worker: Option<Waker>,
    timekeeper: Option<Waker>,
}

impl Parking {
    /// Parks a worker, or stores its new waker. Returns whether it is the timekeeper, which must set a timer for `due`.
    pub(crate) fn park(&mut self, ticket: &mut Option<Ticket>, waker: &Waker, due: Option<Moment>) -> bool {
        let parked = ticket.and_then(|ticket| self.position(ticket));
        if let Some(position) = parked {
            self.parked[position].1.clone_from(waker);
        } else {
            self.last_ticket += 1;
            *ticket = Some(self.last_ticket);
            self.parked.push((self.last_ticket, waker.clone()));
        }
        let timekeeper = parked.unwrap_or(self.parked.len() - 1) == 0;
        if timekeeper {
            self.armed = due;
        }
        timekeeper
    }

    /// Records that a worker looks for work. If it was woken, its wake-up has arrived.
    pub(crate) fn look(&mut self, ticket: &mut Option<Ticket>) {
        if let Some(name) = *ticket
            && self.position(name).is_none()
        {
            self.woken -= 1;
            *ticket = None;
        }
    }

    /// Records that a worker no longer waits: it has found work, or was cancelled.
    pub(crate) fn leave(&mut self, ticket: &mut Option<Ticket>) {
        self.look(ticket);
        if let Some(position) = ticket.take().and_then(|ticket| self.position(ticket)) {
            self.remove(position);
        }
    }

    /// Decides which workers to wake so that `available` keys are taken and a timer runs for `due`.
    pub(crate) fn wake_waiters(&mut self, available: usize, due: Option<Moment>) -> Wakes {
        let mut wakes = Wakes::default();
        if available > self.woken && !self.parked.is_empty() {
            wakes.worker = Some(self.remove(self.parked.len() - 1));
            self.woken += 1;
        }
        if let Some((_, timekeeper)) = self.parked.first()
            && due.is_some_and(|due| self.armed.is_none_or(|armed| due < armed))
        {
            wakes.timekeeper = Some(timekeeper.clone());
            self.armed = due;
        }
        wakes
    }

    /// Returns the wakers of all workers, for the shutdown.
    pub(crate) fn wake_all(&mut self) -> Vec<Waker> {
        self.woken += self.parked.len();
        self.armed = None;
        self.parked.drain(..).map(|(_, waker)| waker).collect()
    }

    fn position(&self, ticket: Ticket) -> Option<usize> {
        self.parked.iter().position(|&(parked, _)| parked == ticket)
    }

    fn remove(&mut self, position: usize) -> Waker {
        if position == 0 {
            self.armed = None;
        }
        self.parked.remove(position).1
    }
}

impl Wakes {
    pub(crate) fn wake(self) {
        let Self { worker, timekeeper } = self;
        worker.into_iter().chain(timekeeper).for_each(Waker::wake);
    }
}

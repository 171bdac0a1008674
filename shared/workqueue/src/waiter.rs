//! A worker that waits for a key.

use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::Sleep;

use crate::core::Next;
use crate::parking::Ticket;
use crate::shared::Shared;

/// A worker inside [`WorkQueue::get`](crate::WorkQueue::get).
pub(crate) struct Waiter<'a, K: Clone + Eq + Hash> {
    shared: &'a Shared<K>,
    ticket: Option<Ticket>,
    /// Set for the timekeeper only.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a, K: Clone + Eq + Hash> Waiter<'a, K> {
    pub(crate) fn new(shared: &'a Shared<K>) -> Self {
        Self { shared, ticket: None, timer: None }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Next<K>> {
        loop {
            let alarm = match self.shared.look(&mut self.ticket, cx) {
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
}

impl<K: Clone + Eq + Hash> Drop for Waiter<'_, K> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.shared.leave(&mut self.ticket);
        }
    }
}

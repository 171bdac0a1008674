//! Lanes to the reviewer. Each has a number of concurrent reviews, and a short queue. The origins of the clients share both.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use parking_lot::Mutex;
use serving::Origin;
use tokio::sync::Notify;

use crate::ReviewError;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Too many reviews of this lane wait already, or too many for this client.
    Crowded,
    /// The review failed, or took too long.
    Failed(ReviewError),
}

/// Some concurrent reviews, and a queue for some more.
pub(crate) struct Lane {
    slots: Pool,
    /// Places at work and in the queue together.
    places: Pool,
}

impl Lane {
    pub(crate) fn new(slots: usize, queue: usize) -> Self {
        Self { slots: Pool::new(slots), places: Pool::new(slots + queue) }
    }

    /// Reviews for a client of this origin within the time limit, which includes the wait for a slot.
    pub(crate) async fn review<T>(
        &self,
        of: Option<Origin>,
        limit: Duration,
        answer: impl Future<Output = Result<T, ReviewError>>,
    ) -> Result<T, Unanswered> {
        let _place = self.places.enter(of).ok_or(Unanswered::Crowded)?;
        let answered = async {
            let _slot = self.slots.wait(of).await;
            answer.await
        };
        let late = |_| Err(ReviewError(format!("no answer within {limit:?}")));
        tokio::time::timeout(limit, answered).await.unwrap_or_else(late).map_err(Unanswered::Failed)
    }
}

/// What origins share: each one gets another part only while it holds fewer than are free. So one origin gets half of them, the
/// next one a quarter, and a client of a new origin finds one free also while another origin asks for all.
struct Pool {
    shares: Mutex<Shares>,
    freed: Notify,
}

struct Shares {
    free: usize,
    /// None is zero, so that origins without requests leave nothing behind. A request without a known client has the origin `None`.
    held: HashMap<Option<Origin>, usize>,
}

impl Pool {
    fn new(size: usize) -> Self {
        Self { shares: Mutex::new(Shares { free: size, held: HashMap::new() }), freed: Notify::new() }
    }

    fn enter(&self, of: Option<Origin>) -> Option<Held<'_>> {
        let mut shares = self.shares.lock();
        let held = shares.held.get(&of).copied().unwrap_or_default();
        if held >= shares.free {
            return None;
        }
        shares.free -= 1;
        shares.held.insert(of, held + 1);
        Some(Held { pool: self, of })
    }

    async fn wait(&self, of: Option<Origin>) -> Held<'_> {
        loop {
            // Made before the attempt, so that it does not miss what is freed after the attempt.
            let freed = self.freed.notified();
            if let Some(held) = self.enter(of) {
                return held;
            }
            freed.await;
        }
    }
}

/// A part of a pool, until this is dropped.
struct Held<'a> {
    pool: &'a Pool,
    of: Option<Origin>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut shares = self.pool.shares.lock();
        shares.free += 1;
        if let Entry::Occupied(mut held) = shares.held.entry(self.of) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        drop(shares);
        // All of them, because the one that has waited longest may be of an origin that must leave it to others.
        self.pool.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, pin::pin};

    use super::*;

    fn origin(client: &str) -> Origin {
        Origin::from(client.parse::<SocketAddr>().expect("an address"))
    }

    /// Returns what an origin gets if it wants all.
    fn crowd<'a>(pool: &'a Pool, client: &str) -> Vec<Held<'a>> {
        std::iter::from_fn(|| pool.enter(Some(origin(client)))).collect()
    }

    #[test]
    fn crowds_of_one_origin_leave_places_for_others() {
        let pool = Pool::new(64);
        let clients = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1", "10.0.0.3:1"];
        let got = clients.map(|client| crowd(&pool, client));
        assert_eq!(got.each_ref().map(Vec::len), [32, 0, 16, 8, 0, 4]);
        drop(got);
        let shares = pool.shares.lock();
        assert_eq!((shares.free, shares.held.len()), (64, 0), "nothing stays of origins without requests");
    }

    #[test]
    fn single_slot_is_usable() {
        let pool = Pool::new(1);
        let one = crowd(&pool, "10.0.0.1:1");
        assert_eq!((one.len(), crowd(&pool, "10.0.0.2:1").len()), (1, 0));
        drop(one);
        assert_eq!(crowd(&pool, "10.0.0.2:1").len(), 1);
    }

    #[tokio::test]
    async fn freed_slot_goes_to_the_origin_that_holds_fewer() {
        let pool = Pool::new(2);
        let first = pool.enter(Some(origin("10.0.0.1:1"))).expect("a slot");
        let mut second = pin!(pool.wait(Some(origin("10.0.0.1:1"))));
        assert!(futures::poll!(&mut second).is_pending(), "the other slot is for another origin");
        let other = pool.enter(Some(origin("10.0.0.2:1"))).expect("a slot");
        let mut third = pin!(pool.wait(Some(origin("10.0.0.3:1"))));
        assert!(futures::poll!(&mut third).is_pending(), "none is free");
        drop(other);
        assert!(futures::poll!(&mut second).is_pending(), "its origin holds as many as are free");
        assert!(futures::poll!(&mut third).is_ready());
        drop(first);
        assert!(futures::poll!(&mut second).is_ready());
    }
}

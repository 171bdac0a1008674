//! Places that the origins of clients share, such as for work that takes a server long.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Origin;

/// Places that origins share: each one gets another place only while it holds fewer than are free. So one origin gets half of them,
/// the next one a quarter, and a client of a new origin finds one free also while another origin asks for all. Clones share the
/// places.
#[derive(Clone)]
pub struct Places(Arc<State>);

struct State {
    shares: Mutex<Shares>,
    freed: Notify,
}

struct Shares {
    free: usize,
    /// None is zero, so that origins without requests leave nothing behind. A request without a known client has the origin `None`.
    held: HashMap<Option<Origin>, usize>,
}

impl Places {
    /// This number of places, all of them free.
    pub fn new(size: usize) -> Self {
        let shares = Mutex::new(Shares { free: size, held: HashMap::new() });
        Self(Arc::new(State { shares, freed: Notify::new() }))
    }

    /// Takes a place for a client of this origin, if it gets one now.
    pub fn enter(&self, of: Option<Origin>) -> Option<Place> {
        let mut shares = self.0.shares.lock();
        let held = shares.held.get(&of).copied().unwrap_or_default();
        if held >= shares.free {
            return None;
        }
        shares.free -= 1;
        shares.held.insert(of, held + 1);
        Some(Place { state: self.0.clone(), of })
    }

    /// Waits for a place for a client of this origin.
    pub async fn wait(&self, of: Option<Origin>) -> Place {
        loop {
            // Made before the attempt, so that it does not miss what is freed after the attempt.
            let freed = self.0.freed.notified();
            if let Some(place) = self.enter(of) {
                return place;
            }
            freed.await;
        }
    }
}

/// One of the [`Places`], until this is dropped. Work that goes on when its client has left keeps it, on any thread.
#[must_use = "dropping it frees the place"]
pub struct Place {
    state: Arc<State>,
    of: Option<Origin>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shares = self.state.shares.lock();
        shares.free += 1;
        if let Entry::Occupied(mut held) = shares.held.entry(self.of) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        drop(shares);
        // All of them, because the one that has waited longest may be of an origin that must leave it to others.
        self.state.freed.notify_waiters();
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
    fn crowd(places: &Places, client: &str) -> Vec<Place> {
        std::iter::from_fn(|| places.enter(Some(origin(client)))).collect()
    }

    #[test]
    fn crowds_of_one_origin_leave_places_for_others() {
        let places = Places::new(64);
        let clients = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1", "10.0.0.3:1"];
        let got = clients.map(|client| crowd(&places, client));
        assert_eq!(got.each_ref().map(Vec::len), [32, 0, 16, 8, 0, 4]);
        drop(got);
        let shares = places.0.shares.lock();
        assert_eq!((shares.free, shares.held.len()), (64, 0), "nothing stays of origins without requests");
    }

    /// This many addresses can hold all places. Then they delay a client of any other address until they give a place back.
    #[test]
    fn few_origins_can_hold_all_places() {
        for (size, expected) in [(8, 4), (16, 5), (64, 7)] {
            let places = Places::new(size);
            let crowds = (1..).map(|host| crowd(&places, &format!("10.0.0.{host}:1")));
            let crowds: Vec<_> = crowds.take_while(|it| !it.is_empty()).collect();
            assert_eq!((crowds.len(), crowds.iter().map(Vec::len).sum::<usize>()), (expected, size));
        }
    }

    #[test]
    fn single_place_is_usable() {
        let places = Places::new(1);
        let one = crowd(&places, "10.0.0.1:1");
        assert_eq!((one.len(), crowd(&places, "10.0.0.2:1").len()), (1, 0));
        drop(one);
        assert_eq!(crowd(&places, "10.0.0.2:1").len(), 1);
    }

    #[tokio::test]
    async fn freed_place_goes_to_the_origin_that_holds_fewer() {
        let places = Places::new(2);
        let first = places.enter(Some(origin("10.0.0.1:1"))).expect("a place");
        let mut second = pin!(places.wait(Some(origin("10.0.0.1:1"))));
        assert!(futures::poll!(&mut second).is_pending(), "the other place is for another origin");
        let other = places.enter(Some(origin("10.0.0.2:1"))).expect("a place");
        let mut third = pin!(places.wait(Some(origin("10.0.0.3:1"))));
        assert!(futures::poll!(&mut third).is_pending(), "none is free");
        drop(other);
        assert!(futures::poll!(&mut second).is_pending(), "its origin holds as many as are free");
        assert!(futures::poll!(&mut third).is_ready());
        drop(first);
        assert!(futures::poll!(&mut second).is_ready());
    }
}

//! All open connections: which one gives way to a new one, and which one when memory is short.

use std::{cmp::Reverse, collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{Dropped, Observer, activity::Activity, origin::Origin};

/// How long a request may wait for its client before its connection can be closed to free its memory.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// All open connections.
pub(crate) struct Connections {
    limit: usize,
    observer: Arc<dyn Observer>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// The number of the last connection.
    last: u64,
    number: usize,
    /// No origin is without connections.
    of: HashMap<Origin, HashMap<u64, Arc<Activity>>>,
}

impl Connections {
    pub(crate) fn new(limit: usize, observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { limit, observer, open: Mutex::default() })
    }

    /// Admits a connection. At the limit, cuts one that waits for its client: of the origin with the most connections, the one that
    /// has waited longest, without a request or during one. If none waits, cuts one at work of an origin that has more connections.
    /// Returns `None` if no connection gives way: all are at work or of other origins, and no origin has more.
    pub(crate) fn admit(self: &Arc<Self>, origin: Origin) -> Option<ConnectionSlot> {
        let mut open = self.open.lock();
        if open.number >= self.limit {
            self.observer.dropped(Dropped::Full);
            let (of, id) = open.longest_waiting(origin).or_else(|| open.newest_of_a_crowd(origin))?;
            open.cut(of, id);
        }
        open.last += 1;
        open.number += 1;
        let (id, activity) = (open.last, Arc::new(Activity::new(origin)));
        open.of.entry(origin).or_default().insert(id, activity.clone());
        self.observer.connections(open.number);
        Some(ConnectionSlot { id, activity, connections: self.clone() })
    }

    /// Cuts a connection that has waited for its client for a while, to free memory for another connection: of the origin that
    /// holds the most memory, the one whose request takes the most.
    pub(crate) fn relieve(&self, other: &Arc<Activity>) {
        let mut open = self.open.lock();
        if let Some((of, id)) = long_ago().and_then(|time| open.largest_stuck(other, time)) {
            self.observer.dropped(Dropped::Memory);
            open.cut(of, id);
        }
    }

    /// Cuts all connections, and returns their number.
    pub(crate) fn cut(&self) -> usize {
        let open = self.open.lock();
        open.of.values().flat_map(HashMap::values).for_each(|activity| activity.cut.cancel());
        open.number
    }
}

impl Open {
    /// The connection to cut for one more of this origin.
    fn longest_waiting(&self, origin: Origin) -> Option<(Origin, u64)> {
        self.yielding(origin, HashMap::len).find_map(|of| {
            let waiting = self.of[&of].iter().filter_map(|(id, it)| Some((it.waiting_since()?, *id)));
            waiting.min().map(|(_, id)| (of, id))
        })
    }

    /// The connection to cut for one more of this origin if none waits for its client. Clients decide how many of their requests are
    /// at work, so a crowd at work must not keep out others either. After the change, its origin has at least as many as this one.
    fn newest_of_a_crowd(&self, origin: Origin) -> Option<(Origin, u64)> {
        let own = self.of.get(&origin).map_or(0, HashMap::len);
        let (crowd, connections) = self.of.iter().max_by_key(|(of, connections)| (connections.len(), **of))?;
        let newest = *connections.keys().max()?;
        (connections.len() > own + 1).then_some((*crowd, newest))
    }

    /// The connection to cut for the memory of another one, among those that have waited since this time.
    fn largest_stuck(&self, other: &Arc<Activity>, time: Instant) -> Option<(Origin, u64)> {
        let memory = |of: &HashMap<u64, Arc<Activity>>| of.values().map(|it| it.memory()).sum();
        self.yielding(other.origin, memory).find_map(|of| {
            let others = self.of[&of].iter().filter(|(_, it)| !Arc::ptr_eq(it, other));
            let stuck = others.filter_map(|(id, it)| Some((it.stuck_since(time)?, *id)));
            let largest = stuck.max_by_key(|((share, since), _)| (*share, Reverse(*since)));
            largest.map(|(_, id)| (of, id))
        })
    }

    /// The origins whose connections give way to one of this origin, by what they have: first those that have the most. The
    /// connections of an origin always give way to each other.
    fn yielding(
        &self,
        origin: Origin,
        has: impl Fn(&HashMap<u64, Arc<Activity>>) -> usize,
    ) -> impl Iterator<Item = Origin> {
        let own = self.of.get(&origin).map_or(0, &has);
        let origins = self.of.iter().map(|(of, connections)| (has(connections), *of));
        let mut origins: Vec<_> = origins.filter(|(it, of)| *of == origin || *it > own).collect();
        origins.sort_unstable_by(|one, other| other.cmp(one));
        origins.into_iter().map(|(_, of)| of)
    }

    fn remove(&mut self, of: Origin, id: u64) -> Option<Arc<Activity>> {
        let connections = self.of.get_mut(&of)?;
        let activity = connections.remove(&id)?;
        if connections.is_empty() {
            self.of.remove(&of);
        }
        self.number -= 1;
        Some(activity)
    }

    fn cut(&mut self, of: Origin, id: u64) {
        if let Some(activity) = self.remove(of, id) {
            activity.cut.cancel();
        }
    }
}

fn long_ago() -> Option<Instant> {
    Instant::now().checked_sub(GRACE)
}

/// The place of a connection among the open ones; dropping it frees the place.
pub(crate) struct ConnectionSlot {
    id: u64,
    pub(crate) activity: Arc<Activity>,
    connections: Arc<Connections>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        open.remove(self.activity.origin, self.id);
        self.connections.observer.connections(open.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, budget::Budget, observer::NoObserver};

    fn connections(limit: usize) -> Arc<Connections> {
        Connections::new(limit, Arc::new(NoObserver))
    }

    fn origin(address: &str) -> Origin {
        format!("{address}:1").parse::<std::net::SocketAddr>().expect("an address").into()
    }

    fn is_cut(slot: &ConnectionSlot) -> bool {
        slot.activity.cut.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_one_address_displaces_only_itself() {
        let connections = connections(4);
        let admit = |address| connections.admit(origin(address));
        let alone = admit("10.0.0.2").expect("a place");
        let mut crowd = Vec::new();
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(1)).await;
            crowd.push(admit("10.0.0.1").expect("a place"));
        }
        assert!(!is_cut(&alone), "it has waited longest, but it is alone");
        let others: Vec<_> = ["10.0.0.3", "10.0.0.4"].map(admit).into_iter().flatten().collect();
        assert_eq!((others.len(), crowd.iter().filter(|it| !is_cut(it)).count()), (2, 1));
        assert!(admit("10.0.0.5").is_some_and(|_| crowd.iter().filter(|it| !is_cut(it)).count() <= 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_at_work_gets_no_place_of_another_address() {
        let connections = connections(3);
        let admit = |address| connections.admit(origin(address));
        let waits = admit("10.0.0.2").expect("a place");
        let crowd = ["10.0.0.1"; 2].map(|it| admit(it).expect("a place"));
        let _work = crowd.each_ref().map(|it| it.activity.begin());
        assert!(admit("10.0.0.1").is_none());
        assert!(!is_cut(&waits));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_at_work_gives_way_to_another_address() {
        let connections = connections(5);
        let admit = |address| connections.admit(origin(address));
        let crowd = ["10.0.0.1"; 5].map(|it| admit(it).expect("a place"));
        let _crowd_at_work = crowd.each_ref().map(|it| it.activity.begin());
        let cut = || crowd.iter().map(is_cut).collect::<Vec<_>>();
        let first = admit("10.0.0.2").expect("the crowd has more");
        let _at_work = first.activity.begin();
        assert_eq!(cut(), [false, false, false, false, true], "the newest");
        let second = admit("10.0.0.2").expect("the crowd still has more");
        let _too = second.activity.begin();
        assert_eq!(cut(), [false, false, false, true, true]);
        assert!(admit("10.0.0.2").is_none(), "the crowd would have fewer than the other");
        assert_eq!(cut(), [false, false, false, true, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_freed_by_the_address_that_holds_most() {
        let connections = connections(10);
        let budget = Budget::new(&Limits { memory: 200, ..Limits::default() }, connections.clone());
        let admit = |address| connections.admit(origin(address)).expect("a place");
        let slots = [admit("10.0.0.1"), admit("10.0.0.1"), admit("10.0.0.2")];
        let requests = slots.each_ref().map(|slot| slot.activity.begin());
        for (request, bytes) in requests.iter().zip([40, 30, 50]) {
            budget.begin(bytes, request).expect("free memory");
            request.enter(crate::activity::Step::Receiving);
        }
        tokio::time::advance(GRACE).await;
        let next = admit("10.0.0.3");
        connections.relieve(&next.activity);
        assert_eq!(slots.each_ref().map(is_cut), [true, false, false]);
        connections.relieve(&slots[1].activity);
        assert_eq!(slots.each_ref().map(is_cut), [true, false, true], "50 bytes are more than 30");
    }
}

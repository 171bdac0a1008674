//! All open connections: which one gives way to a new one, and which one when memory is short.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    Dropped, Observer,
    activity::{Activity, Exchange},
};

/// How long a request may wait for its client before its connection can be closed to free its memory.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// All open connections.
pub(crate) struct Connections {
    limit: usize,
    observer: Arc<dyn Observer>,
    open: Mutex<(u64, HashMap<u64, Arc<Activity>>)>,
}

impl Connections {
    pub(crate) fn new(limit: usize, observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { limit, observer, open: Mutex::default() })
    }

    /// Admits a connection. At the limit, cuts the one that has waited for its client for the longest time: without a request, or
    /// during one. Returns `None` if all connections are at work.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut guard = self.open.lock();
        let (next, open) = &mut *guard;
        if open.len() >= self.limit {
            self.observer.dropped(Dropped::Full);
            let since = |it: &Activity| it.waiting_since().or_else(|| it.oldest_stuck());
            let (_, longest) = open.iter().filter_map(|(id, it)| Some((since(it)?, *id))).min()?;
            if let Some(activity) = open.remove(&longest) {
                activity.cut.cancel();
            }
        }
        *next += 1;
        let activity = Arc::new(Activity::new());
        open.insert(*next, activity.clone());
        self.observer.connections(open.len());
        Some(ConnectionSlot { id: *next, activity, connections: self.clone() })
    }

    /// Cuts the connection whose request takes the most memory, among the other connections that have waited for their client for
    /// a while.
    pub(crate) fn relieve(&self, of: &Exchange) {
        let Some(time) = long_ago() else { return };
        let mut guard = self.open.lock();
        let stuck =
            guard.1.iter().filter(|(_, it)| !of.is_of(it)).filter_map(|(id, it)| Some((it.stuck_since(time)?, *id)));
        let largest = stuck.max_by_key(|((share, since), _)| (*share, std::cmp::Reverse(*since)));
        if let Some(activity) = largest.and_then(|(_, id)| guard.1.remove(&id)) {
            self.observer.dropped(Dropped::Memory);
            activity.cut.cancel();
        }
    }

    /// Cuts all connections, and returns their number.
    pub(crate) fn cut(&self) -> usize {
        let guard = self.open.lock();
        guard.1.values().for_each(|activity| activity.cut.cancel());
        guard.1.len()
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
        let mut guard = self.connections.open.lock();
        guard.1.remove(&self.id);
        self.connections.observer.connections(guard.1.len());
    }
}

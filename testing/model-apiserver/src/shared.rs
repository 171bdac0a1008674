//! The state that all clients and watches of a model share.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::{
    bell::Bell,
    faults::{Faults, NoFaults},
    state::State,
};

pub(crate) struct Shared {
    state: Mutex<State>,
    clock: Mutex<Clock>,
    faults: Mutex<Arc<dyn Faults>>,
    /// Wakes watches when there is a newer version.
    pub(crate) versions: Bell,
    /// Wakes held watches and requests on a release.
    pub(crate) releases: Bell,
}

/// A clock that advances with tokio's time.
#[derive(Debug, Clone, Copy)]
struct Clock {
    time: Timestamp,
    since: Instant,
}

impl Shared {
    /// A new server at this time.
    pub(crate) fn new(time: Timestamp) -> Self {
        Self {
            state: Mutex::new(State::new(time)),
            clock: Mutex::new(Clock { time, since: Instant::now() }),
            faults: Mutex::new(Arc::new(NoFaults)),
            versions: Bell::default(),
            releases: Bell::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.now = self.now();
        state
    }

    pub(crate) fn faults(&self) -> Arc<dyn Faults> {
        self.faults.lock().clone()
    }

    pub(crate) fn set_faults(&self, faults: Arc<dyn Faults>) {
        *self.faults.lock() = faults;
    }

    pub(crate) fn set_time(&self, time: Timestamp) {
        *self.clock.lock() = Clock { time, since: Instant::now() };
    }

    pub(crate) fn now(&self) -> Timestamp {
        let clock = *self.clock.lock();
        clock.time.checked_add(clock.since.elapsed()).unwrap_or(clock.time)
    }

    /// Runs a function on the state, and wakes watches if it changed anything.
    pub(crate) fn change<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let out = what(&mut state);
        let version = state.version;
        drop(state);
        self.versions.ring(version);
        out
    }
}

//! The state that all connections of a proxy share.

use std::sync::atomic::{AtomicBool, Ordering};

use fault_plan::{Action, Plan, Progress, Request};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{signal::Hook, trace::Recorder, upstream::Upstream};

pub(crate) struct Shared {
    pub(crate) upstream: Upstream,
    pub(crate) recorder: Recorder,
    pub(crate) hook: Hook,
    pub(crate) ended: CancellationToken,
    progress: Mutex<Progress>,
    /// Whether the plan has a rule about a client's own writes. Otherwise events need not wait for the answers of writes.
    asks_own: AtomicBool,
    /// A counter that increases with each release of everything that is held or stalled.
    released: watch::Sender<u64>,
}

impl Shared {
    /// The state of a proxy without a plan.
    pub(crate) fn new(upstream: Upstream, ended: CancellationToken) -> Self {
        Self {
            upstream,
            recorder: Recorder::default(),
            hook: Hook::default(),
            ended,
            progress: Mutex::default(),
            asks_own: AtomicBool::new(false),
            released: watch::Sender::new(0),
        }
    }

    pub(crate) fn set_plan(&self, plan: &Plan) {
        let own = plan.rules().iter().any(|rule| rule.trigger().pattern.own);
        self.asks_own.store(own, Ordering::Relaxed);
        *self.progress() = Progress::new(plan);
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    pub(crate) fn asks_own(&self) -> bool {
        self.asks_own.load(Ordering::Relaxed)
    }

    /// Releases everything that is held or stalled.
    pub(crate) fn release(&self) {
        self.released.send_modify(|count| *count += 1);
    }

    /// A receiver that changes at the next release.
    pub(crate) fn released(&self) -> watch::Receiver<u64> {
        self.released.subscribe()
    }

    /// Carries out an action that only takes time.
    pub(crate) async fn wait(&self, action: &Action, request: &Request) {
        match action {
            Action::Delay(time) => tokio::time::sleep(*time).await,
            // An error is the end of the proxy, which lets go of everything.
            Action::Stall => drop(self.released().changed().await),
            Action::Signal(name) => self.hook.call(name, request).await,
            _ => {} // the parser refuses plans with other actions here
        }
    }
}

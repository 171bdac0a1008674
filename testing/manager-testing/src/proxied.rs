//! Runs an operator behind a fault proxy.

use std::{path::Path, sync::Arc, time::Duration};

use fault_plan::{Plan, enumerate};
use fault_proxy::{FaultProxy, Trace, Upstream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::{
    process::Process,
    world::{Starter, World},
};

/// An operator whose requests all go through a fault proxy. The plan's signal `kill` kills the operator and starts it again.
#[derive(Debug)]
pub struct Proxied {
    proxy: Arc<FaultProxy>,
    process: Arc<Mutex<Process>>,
    starter: Starter,
}

/// Longer than the operator deliberately delays any write.
const QUIET: Duration = Duration::from_millis(700);
/// Interval at which the test polls whether the operator is idle.
const LOOK: Duration = Duration::from_millis(25);
/// Far longer than any step takes.
const PATIENCE: Duration = Duration::from_mins(1);

impl Proxied {
    /// Starts a proxy with this plan, and the world's operator behind it.
    pub async fn start(world: &World, plan: &Plan, flags: &[&str]) -> Self {
        let upstream = Upstream::cluster(world.kubeconfig()).await.expect("a kubeconfig");
        let proxy = Arc::new(FaultProxy::start(upstream, plan).await.expect("a proxy"));
        let starter = world.starter(&proxy.kubeconfig(), flags);
        let process = Arc::new(Mutex::new(starter.start()));
        let (killed, again) = (process.clone(), starter.clone());
        proxy.on_signal(move |signal| {
            let (killed, again) = (killed.clone(), again.clone());
            async move {
                if signal.name == enumerate::KILL {
                    replace(&killed, &again);
                }
            }
        });
        Self { proxy, process, starter }
    }

    /// The proxy.
    pub fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    /// Kills the operator as a crash does, and starts it again.
    pub fn restart(&self) {
        replace(&self.process, &self.starter);
    }

    /// Same as [`restart`](Self::restart), with another kubeconfig of the proxy, which has a token.
    pub fn restart_with(&self, kubeconfig: &Path) {
        replace(&self.process, &self.starter.with(kubeconfig));
    }

    /// Whether the operator runs. No fault may end it.
    pub fn is_running(&self) -> bool {
        self.process.lock().ended().is_none()
    }

    /// The log of all its runs.
    pub fn log(&self) -> String {
        self.process.lock().log()
    }

    /// See [`Process::probe`].
    pub fn probe(&self, path: &str) -> Option<(u16, String)> {
        self.process.lock().probe(path)
    }

    /// Waits until the operator has written nothing for a while, and is idle. On an overloaded machine, the time alone is not
    /// enough.
    pub async fn until_quiet(&self) {
        let begun = Instant::now();
        loop {
            let writes = || self.proxy.trace().writes().map(|exchange| exchange.at).max();
            let last = writes();
            let since = last.map_or(begun, |last| last.max(begun));
            if since.elapsed() >= QUIET {
                let idle = {
                    let process = self.process.lock();
                    // Ask twice: a timer that was due before the first answer has fired before the second.
                    process.is_idle() && process.is_idle()
                };
                if idle && writes() == last {
                    return;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "the operator is never quiet:\n{}\n{}", self.proxy.trace(), self.log());
            sleep(QUIET.saturating_sub(since.elapsed()).max(LOOK)).await;
        }
    }

    /// Waits until the operator has started every watch that occurs in this trace.
    pub async fn until_watching(&self, before: &Trace) {
        let watches = |trace: &Trace| -> std::collections::BTreeSet<String> {
            let begun = trace.exchanges.iter().filter(|it| it.request.is_watch() && it.told == Some(200));
            begun.map(|exchange| exchange.request.resource.clone()).collect()
        };
        let (wanted, begun) = (watches(before), Instant::now());
        while !watches(&self.proxy.trace()).is_superset(&wanted) {
            assert!(begun.elapsed() < PATIENCE, "a new process does not watch {wanted:?}\n{}", self.log());
            sleep(Duration::from_millis(25)).await;
        }
    }

    /// Releases held events at this interval; never returns.
    pub async fn let_go(&self, every: Duration) {
        loop {
            sleep(every).await;
            self.proxy.release();
        }
    }
}

fn replace(process: &Mutex<Process>, starter: &Starter) {
    let mut process = process.lock();
    process.kill();
    *process = starter.start();
}

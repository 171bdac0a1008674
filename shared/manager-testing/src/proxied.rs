//! An operator behind a fault proxy.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fault_plan::{Plan, enumerate};
use fault_proxy::{FaultProxy, Trace, Upstream};
use tokio::time::{Instant, sleep};

use crate::{
    process::Process,
    world::{Starter, World},
};

/// An operator whose every request goes through a proxy. The plan's signal `kill` kills it, and starts it again.
#[derive(Debug)]
pub struct Proxied {
    proxy: Arc<FaultProxy>,
    process: Arc<Mutex<Process>>,
    starter: Starter,
}

/// Longer than anything that the operator holds back on purpose.
const QUIET: Duration = Duration::from_millis(700);
/// How often it is asked whether it is idle.
const LOOK: Duration = Duration::from_millis(25);
/// Far longer than anything takes.
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

    /// Kills the operator as a crash would, and starts it again.
    pub fn restart(&self) {
        replace(&self.process, &self.starter);
    }

    /// The same, with another kubeconfig: one of the proxy's, with a token.
    pub fn restart_with(&self, kubeconfig: &Path) {
        replace(&self.process, &self.starter.with(kubeconfig));
    }

    /// Whether it runs: it ends by no fault.
    pub fn is_running(&self) -> bool {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).ended().is_none()
    }

    /// What all its runs have logged.
    pub fn log(&self) -> String {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).log()
    }

    /// As [`Process::probe`].
    pub fn probe(&self, path: &str) -> Option<(u16, String)> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).probe(path)
    }

    /// Waits until it has written nothing for a while, and has nothing to do either: where it is short of time, a while
    /// alone says nothing.
    pub async fn until_quiet(&self) {
        let begun = Instant::now();
        loop {
            let writes = || self.proxy.trace().writes().map(|exchange| exchange.at).max();
            let last = writes();
            let since = last.map_or(begun, |last| last.max(begun));
            if since.elapsed() >= QUIET {
                let idle = {
                    let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
                    // Twice: a timer that was due before the first answer has run out before the second.
                    process.is_idle() && process.is_idle()
                };
                if idle && writes() == last {
                    return;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "it is never quiet:\n{}\n{}", self.proxy.trace(), self.log());
            sleep(QUIET.saturating_sub(since.elapsed()).max(LOOK)).await;
        }
    }

    /// Waits until it has begun every watch that it had in that trace.
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

    /// Lets go of what is held, again and again; never ends.
    pub async fn let_go(&self, every: Duration) {
        loop {
            sleep(every).await;
            self.proxy.release();
        }
    }
}

fn replace(process: &Mutex<Process>, starter: &Starter) {
    let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
    process.kill();
    *process = starter.start();
}

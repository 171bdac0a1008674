//! Runs an operator's controllers in memory, against a model of the API server, in one thread and in tokio's paused time.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fault_plan::{Plan, enumerate::KILL};
use manager::{Operator, harness::Harness, normalize};
use model_apiserver::{Collecting, Entry, Model, NoFaults, Planned};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{sync::Notify, time::sleep};

use crate::end_state::EndState;

/// After this time without a write, an operator counts as quiet. It is longer than the delay of a status, and shorter than the
/// minute after which conditions may change by the clock.
const QUIET: Duration = Duration::from_secs(30);
/// The name of the operator among the model's clients. Plans select it by `as operator`.
const CLIENT: &str = "operator";

/// An operator with its own model API server. Tests with it need `#[tokio::test(start_paused = true)]`.
pub struct InMemory {
    /// The API server. It collects garbage at once.
    pub model: Model,
    operator: &'static dyn Operator,
    flags: Vec<String>,
    running: Option<Harness>,
    /// Whether the running operator can still reach the API server.
    alive: Arc<Mutex<Arc<AtomicBool>>>,
    killed: Arc<Notify>,
    /// The number of writes that [`until_quiet`](Self::until_quiet) has returned.
    told: usize,
}

/// Runs `operator` on the state of `model` until it is quiet, and returns its writes.
pub async fn check(operator: &'static dyn Operator, model: &Model) -> Vec<Entry> {
    let mut memory = InMemory::on(model.clone(), operator, &[]);
    memory.start();
    memory.until_quiet().await
}

impl InMemory {
    /// Creates a model API server with the CRDs of `operator`. Does not start the operator.
    pub fn new(operator: &'static dyn Operator, flags: &[&str]) -> Self {
        let model = Model::new();
        model.set_collecting(Collecting::AtOnce);
        for definition in operator.crds() {
            model.install(&normalize(&definition));
        }
        Self::on(model, operator, flags)
    }

    fn on(model: Model, operator: &'static dyn Operator, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut memory =
            Self { model, operator, flags, running: None, alive: Arc::default(), killed: Arc::default(), told: 0 };
        memory.told = memory.writes().len();
        memory
    }

    /// Starts the operator.
    pub fn start(&mut self) {
        let alive = Arc::new(AtomicBool::new(true));
        *self.alive.lock() = alive.clone();
        let (client, clock) = (self.model.client_while(alive, CLIENT), self.model.clone());
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.running = Some(Harness::start(self.operator, &flags, client, move || clock.now()));
    }

    /// Kills the operator and starts another.
    pub async fn restart(&mut self) {
        if let Some(running) = self.running.take() {
            running.crash().await;
        }
        self.start();
    }

    /// Applies this fault plan from now on. The signal `kill` kills the operator at exactly this request, and starts it again.
    pub fn plan(&self, plan: &Plan) -> Arc<Planned> {
        let (alive, killed) = (self.alive.clone(), self.killed.clone());
        let planned = Arc::new(Planned::with_signals(plan, move |name| {
            assert_eq!(name, KILL, "only the signal kill is known here");
            alive.lock().store(false, Ordering::Relaxed);
            killed.notify_one();
            Box::pin(pending())
        }));
        self.model.set_shared_faults(planned.clone());
        planned
    }

    /// Ends the fault plan.
    pub fn no_plan(&self) {
        self.model.set_faults(NoFaults);
    }

    /// Waits until the operator has written nothing for a while. Returns its writes since the last call.
    pub async fn until_quiet(&mut self) -> Vec<Entry> {
        for _ in 0..1_000 {
            let before = self.writes().len();
            self.pass(QUIET).await;
            let writes = self.writes();
            if writes.len() == before {
                return writes[std::mem::replace(&mut self.told, before)..].to_vec();
            }
        }
        panic!("the operator never stops writing: {:#?}", &self.writes()[self.told..]);
    }

    /// Lets time pass. If a plan kills the operator meanwhile, starts it again.
    pub async fn pass(&mut self, time: Duration) {
        let passed = sleep(time);
        tokio::pin!(passed);
        loop {
            tokio::select! {
                biased;
                () = self.killed.notified() => self.restart().await,
                () = &mut passed => return,
            }
        }
    }

    /// The number of reconciles that the running operator has finished.
    pub fn reconciles(&self) -> u64 {
        self.metric("controller_runtime_reconcile_total")
    }

    /// The sum of all series of this metric of the running operator.
    pub fn metric(&self, name: &str) -> u64 {
        let scrape = self.running.as_ref().map(Harness::scrape).unwrap_or_default();
        let is_of_metric = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        scrape.lines().filter(is_of_metric).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// All writes of the operator so far, without dry runs.
    pub fn writes(&self) -> Vec<Entry> {
        self.requests().into_iter().filter(|entry| entry.verb.writes() && !entry.dry_run).collect()
    }

    /// All requests of the operator so far.
    pub fn requests(&self) -> Vec<Entry> {
        self.model.requests().into_iter().filter(|entry| entry.client == CLIENT).collect()
    }

    /// The objects of these resources (`deployments.apps`), without the fields that differ in each run.
    pub fn end_state(&self, resources: &[&str]) -> EndState {
        let objects: Vec<Value> = resources.iter().flat_map(|resource| self.model.objects(resource)).collect();
        EndState::new(&objects, "default")
    }
}

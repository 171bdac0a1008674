//! Campaigns: the life of an operator's object, repeated with a different fault each time.
//!
//! A [`Subject`] describes the operator and the life of its object. A [`Campaign`] runs this life once without faults, to learn
//! the writes and the final state. Then it runs one life for each fault plan, in its own namespace, with the operator behind a
//! proxy that executes the plan. Each life must end as the first one did.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use cluster::{Cluster, Nodes};
use fault_plan::{Action, Frame, Plan, Request, enumerate};
use fault_proxy::Trace;
use futures::{FutureExt, StreamExt};
use manager::Operator;
use serde_json::Value;

use crate::{
    end_state::{self, EndState},
    proxied::Proxied,
    seed::seed,
    world::World,
};

/// The facts about an operator that a campaign needs.
pub trait Subject: Clone + Send + Sync + 'static {
    /// The registration of the operator.
    fn operator(&self) -> &'static dyn Operator;

    /// The path of the operator's binary.
    fn binary(&self) -> &'static str;

    /// Flags of the operator.
    fn flags(&self) -> &'static [&'static str] {
        &[]
    }

    /// The kinds in the final state, as `group/version/Kind`, or `v1/Kind` for the core group.
    fn kinds(&self) -> &'static [&'static str];

    /// Runs the object's life. Each step waits for the operator's reaction.
    #[expect(async_fn_in_trait, reason = "the future stays on the task of its test")]
    async fn live(&self, world: &World);

    /// Removes further fields of an object that differ from life to life. Uids, versions, times and the namespace are removed
    /// already.
    fn mask(&self, object: &mut Value) {
        let _ = object;
    }
}

/// A subject, and its life without faults.
#[derive(Debug)]
pub struct Campaign<S> {
    subject: S,
    reference: Life,
    scope: Scope,
    /// Whether the only plan of [`Scope::Only`] has run. It belongs to no group of plans, so the first call of `run` takes it.
    replayed: AtomicBool,
}

/// The plans to run, as `FAULT_PLANS` selects them.
#[derive(Debug)]
enum Scope {
    /// A sample, drawn with this seed.
    Sample(u64),
    All,
    Only(Plan),
}

/// The record of a life.
#[derive(Debug, Clone)]
pub struct Life {
    /// All requests of the operator, their answers, and watch events.
    pub trace: Trace,
    end: EndState,
    warnings: BTreeMap<String, usize>,
    created: BTreeMap<String, usize>,
    deleted: BTreeMap<String, usize>,
}

/// Lives that run at the same time. More than one, because a life waits more than it computes.
const AT_ONCE: usize = 2;
/// How often the proxy releases held events, so that no watch is silent for ever.
const RELEASE: Duration = Duration::from_millis(1_500);

impl<S: Subject> Campaign<S> {
    /// Runs and records the life without faults. Returns `None` if this machine cannot run a cluster.
    ///
    /// `FAULT_PLANS` selects the plans to run: `all` for every plan, or the line of one plan. By default, a sample of each group
    /// of plans runs, drawn with [`seed`].
    pub async fn begin(subject: S) -> Option<Self> {
        let reference = live(&subject, &Plan::default()).await?;
        let asked = std::env::var("FAULT_PLANS").unwrap_or_default();
        let scope = match asked.as_str() {
            "" => Scope::Sample(seed()),
            "all" => Scope::All,
            line => Scope::Only(line.parse().unwrap_or_else(|error| panic!("FAULT_PLANS: {error}"))),
        };
        Some(Self { subject, reference, scope, replayed: AtomicBool::new(false) })
    }

    /// The life without faults.
    pub fn reference(&self) -> &Life {
        &self.reference
    }

    /// Crashes around each write: A1, A2 and A3 in `shared/manager/RELIABILITY.md`.
    pub fn crashes(&self) -> Vec<Plan> {
        enumerate::crashes(&self.reference.writes())
    }

    /// Every wrong answer to each write: A5 to A8 and A10.
    pub fn errors(&self) -> Vec<Plan> {
        enumerate::errors(&self.reference.writes())
    }

    /// Every fault of each event of each watch: W2 to W5.
    pub fn events(&self) -> Vec<Plan> {
        let seen = &self.reference.trace.frames;
        let frames: Vec<(Request, Frame)> = seen.iter().map(|seen| (seen.watch.clone(), seen.frame.clone())).collect();
        enumerate::events(&frames)
    }

    /// Runs a life for each plan of a sample, and fails with the lines of the plans that ended differently.
    ///
    /// On a slow machine, an operator may combine its status writes differently from the reference, so that a plan never applies.
    /// Then another plan runs instead.
    pub async fn run(&self, what: &str, mut plans: Vec<Plan>, sample: usize) {
        let (total, begun) = (plans.len(), Instant::now());
        let (mut wanted, mut seed) = (total, 0);
        match &self.scope {
            Scope::Sample(drawn) => (wanted, seed) = (sample, *drawn),
            Scope::All => {}
            Scope::Only(plan) if !self.replayed.swap(true, Ordering::Relaxed) => {
                (plans, wanted) = (vec![plan.clone()], 1);
            }
            Scope::Only(_) => return,
        }
        let enough = wanted;
        let mut outcomes: Vec<(Plan, Result<bool, String>)> = Vec::new();
        while wanted > 0 && !plans.is_empty() {
            let chosen = enumerate::sample(plans.clone(), wanted, seed);
            plans.retain(|plan| !chosen.contains(plan));
            let lives = chosen.into_iter().map(|plan| self.live(what, plan));
            let ended: Vec<_> = futures::stream::iter(lives).buffer_unordered(AT_ONCE).collect().await;
            wanted = ended.iter().filter(|(_, outcome)| matches!(outcome, Ok(false))).count();
            outcomes.extend(ended);
        }
        let count = outcomes.len();
        let mut missed = 0;
        for (plan, _) in outcomes.iter().filter(|(_, outcome)| matches!(outcome, Ok(false))) {
            eprintln!("{what}: never applied: {plan}");
            missed += 1;
        }
        let failed: Vec<String> = outcomes
            .iter()
            .filter_map(|(plan, outcome)| Some(format!("FAULT_PLANS='{plan}'\n{}\n", outcome.as_ref().err()?)))
            .collect();
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!(
            "{what}: {count} of {total} plans in {seconds:.1} s, {missed} of them never applied, {} failed",
            failed.len()
        );
        assert!(
            failed.is_empty(),
            "{} of {count} plans failed; set FAULT_PLANS to a line to repeat it:\n{}",
            failed.len(),
            failed.join("\n")
        );
        assert!(
            is_enough(enough, count, missed),
            "{missed} of {count} plans never applied: lives differ from the reference"
        );
    }

    async fn live(&self, what: &str, plan: Plan) -> (Plan, Result<bool, String>) {
        let lived = AssertUnwindSafe(live(&self.subject, &plan)).catch_unwind().await;
        let outcome = match lived {
            Ok(Some(life)) => self.judge(&plan, &life),
            Ok(None) => Err("the cluster has stopped".to_owned()),
            Err(panic) => Err(message(&*panic)),
        };
        if let Err(why) = &outcome {
            eprintln!("{what}: FAULT_PLANS='{plan}': {}", why.lines().next().unwrap_or_default());
        }
        (plan, outcome)
    }

    /// Returns whether the plan applied, or how the life differs from the one without faults.
    fn judge(&self, plan: &Plan, life: &Life) -> Result<bool, String> {
        let mut life = life.clone();
        if !is_crash(plan) {
            life.warnings.clone_from(&self.reference.warnings); // faults other than crashes may cause warnings
        }
        match life.differs_from(&self.reference) {
            Some(difference) => Err(format!("{difference}\n{}", life.trace)),
            None => Ok(life.trace.exchanges.iter().any(|it| !it.faults.is_empty())
                || life.trace.frames.iter().any(|it| !it.faults.is_empty())
                || plan.rules().is_empty()),
        }
    }
}

impl Life {
    /// The requests from which plans are made. Event objects are left out: they are sent once and may be lost.
    fn writes(&self) -> Vec<Request> {
        self.trace.requests().into_iter().filter(|request| request.resource != "events").collect()
    }

    fn differs_from(&self, reference: &Self) -> Option<String> {
        if let Some(difference) = self.end.differs_from(&reference.end) {
            return Some(format!("the final state differs: {difference}"));
        }
        let counts = [
            ("created", &self.created, &reference.created),
            ("deleted", &self.deleted, &reference.deleted),
            ("warnings", &self.warnings, &reference.warnings),
        ];
        counts
            .into_iter()
            .find(|(_, ours, theirs)| ours != theirs)
            .map(|(what, ours, theirs)| format!("{what}: {ours:?} instead of {theirs:?}"))
    }
}

/// Runs one life. Returns `None` if this machine cannot run a cluster.
async fn live<S: Subject>(subject: &S, plan: &Plan) -> Option<Life> {
    let shared = || Cluster::shared(Nodes::None);
    let world = World::prepare(subject.operator(), subject.binary(), shared).await?;
    let operator = Proxied::start(&world, plan, subject.flags()).await;
    let life = async {
        subject.live(&world).await;
        operator.until_quiet().await;
    };
    tokio::select! {
        () = life => {}
        () = operator.let_go(RELEASE) => {}
    }
    let trace = operator.proxy().trace();
    assert!(operator.is_running(), "the operator has ended:\n{}", operator.log());

    // A new process, which knows only the cluster's state, must find nothing to do.
    operator.proxy().set_plan(&Plan::default());
    operator.proxy().release();
    operator.proxy().clear();
    operator.restart();
    operator.until_watching(&trace).await;
    operator.until_quiet().await;
    let late: Vec<String> = operator.proxy().trace().writes().map(ToString::to_string).collect();
    assert!(late.is_empty(), "a new process still finds something to write: {late:?}\n{trace}");

    let mut end = end_state::of(&world, subject.kinds()).await;
    end.mask(|object| subject.mask(object));
    let done = |verb: &str| {
        let mut objects: BTreeMap<String, usize> = BTreeMap::new();
        let served = trace.writes().filter(|it| it.request.verb == verb && it.request.resource != "events");
        for exchange in served {
            let times = exchange.served.iter().filter(|code| matches!(code, 200..=299)).count();
            if times > 0 {
                *objects.entry(format!("{} {}", exchange.request.resource, exchange.request.name)).or_default() +=
                    times;
            }
        }
        objects
    };
    let life = Life { end, warnings: warnings(&world).await, created: done("create"), deleted: done("delete"), trace };
    drop(operator);
    world.forget().await;
    Some(life)
}

/// The warning events, and how often each was emitted, including repetitions.
async fn warnings(world: &World) -> BTreeMap<String, usize> {
    let mut warnings = BTreeMap::new();
    for event in world.list::<k8s_openapi::api::events::v1::Event>().await {
        if event.type_.as_deref() == Some("Warning") {
            let name = event.regarding.as_ref().and_then(|it| it.name.clone()).unwrap_or_default();
            let repeated = event.series.map_or(1, |series| usize::try_from(series.count).unwrap_or_default());
            *warnings.entry(format!("{name}: {}", event.reason.unwrap_or_default())).or_default() += repeated;
        }
    }
    warnings
}

/// Whether enough plans applied: as many as the sample has, or at least four fifths of those that ran. The fifth is for runs of all
/// plans, which have no others to replace those that never apply.
fn is_enough(sample: usize, ran: usize, missed: usize) -> bool {
    ran - missed >= sample || missed * 5 <= ran
}

fn is_crash(plan: &Plan) -> bool {
    let mut actions = plan.rules().iter().flat_map(fault_plan::Rule::actions);
    actions.any(|action| matches!(action, Action::Signal(name) if name == enumerate::KILL))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_enough_if_replacements_applied() {
        assert!(is_enough(4, 6, 2)); // two never applied, two others did instead
        assert!(is_enough(100, 100, 20));
        assert!(!is_enough(100, 100, 21));
        assert!(!is_enough(4, 5, 2)); // no others were left
        assert!(!is_enough(1, 1, 1));
    }
}

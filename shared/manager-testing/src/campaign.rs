//! A life of an operator's object, lived again and again, each time with something else going wrong.
//!
//! A [`Subject`] says what the operator is and what its object lives through. A [`Campaign`] lives it once undisturbed to
//! learn what is written and how it ends, and then once for each fault plan, in a namespace of its own, with the operator
//! behind a proxy that carries the plan out. Each life has to end as the first did.

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

/// What a campaign has to know of an operator.
pub trait Subject: Clone + Send + Sync + 'static {
    /// Its registration.
    fn operator(&self) -> &'static dyn Operator;

    /// Its binary.
    fn binary(&self) -> &'static str;

    /// Flags that it runs with.
    fn flags(&self) -> &'static [&'static str] {
        &[]
    }

    /// The kinds that the end state is made of, as `group/version/Kind`; the core group is `v1/Kind`.
    fn kinds(&self) -> &'static [&'static str];

    /// What an object lives through. Each step waits until the operator has done its part.
    #[expect(async_fn_in_trait, reason = "a life is lived on the task of its test")]
    async fn live(&self, world: &World);

    /// Takes out of an object what differs from life to life; uids, versions, times and the namespace are out already.
    fn mask(&self, object: &mut Value) {
        let _ = object;
    }
}

/// A subject, and how it lives when nothing goes wrong.
#[derive(Debug)]
pub struct Campaign<S> {
    subject: S,
    reference: Life,
    scope: Scope,
    /// Whether the one plan of [`Scope::Only`] was lived: it belongs to no sort.
    replayed: AtomicBool,
}

/// How much is run: what `FAULT_PLANS` says.
#[derive(Debug)]
enum Scope {
    /// Drawn with this seed.
    Sample(u64),
    All,
    Only(Plan),
}

/// How a life went.
#[derive(Debug, Clone)]
pub struct Life {
    /// Everything that the operator asked for and was told.
    pub trace: Trace,
    end: EndState,
    warnings: BTreeMap<String, usize>,
    created: BTreeMap<String, usize>,
    deleted: BTreeMap<String, usize>,
}

/// Lives at a time: each waits more than it computes.
const AT_ONCE: usize = 2;
/// What is held is let go this often: no watch is silent for ever.
const RELEASE: Duration = Duration::from_millis(1_500);

impl<S: Subject> Campaign<S> {
    /// Lives once without faults, and learns how. `None` where no cluster can run.
    ///
    /// The environment says how much is run: `FAULT_PLANS=all` for every plan, a plan's line for that plan alone, or else a
    /// sample of each sort, drawn with [`seed`].
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

    /// The undisturbed life.
    pub fn reference(&self) -> &Life {
        &self.reference
    }

    /// Crashes around each write: A1, A2 and A3.
    pub fn crashes(&self) -> Vec<Plan> {
        enumerate::crashes(&self.reference.writes())
    }

    /// Every wrong answer to each write: A5 to A8, A10 and X5.
    pub fn errors(&self) -> Vec<Plan> {
        enumerate::errors(&self.reference.writes())
    }

    /// Everything that can happen to each event of each watch: W2 to W5.
    pub fn events(&self) -> Vec<Plan> {
        let seen = &self.reference.trace.frames;
        let frames: Vec<(Request, Frame)> = seen.iter().map(|seen| (seen.watch.clone(), seen.frame.clone())).collect();
        enumerate::events(&frames)
    }

    /// Lives with a sample of the plans, and fails with the lines of those that ended in another way. For one that did not
    /// happen, because a slow machine writes its statuses in other bursts than the reference did, another is lived.
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
            eprintln!("{what}: did not happen: {plan}");
            missed += 1;
        }
        let failed: Vec<String> = outcomes
            .iter()
            .filter_map(|(plan, outcome)| Some(format!("FAULT_PLANS='{plan}'\n{}\n", outcome.as_ref().err()?)))
            .collect();
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!(
            "{what}: {count} of {total} plans in {seconds:.1} s, {missed} of them did not happen, {} failed",
            failed.len()
        );
        assert!(
            failed.is_empty(),
            "{} of {count} plans failed; each replays from its line:\n{}",
            failed.len(),
            failed.join("\n")
        );
        assert!(missed * 5 <= count, "{missed} of {count} plans did not happen: the reference is not what is lived");
    }

    async fn live(&self, what: &str, plan: Plan) -> (Plan, Result<bool, String>) {
        let lived = AssertUnwindSafe(live(&self.subject, &plan)).catch_unwind().await;
        let outcome = match lived {
            Ok(Some(life)) => self.judge(&plan, &life),
            Ok(None) => Err("the cluster has gone".to_owned()),
            Err(panic) => Err(message(&*panic)),
        };
        if let Err(why) = &outcome {
            eprintln!("{what}: FAULT_PLANS='{plan}': {}", why.lines().next().unwrap_or_default());
        }
        (plan, outcome)
    }

    /// Whether the plan happened, or how the life differs from the undisturbed one.
    fn judge(&self, plan: &Plan, life: &Life) -> Result<bool, String> {
        let mut life = life.clone();
        if !is_crash(plan) {
            life.warnings.clone_from(&self.reference.warnings); // errors are told to people, and may be
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
    /// The requests that plans are made of: not events, which are sent once and may be lost.
    fn writes(&self) -> Vec<Request> {
        self.trace.requests().into_iter().filter(|request| request.resource != "events").collect()
    }

    fn differs_from(&self, reference: &Self) -> Option<String> {
        if let Some(difference) = self.end.differs_from(&reference.end) {
            return Some(format!("the end state differs: {difference}"));
        }
        let counts = [
            ("created", &self.created, &reference.created),
            ("deleted", &self.deleted, &reference.deleted),
            ("told as a warning", &self.warnings, &reference.warnings),
        ];
        counts
            .into_iter()
            .find(|(_, ours, theirs)| ours != theirs)
            .map(|(what, ours, theirs)| format!("{what}: {ours:?} and not {theirs:?}"))
    }
}

/// One life. `None` where no cluster can run.
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

    // A new process knows nothing but what it reads, and finds nothing to do.
    operator.proxy().set_plan(&Plan::default());
    operator.proxy().release();
    operator.proxy().clear();
    operator.restart();
    operator.until_watching(&trace).await;
    operator.until_quiet().await;
    let late: Vec<String> = operator.proxy().trace().writes().map(ToString::to_string).collect();
    assert!(late.is_empty(), "everything was done, and a new process writes: {late:?}\n{trace}");

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

/// The warnings that people were given, and how often: a repeated one counts.
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

fn is_crash(plan: &Plan) -> bool {
    let mut actions = plan.rules().iter().flat_map(fault_plan::Rule::actions);
    actions.any(|action| matches!(action, Action::Signal(name) if name == enumerate::KILL))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

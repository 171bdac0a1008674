//! One world: an API server, the other controllers, users, the operator, and their disturbances. The world plays a plan and
//! judges the end. `rest` waits until all has come to rest, `scrapes` reads the metrics of the processes, and `leftovers` finds
//! what they keep of objects that are gone.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use fastrand::Rng;
use jiff::SignedDuration;
use manager::{Operator, harness::Harness};
use model_apiserver::{Model, Signalled};
use tokio::time::sleep;
use tracing_subscriber::layer::SubscriberExt;

use crate::{
    checks::{self, Checks},
    disturbance::{Act, Phase},
    network::{Armed, Network, Perform},
    plan::{Judged, Plan, Played},
    stage::{Stage, process},
    stalls::Stalls,
    subject::{Caller, ExternalService, Period},
    subjects::Subjects,
    trace::{Trace, WakeUps, span_of_process},
};

mod leftovers;
mod rest;
mod scrapes;

use scrapes::has_not_panicked;

/// Time between two steps of a world.
const TICK: Duration = Duration::from_millis(250);
/// With several processes, how far the clock of each may be ahead or behind, in milliseconds.
const SKEW: i64 = 20_000;
/// How long the last disturbances may continue before all disturbances end.
const AFTERMATH: Duration = Duration::from_mins(2);
/// For this time after the last disturbance, the operator may still be behind: a back-off is at most six minutes long.
const SETTLING: Duration = Duration::from_mins(10);
/// How long the world observes objects that never come to rest.
const PERIOD: Duration = Duration::from_mins(31);
/// Of this many worlds with one process, one ends with a check of what the process keeps of deleted objects; the others end with
/// a new process.
const MEMORY_EVERY: u64 = 4;
/// Within this time after the last effect of a trouble, the operator knows of every change again: a request has failed after
/// 20 s, and an informer then waits for 5 s at most. Effects that last longer, such as a silent watch, count until they end.
const CALM: Duration = Duration::from_secs(30);
/// When nothing has changed for this time, no request is on its way.
const STILL: Duration = Duration::from_secs(5);

impl Plan {
    /// Plays the world twice and compares the traces.
    ///
    /// # Panics
    ///
    /// When the traces differ in any byte, or have 100 lines or fewer.
    pub fn is_repeatable(&self, subjects: impl Into<Subjects>) {
        let subjects = subjects.into();
        let trace = || self.play(subjects.clone()).trace.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert_same(self.seed, &trace(), &trace());
    }

    /// Plays the world, in a runtime of its own with simulated time. If the plan names operators, only these of the subjects run.
    ///
    /// # Panics
    ///
    /// When the plan names another operator, or when tokio cannot create the runtime.
    pub fn play(&self, subjects: impl Into<Subjects>) -> Played {
        let subjects = subjects.into().chosen(&self.operators);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(play(self, &subjects))
    }
}

/// Panics when two traces of this seed differ in any byte, or have 100 lines or fewer.
pub(crate) fn assert_same(seed: u64, one: &str, other: &str) {
    for (one, other) in one.lines().zip(other.lines()) {
        assert_eq!(one, other, "seed {seed}");
    }
    assert_eq!(one.len(), other.len(), "seed {seed}");
    assert!(one.lines().count() > 100, "seed {seed}: {} lines", one.lines().count());
}

/// Plays a plan in simulated time.
async fn play(plan: &Plan, subjects: &Subjects) -> Played {
    let mut world = World::new(plan, subjects);
    let trace = world.trace.clone();
    let subscriber = tracing_subscriber::registry().with(WakeUps::new(&trace));
    let guard = tracing::subscriber::set_default(subscriber);
    let result = world.live().await;
    let (effects, simulated) = (world.network.effects(), trace.now());
    let judged = Judged { claims: world.checks.claims(), ends: world.ends };
    world.end().await;
    drop(guard);
    Played { failure: result.err(), trace: trace.take(), effects, judged, simulated }
}

struct World {
    plan: Plan,
    model: Model,
    trace: Trace,
    network: Arc<Network>,
    stage: Arc<Stage>,
    checks: Checks,
    stalls: Stalls,
    /// The processes of the operators, by number. Each runs all operators.
    processes: Vec<Option<Harness>>,
    /// How many processes have been started.
    starts: u64,
    restores: u64,
    /// How often an object was judged at the end.
    ends: u64,
    /// Keeps it alive for the network, which has only a weak reference.
    _perform: Arc<Perform>,
}

impl World {
    fn new(plan: &Plan, subjects: &Subjects) -> Self {
        let (model, trace) = (Model::new(), Trace::new());
        model.set_time(plan.starts);
        let stage = Arc::new(Stage::new(plan, subjects, &model, &trace));
        let acting = stage.clone();
        let perform: Arc<Perform> = Arc::new(move |number, process| {
            let stage = acting.clone();
            Box::pin(async move { stage.perform(number, process).await }) as Signalled
        });
        let network = Arc::new(Network::new(plan.seed, trace.clone(), &perform));
        stage.connect(&network);
        model.set_shared_faults(network.clone());
        let checks = Checks::new(&model, &stage.cast, stage.namespaces.clone(), trace.clone(), plan.replicas > 1);
        let (plan, processes) = (plan.clone(), plan.replicas);
        Self {
            plan,
            model,
            trace,
            network,
            stage,
            checks,
            stalls: Stalls::default(),
            processes: (0..processes).map(|_| None).collect(),
            starts: 0,
            restores: 0,
            ends: 0,
            _perform: perform,
        }
    }

    async fn live(&mut self) -> Result<(), String> {
        for object in 0..self.plan.objects {
            let mut rng = Rng::with_seed(self.plan.seed ^ u64::try_from(object).unwrap_or_default());
            self.stage.users.act(Act::Apply, object, &mut rng).await;
        }
        self.start_all();
        let mut due = 0;
        while due < self.plan.disturbances.len() {
            self.step().await?;
            while let Some(next) = self.plan.disturbances.get(due).filter(|next| next.at <= self.trace.now()) {
                match next.phase {
                    Phase::AnyTime => self.stage.perform(due, None).await,
                    phase => {
                        let awaited = self.stage.awaited(next);
                        self.network.arm(Armed::new(due, phase, awaited, next.act == Act::CrashAnywhere));
                    }
                }
                due += 1;
            }
        }
        self.pass(AFTERMATH).await?;
        self.heal();
        if self.stage.cast.all().iter().any(|role| role.subject.calm().is_some()) {
            self.watch_a_period().await?;
            for object in 0..self.plan.objects {
                if let Some(patch) = self.stage.cast.of(object).subject.calm() {
                    self.stage.users.calm(object, patch).await;
                }
            }
        }
        self.come_to_rest().await?;
        self.judge()?;
        self.nothing_happens("after all has come to rest").await?;
        self.judge()?;
        self.process_is_clean().await?;
        // Only with one process: waiting for hours takes little real time as long as no lease is renewed.
        if self.plan.replicas == 1 && self.plan.seed.is_multiple_of(MEMORY_EVERY) {
            return self.nothing_is_kept().await;
        }
        self.trace.note("new processes reconcile everything");
        self.crash_all().await;
        self.follow()?;
        self.start_all();
        self.nothing_happens("a new process finds something to do").await?;
        self.judge()
    }

    /// Lets one tick pass, does what is due, and checks all changes.
    async fn step(&mut self) -> Result<(), String> {
        sleep(TICK).await;
        if let Some(broken) = self.network.broken() {
            return Err(broken);
        }
        self.follow()?;
        self.stage.tick(self.trace.now()).await;
        self.follow()?;
        for role in self.stage.cast.all() {
            if let Some(outside) = &role.outside {
                outside.check(self.network.has_silent_watch(role.subject.resource()))?;
            }
        }
        self.stage.check(&self.network)?;
        self.stalls.follow(&self.model, self.checks.changed());
        if self.trace.now() >= self.checks.changed() + STILL && self.network.is_calm_for(CALM) {
            if !self.stage.policies.may_have_changed_children() {
                self.checks.check_claims()?;
            }
            self.checks.check_stalls(&self.stalls, self.network.is_calm_for(SETTLING))?;
        }
        self.trace.unexplained().map_or(Ok(()), Err)?;
        for (number, act) in self.stage.take_ends() {
            self.processes[number].as_ref().map_or(Ok(()), has_not_panicked)?;
            match self.processes[number].take() {
                Some(mut process) if act == Act::Stop => process.stop().await,
                Some(process) => process.crash().await,
                None => {}
            }
            self.follow()?; // with the leadership that the process had
            self.start(number);
        }
        Ok(())
    }

    /// Checks all changes since the last call.
    fn follow(&mut self) -> Result<(), String> {
        let restores = self.stage.restores();
        if restores > self.restores {
            self.restores = restores;
            self.checks.restored();
        }
        self.checks.follow(&self.network)
    }

    fn start_all(&mut self) {
        (0..self.plan.replicas).for_each(|number| self.start(number));
    }

    fn start(&mut self, number: usize) {
        self.starts += 1;
        let name = process(number);
        self.trace.note(format!("{name} starts; this is start {}", self.starts));
        self.checks.process_starts(&name);
        let alive = Arc::new(AtomicBool::new(true));
        self.stage.started(number, alive.clone());
        let roles = self.stage.cast.all();
        let (network, process) = (self.network.clone(), name.clone());
        let caller = Caller::new(alive.clone(), move || network.sends_write(&process));
        let own = |outside: &Arc<dyn ExternalService>| outside.operator(caller.clone());
        let own: Vec<_> = roles.iter().map(|role| role.outside.as_ref().map(own)).collect();
        let operators =
            own.iter().zip(roles).map(|(own, role)| own.as_deref().unwrap_or_else(|| role.subject.operator()));
        let operators: Vec<&dyn Operator> = operators.collect();
        let (client, clock) = (self.model.client_while(alive, &name), self.model.clone());
        let seed = self.plan.seed.wrapping_add(self.starts);
        let (mut flags, mut ahead) = (vec!["--resync-interval=10000h"], SignedDuration::ZERO);
        flags.extend(roles.iter().flat_map(|role| role.subject.flags()));
        flags.extend(self.stage.namespaces.watched.flag());
        if self.plan.replicas > 1 {
            flags.extend(["--leader-elect", "--leader-election-namespace=default"]);
            ahead = SignedDuration::from_millis(Rng::with_seed(seed).i64(-SKEW..SKEW));
        }
        let start = || Harness::start_with_seed(&operators, &flags, client, move || clock.now() + ahead, seed);
        self.processes[number] = Some(span_of_process(self.starts, &name).in_scope(start));
    }

    async fn crash_all(&mut self) {
        for process in &mut self.processes {
            if let Some(process) = process.take() {
                process.crash().await;
            }
        }
    }

    async fn end(mut self) {
        self.crash_all().await;
    }

    /// Ends all disturbances. A silent watch stays silent: the operator has to give it up.
    fn heal(&self) {
        self.trace.note("all disturbances end");
        self.network.heal();
        self.stage.heal();
    }

    /// Lets the operator recover from disturbances, and then judges what happens in half an hour.
    async fn watch_a_period(&mut self) -> Result<(), String> {
        self.pass(SETTLING).await?;
        let (from, version) = (self.model.now(), self.model.version());
        for object in 0..self.plan.objects {
            let mut rng = Rng::with_seed(self.plan.seed ^ version ^ u64::try_from(object).unwrap_or_default());
            self.stage.users.act(Act::Request, object, &mut rng).await;
        }
        self.pass(PERIOD).await?;
        let period = Period {
            from,
            latest_before: from.max(self.stage.latest_before_jumps()),
            until: self.model.now(),
            changes: self.model.changes_after(version),
        };
        for number in self.watched_objects() {
            let subject = self.stage.cast.of(number).subject;
            let Some(object) = self.stage.users.object(number).filter(|_| subject.calm().is_some()) else { continue };
            if object["metadata"]["annotations"][self.stage.users.own(number, "paused")] != "true" {
                subject.judge_period(&object, &period).map_err(|why| format!("object {number}: {why}"))?;
            }
        }
        Ok(())
    }

    async fn pass(&mut self, time: Duration) -> Result<(), String> {
        let until = self.trace.now() + time;
        while self.trace.now() < until {
            self.step().await?;
        }
        Ok(())
    }

    fn judge(&mut self) -> Result<(), String> {
        let (cast, users) = (&self.stage.cast, &self.stage.users);
        checks::no_orphans(cast, &self.model)?;
        let mut objects = vec![Vec::new(); cast.all().len()];
        for number in self.watched_objects() {
            if let Some(stored) = users.object(number) {
                let group = users.own(number, "");
                let judged = checks::judge(cast.of(number).subject, &self.model, group.trim_end_matches('/'), &stored);
                judged.map_err(|why| format!("object {number}: {why}"))?;
                objects[cast.number_of(number)].push(stored);
            }
        }
        self.ends += u64::try_from(objects.iter().map(Vec::len).sum::<usize>()).unwrap_or(u64::MAX);
        let excused = |uid: &str| self.checks.is_excused(uid);
        let outsides = cast.all().iter().map(|role| &role.outside).zip(&objects);
        outsides.filter_map(|(outside, objects)| Some(outside.as_ref()?.judge(objects, &excused))).collect()
    }

    /// The numbers of the objects in namespaces that the operator watches.
    fn watched_objects(&self) -> impl Iterator<Item = usize> {
        let (stage, now) = (&self.stage, self.trace.now());
        let is_watched =
            move |number: &usize| stage.namespaces.is_watched_for(stage.users.namespace(*number), now, Duration::ZERO);
        (0..self.plan.objects).filter(is_watched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Books;

    static BOOKS: Books = Books { is_wrong: |_| false, claims_wrongly: |_| false };

    #[test]
    fn judges_look_at_objects_that_claim_to_be_ready_and_at_the_end() {
        static BOASTING: Books = Books { is_wrong: |_| false, claims_wrongly: |_| true };
        static WRONG: Books = Books { is_wrong: |_| true, claims_wrongly: |_| false };
        let plan = Plan::scripted(1, &[]);
        let [fine, boasting, wrong] = [&BOOKS, &BOASTING, &WRONG].map(|books| plan.play(books));
        assert_eq!(fine.failure, None);
        assert!(fine.judged.claims > 0 && fine.judged.ends == 3, "{:?}", fine.judged);
        assert_eq!(boasting.failure.as_deref(), Some("Ready of a is true, but the claim is wrong"));
        assert_eq!(wrong.failure.as_deref(), Some("object 0: the object is wrong"));
    }
}

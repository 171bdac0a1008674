//! One world: an API server, the other controllers, users, the operator, and their disturbances. The world plays a plan and
//! judges the end.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use fastrand::Rng;
use jiff::SignedDuration;
use manager::{Operator, harness::Harness};
use model_apiserver::{Entry, Model, Signalled};
use tokio::time::sleep;
use tracing_subscriber::layer::SubscriberExt;

use crate::{
    checks::{self, Checks},
    disturbance::{Act, Phase},
    memory,
    network::{Armed, Network, Perform},
    objects::{is_about_leadership, is_for_nothing},
    plan::{Judged, Plan, Played},
    stage::{Stage, process},
    stalls::Stalls,
    subject::{Caller, ExternalService, Period},
    subjects::Subjects,
    trace::{Trace, WakeUps, span_of_process},
};

/// Time between two steps of a world.
const TICK: Duration = Duration::from_millis(250);
/// The world is at rest when nothing was written for this time: a back-off is at most six minutes long.
const QUIET: Duration = Duration::from_mins(7);
/// The world must come to rest within this time.
const PATIENCE: Duration = Duration::from_hours(2);
/// For this time after the world has come to rest, nothing may be written.
const REST: Duration = Duration::from_mins(10);
/// With several processes, how far the clock of each may be ahead or behind, in milliseconds.
const SKEW: i64 = 20_000;
/// How long the last disturbances may continue before all disturbances end.
const WHILE: Duration = Duration::from_mins(2);
/// For this time after the last disturbance, the operator may still be behind: a back-off is at most six minutes long.
const SETTLING: Duration = Duration::from_mins(10);
/// How long the world observes objects that never come to rest.
const PERIOD: Duration = Duration::from_mins(31);
/// Of this many worlds with one process, one ends with a check of what the process keeps of deleted objects; the others end with
/// a new process.
const MEMORY_EVERY: u64 = 4;
/// For this time, the process may remember something of a deleted object, such as the number of its Events.
const FORGETTING: Duration = Duration::from_hours(3);
/// How many bytes more an old process may use than a young one for each operator in it: maps do not shrink.
const KEPT: i64 = 48 << 10;
/// Within this time after the last effect of a trouble, the operator knows of every change again: a request has failed after
/// 20 s, and an informer then waits for 5 s at most. Effects that last longer, such as a silent watch, count until they end.
const CALM: Duration = Duration::from_secs(30);
/// When nothing has changed for this time, no request is on its way.
const STILL: Duration = Duration::from_secs(5);
/// How often the queue is checked, one tick apart, until it is empty.
const LOOKS: usize = 8;

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
        self.pass(WHILE).await?;
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

    /// Checks that a process whose objects are all gone has no metric series of them, and uses no more memory than a process that
    /// has reconciled each object only once.
    async fn nothing_is_kept(&mut self) -> Result<(), String> {
        self.forget_all().await?;
        let old = self.size_of_processes().await;
        self.start_all();
        for number in 0..self.plan.objects {
            self.stage.users.act(Act::Create, number, &mut Rng::with_seed(self.plan.seed)).await;
        }
        self.pass(SETTLING).await?;
        self.forget_all().await?;
        let young = self.size_of_processes().await;
        keeps_little(old, young, self.stage.cast.all().len())
    }

    async fn forget_all(&mut self) -> Result<(), String> {
        self.trace.note("all objects are deleted");
        for number in 0..self.plan.objects {
            for act in [Act::Resume, Act::Delete] {
                self.stage.users.act(act, number, &mut Rng::with_seed(0)).await;
            }
        }
        self.pass(FORGETTING).await?;
        if let Some((_, object)) = self.stage.cast.objects(&self.model).pop() {
            return Err(format!("{} is still being deleted", object["metadata"]["name"]));
        }
        let scrape = self.processes.iter().flatten().map(Harness::scrape).collect::<String>();
        let users = &self.stage.users;
        let objects: Vec<_> =
            (0..self.plan.objects).map(|number| (users.namespace(number), users.name(number))).collect();
        match series_of(&scrape, &objects) {
            Some(line) => Err(format!("all objects are gone, but not the series {line}")),
            None => Ok(()),
        }
    }

    /// Kills all processes. Returns how many bytes they used.
    async fn size_of_processes(&mut self) -> i64 {
        let before = memory::in_use();
        self.crash_all().await;
        before - memory::in_use()
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

    async fn come_to_rest(&mut self) -> Result<(), String> {
        let begun = self.trace.now();
        loop {
            self.step().await?;
            let now = self.trace.now();
            if now >= self.checks.changed().max(begun) + QUIET && self.stage.controllers.are_settled() {
                return Ok(());
            }
            if now >= begun + PATIENCE {
                return Err(format!("the world does not come to rest within {PATIENCE:?}"));
            }
        }
    }

    async fn nothing_happens(&mut self, when: &str) -> Result<(), String> {
        let (mut version, until) = (self.model.version(), self.trace.now() + REST);
        self.model.clear_requests();
        while self.trace.now() < until {
            self.step().await?;
            let changes = self.model.changes_after(version);
            if let Some(change) = changes.iter().find(|change| !is_about_leadership(change)) {
                return Err(format!("{when}: {} {} is written by {:?}", change.resource, change.key, change.writer));
            }
            version = self.model.version();
            if let Some(sent) = self.model.requests().into_iter().find(is_for_nothing) {
                let Entry { client, verb, resource, subresource, namespace, name, body, .. } = sent;
                let (verb, body) = (verb.as_str(), body.unwrap_or_default());
                return Err(format!(
                    "{when}: {client} sends a write that changes nothing: {verb} {resource}/{subresource} \
                     {namespace}/{name} {body}"
                ));
            }
            self.model.clear_requests();
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

    /// Checks that no reconcile has panicked and that the queue is empty. It checks the queue several times, because an object may be
    /// due at this very moment.
    async fn process_is_clean(&self) -> Result<(), String> {
        self.processes.iter().flatten().try_for_each(has_not_panicked)?;
        let mut left = None;
        for _ in 0..LOOKS {
            let scrapes = self.processes.iter().flatten().map(Harness::scrape);
            // The queue of a standby is not empty.
            let scrape: String = scrapes.filter(|scrape| self.plan.replicas == 1 || leads(scrape)).collect();
            let open = ["workqueue_depth", "controller_runtime_active_workers"];
            left = open.into_iter().find_map(|series| not_zero(&scrape, series));
            if left.is_none() {
                break;
            }
            tokio::time::sleep(TICK).await;
        }
        left.map_or(Ok(()), Err)
    }
}

/// The first series of one of these objects, which are given by namespace and name.
fn series_of<'a>(scrape: &'a str, objects: &[(&str, String)]) -> Option<&'a str> {
    let is_of_an_object = |line: &&str| {
        let has = |label: &str, value: &str| line.contains(&format!("{label}=\"{value}\""));
        objects.iter().any(|(namespace, name)| has("namespace", namespace) && has("name", name))
    };
    scrape.lines().find(is_of_an_object)
}

/// Checks that processes with this number of operators, whose objects are gone, use few bytes more than young ones.
fn keeps_little(old: i64, young: i64, operators: usize) -> Result<(), String> {
    let kept = KEPT * i64::try_from(operators).unwrap_or(1);
    if old > young + kept {
        return Err(format!("all objects are gone, and {old} bytes are in use; by a young process {young}"));
    }
    Ok(())
}

/// Checks that no reconcile of this process has panicked, whether it leads or not.
fn has_not_panicked(process: &Harness) -> Result<(), String> {
    not_zero(&process.scrape(), "controller_runtime_reconcile_panics_total").map_or(Ok(()), Err)
}

/// The first series of this metric that is not zero, or a complaint that there is none: without any, nothing would be checked.
fn not_zero(scrape: &str, metric: &str) -> Option<String> {
    let mut series = scrape.lines().filter(|line| line.starts_with(&format!("{metric}{{"))).peekable();
    if series.peek().is_none() {
        return Some(format!("no process shows {metric}"));
    }
    series.find(|line| !line.ends_with(" 0")).map(str::to_owned)
}

fn leads(scrape: &str) -> bool {
    scrape.lines().any(|line| line.starts_with("leader_election_master_status{") && line.ends_with(" 1"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::{
        Api,
        api::{Patch, PatchParams},
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::toy::Books;

    static BOOKS: Books = Books { is_wrong: |_| false, claims_wrongly: |_| false };

    /// Lets a world without processes rest. After a minute, this client sends a patch of a namespace.
    async fn resting(client: &'static str, patch: Option<Value>) -> Result<(), String> {
        let mut world = World::new(&Plan::scripted(1, &[]), &Subjects::from(&BOOKS));
        let api: Api<Namespace> = Api::all(world.model.client_named(client));
        let write = async move {
            sleep(Duration::from_mins(1)).await;
            if let Some(patch) = patch {
                let written = api.patch("shop", &PatchParams::default(), &Patch::Merge(patch)).await;
                written.expect("the API server accepts it");
            }
        };
        let (result, ()) = tokio::join!(world.nothing_happens("at rest"), write);
        result
    }

    #[tokio::test(start_paused = true)]
    async fn write_in_a_world_at_rest_is_found() {
        assert_eq!(resting("user", None).await, Ok(()));
        let label = || Some(json!({"metadata": {"labels": {"team": "1"}}}));
        let found = resting("user", label()).await.expect_err("a user has changed something");
        assert_eq!(found, "at rest: namespaces shop is written by \"user\"");
        assert!(resting("operator-0", label()).await.is_err(), "the operator has");
        assert_eq!(resting("user", Some(json!({}))).await, Ok(()), "users may write what changes nothing");
        let found = resting("operator-0", Some(json!({}))).await.expect_err("the operator must not");
        assert!(
            found.starts_with("at rest: operator-0 sends a write that changes nothing: patch namespaces"),
            "{found}"
        );
    }

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

    #[test]
    fn what_a_process_keeps_of_objects_that_are_gone_is_found() {
        let objects = [("shop", "a".to_owned()), ("depot", "b".to_owned())];
        let series = |namespace: &str, name: &str| {
            series_of(&format!("# HELP x y\nx{{namespace=\"{namespace}\",name=\"{name}\"}} 1\n"), &objects).is_some()
        };
        assert!(series("shop", "a") && series("depot", "b"));
        assert!(!series("shop", "b") && !series("depot", "a") && !series("default", "a"));
        assert_eq!(keeps_little(1_000 + 2 * KEPT, 1_000, 2), Ok(()));
        assert!(keeps_little(1_001 + 2 * KEPT, 1_000, 2).is_err());
    }

    #[test]
    fn metric_that_is_not_zero_or_not_there_is_found() {
        let scrape = "# HELP a\na{b=\"c\"} 0\na{b=\"d\"} 2\nab{b=\"c\"} 0\n";
        assert_eq!(not_zero(scrape, "a").as_deref(), Some("a{b=\"d\"} 2"));
        assert_eq!(not_zero(scrape, "ab"), None);
        assert_eq!(not_zero(scrape, "abc").as_deref(), Some("no process shows abc"));
    }
}

//! The stage: what disturbances act on. It holds everything in a world except the operator's processes and the checks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use model_apiserver::{Model, Snapshot};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    contests::Contests,
    controllers::Controllers,
    definitions::Definitions,
    disturbance::{Act, Disturbance, Phase, is_cluster_scoped},
    namespaces::{Watched, WatchedNamespaces},
    network::{Awaited, Network, OPERATOR},
    plan::Plan,
    policies::{Child, Policies},
    subject::Note,
    subjects::{Cast, Subjects},
    trace::Trace,
    users::{NAMESPACES, Users},
};

/// What disturbances act on. The network performs some of them in the middle of a request.
pub(crate) struct Stage {
    plan: Plan,
    pub(crate) cast: Cast,
    model: Model,
    trace: Trace,
    pub(crate) users: Users,
    pub(crate) controllers: Controllers,
    pub(crate) namespaces: Arc<WatchedNamespaces>,
    pub(crate) policies: Policies,
    pub(crate) contests: Contests,
    definitions: Definitions,
    /// The cluster before the world has put anything into it.
    empty: Snapshot,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    network: Option<Arc<Network>>,
    backup: Option<Snapshot>,
    restores: u64,
    latest_before_jumps: Timestamp,
    /// Whether each process can reach the API server. A crash sets it to false.
    alive: Vec<Arc<AtomicBool>>,
    /// Processes that the world has to end, and how: crash or stop.
    ends: Vec<(usize, Act)>,
    /// When missing namespaces are created again.
    namespaces_back_at: Option<Duration>,
    autoscalers: Vec<Autoscaler>,
}

/// Sets the size of an object again and again, until its time is over.
struct Autoscaler {
    object: usize,
    next: Duration,
    until: Duration,
    rng: Rng,
}

/// Time between two changes of an autoscaler.
const AUTOSCALING: Duration = Duration::from_secs(15);
/// Namespaces stay unlabelled for so many times as long as other disturbances last.
const AWAY: u32 = 5;
/// Maximum number of writes to reach a resource version again.
const REPEATED: usize = 500;
/// How far clocks jump, back and forwards, in seconds.
const JUMP: std::ops::Range<i64> = -3_600..6 * 3_600;

impl Stage {
    pub(crate) fn new(plan: &Plan, subjects: &Subjects, model: &Model, trace: &Trace) -> Self {
        let noting = trace.clone();
        let note: Note = Arc::new(move |line| noting.note(line));
        let cast = Cast::new(subjects, plan.seed, &note);
        let users = Users::new(model, &cast, plan.has_further_fields, trace.clone());
        let watched = if subjects.all().any(is_cluster_scoped) { Watched::All } else { plan.watched };
        let empty = model.snapshot();
        let definitions = Definitions::install(model, &cast, trace);
        let stage = Self {
            plan: plan.clone(),
            model: model.clone(),
            trace: trace.clone(),
            users,
            controllers: Controllers::new(model.clone(), plan.pace),
            namespaces: Arc::new(WatchedNamespaces::new(watched, model)),
            policies: Policies::new(model, &cast, trace),
            contests: Contests::new(model, cast.primaries()),
            definitions,
            empty,
            state: Mutex::new(State {
                alive: (0..plan.replicas).map(|_| Arc::default()).collect(),
                ..State::default()
            }),
            cast,
        };
        for namespace in NAMESPACES {
            model.add_namespace(namespace);
        }
        stage.namespaces.tick(Duration::ZERO);
        stage
    }

    /// Connects the network. Before that, disturbances have no effect.
    pub(crate) fn connect(&self, network: &Arc<Network>) {
        self.state().network = Some(network.clone());
    }

    /// Registers a started process, which reaches the API server while `alive` is true.
    pub(crate) fn started(&self, process: usize, alive: Arc<AtomicBool>) {
        self.contests.disturb(self.trace.now());
        self.policies.disturb();
        self.state().alive[process] = alive;
    }

    /// How often the cluster was restored or lost everything.
    pub(crate) fn restores(&self) -> u64 {
        self.state().restores
    }

    /// The latest time from which the clocks have jumped.
    pub(crate) fn latest_before_jumps(&self) -> Timestamp {
        self.state().latest_before_jumps
    }

    /// Takes the processes that the world has to end now, and how.
    pub(crate) fn take_ends(&self) -> Vec<(usize, Act)> {
        std::mem::take(&mut self.state().ends)
    }

    /// Does what is due at this time.
    pub(crate) async fn tick(&self, now: Duration) {
        self.controllers.tick(now);
        for child in self.policies.take_left_over() {
            self.users.change_left_over(&child).await;
        }
        self.contest(now).await;
        if let Some(network) = self.network() {
            self.controllers.take_felt().into_iter().for_each(|act| network.count(act, Phase::AnyTime));
            network.take_late().iter().for_each(|request| self.model.arrive_late(request));
        }
        if self.state().namespaces_back_at.is_some_and(|time| now >= time) {
            self.bring_namespaces_back();
        }
        self.namespaces.tick(now);
        self.definitions.tick(now);
        self.autoscale(now).await;
    }

    /// Creates the namespaces that are gone. Namespaces that are still terminating have to wait for a later call.
    fn bring_namespaces_back(&self) {
        let mut are_back = true;
        for namespace in NAMESPACES {
            match self.model.object("namespaces", "", namespace) {
                Some(there) => are_back &= there["metadata"]["deletionTimestamp"].is_null(),
                None => self.model.add_namespace(namespace),
            }
        }
        if are_back {
            self.state().namespaces_back_at = None;
        }
    }

    /// Ends all disturbances.
    pub(crate) fn heal(&self) {
        self.controllers.heal();
        self.cast.all().iter().filter_map(|role| role.outside.as_ref()).for_each(|outside| outside.heal());
        self.policies.end();
        self.contests.end();
        self.namespaces.heal();
        self.definitions.heal();
        let mut state = self.state();
        state.namespaces_back_at = state.namespaces_back_at.map(|_| Duration::ZERO);
        state.autoscalers.clear();
    }

    /// Performs the disturbance with this number. `interrupted` is the number of the process in whose request it happens.
    pub(crate) async fn perform(&self, number: usize, interrupted: Option<usize>) {
        let disturbance = self.plan.disturbances[number];
        let Disturbance { phase, act, object, seed, .. } = disturbance;
        self.trace.note(format!("! {disturbance}"));
        let (mut rng, now) = (Rng::with_seed(seed), self.trace.now());
        let Some(network) = self.network() else { return };
        let until = now + disturbance.lasts();
        let has_effect = match act {
            Act::PodFails | Act::PodsAreSlow | Act::PodsDoNotStart => {
                self.trouble_pods(act, object, until, &mut rng);
                false // counted when a pod is not ready that would be ready otherwise
            }
            Act::Policy => {
                self.policies.label(until, &network);
                false // counted when it changes a write
            }
            Act::RewritingPolicy => {
                self.policies.rewrite(until, &network, &mut rng);
                self.contests.disturb(now);
                false // counted when it changes a write
            }
            Act::Contest => {
                self.begin_contest(object, until, &mut rng);
                false // counted when it changes the field
            }
            Act::Autoscale => {
                let rng = rng.fork();
                self.state().autoscalers.push(Autoscaler { object, next: now, until, rng });
                false // counted when it sets a size
            }
            _ if act.is_of_network() => {
                self.begin_trouble(&disturbance, &network, &mut rng);
                false // counted when it affects a request or a watch event
            }
            Act::Backup => self.back_up(),
            Act::Restore => self.restore(&network, &mut rng).await,
            Act::LoseAll => {
                self.lose_all(&network, until);
                true
            }
            Act::Crash | Act::CrashAnywhere | Act::Stop => {
                // A crash at a request must hit the process that has sent it: the others are not in the middle of anything.
                let process = interrupted.unwrap_or_else(|| rng.usize(..self.plan.replicas));
                network.process_ends();
                let mut state = self.state();
                if act != Act::Stop {
                    state.alive[process].store(false, Ordering::Relaxed);
                }
                state.ends.push((process, act));
                true
            }
            Act::ClockJumps => {
                let now = self.model.now();
                let mut state = self.state();
                state.latest_before_jumps = state.latest_before_jumps.max(now);
                let jump = rng.i64(JUMP);
                self.model.set_time(now + SignedDuration::from_secs(jump));
                jump != 0
            }
            Act::ExternalService => match (&self.cast.of(object).outside, self.users.object(object)) {
                (Some(outside), Some(object)) => outside.act(&object, disturbance.lasts(), &mut rng),
                _ => false,
            },
            Act::ExternalDecision => match (&self.cast.of(object).outside, self.users.object(object)) {
                (Some(outside), Some(object)) => outside.decide(&object, &mut rng),
                _ => false,
            },
            Act::DeleteNamespace => {
                self.state().namespaces_back_at = Some(until);
                self.users.act(act, object, &mut rng).await
            }
            Act::UnlabelNamespace => {
                let until = now + disturbance.lasts() * AWAY;
                self.namespaces.leave(self.users.namespace(object), until)
            }
            Act::DeleteDefinition => self.end_definition(object, until).await,
            // The API server does not create objects of a CRD that is being deleted.
            Act::Create | Act::Apply | Act::Replace | Act::Import
                if !self.has_definition(object) && self.users.object(object).is_none() =>
            {
                false
            }
            Act::Replace if !self.has_definition(object) => false,
            _ => self.users.act(act, object, &mut rng).await,
        };
        if has_effect {
            network.count(act, phase);
        }
    }

    /// Returns the request that a disturbance waits for, or `None` if it acts at the next one. A disturbance of a child often
    /// matters only when it meets a write of that child.
    pub(crate) fn awaited(&self, disturbance: &Disturbance) -> Option<Awaited> {
        let Disturbance { act, object, seed, .. } = *disturbance;
        if !act.is_about_child() || seed.is_multiple_of(2) {
            return None;
        }
        Some(Awaited {
            resource: self.users.kind_of_child(object, &mut Rng::with_seed(seed))?.to_owned(),
            namespace: self.users.namespace(object).to_owned(),
            owner: self.users.name(object),
        })
    }

    fn begin_trouble(&self, disturbance: &Disturbance, network: &Network, rng: &mut Rng) {
        if disturbance.act == Act::WatchesExpire {
            self.model.compact();
        }
        let subject = self.cast.of(disturbance.object).subject;
        let about = match disturbance.act {
            Act::Isolation => process(rng.usize(..self.plan.replicas)),
            Act::Denied => rng.choice(subject.children()).map(|resource| (*resource).to_owned()).unwrap_or_default(),
            _ => {
                let others = [subject.resource(), "pods"];
                let resources: Vec<&str> = subject.children().iter().copied().chain(others).collect();
                resources[rng.usize(..resources.len())].to_owned()
            }
        };
        network.begin(disturbance, about);
    }

    fn trouble_pods(&self, act: Act, object: usize, until: Duration, rng: &mut Rng) {
        match act {
            Act::PodsAreSlow => self.controllers.slow_down(until),
            Act::PodsDoNotStart => self.controllers.stop_starting(until, rng),
            _ => {
                if let Some(pod) = self.users.child("pods", object, rng) {
                    self.controllers.fail(pod["metadata"]["name"].as_str().unwrap_or_default(), until);
                }
            }
        }
    }

    /// Lets another controller contest a field of a child, if the object has such a child.
    fn begin_contest(&self, object: usize, until: Duration, rng: &mut Rng) {
        let Some(resource) = self.users.kind_of_child(object, rng) else { return };
        let Some(patch) = self.cast.of(object).subject.damage(resource, rng) else { return };
        if let Some(child) = self.users.child(resource, object, rng) {
            self.contests.begin(Child::of(resource, &child), patch, self.trace.now(), until);
        }
    }

    /// Lets other controllers set the fields that they contest.
    async fn contest(&self, now: Duration) {
        for (child, patch) in self.contests.take_due(now) {
            self.policies.disturb(); // its write may change nothing, because a policy rewrites the field again
            let has_effect = self.users.contest(&child, patch).await;
            if let Some(network) = self.network().filter(|_| has_effect) {
                network.count(Act::Contest, Phase::AnyTime);
            }
        }
    }

    /// Checks how the operator deals with policies and contests.
    pub(crate) fn check(&self, network: &Network) -> Result<(), String> {
        self.policies.check(network)?;
        self.contests.check(self.trace.now(), network)
    }

    /// Takes in that the cluster was restored.
    fn restored(&self) {
        self.controllers.restored();
        self.policies.restored();
        self.contests.restored(self.trace.now());
    }

    /// Takes a backup, if each CRD is served: a backup must contain it.
    fn back_up(&self) -> bool {
        let is_whole = self.definitions.are_served();
        if is_whole {
            self.state().backup = Some(self.model.snapshot());
        }
        is_whole
    }

    fn lose_all(&self, network: &Network, until: Duration) {
        network.restart();
        self.model.restore(&self.empty);
        self.definitions.lose(until);
        self.restored();
        let mut state = self.state();
        state.restores += 1;
        state.namespaces_back_at = Some(until);
    }

    async fn restore(&self, network: &Network, rng: &mut Rng) -> bool {
        let Some(backup) = self.state().backup.clone() else { return false };
        let (last, newest) = (self.last_change(backup.version()), self.model.version());
        network.restart();
        self.model.restore(&backup);
        self.restored();
        {
            let mut state = self.state();
            state.restores += 1;
            state.namespaces_back_at = Some(self.trace.now()); // one may be terminating in the backup
        }
        self.definitions.restored();
        if let Some((version, object)) = last.filter(|_| rng.bool()) {
            self.reach(version - 1, rng).await;
            if self.model.version() + 1 == version {
                self.users.act(Act::Edit, object, rng).await;
                // Reach some or all of the resource versions that the processes have seen.
                let last = if rng.bool() { newest } else { rng.u64(version..=newest.max(version)) };
                self.reach(last, rng).await;
            }
        }
        true
    }

    /// Returns the last change of an object after this version: the version of the change, and the number of the object.
    fn last_change(&self, after: u64) -> Option<(u64, usize)> {
        let mut changes = self.model.changes_after(after);
        changes.retain(|change| self.cast.of_resource(&change.resource).is_some());
        let last = changes.pop().filter(|change| change.after.is_some())?;
        let key = |number| format!("{}/{}", self.users.namespace(number), self.users.name(number));
        let is_it =
            |number: &usize| *last.resource == *self.cast.of(*number).subject.resource() && *last.key == *key(*number);
        let number = (0..self.plan.objects).find(is_it)?;
        Some((last.version, number))
    }

    /// Lets another client write until the cluster has this resource version again. The history before the restore and the one
    /// after it then have the same versions, and only the contents differ.
    async fn reach(&self, version: u64, rng: &mut Rng) {
        for _ in 0..REPEATED {
            if self.model.version() >= version {
                break;
            }
            self.users.write_beside(rng).await;
        }
    }

    /// Whether the API server serves the CRD of the object with this number.
    fn has_definition(&self, object: usize) -> bool {
        self.definitions.is_served(self.cast.number_of(object))
    }

    /// Deletes the CRD of the object with this number: first all its objects, as the API server does.
    async fn end_definition(&self, object: usize, until: Duration) -> bool {
        if !self.has_definition(object) {
            return false;
        }
        let operator = self.cast.number_of(object);
        self.definitions.end(operator, until);
        for other in 0..self.plan.objects {
            if self.cast.number_of(other) == operator {
                self.users.act(Act::Delete, other, &mut Rng::with_seed(0)).await;
            }
        }
        true
    }

    async fn autoscale(&self, now: Duration) {
        let mut due = Vec::new();
        let network = {
            let mut state = self.state();
            state.autoscalers.retain(|scaler| now < scaler.until);
            for scaler in state.autoscalers.iter_mut().filter(|scaler| now >= scaler.next) {
                scaler.next = now + AUTOSCALING;
                due.push((scaler.object, scaler.rng.fork()));
            }
            state.network.clone()
        };
        for (object, mut rng) in due {
            let has_effect = self.users.act(Act::Scale, object, &mut rng).await;
            if let Some(network) = network.as_ref().filter(|_| has_effect) {
                network.count(Act::Autoscale, Phase::AnyTime);
            }
        }
    }

    fn network(&self) -> Option<Arc<Network>> {
        self.state().network.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The client name of the process with this number.
pub(crate) fn process(number: usize) -> String {
    format!("{OPERATOR}-{number}")
}

//! The network between the operator and the API server. It loses, delays and refuses requests, disturbs watches, and lets
//! disturbances act at a certain moment of a request.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    ops::Range,
    sync::{Arc, Weak},
    time::Duration,
};

use fastrand::Rng;
use fault_plan::{Action, Answer, Due, Frame};
use model_apiserver::{Faults, RequestInfo, Signalled, Verb};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    disturbance::{Act, Disturbance, Phase},
    trace::Trace,
};

mod answers;
mod awaited;
mod rates;
mod refusals;

use answers::{is_handled, is_lease};
pub(crate) use awaited::{Armed, Awaited};
use rates::Rates;
use refusals::over_quota;

/// Prefix of the client names of the operator's processes.
pub(crate) const OPERATOR: &str = "operator";

/// Performs the disturbance with this number. The second argument is the number of the process whose request it interrupts.
pub(crate) type Perform = dyn Fn(usize, Option<usize>) -> Signalled + Send + Sync;

/// The network. The model of the API server consults it at each request and at each watch event.
pub(crate) struct Network {
    state: Mutex<State>,
    trace: Trace,
    /// Weak, because it holds the stage, which holds this network.
    perform: Weak<Perform>,
}

struct State {
    rng: Rng,
    /// Disturbances that wait for a request.
    armed: Vec<Armed>,
    /// Troubles that last for a while.
    troubles: Vec<Trouble>,
    effects: Effects,
    /// Until then, the API server is down.
    down_until: Duration,
    /// When the last effect that troubles have had so far ends.
    troubled_until: Duration,
    /// The requests that are still on their way, and when they arrive.
    late: Vec<(Duration, RequestInfo)>,
    /// When an answer about each object was last lost, by resource and "namespace/name".
    lost: BTreeMap<(String, String), Duration>,
    /// When each watch last fell silent, by client and resource.
    silent: BTreeMap<(String, String), Duration>,
    /// When each process last sent a request for the lease.
    lease_requests: BTreeMap<String, Duration>,
    /// Writes that the world has not checked yet: when, and from which process.
    writes: Vec<(Duration, String)>,
    rates: Rates,
    broken: Option<String>,
}

/// How late a request arrives, in milliseconds.
const LATE: Range<u64> = 500..10_000;

/// How long the API server is down while a backup is restored.
const DOWN: Duration = Duration::from_secs(3);

/// A disturbance that lasts for a while.
#[derive(Debug, Clone)]
struct Trouble {
    act: Act,
    until: Duration,
    seed: u64,
    /// The resource or the process that it concerns, if it concerns one.
    about: String,
}

/// How often each act had an effect, by moment.
pub(crate) type Effects = BTreeMap<(Act, Phase), u64>;

impl Network {
    pub(crate) fn new(seed: u64, trace: Trace, perform: &Arc<Perform>) -> Self {
        Self { state: Mutex::new(State::new(seed)), trace, perform: Arc::downgrade(perform) }
    }

    /// Lets a disturbance act at the request for which it waits.
    pub(crate) fn arm(&self, armed: Armed) {
        self.state().armed.push(armed);
    }

    /// Begins a disturbance that lasts for a while. `about` is the resource or the process that it concerns. It hinders the
    /// operator only when it meets a request or a watch event.
    pub(crate) fn begin(&self, disturbance: &Disturbance, about: String) {
        let until = self.trace.now() + disturbance.lasts();
        self.state().troubles.push(Trouble { act: disturbance.act, until, seed: disturbance.seed, about });
    }

    /// Counts the end of a process as trouble: until its successor leads, no process mends what other clients change.
    pub(crate) fn process_ends(&self) {
        self.state().hinder(self.trace.now());
    }

    /// Takes the API server down for a while, which a restore of etcd requires. A watch that ends meanwhile cannot simply
    /// resume, and no request from before arrives.
    pub(crate) fn restart(&self) {
        let (until, mut state) = (self.trace.now() + DOWN, self.state());
        state.down_until = until;
        state.late.clear();
        state.hinder(until);
    }

    /// Ends all troubles, and drops the disturbances that still wait for a request.
    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.troubles.clear();
        state.armed.clear();
    }

    /// Whether no trouble has had an effect for this long.
    pub(crate) fn is_calm_for(&self, time: Duration) -> bool {
        self.trace.now() >= self.state().troubled_until + time
    }

    /// Counts an effect of a disturbance.
    pub(crate) fn count(&self, act: Act, phase: Phase) {
        *self.state().effects.entry((act, phase)).or_default() += 1;
    }

    pub(crate) fn effects(&self) -> Effects {
        self.state().effects.clone()
    }

    /// How often requests and watch events have met a trouble.
    pub(crate) fn suffered(&self) -> u64 {
        let state = self.state();
        state.effects.iter().filter(|((act, _), _)| act.is_of_network()).map(|(_, count)| count).sum()
    }

    /// Whether an answer about this object was lost so that this process may not know what the operator has written: within this
    /// time, or earlier if the process' own watch of the resource has been silent since.
    pub(crate) fn has_lost_answers(&self, process: &str, resource: &str, object: &str, within: Duration) -> bool {
        self.state().may_not_know(self.trace.now(), process, resource, object, within)
    }

    /// Whether a watch of this resource is silent, so that a process may not know what has changed.
    pub(crate) fn has_silent_watch(&self, resource: &str) -> bool {
        self.state().is_silent(self.trace.now(), resource)
    }

    /// When this process last sent a request for the lease.
    pub(crate) fn last_lease_request(&self, process: &str) -> Option<Duration> {
        self.state().lease_requests.get(process).copied()
    }

    /// Takes in that a process sends a request which may change something outside the cluster.
    pub(crate) fn sends_write(&self, process: &str) {
        self.state().writes.push((self.trace.now(), process.to_owned()));
    }

    /// Takes the writes since the last call, each with its time and process. Writes of Leases and Events are not among them.
    pub(crate) fn take_writes(&self) -> Vec<(Duration, String)> {
        std::mem::take(&mut self.state().writes)
    }

    /// Takes the late requests that arrive now.
    pub(crate) fn take_late(&self) -> Vec<RequestInfo> {
        let late = self.state().take_late(self.trace.now());
        for request in &late {
            let RequestInfo { client, verb, namespace, .. } = request;
            let (verb, resource, name) = (verb.as_str(), request.resource(), name(request));
            self.trace.note(format!("{client} ▶ {verb} {resource} {namespace}/{name} arrives late"));
        }
        late
    }

    /// What is wrong with the requests of the operator, if anything.
    pub(crate) fn broken(&self) -> Option<String> {
        self.state().broken.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            armed: Vec::new(),
            troubles: Vec::new(),
            effects: Effects::new(),
            down_until: Duration::ZERO,
            troubled_until: Duration::ZERO,
            late: Vec::new(),
            lost: BTreeMap::new(),
            silent: BTreeMap::new(),
            lease_requests: BTreeMap::new(),
            writes: Vec::new(),
            rates: Rates::default(),
            broken: None,
        }
    }

    fn troubles(&mut self, now: Duration, acts: &[Act]) -> Vec<Trouble> {
        self.troubles.retain(|trouble| now < trouble.until);
        self.troubles.iter().filter(|trouble| acts.contains(&trouble.act)).cloned().collect()
    }

    /// Counts an effect of a disturbance, which lasts for this time.
    fn suffer(&mut self, now: Duration, act: Act, time: Duration) {
        *self.effects.entry((act, Phase::AnyTime)).or_default() += 1;
        self.hinder(now + time);
    }

    /// Takes in that something hinders the operator until then.
    fn hinder(&mut self, until: Duration) {
        self.troubled_until = self.troubled_until.max(until);
    }

    /// Takes the late requests that arrive now. None arrives while the world waits for a process to stop, so one may be later than
    /// planned. It counts as trouble until it has arrived.
    fn take_late(&mut self, now: Duration) -> Vec<RequestInfo> {
        let late: Vec<_> = self.late.extract_if(.., |(at, _)| *at <= now).map(|(_, request)| request).collect();
        for request in &late {
            self.lose(now, request);
            self.hinder(now);
        }
        late
    }

    /// Decides what happens to a request.
    fn request(&mut self, now: Duration, request: &RequestInfo) -> Due {
        let mut due = Due::default();
        if let Some((time, most)) = self.rates.count(now) {
            self.broken = Some(format!("the operator sends more than {most} requests in {time:?}"));
            due.before.push(Action::Stall); // otherwise, simulated time would never advance
            return due;
        }
        if is_lease(request) {
            self.lease_requests.insert(request.client.clone(), now);
        } else if !matches!(request.verb, Verb::Get | Verb::List | Verb::Watch)
            && !request.resource().starts_with("events")
        {
            self.writes.push((now, request.client.clone()));
        }
        if now < self.down_until {
            due.before.push(Action::Drop);
            return due;
        }
        let troubles = [
            Act::Quota,
            Act::Refusals,
            Act::LostRequests,
            Act::LateRequests,
            Act::LostAnswers,
            Act::Isolation,
            Act::SlowRequests,
        ];
        let mut held = Duration::ZERO;
        for trouble in self.troubles(now, &troubles) {
            let happens = self.rng.u8(..100) < 60;
            if !is_handled(&due) {
                break; // nothing else can happen to the request
            }
            match trouble.act {
                Act::Quota if request.verb == Verb::Create && request.resource() == trouble.about => {
                    due.before.push(Action::Answer(over_quota(request)));
                }
                Act::Refusals if happens => {
                    let code = [429, 500, 503, 504, 401][self.rng.usize(..5)];
                    due.before.push(Action::Answer(Answer::code(code)));
                }
                Act::Isolation if request.client == trouble.about => due.before.push(Action::Drop),
                Act::LostRequests if happens => due.before.push(Action::Drop),
                Act::LateRequests if happens && is_work(request) && request.verb.writes() && !is_once(request) => {
                    held += Duration::from_millis(self.rng.u64(LATE));
                    self.late.push((now + held, request.clone()));
                    self.lose(now + held, request);
                    due.before.push(Action::Drop);
                }
                Act::LostAnswers if happens && request.verb != Verb::Watch => {
                    due.after.push(Action::Drop);
                    self.lose(now, request);
                }
                Act::SlowRequests => {
                    let longest = Duration::from_millis(Rng::with_seed(trouble.seed).u64(10..8_000));
                    let side = if self.rng.bool() { &mut due.before } else { &mut due.after };
                    let pause = longest.mul_f64(self.rng.f64());
                    side.push(Action::Delay(pause));
                    held += pause;
                }
                _ => continue,
            }
            self.suffer(now, trouble.act, held);
        }
        self.disturb_answer(now, request, &mut due);
        let is_work = is_work(request);
        let now: Vec<_> = self.armed.extract_if(.., |armed| armed.acts_at(request, is_work)).collect();
        for armed in now.into_iter().rev() {
            let side = match armed.phase {
                Phase::AnyTime | Phase::BeforeHandling => &mut due.before,
                Phase::BeforeAnswer => &mut due.after,
                Phase::BeforeDelivery => &mut due.delivered,
            };
            side.insert(0, Action::Signal(format!("{} {}", armed.number, request.client)));
        }
        due
    }

    /// Decides what happens to a watch event.
    fn frame(&mut self, now: Duration, watch: &RequestInfo) -> Vec<Action> {
        let (mut actions, mut late) = (Vec::new(), Duration::ZERO);
        let acts = [Act::LateEvents, Act::WatchesEnd, Act::WatchesExpire];
        for trouble in self.troubles(now, &acts).into_iter().filter(|trouble| trouble.about == watch.resource()) {
            actions.push(match trouble.act {
                Act::LateEvents => {
                    let pause = Duration::from_millis(Rng::with_seed(trouble.seed).u64(10..20_000));
                    late += pause;
                    Action::Delay(pause)
                }
                Act::WatchesEnd => Action::Cut(0),
                _ => Action::Gone,
            });
            self.suffer(now, trouble.act, late);
        }
        self.disturb_event(now, watch, &mut actions);
        actions
    }
}

impl Faults for Network {
    fn on_request(&self, request: &RequestInfo) -> Due {
        let mut text = format!("{} ▶ {} {}", request.client, request.verb.as_str(), request.resource());
        if !request.subresource.is_empty() {
            write!(text, "/{}", request.subresource).ok();
        }
        write!(text, " {}/{}", request.namespace, name(request)).ok();
        if !request.body.is_empty() && !request.resource().starts_with("leases") {
            write!(text, " {}", String::from_utf8_lossy(&request.body)).ok();
        }
        self.trace.note(text);
        if !request.client.starts_with(OPERATOR) {
            return Due::default();
        }
        let due = self.state().request(self.trace.now(), request);
        if due != Due::default() {
            self.trace.note(format!("  disturbed: {due:?}"));
        }
        due
    }

    fn on_frame(&self, watch: &RequestInfo, frame: &Frame) -> Vec<Action> {
        let object = format!("{}/{}", frame.namespace, frame.name);
        self.trace.note(format!("{} ◀ {} {} {object}", watch.client, frame.type_, watch.resource()));
        if !watch.client.starts_with(OPERATOR) || frame.type_ == "BOOKMARK" {
            return Vec::new();
        }
        let actions = self.state().frame(self.trace.now(), watch);
        if !actions.is_empty() {
            self.trace.note(format!("  disturbed: {actions:?}"));
        }
        actions
    }

    fn signal(&self, name: &str) -> Signalled {
        let (number, client) = name.split_once(' ').unwrap_or((name, ""));
        match (self.perform.upgrade(), number.parse()) {
            (Some(perform), Ok(number)) => perform(number, number_of(client)),
            _ => Box::pin(async {}),
        }
    }
}

/// Whether a reconcile sends the request.
fn is_work(request: &RequestInfo) -> bool {
    !matches!(request.verb, Verb::Watch | Verb::List) && !request.resource().starts_with("events") && !is_lease(request)
}

/// Whether the request creates what must not be created twice. The operator gives a late request up and sends it again, and the object
/// may be deleted before the late one arrives. Then nothing tells the API server that it comes too late: a Job would run twice, which
/// the checks forbid.
fn is_once(request: &RequestInfo) -> bool {
    request.verb == Verb::Create && request.resource() == "jobs.batch"
}

/// The number of the process with this client name.
fn number_of(client: &str) -> Option<usize> {
    client.strip_prefix(OPERATOR)?.strip_prefix('-')?.parse().ok()
}

/// The name of the object that a request concerns.
fn name(request: &RequestInfo) -> String {
    model_apiserver::signature(request).name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbance_that_has_met_nothing_yet_is_no_trouble() {
        let perform: Arc<Perform> = Arc::new(|_, _| Box::pin(async {}) as Signalled);
        let network = Network::new(0, Trace::new(), &perform);
        let (at, phase, act) = (Duration::ZERO, Phase::AnyTime, Act::Refusals);
        network.begin(&Disturbance { at, phase, act, object: 0, seed: 0 }, String::new());
        assert!(network.is_calm_for(Duration::ZERO) && network.suffered() == 0);
    }

    #[test]
    fn writes_outside_the_cluster_are_among_the_writes_that_only_the_leader_may_send() {
        let perform: Arc<Perform> = Arc::new(|_, _| Box::pin(async {}) as Signalled);
        let network = Network::new(0, Trace::new(), &perform);
        network.sends_write("operator-1");
        let writes = network.take_writes();
        assert!(matches!(&writes[..], [(_, process)] if process == "operator-1"), "{writes:?}");
    }

    #[test]
    fn processes_are_numbered() {
        assert_eq!(number_of(&crate::stage::process(2)), Some(2));
        assert_eq!(number_of("user"), None);
    }
}

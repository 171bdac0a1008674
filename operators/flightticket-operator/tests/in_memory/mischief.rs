//! Fault injection: decides which request meets which fault. Requests to the API server and to the provider form one sequence.

use std::{
    collections::BTreeMap,
    fmt,
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fault_plan::{Action, Due};
use flightticket_operator::booking::{Failure, Transport};
use futures::future::BoxFuture;
use http::{Request, Response};
use model_apiserver::{Faults, RequestInfo, Verb};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::airline::Airline;

/// Delay after which a late request takes effect.
const LATE: Duration = Duration::from_secs(3);

/// The point at which the fault occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    NotSent,
    AnswerLost,
    Answered,
}

/// What happens to the process that has sent the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// It dies.
    Crash,
    /// Another process takes over, and this one continues for a while without noticing.
    Leader,
    /// It continues. A request that was not sent arrives late, and an answered one arrives twice.
    Retry,
}

pub(crate) const POINTS: [Point; 3] = [Point::NotSent, Point::AnswerLost, Point::Answered];
pub(crate) const REACTIONS: [Reaction; 3] = [Reaction::Crash, Reaction::Leader, Reaction::Retry];

/// One fault of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The request, counted from 0.
    pub(crate) request: usize,
    pub(crate) point: Point,
    pub(crate) reaction: Reaction,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} {:?} {:?}", self.request, self.point, self.reaction)
    }
}

/// An event that ends or starts processes.
#[derive(Debug)]
pub(crate) enum Event {
    Killed(String),
    Another,
}

/// Injects the faults. Clones share their state.
#[derive(Clone)]
pub(crate) struct Mischief(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    alive: Mutex<BTreeMap<String, Arc<AtomicBool>>>,
    events: UnboundedSender<Event>,
}

#[derive(Default)]
struct State {
    plan: Option<Plan>,
    /// If set, one in this many requests meets a random fault.
    random: Option<(fastrand::Rng, u32)>,
    requests: Vec<String>,
    /// Number of injected faults, by kind.
    done: BTreeMap<String, u32>,
}

impl Mischief {
    pub(crate) fn new() -> (Self, UnboundedReceiver<Event>) {
        let (events, told) = unbounded_channel();
        (Self(Arc::new(Inner { state: Mutex::default(), alive: Mutex::default(), events })), told)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("the lock is not poisoned")
    }

    pub(crate) fn set_plan(&self, plan: Plan) {
        self.state().plan = Some(plan);
    }

    /// Injects a random fault into one in this many requests from now on; into none with `None`.
    pub(crate) fn set_random(&self, random: Option<(fastrand::Rng, u32)>) {
        self.state().random = random;
    }

    /// Returns the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    pub(crate) fn done(&self) -> BTreeMap<String, u32> {
        self.state().done.clone()
    }

    /// Registers a new process. The flag becomes false when a fault kills it.
    pub(crate) fn born(&self, process: &str) -> Arc<AtomicBool> {
        let alive = Arc::new(AtomicBool::new(true));
        self.0.alive.lock().expect("the lock is not poisoned").insert(process.to_owned(), alive.clone());
        alive
    }

    fn kill(&self, process: &str) {
        let alive = self.0.alive.lock().expect("the lock is not poisoned");
        if alive[process].swap(false, Ordering::Relaxed) {
            drop(self.0.events.send(Event::Killed(process.to_owned())));
        }
    }

    fn react(&self, reaction: Reaction, process: &str) {
        match reaction {
            Reaction::Crash => self.kill(process),
            Reaction::Leader => drop(self.0.events.send(Event::Another)),
            Reaction::Retry => {}
        }
    }

    /// Counts a request. Returns the fault that it meets, if any.
    fn strike(&self, request: String) -> Option<(Point, Reaction)> {
        let mut state = self.state();
        let number = state.requests.len();
        let words = request.split(' ').take(2).collect::<Vec<_>>().join(" ");
        state.requests.push(request);
        let planned = state.plan.filter(|plan| plan.request == number).map(|plan| (plan.point, plan.reaction));
        let struck = planned.or_else(|| {
            let (random, one_in) = state.random.as_mut()?;
            (random.u32(..*one_in) == 0).then(|| (POINTS[random.usize(..3)], REACTIONS[random.usize(..3)]))
        });
        if let Some((point, reaction)) = struck {
            *state.done.entry(format!("{words} {point:?} {reaction:?}")).or_default() += 1;
        }
        struck
    }

    /// Returns the transport of this process to the provider.
    pub(crate) fn line(&self, process: &str, airline: Airline) -> Line {
        let alive = self.0.alive.lock().expect("the lock is not poisoned")[process].clone();
        Line { mischief: self.clone(), process: process.to_owned(), alive, airline }
    }
}

/// Injects faults into requests to the API server.
impl Faults for Mischief {
    fn on_request(&self, request: &RequestInfo) -> Due {
        let is_ours = request.client.starts_with("process") && request.plural != "events";
        if !is_ours || matches!(request.verb, Verb::List | Verb::Watch) {
            return Due::default();
        }
        let what = if request.subresource.is_empty() { "" } else { "/status" };
        let Some((point, reaction)) = self.strike(format!("{} ticket{what} {}", request.verb.as_str(), request.name))
        else {
            return Due::default();
        };
        let signal = match reaction {
            Reaction::Crash => vec![Action::Signal(request.client.clone())],
            Reaction::Leader => vec![Action::Signal("another".to_owned())],
            Reaction::Retry => vec![],
        };
        let lost = signal.iter().cloned().chain([Action::Drop]).collect();
        match point {
            Point::NotSent => Due { before: lost, ..Due::default() },
            Point::AnswerLost => Due { after: lost, ..Due::default() },
            Point::Answered if reaction == Reaction::Retry => Due { before: vec![Action::Duplicate], ..Due::default() },
            Point::Answered => Due { delivered: signal, ..Due::default() },
        }
    }

    fn signal(&self, name: &str) -> BoxFuture<'static, ()> {
        if name == "another" {
            self.react(Reaction::Leader, "");
            return Box::pin(async {});
        }
        self.kill(name);
        Box::pin(pending())
    }
}

/// The transport of one process to the provider.
pub(crate) struct Line {
    mischief: Mischief,
    process: String,
    alive: Arc<AtomicBool>,
    airline: Airline,
}

/// How long the provider takes for an answer.
const LATENCY: Duration = Duration::from_millis(20);
/// How long the operator waits for an answer.
const LIMIT: Duration = Duration::from_secs(20);

impl Transport for Line {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, Failure>> {
        Box::pin(async move {
            self.lives().await;
            tokio::time::sleep(LATENCY).await;
            if self.airline.is_silent(&request) {
                tokio::time::sleep(LIMIT).await;
                return Err(Failure::Late { phase: "answer", after: LIMIT });
            }
            let broken = || Err(Failure::Broken("the connection was reset".to_owned()));
            let struck = self.mischief.strike(format!("{} provider {}", request.method(), request.uri().path()));
            let Some((point, reaction)) = struck else { return Ok(self.airline.handle(&request)) };
            if point == Point::NotSent {
                self.mischief.react(reaction, &self.process);
                if reaction == Reaction::Retry {
                    // The hard case: the request arrives when the operator no longer waits for it.
                    let airline = self.airline.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(LATE).await;
                        airline.handle(&request);
                    });
                }
                self.lives().await;
                return broken();
            }
            let mut answer = self.airline.handle(&request);
            self.mischief.react(reaction, &self.process);
            match (point, reaction) {
                (Point::AnswerLost, _) => {
                    self.lives().await;
                    return broken();
                }
                (_, Reaction::Retry) => answer = self.airline.handle(&request),
                _ => {}
            }
            Ok(answer)
        })
    }
}

impl Line {
    /// Returns only if the process is alive: a dead process sends nothing and receives nothing.
    async fn lives(&self) {
        if !self.alive.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }
}

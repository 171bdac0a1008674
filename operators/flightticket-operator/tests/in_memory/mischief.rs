//! What goes wrong, at which request: those to the API server and those to the provider are counted as one sequence.

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

/// A request that is held up on its way takes effect so late.
const LATE: Duration = Duration::from_secs(3);

/// How far a request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    NotSent,
    AnswerLost,
    Answered,
}

/// What happens to the process that has sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// It dies.
    Crash,
    /// Another one takes over, and it goes on for a while without knowing.
    Leader,
    /// It lives on with what it has been told. A request that was not answered comes late, and one that was comes twice.
    Retry,
}

pub(crate) const POINTS: [Point; 3] = [Point::NotSent, Point::AnswerLost, Point::Answered];
pub(crate) const REACTIONS: [Reaction; 3] = [Reaction::Crash, Reaction::Leader, Reaction::Retry];

/// One thing that goes wrong in a life.
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

/// What happens to processes.
#[derive(Debug)]
pub(crate) enum Event {
    Killed(String),
    Another,
}

/// Decides what goes wrong. A clone is the same one.
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
    /// Of so many requests one meets with something.
    random: Option<(fastrand::Rng, u32)>,
    requests: Vec<String>,
    /// What has gone wrong, by sort.
    done: BTreeMap<String, u32>,
}

impl Mischief {
    pub(crate) fn new() -> (Self, UnboundedReceiver<Event>) {
        let (events, told) = unbounded_channel();
        (Self(Arc::new(Inner { state: Mutex::default(), alive: Mutex::default(), events })), told)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nobody has panicked")
    }

    pub(crate) fn set_plan(&self, plan: Plan) {
        self.state().plan = Some(plan);
    }

    /// From now on things go wrong with one request in so many; with none if that is `None`.
    pub(crate) fn set_random(&self, random: Option<(fastrand::Rng, u32)>) {
        self.state().random = random;
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    pub(crate) fn done(&self) -> BTreeMap<String, u32> {
        self.state().done.clone()
    }

    /// A process of this name begins.
    pub(crate) fn born(&self, process: &str) -> Arc<AtomicBool> {
        let alive = Arc::new(AtomicBool::new(true));
        self.0.alive.lock().expect("nobody has panicked").insert(process.to_owned(), alive.clone());
        alive
    }

    fn kill(&self, process: &str) {
        let alive = self.0.alive.lock().expect("nobody has panicked");
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

    /// What happens to the request that is sent now.
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

    /// The way of this process to the provider.
    pub(crate) fn line(&self, process: &str, airline: Airline) -> Line {
        let alive = self.0.alive.lock().expect("nobody has panicked")[process].clone();
        Line { mischief: self.clone(), process: process.to_owned(), alive, airline }
    }
}

/// For the requests to the API server.
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

/// The way of one process to the provider.
pub(crate) struct Line {
    mischief: Mischief,
    process: String,
    alive: Arc<AtomicBool>,
    airline: Airline,
}

/// How long the provider takes.
const LATENCY: Duration = Duration::from_millis(20);

impl Transport for Line {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, Failure>> {
        Box::pin(async move {
            self.lives().await;
            tokio::time::sleep(LATENCY).await;
            let broken = || Err(Failure::Broken("the connection was reset".to_owned()));
            let struck = self.mischief.strike(format!("{} provider {}", request.method(), request.uri().path()));
            let Some((point, reaction)) = struck else { return Ok(self.airline.handle(&request)) };
            if point == Point::NotSent {
                self.mischief.react(reaction, &self.process);
                if reaction == Reaction::Retry {
                    // Worse than never: it comes when nobody waits for it any more.
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
    /// A process that is dead asks nothing and hears nothing.
    async fn lives(&self) {
        if !self.alive.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }
}

//! Tracks what a connection is doing, and how long it may stay in that state.
//!
//! The task of a connection polls the deadline. A request of HTTP/2 has a task of its own, so each step of a request also wakes
//! the task of the connection.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Context,
    time::Duration,
};

use futures::task::AtomicWaker;
use http::StatusCode;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Dropped, Limits, budget::Permit, origin::Origin};

/// After the stop, how long a connection without any input stays open: its first request may be on its way.
const LAST_CHANCE: Duration = Duration::from_secs(1);

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In the TLS handshake, which has a time limit of its own.
    Handshake,
    /// The client has sent nothing yet.
    New,
    /// A part of a request's head has arrived.
    Head,
    /// Requests are in progress.
    Busy,
    /// Between two requests.
    Idle,
}

/// The state of a request: who has to act next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The client sends the body.
    Receiving,
    /// The handler works.
    Working,
    /// The client has to take a piece of the answer.
    Answering,
}

#[derive(Debug)]
struct InFlight {
    step: Step,
    since: Instant,
    /// Bytes of memory.
    share: usize,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Since when there has been no request, also if the head of one has begun to arrive.
    waiting: Instant,
    in_flight: HashMap<u64, InFlight>,
    /// The number of the last request.
    last: u64,
    /// Requests in a row that the client gave up.
    given_up: usize,
    /// Since when output waits to be written.
    unwritten: Option<Instant>,
    /// Since when the server drains.
    draining: Option<Instant>,
}

/// The state of one connection, shared by its task, its transport and its requests.
#[derive(Debug)]
pub(crate) struct Activity {
    state: Mutex<State>,
    /// The task of the connection.
    task: AtomicWaker,
    /// Whether a request waits for memory.
    waits: AtomicBool,
    /// Whose share of the server the connection uses.
    pub(crate) origin: Origin,
    /// Cancelled when the connection must end at once.
    pub(crate) cut: CancellationToken,
}

impl Activity {
    pub(crate) fn new(origin: Origin) -> Self {
        let now = Instant::now();
        let state = State {
            phase: Phase::Handshake,
            since: now,
            waiting: now,
            in_flight: HashMap::new(),
            last: 0,
            given_up: 0,
            unwritten: None,
            draining: None,
        };
        Self {
            state: Mutex::new(state),
            task: AtomicWaker::new(),
            waits: AtomicBool::new(false),
            origin,
            cut: CancellationToken::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The handshake is complete, or the connection has none.
    pub(crate) fn connected(&self) {
        self.state().enter(Phase::New);
    }

    /// Input of HTTP/1 has arrived.
    pub(crate) fn read(&self) {
        let mut state = self.state();
        if matches!(state.phase, Phase::New | Phase::Idle) {
            state.enter(Phase::Head);
        }
    }

    /// Output waits to be written, or all of it has left.
    pub(crate) fn unwritten(&self, waits: bool) {
        let mut state = self.state();
        if waits {
            state.unwritten.get_or_insert_with(Instant::now);
        } else {
            state.unwritten = None;
        }
    }

    /// The connection must end soon. Returns whether it stays open for its first request, for a moment.
    pub(crate) fn drain(&self) -> bool {
        let mut state = self.state();
        state.draining = Some(Instant::now());
        state.phase == Phase::New
    }

    /// When the connection must end if nothing happens before, and why. The next step of a request wakes the caller.
    pub(crate) fn deadline(&self, limits: &Limits, context: &Context<'_>) -> Option<(Instant, Dropped)> {
        self.task.register(context.waker());
        let state = self.state();
        let waited = match state.phase {
            Phase::Handshake | Phase::Busy => None,
            Phase::New => {
                let last_chance = state.draining.map(|since| since + LAST_CHANCE);
                last_chance.into_iter().chain([state.since + limits.header_read]).min()
            }
            Phase::Head => Some(state.since + limits.header_read),
            Phase::Idle => Some(state.since + limits.idle),
        };
        let untaken = state.in_flight.values().filter(|it| it.step == Step::Answering).map(|it| it.since);
        let unread = state.unwritten.into_iter().chain(untaken).min();
        let unread = unread.map(|since| (since + limits.write, Dropped::Unread));
        let waited = waited.map(|at| (at, Dropped::Waited));
        waited.into_iter().chain(unread).min_by_key(|(at, _)| *at)
    }

    /// Begins a request. It ends when the returned value is dropped, which its body and its answer own.
    pub(crate) fn begin(self: &Arc<Self>) -> Arc<Exchange> {
        let mut state = self.state();
        state.last += 1;
        let id = state.last;
        state.in_flight.insert(id, InFlight { step: Step::Working, since: Instant::now(), share: 0 });
        state.enter(Phase::Busy);
        drop(state);
        Arc::new(Exchange { activity: self.clone(), id, share: Mutex::default() })
    }

    /// Requests in a row that the client has given up.
    pub(crate) fn given_up(&self) -> usize {
        self.state().given_up
    }

    /// Since when the connection has waited for its client: without a request, or with a request that waits for it. `None` while
    /// all its requests are at work.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        let state = self.state();
        if state.phase != Phase::Busy {
            return Some(state.waiting);
        }
        state.in_flight.values().filter(|it| it.step != Step::Working).map(|it| it.since).min()
    }

    /// Bytes of memory that all requests of the connection hold.
    pub(crate) fn memory(&self) -> usize {
        self.state().in_flight.values().map(|it| it.share).sum()
    }

    /// The largest share among the requests that have waited for the client since this time, and since when it has waited.
    pub(crate) fn stuck_since(&self, time: Instant) -> Option<(usize, Instant)> {
        let state = self.state();
        let stuck = state.in_flight.values().filter(|it| it.step != Step::Working && it.since <= time);
        stuck.map(|it| (it.share, it.since)).max_by_key(|(share, _)| *share)
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
    }
}

/// A request in progress, with its share of the memory.
#[derive(Debug)]
pub(crate) struct Exchange {
    activity: Arc<Activity>,
    id: u64,
    share: Mutex<Share>,
}

#[derive(Debug, Default)]
struct Share {
    permit: Option<Permit>,
    is_answered: bool,
    /// The status to answer instead of the handler's.
    refused: Option<StatusCode>,
}

impl Exchange {
    /// Notes a step, and wakes the task of the connection. Receiving counts from its beginning, so a trickle is no progress.
    pub(crate) fn enter(&self, step: Step) {
        let mut state = self.activity.state();
        if let Some(it) = state.in_flight.get_mut(&self.id)
            && (it.step != step || step == Step::Answering)
        {
            (it.step, it.since) = (step, Instant::now());
        }
        drop(state);
        self.activity.task.wake();
    }

    /// The connection of the request.
    pub(crate) fn connection(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Whether no request of the connection waits for memory.
    pub(crate) fn can_wait(&self) -> bool {
        !self.activity.waits.load(Ordering::Relaxed)
    }

    /// Marks that a request of the connection waits for memory, until the returned value is dropped. `None` if another one waits.
    pub(crate) fn wait(&self) -> Option<Waits<'_>> {
        let waits = &self.activity.waits;
        (!waits.swap(true, Ordering::Relaxed)).then_some(Waits(waits))
    }

    /// The server cannot read the whole request, and answers with this status.
    pub(crate) fn refuse(&self, status: StatusCode) {
        self.share.lock().refused = Some(status);
    }

    /// There is an answer: the client has not given up the request. Returns the status if the server has to refuse the request.
    pub(crate) fn answered(&self) -> Option<StatusCode> {
        let mut share = self.share.lock();
        share.is_answered = true;
        share.refused
    }

    /// Bytes of memory that the request holds.
    pub(crate) fn share(&self) -> usize {
        self.share.lock().permit.as_ref().map_or(0, Permit::bytes)
    }

    /// Adds to the share of the request, which is given back when the request ends.
    pub(crate) fn keep(&self, more: Permit) {
        let mut share = self.share.lock();
        match &mut share.permit {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        let bytes = share.permit.as_ref().map_or(0, Permit::bytes);
        if let Some(it) = self.activity.state().in_flight.get_mut(&self.id) {
            it.share = bytes;
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        state.in_flight.remove(&self.id);
        state.given_up = if self.share.get_mut().is_answered { 0 } else { state.given_up + 1 };
        let phase = if state.in_flight.is_empty() { Phase::Idle } else { Phase::Busy };
        state.enter(phase);
        state.waiting = state.since;
        drop(state);
        self.activity.task.wake();
    }
}

/// A request waits for memory.
pub(crate) struct Waits<'a>(&'a AtomicBool);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

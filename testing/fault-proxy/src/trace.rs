//! Records all requests and events that pass the proxy.

use std::{collections::HashSet, fmt};

use bytes::Bytes;
use fault_plan::{Action, Frame, Request};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::watch, time::Instant};

/// Everything that has passed since the proxy began, or since [`clear`](crate::FaultProxy::clear).
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The requests, in the order of their arrival.
    pub exchanges: Vec<Exchange>,
    /// The events of all watches, in the order of their arrival from the server.
    pub frames: Vec<SeenFrame>,
}

/// One request and its answers.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The time of arrival.
    pub at: Instant,
    /// The request.
    pub request: Request,
    /// The request's body.
    pub body: Bytes,
    /// The status codes of the server's answers. There are several if the plan repeats the request.
    pub served: Vec<u16>,
    /// The status code of the answer to the client; `None` if there is no answer (yet).
    pub told: Option<u16>,
    /// The faults that the plan applied.
    pub faults: Vec<Action>,
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub struct SeenFrame {
    /// The time of arrival.
    pub at: Instant,
    /// The request of the watch.
    pub watch: Request,
    /// The event.
    pub frame: Frame,
    /// The faults that the plan applied.
    pub faults: Vec<Action>,
}

impl Trace {
    /// The requests, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.exchanges.iter().map(|exchange| exchange.request.clone()).collect()
    }

    /// The requests that write, in order.
    pub fn writes(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(|exchange| exchange.request.is_write())
    }
}

impl fmt::Display for Trace {
    /// One line for each request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exchanges.iter().try_for_each(|exchange| writeln!(f, "{exchange}"))
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codes = |codes: &[u16]| codes.iter().map(u16::to_string).collect::<Vec<_>>().join(" and ");
        let or_nothing = |text: String| if text.is_empty() { "nothing".to_owned() } else { text };
        let (served, told) = (codes(&self.served), codes(self.told.as_slice()));
        write!(f, "{}: served {}, told {}", self.request, or_nothing(served), or_nothing(told))?;
        self.faults.iter().try_for_each(|fault| write!(f, ", {fault}"))
    }
}

/// Records the trace, and which client wrote which version of an object.
#[derive(Debug)]
pub(crate) struct Recorder {
    trace: Mutex<Trace>,
    /// A counter that increases when the trace is cleared. Late changes to requests of earlier epochs are ignored.
    epoch: Mutex<u64>,
    /// The identities of clients, with the versions of the objects that they wrote.
    written: Mutex<HashSet<(String, String)>>,
    /// The number of writes that the server has not answered yet.
    in_flight: watch::Sender<usize>,
}

/// The position of an exchange in the trace of one epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    epoch: u64,
    index: usize,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            trace: Mutex::default(),
            epoch: Mutex::default(),
            written: Mutex::default(),
            in_flight: watch::Sender::new(0),
        }
    }
}

impl Recorder {
    pub(crate) fn trace(&self) -> Trace {
        lock(&self.trace).clone()
    }

    pub(crate) fn drain(&self) -> Trace {
        let mut trace = lock(&self.trace);
        *lock(&self.epoch) += 1;
        std::mem::take(&mut *trace)
    }

    pub(crate) fn begin(&self, request: &Request, body: &Bytes, faults: Vec<Action>) -> Entry {
        let exchange = Exchange {
            at: Instant::now(),
            request: request.clone(),
            body: body.clone(),
            served: Vec::new(),
            told: None,
            faults,
        };
        let mut trace = lock(&self.trace);
        trace.exchanges.push(exchange);
        Entry { epoch: *lock(&self.epoch), index: trace.exchanges.len() - 1 }
    }

    pub(crate) fn change(&self, entry: Entry, change: impl FnOnce(&mut Exchange)) {
        let mut trace = lock(&self.trace);
        if entry.epoch == *lock(&self.epoch)
            && let Some(exchange) = trace.exchanges.get_mut(entry.index)
        {
            change(exchange);
        }
    }

    pub(crate) fn saw(&self, watch: &Request, frame: &Frame, faults: &[Action]) {
        let seen =
            SeenFrame { at: Instant::now(), watch: watch.clone(), frame: frame.clone(), faults: faults.to_vec() };
        lock(&self.trace).frames.push(seen);
    }

    pub(crate) fn write_begins(&self) {
        self.in_flight.send_modify(|writes| *writes += 1);
    }

    /// Records that the server has answered a write with this version of the object, or has failed.
    pub(crate) fn write_ends(&self, identity: &str, version: Option<String>) {
        if let Some(version) = version {
            lock(&self.written).insert((identity.to_owned(), version));
        }
        self.in_flight.send_modify(|writes| *writes -= 1);
    }

    /// Whether the client `identity` wrote this version. First waits for the answers of all writes in flight, because the event
    /// of a write may arrive before its answer.
    pub(crate) async fn wrote(&self, identity: &str, version: &str) -> bool {
        // The sender lives in `self`, so waiting cannot fail.
        drop(self.in_flight.subscribe().wait_for(|writes| *writes == 0).await);
        lock(&self.written).contains(&(identity.to_owned(), version.to_owned()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

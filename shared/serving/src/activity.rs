//! Tracks what a connection is doing, and how long it may stay in that state.
//!
//! The task of a connection reads, writes and polls the deadline. So every event that moves the deadline also wakes that task.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{Dropped, Limits, Observer};

/// After the stop, how long a connection without any input stays open: its first request may be on its way.
const LAST_CHANCE: Duration = Duration::from_secs(1);

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// In the TLS handshake, which has a time limit of its own.
    Handshake,
    /// The client has sent nothing yet.
    New,
    /// A part of a request's head has arrived.
    Head,
    /// This number of requests is in progress.
    Busy(usize),
    /// Between two requests.
    Idle,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Since when output waits to be written.
    unwritten: Option<Instant>,
    /// Since when the server drains.
    draining: Option<Instant>,
}

/// The state of one connection, shared by its task and its transport.
#[derive(Debug)]
pub(crate) struct Activity {
    state: Mutex<State>,
    /// Cancelled when the connection must end at once.
    pub(crate) cut: CancellationToken,
}

impl Activity {
    fn new() -> Self {
        let state = State { phase: Phase::Handshake, since: Instant::now(), unwritten: None, draining: None };
        Self { state: Mutex::new(state), cut: CancellationToken::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The handshake is complete, or the connection has none.
    pub(crate) fn connected(&self) {
        self.state().enter(Phase::New);
    }

    /// The connection must end soon. Returns whether it stays open for its first request, for a moment.
    pub(crate) fn drain(&self) -> bool {
        let mut state = self.state();
        state.draining = Some(Instant::now());
        state.phase == Phase::New
    }

    /// When the connection must end if nothing happens before, and why.
    pub(crate) fn deadline(&self, limits: &Limits) -> Option<(Instant, Dropped)> {
        let state = self.state();
        let waited = match state.phase {
            Phase::Handshake | Phase::Busy(_) => None,
            Phase::New => {
                let last_chance = state.draining.map(|since| since + LAST_CHANCE);
                last_chance.into_iter().chain([state.since + limits.header_read]).min()
            }
            Phase::Head => Some(state.since + limits.header_read),
            Phase::Idle => Some(state.since + limits.idle),
        };
        let unread = state.unwritten.map(|since| (since + limits.write, Dropped::Unread));
        let waited = waited.map(|at| (at, Dropped::Waited));
        waited.into_iter().chain(unread).min_by_key(|(at, _)| *at)
    }

    /// Marks the beginning of a request. The request ends when the returned value, which the response body owns, is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        let mut state = self.state();
        let others = if let Phase::Busy(others) = state.phase { others } else { 0 };
        state.enter(Phase::Busy(others + 1));
        drop(state);
        Busy(self.clone())
    }

    /// Since when the connection has had no request; `None` during a request.
    fn waiting_since(&self) -> Option<Instant> {
        let state = self.state();
        (!matches!(state.phase, Phase::Busy(_))).then_some(state.since)
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
    }
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        match state.phase {
            Phase::Busy(others @ 2..) => state.enter(Phase::Busy(others - 1)),
            _ => state.enter(Phase::Idle),
        }
    }
}

/// A transport that updates the activity of its connection.
pub(crate) struct Watched<T> {
    inner: T,
    activity: Arc<Activity>,
    /// False for HTTP/2, where input need not be a request.
    counts_reads: bool,
}

impl<T> Watched<T> {
    pub(crate) fn new(inner: T, activity: Arc<Activity>, counts_reads: bool) -> Self {
        Self { inner, activity, counts_reads }
    }

    /// `flushed`: whether all output has left.
    fn written<R>(&self, result: Poll<R>, flushed: bool) -> Poll<R> {
        let mut state = self.activity.state();
        if result.is_pending() {
            state.unwritten.get_or_insert_with(Instant::now);
        } else if flushed {
            state.unwritten = None;
        }
        drop(state);
        result
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(context, buffer);
        if self.counts_reads && buffer.filled().len() > before {
            let mut state = self.activity.state();
            if matches!(state.phase, Phase::New | Phase::Idle) {
                state.enter(Phase::Head);
            }
        }
        result
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(context, buffer);
        self.written(result, false)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(context);
        self.written(result, true)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(context);
        self.written(result, true)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(context, buffers);
        self.written(result, false)
    }
}

/// All open connections.
pub(crate) struct Connections {
    limit: usize,
    observer: Arc<dyn Observer>,
    open: Mutex<(u64, HashMap<u64, Arc<Activity>>)>,
}

impl Connections {
    pub(crate) fn new(limit: usize, observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { limit, observer, open: Mutex::default() })
    }

    /// Admits a connection. At the limit, cuts the one that has been without a request for the longest time. Returns `None` if
    /// all connections have a request.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut guard = self.open.lock();
        let (next, open) = &mut *guard;
        if open.len() >= self.limit {
            self.observer.dropped(Dropped::Full);
            let waiting = open.iter().filter_map(|(id, it)| Some((it.waiting_since()?, *id)));
            let (_, longest) = waiting.min()?;
            if let Some(activity) = open.remove(&longest) {
                activity.cut.cancel();
            }
        }
        *next += 1;
        let activity = Arc::new(Activity::new());
        open.insert(*next, activity.clone());
        self.observer.connections(open.len());
        Some(ConnectionSlot { id: *next, activity, connections: self.clone() })
    }

    /// Cuts all connections, and returns their number.
    pub(crate) fn cut(&self) -> usize {
        let guard = self.open.lock();
        guard.1.values().for_each(|activity| activity.cut.cancel());
        guard.1.len()
    }
}

/// The place of a connection among the open ones; dropping it frees the place.
pub(crate) struct ConnectionSlot {
    id: u64,
    pub(crate) activity: Arc<Activity>,
    connections: Arc<Connections>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut guard = self.connections.open.lock();
        guard.1.remove(&self.id);
        self.connections.observer.connections(guard.1.len());
    }
}

//! Transactions on the database: one thread writes, a few connections read.
//!
//! Every change is one transaction on the writer's thread, which answers after the commit. If a client disconnects, its change
//! happens all the same: the client has to send the request again, with the same key, to learn the outcome.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::Mutex;
use prometheus::IntCounter;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tokio::sync::{Semaphore, oneshot};

use crate::{
    booking::Fresh,
    books::Books,
    clock,
    file::{self, OpenError},
    ledger::{self, Airline},
    problem::{Code, Problem},
};

/// Most requests that wait for the writer. A commit takes about a millisecond, so the last one waits well below a time-out.
const QUEUE: usize = 1024;
/// Concurrent reads.
const READERS: usize = 4;
/// How long the writer waits for a job when no booking is to be confirmed.
const IDLE: Duration = Duration::from_hours(1);

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The rules refuse the request.
    Refused(Problem),
    /// The database failed, because of the disk or of a bug.
    Database(rusqlite::Error),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

/// A job for the writer.
enum Job {
    Write(Box<dyn FnOnce(&mut Connection) + Send>),
    Close,
}

/// The database of a running server.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    jobs: SyncSender<Job>,
    idle_readers: Mutex<Vec<Connection>>,
    turns: Arc<Semaphore>,
    turn_of_anyone: Arc<Semaphore>,
    health: Arc<Health>,
    writer_lives: Arc<AtomicBool>,
}

/// The outcome of the last write.
#[derive(Debug)]
struct Health {
    trouble: Mutex<Option<String>>,
    busy: IntCounter,
}

impl Store {
    /// Opens the file and starts the writer, which ends when the store is closed or dropped.
    pub(crate) fn open(path: &Path, busy: IntCounter) -> Result<(Self, JoinHandle<()>), OpenError> {
        let connection = file::for_writing(path)?;
        let (jobs, queue) = sync_channel(QUEUE);
        let health = Arc::new(Health { trouble: Mutex::default(), busy });
        let of_writer = Arc::clone(&health);
        let writer_lives = Arc::new(AtomicBool::new(true));
        let alive = Alive(Arc::clone(&writer_lives));
        let writer = std::thread::spawn(move || {
            write(connection, &queue, &of_writer);
            drop(alive);
        });
        let store = Self {
            path: path.to_owned(),
            jobs,
            idle_readers: Mutex::default(),
            turns: Arc::new(Semaphore::new(READERS)),
            turn_of_anyone: Arc::new(Semaphore::new(1)),
            health,
            writer_lives,
        };
        Ok((store, writer))
    }

    /// Returns a flag that is true while the writer runs.
    pub(crate) fn writer_lives(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.writer_lives)
    }

    /// Ends the writer after the jobs in its queue. Blocks while the queue is full.
    pub(crate) fn close(&self) {
        // The send fails if the writer has already ended.
        drop(self.jobs.send(Job::Close));
    }

    /// Decides within a transaction, and writes the changes. They are on disk when this returns.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        decide: impl FnOnce(Books<'_>) -> Result<ledger::Decision<T>, Failure> + Send + 'static,
    ) -> Result<T, Problem> {
        let (answer, answered) = oneshot::channel();
        let health = Arc::clone(&self.health);
        let job = Job::Write(Box::new(move |connection| {
            let result = transact(connection, decide);
            health.observe(result.as_ref().err());
            // The send fails if the client has disconnected. The change is committed all the same.
            drop(answer.send(result));
        }));
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Problem::unavailable("too many requests are waiting"),
            TrySendError::Disconnected(_) => Problem::unavailable("the server is stopping"),
        })?;
        let result = answered.await.unwrap_or_else(|_| Err(Problem::new(Code::Internal, "the writer failed").into()));
        result.map_err(problem_of)
    }

    /// Reads from a consistent snapshot.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(Books<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Problem> {
        self.read_in_turn(&self.turns, ask).await
    }

    /// Reads from a consistent snapshot, for a client without a token. One such read runs at a time, and takes no turn of
    /// [`read`](Self::read).
    pub(crate) async fn read_for_anyone<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(Books<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Problem> {
        self.read_in_turn(&self.turn_of_anyone, ask).await
    }

    async fn read_in_turn<T: Send + 'static>(
        self: &Arc<Self>,
        turns: &Arc<Semaphore>,
        ask: impl FnOnce(Books<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Problem> {
        // The semaphore is never closed.
        let stopping = |_| Problem::unavailable("the server is stopping");
        let turn = Arc::clone(turns).acquire_owned().await.map_err(stopping)?;
        let store = Arc::clone(self);
        // The read goes on if the client disconnects, so it keeps its turn.
        let read = move || {
            let _turn = turn;
            store.ask(ask)
        };
        let answer = tokio::task::spawn_blocking(read).await;
        answer.unwrap_or_else(|_| Err(Problem::new(Code::Internal, "the read failed").into())).map_err(problem_of)
    }

    fn ask<T>(&self, ask: impl FnOnce(Books<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        let idle = self.idle_readers.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => file::for_reading(&self.path).map_err(|error| Problem::unavailable(error.to_string()))?,
        };
        let transaction = connection.transaction()?;
        let answer = ask(Books(&transaction))?;
        drop(transaction);
        self.idle_readers.lock().push(connection);
        Ok(answer)
    }

    /// Whether writing works. After a failed write, this writes by itself: a server that is not ready gets no requests, so no
    /// other write would notice the recovery.
    pub(crate) async fn check(&self) -> Result<(), String> {
        if self.health.trouble().is_none() {
            return Ok(());
        }
        let pulse = |books: Books<'_>| {
            books.0.execute("UPDATE pulse SET at = ?1", [clock::now().as_millisecond()])?;
            Ok(ledger::Decision { answer: (), changes: Vec::new() })
        };
        self.write(pulse).await.map_err(|problem| problem.detail)
    }
}

/// Runs jobs, and confirms bookings when they are due, until the store is closed.
fn write(mut connection: Connection, queue: &Receiver<Job>, health: &Health) {
    loop {
        match queue.recv_timeout(confirm_due(&mut connection, health)) {
            Ok(Job::Write(job)) => job(&mut connection),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Job::Close) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // Write the log back: then the file alone is the whole database, and can be copied.
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
        tracing::warn!(%error, "The log was not written back; the next start does it");
    }
}

/// Confirms the bookings that are due, and returns how long to wait for the next.
fn confirm_due(connection: &mut Connection, health: &Health) -> Duration {
    loop {
        let due = Books(connection).next_to_confirm();
        let now = clock::now();
        let id = match due {
            Ok(Some((at, id))) if at <= now => id,
            Ok(Some((at, _))) => return Duration::try_from(at.duration_since(now)).unwrap_or_default().min(IDLE),
            Ok(None) => return IDLE,
            Err(error) => {
                health.observe(Some(&Failure::Database(error)));
                return Duration::from_secs(1);
            }
        };
        let confirmed = transact(connection, |books| {
            let booking = books.booking(&id)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
            Ok(ledger::airline(Airline::Confirm, booking, Fresh::draw().confirmation, now)?)
        });
        health.observe(confirmed.as_ref().err());
        if confirmed.is_err() {
            return Duration::from_secs(1);
        }
    }
}

/// Clears the flag when the writer ends, also by a panic.
struct Alive(Arc<AtomicBool>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn transact<T>(
    connection: &mut Connection,
    decide: impl FnOnce(Books<'_>) -> Result<ledger::Decision<T>, Failure>,
) -> Result<T, Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let ledger::Decision { answer, changes } = decide(Books(&transaction))?;
    Books(&transaction).apply(&changes, clock::now())?;
    transaction.commit()?;
    Ok(answer)
}

impl Health {
    fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    fn observe(&self, failure: Option<&Failure>) {
        let trouble = match failure {
            Some(Failure::Database(error)) => Some(error),
            _ => None,
        };
        if trouble.and_then(rusqlite::Error::sqlite_error_code).is_some_and(is_busy) {
            self.busy.inc();
        }
        let trouble = trouble.map(ToString::to_string);
        let mut known = self.trouble.lock();
        match (&*known, &trouble) {
            (None, Some(error)) => tracing::error!(error, "Bookings cannot be written"),
            (Some(_), None) => tracing::info!("Bookings can be written again"),
            _ => {}
        }
        *known = trouble;
    }
}

fn is_busy(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
}

/// Converts a failure to the answer for the client. The database's own message goes only to the log.
fn problem_of(failure: Failure) -> Problem {
    match failure {
        Failure::Refused(problem) => problem,
        Failure::Database(error) => {
            tracing::warn!(%error, "A request failed in the database");
            match error.sqlite_error_code() {
                Some(code) if is_busy(code) => Problem::unavailable("the database is locked"),
                Some(ErrorCode::DiskFull) => Problem::unavailable("the disk is full"),
                Some(ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                    Problem::unavailable("the disk fails")
                }
                _ => Problem::new(Code::Internal, "the database failed; see the log of the server"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn scrapes_take_no_turn_of_the_api() {
        let folder = tempfile::tempdir().unwrap();
        let busy = IntCounter::new("busy", "busy").unwrap();
        let (store, _writer) = Store::open(&folder.path().join("bookings.db"), busy).unwrap();
        let store = Arc::new(store);
        let (go_on, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let scrapes: Vec<_> = (0..2 * READERS)
            .map(|_| {
                let (store, gate) = (store.clone(), gate.clone());
                let wait = move |_: Books<'_>| {
                    let _ = gate.lock().recv();
                    Ok(())
                };
                tokio::spawn(async move { store.read_for_anyone(wait).await })
            })
            .collect();
        for _ in 0..2 * READERS {
            tokio::task::yield_now().await; // every scrape begins
        }
        let read = tokio::time::timeout(Duration::from_secs(30), store.read(|_| Ok(7))).await;
        assert!(matches!(read, Ok(Ok(7))), "a read waits behind scrapes");
        drop(go_on);
        for scrape in scrapes {
            scrape.await.unwrap().unwrap();
        }
    }
}

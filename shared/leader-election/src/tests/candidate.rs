//! A replica that tests can pause, kill and stop, with its own clocks.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use jiff::Timestamp;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::server::{Link, Server};
use crate::{Clock, Config, Elector, Ended, Health, Leadership, Observer, State, StopReason};

/// A clock on tokio's paused time, with its own rate and its own zero.
pub(super) struct TestClock {
    start: Instant,
    offset: Duration,
    rate: f64,
    /// The time of day, in milliseconds since 1970.
    pub(super) wall_offset: AtomicU64,
}

impl TestClock {
    pub(super) fn new(offset: Duration, rate: f64) -> Arc<Self> {
        static CLOCKS: AtomicU64 = AtomicU64::new(0); // no two times of day are equal to the millisecond
        let wall_offset = AtomicU64::new(CLOCKS.fetch_add(1, Ordering::Relaxed));
        Arc::new(Self { start: Instant::now(), offset, rate, wall_offset })
    }
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        self.offset + self.start.elapsed().mul_f64(self.rate)
    }

    /// Stands still, except when a test sets `wall_offset`.
    fn wall(&self) -> Timestamp {
        Timestamp::from_millisecond(i64::try_from(self.wall_offset.load(Ordering::Relaxed)).expect("small"))
            .expect("in range")
    }
}

/// All tokens of a test, shared by its candidates.
#[derive(Clone, Default)]
pub(super) struct Arena {
    tokens: Arc<Mutex<Vec<(String, Leadership)>>>,
    /// The number of terms so far.
    pub(super) terms: Arc<AtomicU64>,
}

impl Arena {
    /// The names of the candidates whose tokens are alive, each by its own clock.
    pub(super) fn leaders(&self) -> Vec<String> {
        let mut tokens = self.tokens.lock().expect("no panic");
        tokens.retain(|(_, token)| token.is_alive());
        tokens.iter().map(|(name, _)| name.clone()).collect()
    }

    fn enter(&self, server: &Server, name: &str, token: &Leadership) {
        self.tokens.lock().expect("no panic").push((name.to_owned(), token.clone()));
        self.terms.fetch_add(1, Ordering::Relaxed);
        let leaders = self.leaders();
        if leaders.len() > 1 {
            server.complain(format!("{leaders:?} lead at once"));
        }
    }
}

/// A replica.
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) link: Link,
    pub(super) clock: Arc<TestClock>,
    pub(super) stop: CancellationToken,
    pub(super) state: tokio::sync::watch::Receiver<State>,
    pub(super) health: Health,
    pub(super) told: Told,
    pub(super) task: JoinHandle<Ended>,
    pause: Arc<Pause>,
}

/// An observer that records what the elector reports.
#[derive(Clone, Default)]
pub(super) struct Told {
    pub(super) stories: Arc<Mutex<Vec<String>>>,
    pub(super) slow_paths: Arc<AtomicU64>,
}

impl Observer for Told {
    fn started_leading(&self, leadership: &Leadership) {
        assert!(leadership.is_alive());
        self.stories.lock().expect("no panic").push(format!("started {}", leadership.epoch().transitions));
    }

    fn stopped_leading(&self, leadership: &Leadership, loss: StopReason) {
        assert!(!leadership.is_alive(), "the token dies first");
        self.stories.lock().expect("no panic").push(format!("stopped {loss:?}"));
    }

    fn slow_path(&self) {
        self.slow_paths.fetch_add(1, Ordering::Relaxed);
    }
}

/// The settings of a candidate.
pub(super) struct Make {
    pub(super) config: Config,
    pub(super) seed: u64,
    pub(super) clock: Arc<TestClock>,
    /// How long the work continues after the end of the leadership or after `stop`.
    pub(super) work_goes_on: Duration,
    /// When set, the work ends by itself after this time.
    pub(super) work_fails: Option<Duration>,
}

impl Make {
    pub(super) fn new(name: &str) -> Self {
        let config = Config { identity: name.to_owned(), ..Config::new("operators", "manager") };
        let clock = TestClock::new(Duration::from_secs(1_000), 1.0);
        Self { config, seed: 1, clock, work_goes_on: Duration::ZERO, work_fails: None }
    }

    pub(super) fn start(self, server: &Server, arena: &Arena) -> Candidate {
        let Self { config, seed, clock, work_goes_on, work_fails } = self;
        let name = config.identity.clone();
        let link = Link::new(seed);
        let told = Told::default();
        let elector = Elector::new(server.client(&name, &link), config)
            .expect("a valid configuration")
            .with_clock(clock.clone())
            .with_seed(seed)
            .observed_by(told.clone());
        let (state, health) = (elector.state(), elector.health());
        let stop = CancellationToken::new();
        let pause = Arc::new(Pause::default());
        let work = {
            let (stop, server, arena, name) = (stop.clone(), server.clone(), arena.clone(), name.clone());
            move |leadership: Leadership| {
                let (stop, server, arena, name) = (stop.clone(), server.clone(), arena.clone(), name.clone());
                server.working(&name, true);
                arena.enter(&server, &name, &leadership);
                async move {
                    tokio::select! {
                        () = leadership.lost() => {}
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(work_fails.unwrap_or_default()), if work_fails.is_some() => {}
                    }
                    tokio::time::sleep(work_goes_on).await;
                    server.working(&name, false);
                }
            }
        };
        let running = Pausable { inner: Box::pin(elector.run(stop.clone(), work)), pause: pause.clone() };
        Candidate { name, link, clock, stop, state, health, told, task: tokio::spawn(running), pause }
    }
}

impl Candidate {
    /// Pauses the process, like `kill -STOP`. Its clock continues.
    pub(super) fn pause(&self) {
        self.pause.paused.store(true, Ordering::SeqCst);
    }

    /// Resumes the process, like `kill -CONT`.
    pub(super) fn resume(&self) {
        self.pause.paused.store(false, Ordering::SeqCst);
        if let Some(waker) = self.pause.waker.lock().expect("no panic").take() {
            waker.wake();
        }
    }

    /// Kills the process, like `kill -KILL`. It does not release the lease.
    pub(super) async fn kill(self, server: &Server) {
        self.task.abort();
        drop(self.task.await);
        server.working(&self.name, false);
    }

    pub(super) fn leads(&self) -> bool {
        matches!(&*self.state.borrow(), State::Leading(token) if token.is_alive())
    }

    pub(super) fn token(&self) -> Option<Leadership> {
        match &*self.state.borrow() {
            State::Leading(token) => Some(token.clone()),
            State::Standby => None,
        }
    }

    /// Waits until it leads. Returns how long that took.
    pub(super) async fn until_leading(&self) -> Duration {
        let start = Instant::now();
        let mut state = self.state.clone();
        let leads = state.wait_for(|state| matches!(state, State::Leading(_)));
        drop(tokio::time::timeout(Duration::from_mins(5), leads).await.expect("leads within five minutes"));
        start.elapsed()
    }
}

#[derive(Default)]
struct Pause {
    paused: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

struct Pausable<F> {
    inner: Pin<Box<F>>,
    pause: Arc<Pause>,
}

impl<F: Future> Future for Pausable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.pause.paused.load(Ordering::SeqCst) {
            *self.pause.waker.lock().expect("no panic") = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.inner.as_mut().poll(context)
    }
}

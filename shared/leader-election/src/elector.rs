//! The election loop. It passes answers, events and time to the core, and carries out the core's decisions.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::BoxStream,
};
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    BootClock, Clock, Config, ConfigError, Epoch, Health, Leadership, Observer, StopReason,
    clock::Moment,
    core::{Answer, Core, Role, Step},
    requests::{Event, Requests},
};

/// A candidate for one lease.
#[must_use = "an elector does nothing until it runs"]
pub struct Elector {
    config: Config,
    client: Client,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    state: watch::Sender<State>,
    health: Health,
    random: fastrand::Rng,
}

/// Whether this process leads.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum State {
    /// It does not lead.
    #[default]
    Standby,
    /// It leads, as long as the token is alive: check the token, not the state.
    Leading(Leadership),
}

/// Why [`Elector::run`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "work that ended by itself is usually an error"]
pub enum Ended {
    /// The caller stopped it.
    Stopped,
    /// The guarded work ended by itself. The lease was released, so that another replica takes over.
    Work,
}

/// The elector reads the clock at least this often, because timers stand still while a machine sleeps.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(10);

impl Elector {
    /// A candidate. It should have its own client: see [`client`](crate::client).
    ///
    /// # Errors
    ///
    /// The configuration is invalid, see [`Config::validate`].
    pub fn new(client: Client, config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            client,
            clock: Arc::new(BootClock),
            observer: Arc::new(()),
            state: watch::Sender::new(State::Standby),
            health: Health::default(),
            random: fastrand::Rng::new(),
        })
    }

    /// Reports what happens to `observer`.
    pub fn observed_by(mut self, observer: impl Observer) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// Takes the time from `clock`, for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the jitter repeatable, for tests.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.random = fastrand::Rng::with_seed(seed);
        self
    }

    /// Whether this process leads, now and on each change.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// The state of the elector, for probes.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs the election until `stop`, and `work` while this process leads.
    ///
    /// * Each leadership gets its own call of `work`; the next one begins only after its future has ended.
    /// * When leadership is lost, the token dies first. Then [`Leadership::lost`] returns, and the future has to end by itself:
    ///   the elector does not drop it. Then the elector stands by again, however long the API server is down.
    /// * After `stop`, a leader continues to renew until the future has ended, so `work` should end at `stop` too. Only then does
    ///   the elector release the lease, within the time-out of one request.
    /// * A future that ends by itself ends the leadership and the run.
    ///
    /// The elector's own task polls the future, so the future should spawn long computations. Dropping the run kills the token
    /// and drops the work, but does not release the lease, which has to expire.
    pub async fn run<W, F>(self, stop: CancellationToken, work: W) -> Ended
    where
        W: FnMut(Leadership) -> F,
        F: Future<Output = ()>,
    {
        let requests = Requests::new(self.client.clone(), &self.config);
        let core = Core::new(self.config.clone(), self.random.clone());
        let mut run = Run {
            elector: self,
            core,
            requests,
            make_work: work,
            work: None,
            token: None,
            answer: None,
            watch: None,
            watch_again: Moment::ZERO,
            slow_paths: 0,
            trouble: None,
        };
        run.run(stop).await
    }
}

struct Run<W, F> {
    elector: Elector,
    core: Core,
    requests: Requests,
    make_work: W,
    work: Option<Pin<Box<F>>>,
    token: Option<Leadership>,
    answer: Option<BoxFuture<'static, (Answer, Option<String>)>>,
    watch: Option<BoxStream<'static, Event>>,
    watch_again: Moment,
    slow_paths: u64,
    /// Why the last request failed.
    trouble: Option<String>,
}

impl<W, F> Run<W, F>
where
    W: FnMut(Leadership) -> F,
    F: Future<Output = ()>,
{
    async fn run(&mut self, stop: CancellationToken) -> Ended {
        let mut stopping = false;
        let mut ended = Ended::Stopped;
        loop {
            let now = self.now();
            self.core.expire(now);
            self.sync_role();
            let until = match self.core.next(now, self.elector.clock.wall()) {
                Step::Send(request) => {
                    self.answer = Some(self.requests.send(request).boxed());
                    continue; // the core's next wait depends on this request
                }
                Step::Wait(until) => until,
                Step::Finished => return ended,
            };
            self.keep_watch(now);
            self.report();
            let wait = until.map_or(CLOCK_CHECK_INTERVAL, |until| until.saturating_sub(now)).min(CLOCK_CHECK_INTERVAL);
            self.elector.health.ran(wait, matches!(self.core.role(), Role::Ending(_)));
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.core.stop();
                    if !self.core.is_waiting() {
                        self.answer = None;
                    }
                }
                Some((answer, error)) = OptionFuture::from(self.answer.as_mut()) => {
                    self.answer = None;
                    self.answered(answer, error);
                }
                Some(()) = OptionFuture::from(self.work.as_mut()) => {
                    self.work = None;
                    let now = self.now();
                    self.core.expire(now);
                    self.sync_role(); // the work may have noticed the loss before this task
                    if matches!(self.core.role(), Role::Leading(_)) && !stopping {
                        ended = Ended::Work;
                    }
                    self.core.work_ended(now);
                }
                () = tokio::time::sleep(wait) => {}
                Some(Some(event)) = OptionFuture::from(self.watch.as_mut().map(StreamExt::next)) => self.noticed(event),
            }
        }
    }

    fn now(&self) -> Moment {
        self.elector.clock.now()
    }

    fn answered(&mut self, answer: Answer, error: Option<String>) {
        let conflict = matches!(answer, Answer::Conflict);
        let failed = matches!(answer, Answer::Unknown);
        let now = self.now();
        self.core.answered(now, answer);
        if conflict && matches!(self.core.role(), Role::Standby) {
            self.stop_watching(now); // it has missed the other write
        }
        let trouble = error.filter(|_| failed);
        if let Some(trouble) = &trouble
            && self.trouble.is_none()
        {
            tracing::warn!(lease = self.elector.config.name, error = trouble, "Cannot reach the lease");
        }
        self.trouble = trouble;
    }

    fn noticed(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Changed(lease) => {
                self.core.watched(true);
                self.core.noticed(now, Some(*lease));
            }
            Event::Gone => self.core.noticed(now, None),
            Event::Ended(why) => {
                tracing::debug!(lease = self.elector.config.name, why, "The watch has ended");
                self.stop_watching(now);
            }
        }
    }

    /// Keeps a watch while this process stands by, so that it takes over at once after a release. A leader needs none.
    fn keep_watch(&mut self, now: Moment) {
        if !matches!(self.core.role(), Role::Standby) {
            self.stop_watching(Moment::ZERO);
        } else if self.watch.is_none() && !self.core.is_waiting() && now >= self.watch_again {
            self.watch = Some(self.requests.watch());
        }
    }

    fn stop_watching(&mut self, now: Moment) {
        self.watch = None;
        self.core.watched(false);
        self.watch_again = now + self.elector.config.retry_period;
    }

    /// Brings token, state and work in line with the core.
    fn sync_role(&mut self) {
        if let Some(token) = &self.token {
            self.core.witnessed(token.witnessed());
        }
        if let (Role::Leading(term), Some(token)) = (self.core.role(), &self.token)
            && !token.extend(term.until)
        {
            self.core.expired(); // a reader of the token has found it expired since our own look at the clock
        }
        match self.core.role() {
            Role::Leading(term) if self.token.is_none() => {
                let transitions = u32::try_from(term.transitions).unwrap_or_default();
                let epoch = Epoch { lease_uid: term.uid.as_str().into(), transitions };
                let token = Leadership::new(epoch, self.elector.clock.clone(), term.until);
                self.start(token);
            }
            Role::Leading(_) | Role::Standby => {}
            Role::Ending(loss) => self.end(*loss),
            Role::Releasing { .. } | Role::Finished => self.end(StopReason::Released),
        }
    }

    fn start(&mut self, token: Leadership) {
        let Config { name, identity, .. } = &self.elector.config;
        tracing::info!(lease = name, identity, term = token.epoch().transitions, "Became leader");
        self.token = Some(token.clone());
        self.elector.observer.started_leading(&token);
        self.elector.state.send_replace(State::Leading(token.clone()));
        self.work = Some(Box::pin((self.make_work)(token)));
    }

    fn report(&mut self) {
        for _ in self.slow_paths..self.core.slow_paths() {
            self.elector.observer.slow_path();
        }
        self.slow_paths = self.core.slow_paths();
        let mut says = match (self.core.role(), self.core.holder()) {
            (Role::Leading(term), _) => format!("leading, term {}", term.transitions),
            (Role::Ending(loss), _) => format!("not leading: {}; waiting for the work to end", loss.describe()),
            (Role::Releasing { .. } | Role::Finished, _) => "releasing the lease".to_owned(),
            (Role::Standby, Some(holder)) => format!("standing by, {holder} leads"),
            (Role::Standby, None) => "standing by, no replica leads".to_owned(),
        };
        if let Some(trouble) = &self.trouble {
            says = format!("{says}; cannot reach the lease: {trouble}");
        }
        self.elector.health.say(says);
    }
}

impl<W, F> Run<W, F> {
    /// Ends the leadership. The token dies before any notification.
    fn end(&mut self, loss: StopReason) {
        if let Some(token) = self.token.take() {
            token.kill();
            self.elector.state.send_replace(State::Standby);
            self.elector.observer.stopped_leading(&token, loss);
            let Config { name, identity, .. } = &self.elector.config;
            tracing::info!(lease = name, identity, reason = loss.describe(), "Stopped leading");
        }
    }
}

impl<W, F> Drop for Run<W, F> {
    fn drop(&mut self) {
        self.end(StopReason::Dropped);
        self.elector.health.ended();
    }
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("config", &self.config).field("health", &self.health).finish_non_exhaustive()
    }
}

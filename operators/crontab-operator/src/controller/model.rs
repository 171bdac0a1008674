//! A model of what a wake-up asks of the outside: an API server with one CronTab, and replicas of the operator, each with a
//! cache that may be old. Each request gives others a turn before and after it takes effect, and a wake-up can be dropped at
//! each of these turns: that is what a crash is.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context as Task, Poll, Waker},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use manager::{Action, Creation, Error, Fence, Health, Report};
use serde_json::{Value, json};
use workloads::{JobView, Live, PodView};

use super::{Cluster, wake_up};
use crate::{
    CronTab,
    api::v1::CronTabStatus,
    config::Config,
    known::{LiveJob, News},
    metrics::Tally,
    samples, status,
};

/// The API server, and people's eyes.
#[derive(Clone)]
pub(super) struct World(Arc<Mutex<State>>);

pub(super) struct State {
    pub(super) now: Timestamp,
    pub(super) crontab: CronTab,
    pub(super) jobs: BTreeMap<String, LiveJob>,
    /// Names of Jobs that belong to somebody else.
    pub(super) strangers: BTreeSet<String>,
    /// Names of Jobs of a former CronTab that are being collected.
    pub(super) dying: BTreeSet<String>,
    /// Why no Job is taken.
    pub(super) refusal: Option<String>,
    /// Every Job that was ever created, in order.
    pub(super) created: Vec<String>,
    pub(super) deleted: Vec<String>,
    pub(super) news: Vec<News>,
    pub(super) tallies: Vec<Tally>,
    pub(super) health: Option<Health>,
    /// Writes of the status.
    pub(super) writes: usize,
    version: u64,
    uids: u64,
    /// The newest leader; those before it send nothing any more.
    epoch: Option<i64>,
}

/// One process of the operator.
pub(super) struct Replica {
    world: World,
    cache: Mutex<Cache>,
    epoch: Option<i64>,
    /// Statuses that need not be remembered are held back.
    pub(super) holds_back: bool,
    /// It may still send although another one leads.
    pub(super) zombie: bool,
}

struct Cache {
    crontab: Arc<CronTab>,
    jobs: Vec<LiveJob>,
    /// Nothing is missing that was there when its process became leader.
    is_whole: bool,
    /// Names of Jobs that may have been created.
    unanswered: BTreeSet<String>,
}

impl World {
    /// A world with the first sample, made at noon on 19 November 2026, and this of its spec.
    pub(super) fn new(now: &str, spec: &Value) -> Self {
        let mut whole = json!({"cronSpec": "* * * * */5", "image": "my-awesome-cron-image"});
        whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        Self(Arc::new(Mutex::new(State {
            now: now.parse().expect("a time"),
            crontab: samples::with_spec(&whole),
            jobs: BTreeMap::new(),
            strangers: BTreeSet::new(),
            dying: BTreeSet::new(),
            refusal: None,
            created: Vec::new(),
            deleted: Vec::new(),
            news: Vec::new(),
            tallies: Vec::new(),
            health: None,
            writes: 0,
            version: 1,
            uids: 0,
            epoch: None,
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody has panicked")
    }

    pub(super) fn status(&self) -> CronTabStatus {
        self.state().crontab.status.clone().unwrap_or_default()
    }

    /// A process without election, with a fresh cache.
    pub(super) fn replica(&self) -> Replica {
        let cache = self.state().cache();
        let epoch = self.state().epoch;
        Replica { world: self.clone(), cache: Mutex::new(cache), epoch, holds_back: false, zombie: false }
    }

    /// The next leader.
    pub(super) fn leader(&self) -> Replica {
        let mut state = self.state();
        state.epoch = Some(state.epoch.unwrap_or_default() + 1);
        drop(state);
        self.replica()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.state().now
    }

    pub(super) fn set_now(&self, now: &str) {
        self.state().now = now.parse().expect("a time");
    }

    /// Somebody edits the object.
    pub(super) fn edit(&self, change: impl FnOnce(&mut CronTab)) {
        let mut state = self.state();
        change(&mut state.crontab);
        state.changed();
    }

    /// The object was made then.
    pub(super) fn made_at(&self, time: &str) {
        let time = serde_json::from_value(json!(time)).expect("a time");
        self.edit(|crontab| crontab.metadata.creation_timestamp = Some(time));
    }

    /// Plays the Job controller: the Job started right when it was made, and ended now.
    pub(super) fn finish(&self, name: &str, how: &str) {
        let mut state = self.state();
        let (now, job) = (state.now, state.jobs[name].clone());
        let condition =
            json!({"type": how, "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": now});
        let object = json!({
            "metadata": {"annotations": job.scheduled().map(|time| json!({"x/scheduled-at": time}))},
            "status": {"startTime": job.created, "completionTime": now, "conditions": [condition]},
        });
        let view: JobView = serde_json::from_value(object).expect("a view");
        state.jobs.insert(name.to_owned(), Arc::new(Live { view, ..(*job).clone() }));
    }

    /// All that run end well.
    pub(super) fn finish_all(&self) {
        let running: Vec<String> =
            self.state().jobs.values().filter(|job| job.end().is_none()).map(|job| job.name.to_string()).collect();
        for name in running {
            self.finish(&name, "Complete");
        }
    }

    /// Grows with every change.
    fn changes(&self) -> (u64, usize, usize) {
        let state = self.state();
        (state.version, state.created.len(), state.deleted.len())
    }

    pub(super) fn reasons(&self) -> Vec<&'static str> {
        self.state().news.iter().map(|news| news.reason).collect()
    }

    pub(super) fn problems(&self) -> Vec<&'static str> {
        let state = self.state();
        state.health.iter().flat_map(|health| &health.problems).map(|problem| problem.reason).collect()
    }
}

impl State {
    fn cache(&self) -> Cache {
        let jobs = self.jobs.values().cloned().collect();
        Cache { crontab: Arc::new(self.crontab.clone()), jobs, is_whole: false, unanswered: BTreeSet::new() }
    }

    fn changed(&mut self) {
        self.version += 1;
        self.crontab.metadata.resource_version = Some(self.version.to_string());
    }
}

impl Replica {
    /// The same process, elected only now.
    pub(super) fn elected(mut self) -> Self {
        self.epoch = self.world.leader().epoch;
        self
    }

    /// The watch has delivered everything.
    pub(super) fn sync(&self) {
        let Cache { crontab, jobs, .. } = self.world.state().cache();
        let mut cache = self.cache.lock().expect("nobody has panicked");
        (cache.crontab, cache.jobs) = (crontab, jobs);
    }

    /// One wake-up, from beginning to end.
    pub(super) fn wake(&self) -> Result<Action, Error> {
        self.wake_for(usize::MAX).expect("it ends")
    }

    /// One wake-up that is dropped after so many turns; `None` if it was.
    pub(super) fn wake_for(&self, turns: usize) -> Option<Result<Action, Error>> {
        let mut work = pin!(self.work());
        let mut task = Task::from_waker(Waker::noop());
        (0..turns).find_map(|_| match work.as_mut().poll(&mut task) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        })
    }

    /// One wake-up, to be polled.
    pub(super) async fn work(&self) -> Result<Action, Error> {
        let crontab = self.object();
        wake_up(&crontab, self, &Config::default()).await
    }

    /// With all that the watch delivers, until there is nothing to do at this moment. Says when there will be.
    pub(super) fn settle(&self) -> Option<Duration> {
        for _ in 0..20 {
            self.sync();
            let before = self.world.changes();
            let action = self.wake();
            let same = self.world.changes() == before;
            match action {
                Ok(Action::Done) if same => return None,
                Ok(Action::After(wait)) if same && !wait.is_zero() => return Some(wait),
                _ => {}
            }
        }
        panic!("it never settles: {:?}", self.world.state().news);
    }

    /// Lives with the clock going on to this instant. `each` is called after each wake-up.
    pub(super) fn live_until(&self, until: &str, mut each: impl FnMut(&World)) {
        let until: Timestamp = until.parse().expect("a time");
        loop {
            let wait = self.settle();
            each(&self.world);
            let wait = [wait, self.settle()].into_iter().flatten().min();
            let next = wait.map(|wait| self.world.state().now + wait).filter(|next| *next <= until);
            self.world.state().now = next.unwrap_or(until);
            if next.is_none() {
                return;
            }
        }
    }

    fn may_write(&self) -> Result<(), Error> {
        let leads = self.zombie || self.world.state().epoch == self.epoch;
        if leads { Ok(()) } else { Err(Error::Other("this process is not the leader".into())) }
    }

    fn fence(&self) -> Option<Fence> {
        self.epoch.map(|epoch| Fence { lease: "lease".to_owned(), epoch })
    }
}

/// Lets others have a turn.
async fn turn() {
    let mut begun = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut begun, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

impl Cluster for Replica {
    fn now(&self) -> Timestamp {
        self.world.state().now
    }

    fn object(&self) -> Arc<CronTab> {
        self.cache.lock().expect("nobody has panicked").crontab.clone()
    }

    fn owned(&self) -> Vec<LiveJob> {
        self.cache.lock().expect("nobody has panicked").jobs.clone()
    }

    fn pods(&self) -> Vec<Arc<Live<PodView>>> {
        Vec::new()
    }

    async fn recall(&self) -> Result<Option<Arc<CronTab>>, Error> {
        let object = self.object();
        if object.status.as_ref().and_then(|status| status.fence.clone()) == self.fence() {
            return Ok(Some(object));
        }
        turn().await;
        let latest = Arc::new(self.world.state().crontab.clone());
        self.cache.lock().expect("nobody has panicked").crontab = latest.clone();
        Ok(Some(latest))
    }

    /// That the runtime does what it promises is tested there: here it is promised once a term, and for what was not answered.
    async fn catch_up(&self) -> Result<(), Error> {
        turn().await;
        let state = self.world.state();
        let mut cache = self.cache.lock().expect("nobody has panicked");
        let unanswered = std::mem::take(&mut cache.unanswered);
        let was_whole = std::mem::replace(&mut cache.is_whole, true);
        for job in state.jobs.values().filter(|job| !was_whole || unanswered.contains(&*job.name)) {
            if cache.jobs.iter().all(|known| known.uid != job.uid) {
                cache.jobs.push(job.clone());
            }
        }
        drop(state);
        Ok(())
    }

    async fn live(&self, name: &str) -> Result<Option<LiveJob>, Error> {
        turn().await;
        Ok(self.world.state().jobs.get(name).cloned())
    }

    async fn create(&self, job: Job) -> Result<Creation<JobView>, Error> {
        let name = job.name_any();
        self.cache.lock().expect("nobody has panicked").unanswered.insert(name.clone());
        turn().await;
        self.may_write()?;
        let creation = {
            let mut state = self.world.state();
            if let Some(words) = &state.refusal {
                Creation::Refused(words.clone())
            } else if state.strangers.contains(&name) {
                Creation::Taken
            } else if state.dying.contains(&name) {
                Creation::Dying
            } else if let Some(job) = state.jobs.get(&name) {
                Creation::Ours(job.clone())
            } else {
                state.uids += 1;
                let view: JobView = serde_json::from_value(serde_json::to_value(job).expect("JSON")).expect("a view");
                let live = Arc::new(Live {
                    namespace: "default".into(),
                    name: name.as_str().into(),
                    uid: format!("job-{}", state.uids).into(),
                    generation: 1,
                    created: Some(state.now),
                    deleting: None,
                    view,
                });
                state.jobs.insert(name.clone(), live.clone());
                state.created.push(name.clone());
                Creation::Created(live)
            }
        };
        turn().await;
        let mut cache = self.cache.lock().expect("nobody has panicked");
        cache.unanswered.remove(&name);
        if let Creation::Created(job) | Creation::Ours(job) = &creation {
            cache.jobs.retain(|known| known.uid != job.uid);
            cache.jobs.push(job.clone());
        }
        Ok(creation)
    }

    async fn delete(&self, job: &Live<JobView>) -> Result<bool, Error> {
        turn().await;
        self.may_write()?;
        let there = {
            let mut state = self.world.state();
            let there = state.jobs.get(&*job.name).is_some_and(|found| found.uid == job.uid);
            if there {
                state.jobs.remove(&*job.name);
                state.deleted.push(job.name.to_string());
            }
            there
        };
        turn().await;
        self.cache.lock().expect("nobody has panicked").jobs.retain(|known| known.uid != job.uid);
        Ok(there)
    }

    async fn report(&self, report: Report<CronTabStatus>, remember: bool) -> Result<(), Error> {
        let known = self.object();
        let stored = known.status.clone().unwrap_or_default();
        self.world.state().health = Some(report.health.clone());
        if status::is_stored(&report.status, known.status.as_ref()) || (self.holds_back && !remember) {
            return Ok(());
        }
        turn().await;
        self.may_write()?;
        let latest = {
            let mut state = self.world.state();
            if state.crontab.metadata.resource_version != known.metadata.resource_version {
                return Err(Error::Other("the object has been modified".into()));
            }
            let fence = self.fence().or(stored.fence);
            state.crontab.status = Some(CronTabStatus { fence, conditions: Vec::new(), ..report.status });
            state.writes += 1;
            state.changed();
            Arc::new(state.crontab.clone())
        };
        turn().await;
        self.cache.lock().expect("nobody has panicked").crontab = latest;
        Ok(())
    }

    fn tell(&self, news: News) {
        self.world.state().news.push(news);
    }

    fn count(&self, tally: Tally) {
        self.world.state().tallies.push(tally);
    }
}

/// How long after its time each run was started.
pub(super) fn delays(world: &World) -> Vec<SignedDuration> {
    let delay = |tally: &Tally| if let Tally::Started(delay) = tally { Some(*delay) } else { None };
    world.state().tallies.iter().filter_map(delay).collect()
}

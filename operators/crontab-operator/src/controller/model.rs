//! A model of the cluster for tests of the reconciler: an API server with one CronTab, and replicas of the operator, each with a
//! cache that may be stale. Each request yields before and after it takes effect, so that other replicas can run in between.
//! Dropping a reconcile at one of these turns models a crash.

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
    known::{Event, LiveJob},
    metrics::Tally,
    samples, status,
};

/// The API server, and all events, metrics and health reports that the operator has emitted.
#[derive(Clone)]
pub(super) struct World(Arc<Mutex<State>>);

pub(super) struct State {
    pub(super) now: Timestamp,
    pub(super) crontab: CronTab,
    pub(super) jobs: BTreeMap<String, LiveJob>,
    /// Names of existing Jobs that no CronTab owns.
    pub(super) unowned: BTreeSet<String>,
    /// Names of Jobs of an earlier CronTab, which the garbage collector is deleting.
    pub(super) dying: BTreeSet<String>,
    /// The error with which the API server refuses every new Job, if it does.
    pub(super) refusal: Option<String>,
    /// Every Job that was ever created, in order.
    pub(super) created: Vec<String>,
    pub(super) deleted: Vec<String>,
    pub(super) events: Vec<Event>,
    pub(super) tallies: Vec<Tally>,
    pub(super) health: Option<Health>,
    /// Number of status writes.
    pub(super) writes: usize,
    version: u64,
    uids: u64,
    /// The term of the current leader. Replicas with another term cannot write any more.
    epoch: Option<i64>,
}

/// One process of the operator.
pub(super) struct Replica {
    world: World,
    cache: Mutex<Cache>,
    epoch: Option<i64>,
    /// Whether it holds back status writes without new memory, as the runtime may do.
    pub(super) holds_back: bool,
    /// Whether it can still write although another replica leads.
    pub(super) zombie: bool,
}

struct Cache {
    crontab: Arc<CronTab>,
    jobs: Vec<LiveJob>,
    /// Whether the cache contains all Jobs that existed when this replica became leader.
    is_whole: bool,
    /// Names of Jobs whose `create` has had no answer: they may exist.
    unanswered: BTreeSet<String>,
}

impl World {
    /// Returns a world with the first sample, created at noon on 19 November 2026, and with these changes of its spec.
    pub(super) fn new(now: &str, spec: &Value) -> Self {
        let mut whole = json!({"cronSpec": "* * * * */5", "image": "my-awesome-cron-image"});
        whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        Self(Arc::new(Mutex::new(State {
            now: now.parse().expect("a time"),
            crontab: samples::with_spec(&whole),
            jobs: BTreeMap::new(),
            unowned: BTreeSet::new(),
            dying: BTreeSet::new(),
            refusal: None,
            created: Vec::new(),
            deleted: Vec::new(),
            events: Vec::new(),
            tallies: Vec::new(),
            health: None,
            writes: 0,
            version: 1,
            uids: 0,
            epoch: None,
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("the lock is not poisoned")
    }

    pub(super) fn status(&self) -> CronTabStatus {
        self.state().crontab.status.clone().unwrap_or_default()
    }

    /// Returns a new replica of the current term, with a fresh cache.
    pub(super) fn replica(&self) -> Replica {
        let cache = self.state().cache();
        let epoch = self.state().epoch;
        Replica { world: self.clone(), cache: Mutex::new(cache), epoch, holds_back: false, zombie: false }
    }

    /// Starts the next term, and returns its leader.
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

    /// Edits the object, as a user does.
    pub(super) fn edit(&self, change: impl FnOnce(&mut CronTab)) {
        let mut state = self.state();
        change(&mut state.crontab);
        state.changed();
    }

    /// Sets the creation time of the object.
    pub(super) fn made_at(&self, time: &str) {
        let time = serde_json::from_value(json!(time)).expect("a time");
        self.edit(|crontab| crontab.metadata.creation_timestamp = Some(time));
    }

    /// Acts as the Job controller: the Job started when it was created, and ends now with the condition `how` (`Complete` or
    /// `Failed`).
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

    /// Completes all active Jobs.
    pub(super) fn finish_all(&self) {
        let running: Vec<String> =
            self.state().jobs.values().filter(|job| job.end().is_none()).map(|job| job.name.to_string()).collect();
        for name in running {
            self.finish(&name, "Complete");
        }
    }

    /// Returns counters that grow with every change.
    fn changes(&self) -> (u64, usize, usize) {
        let state = self.state();
        (state.version, state.created.len(), state.deleted.len())
    }

    pub(super) fn reasons(&self) -> Vec<&'static str> {
        self.state().events.iter().map(|event| event.reason).collect()
    }

    pub(super) fn problems(&self) -> Vec<&'static str> {
        let state = self.state();
        state.health.iter().flat_map(|health| &health.problems).map(|problem| problem.kind.reason).collect()
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
    /// Makes this replica the leader, with the cache that it already has.
    pub(super) fn elected(mut self) -> Self {
        self.epoch = self.world.leader().epoch;
        self
    }

    /// Brings the cache up to date, as if the watch had delivered everything.
    pub(super) fn sync(&self) {
        let Cache { crontab, jobs, .. } = self.world.state().cache();
        let mut cache = self.cache.lock().expect("the lock is not poisoned");
        (cache.crontab, cache.jobs) = (crontab, jobs);
    }

    /// Runs one reconcile to its end.
    pub(super) fn wake(&self) -> Result<Action, Error> {
        self.wake_for(usize::MAX).expect("it ends")
    }

    /// Runs one reconcile, but drops it after this many turns. Returns `None` if it was dropped.
    pub(super) fn wake_for(&self, turns: usize) -> Option<Result<Action, Error>> {
        let mut work = pin!(self.work());
        let mut task = Task::from_waker(Waker::noop());
        (0..turns).find_map(|_| match work.as_mut().poll(&mut task) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        })
    }

    /// Returns the future of one reconcile.
    pub(super) async fn work(&self) -> Result<Action, Error> {
        let crontab = self.object();
        wake_up(&crontab, self, &Config::default()).await
    }

    /// Reconciles with an up-to-date cache until nothing is left to do now. Returns after which time to reconcile again.
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
        panic!("the operator never settles: {:?}", self.world.state().events);
    }

    /// Reconciles while the clock advances to this instant. Calls `each` every time that the replica has settled.
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

/// Yields once, so that another replica can run.
async fn turn() {
    let mut begun = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut begun, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

impl Cluster for Replica {
    fn now(&self) -> Timestamp {
        self.world.state().now
    }

    fn object(&self) -> Arc<CronTab> {
        self.cache.lock().expect("the lock is not poisoned").crontab.clone()
    }

    fn owned(&self) -> Vec<LiveJob> {
        self.cache.lock().expect("the lock is not poisoned").jobs.clone()
    }

    fn pods(&self) -> Vec<Arc<Live<PodView>>> {
        Vec::new()
    }

    async fn refresh_status(&self) -> Result<Option<Arc<CronTab>>, Error> {
        let object = self.object();
        if object.status.as_ref().and_then(|status| status.fence.clone()) == self.fence() {
            return Ok(Some(object));
        }
        turn().await;
        let latest = Arc::new(self.world.state().crontab.clone());
        self.cache.lock().expect("the lock is not poisoned").crontab = latest.clone();
        Ok(Some(latest))
    }

    /// The runtime's own tests cover its guarantees. This model has them once per term, and for each `create` without an answer.
    async fn sync_cache(&self) -> Result<(), Error> {
        turn().await;
        let state = self.world.state();
        let mut cache = self.cache.lock().expect("the lock is not poisoned");
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

    async fn get_uncached(&self, name: &str) -> Result<Option<LiveJob>, Error> {
        turn().await;
        Ok(self.world.state().jobs.get(name).cloned())
    }

    async fn create(&self, job: Job) -> Result<Creation<JobView>, Error> {
        let name = job.name_any();
        self.cache.lock().expect("the lock is not poisoned").unanswered.insert(name.clone());
        turn().await;
        self.may_write()?;
        let creation = {
            let mut state = self.world.state();
            if let Some(words) = &state.refusal {
                Creation::Refused(words.clone())
            } else if state.unowned.contains(&name) {
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
        let mut cache = self.cache.lock().expect("the lock is not poisoned");
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
        self.cache.lock().expect("the lock is not poisoned").jobs.retain(|known| known.uid != job.uid);
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
        self.cache.lock().expect("the lock is not poisoned").crontab = latest;
        Ok(())
    }

    fn emit(&self, event: Event) {
        self.world.state().events.push(event);
    }

    fn count(&self, tally: Tally) {
        self.world.state().tallies.push(tally);
    }
}

/// Returns how long after its scheduled time each run was started.
pub(super) fn delays(world: &World) -> Vec<SignedDuration> {
    let delay = |tally: &Tally| if let Tally::Started(delay) = tally { Some(*delay) } else { None };
    world.state().tallies.iter().filter_map(delay).collect()
}

//! What the operator knows of a CronTab in one reconcile, and the decisions that follow. Pure: values in, values out.
//!
//! The status is the operator's memory of past runs. Each reconcile adds what the Jobs show, so that a run that was started right
//! before a crash is not forgotten. The memory only grows, so that each scheduled time is decided on once.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use manager::Event;
use schedule::{Anchor, Concurrency, Decision, Due, Jitter, Situation, Skip};
use workloads::{JobView, Live, ProblemKind};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    CronTab,
    api::v1::{ConcurrencyPolicy, CronTabSpec, CronTabStatus, Failure, JobReference, Since},
    desired::Run,
    timing::{Timing, Wrong},
};

/// The annotation with which a user requests a run at once.
pub const RUN_NOW: &str = "stable.example.com/run-now";

/// The status stores longer tokens as a hash.
const TOKEN_CHARACTERS: usize = 128;
/// Interval of the events while runs are skipped for the same active run. The first skipped run emits one at once.
const TELL_AGAIN: Duration = Duration::from_hours(1);
/// How far from the present the time of a request may be that an object without memory carries.
const RECENT: SignedDuration = SignedDuration::from_mins(10);

/// The shortest and the longest wait for a Job of an earlier CronTab of this name that still occupies the name of a Job.
const OCCUPIED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// A Job, as the cache or the API server has it.
pub type LiveJob = Arc<Live<JobView>>;

/// The input of all decisions about one CronTab.
#[derive(Debug, Clone)]
pub struct Known<'a> {
    /// The object.
    pub crontab: &'a CronTab,
    /// Its schedule and zone.
    pub timing: &'a Timing,
    /// Its existing Jobs, in the order of their scheduled times.
    pub jobs: Vec<LiveJob>,
    /// Its past runs.
    pub memory: Memory,
    /// The current time.
    pub now: Timestamp,
    /// Jobs that this reconcile has deleted to make room for a new one (`Replace`).
    replaced: Vec<LiveJob>,
}

/// The past, as far as later decisions need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Since when the schedule is in effect.
    pub anchor: Anchor,
    /// The scheduled time of the latest run that was started.
    pub last_schedule: Option<Timestamp>,
    /// The scheduled time of the latest run that was skipped, and why.
    pub last_missed: Option<(Timestamp, String)>,
    /// The token of the last `run-now` request that was handled.
    pub last_run_now: Option<String>,
    /// How many such requests were handled.
    pub run_now_count: u32,
    /// When a run last completed.
    pub last_success: Option<Timestamp>,
    /// The latest run that failed.
    pub last_failure: Option<Failure>,
}

/// Why a run is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// It is later than `startingDeadlineSeconds` allows.
    TooLate,
    /// The previous run is still active, and the policy is `Forbid`.
    StillRunning,
    /// `maxActiveJobs` Jobs are active.
    TooManyActive,
    /// A Job that this CronTab does not own has its name.
    NameTaken,
}

impl<'a> Known<'a> {
    /// Combines the status of the object with its Jobs.
    pub fn of(crontab: &'a CronTab, timing: &'a Timing, jobs: Vec<LiveJob>, now: Timestamp) -> Self {
        let memory = Memory::of(crontab, timing, second(now));
        let mut known = Self { crontab, timing, jobs: Vec::new(), memory, now, replaced: Vec::new() };
        known.look(jobs);
        known
    }

    /// Replaces the Jobs by a newer list, and adds what they show to the memory.
    pub fn look(&mut self, jobs: Vec<LiveJob>) {
        self.jobs = jobs;
        self.jobs.sort_by(|a, b| (time_of(a), &a.name).cmp(&(time_of(b), &b.name)));
        for job in &self.jobs {
            self.memory.observe(job);
        }
        if let Some(token) = self.requested_run() {
            let name = Run::Now(token).job_name(self.crontab);
            if self.jobs.iter().any(|job| *job.name == name) {
                self.memory.handle(token); // an earlier attempt has created it
            }
        }
    }

    /// Whether the status does not record all runs and requests that the memory contains.
    pub fn has_unrecorded_runs(&self) -> bool {
        let recorded = self.crontab.status.as_ref().map(|it| (it.last_schedule_time, it.last_run_now.as_deref()));
        recorded.unwrap_or_default() != (self.memory.last_schedule, self.memory.last_run_now.as_deref())
    }

    /// Whether an edit has let the schedule take effect anew, and the status does not record the time of the edit yet. Until it does,
    /// each reconcile takes its own time for that of the edit. A run that becomes due before the next reconcile would then be lost.
    pub fn has_unrecorded_edit(&self) -> bool {
        let Anchor { hash, since } = &self.memory.anchor;
        self.crontab.status.as_ref().is_some_and(|status| {
            let is_recorded = status.schedule.as_ref().is_some_and(|it| it.hash == *hash && it.since == *since);
            !is_recorded && status.observed_generation != self.crontab.metadata.generation
        })
    }

    /// Whether the status, as the reconcile has found it, records all that this Job shows. Such a Job may go before the next write of
    /// the status.
    pub fn is_recorded(&self, job: &LiveJob) -> bool {
        let Some(status) = &self.crontab.status else { return false };
        let stored = Memory::of(self.crontab, self.timing, second(self.now));
        let mut observed = stored.clone();
        observed.observe(job);
        let is_active = status.active.iter().any(|reference| *job.uid == *reference.uid);
        // The name is made of the token and of the number of requests in the status. So a Job of this name is that of the next request,
        // which the status does not record yet.
        let token = self.crontab.annotations().get(RUN_NOW);
        let is_of_request = token.is_some_and(|token| *job.name == Run::Now(token).job_name(self.crontab));
        observed == stored && !is_active && !is_of_request
    }

    /// Returns its Jobs that have not ended, in the order of their scheduled times.
    pub fn active(&self) -> impl Iterator<Item = &LiveJob> {
        self.jobs.iter().filter(|job| job.end().is_none())
    }

    /// Returns the input of the crate `schedule`.
    pub fn situation(&self) -> Situation<'a> {
        let spec = &self.crontab.spec;
        Situation {
            schedule: &self.timing.schedule,
            zone: &self.timing.zone,
            now: self.now,
            anchor: self.memory.anchor.since,
            last: self.memory.last(),
            held: spec.is_held(),
            jitter: Jitter {
                longest: spec.jitter_seconds(),
                uid: self.crontab.metadata.uid.as_deref().unwrap_or_default(),
            },
            starting_deadline: spec.starting_deadline_seconds.map(i64::unsigned_abs),
            concurrency: concurrency(spec),
            active: self.active_count(),
            max_active: spec.max_active_jobs(),
        }
    }

    /// Returns the token of a `run-now` request that has not been handled.
    pub fn requested_run(&self) -> Option<&'a str> {
        let token = self.crontab.annotations().get(RUN_NOW)?;
        Some(token.as_str()).filter(|token| self.memory.last_run_now.as_deref() != Some(&*remembered(token)))
    }

    /// Answers without a run a `run-now` request that may be meant for another object. Returns the event about it.
    ///
    /// A copy or a restored object carries the annotation of its origin, but not the status that remembers the answer. So a token
    /// that the operator finds together with an object without memory proves no request.
    pub fn answer_inherited_request(&mut self) -> Option<Event> {
        let token = self.requested_run().filter(|token| !self.has_memory() && !self.is_own_request(token))?;
        self.answered(token, None);
        Some(Event::normal(
            "RunNowIgnored",
            format!(
                "Not starting job because the annotation {RUN_NOW} may be that of another object: it was there before a schedule \
                 of this object was in effect. Set another value to start a run"
            ),
        ))
    }

    /// Whether the status remembers an earlier reconcile in which the schedule was in effect.
    fn has_memory(&self) -> bool {
        self.crontab.status.as_ref().is_some_and(|it| it.schedule.is_some() || it.last_run_now.is_some())
    }

    /// Whether a token is a time at which a user can have requested a run of this very object, and has done so just now. The time
    /// limit is for an object whose status was lost: its last request has been answered long ago.
    fn is_own_request(&self, token: &str) -> bool {
        let Ok(time) = token.parse::<Timestamp>() else { return false };
        let is_later = self.crontab.creation_timestamp().is_some_and(|created| created.0 <= time);
        is_later && time.duration_since(self.now).abs() <= RECENT
    }

    /// Returns how long to wait for the garbage collector, which has to delete a Job of an earlier CronTab of this name. The wait
    /// grows with the age of the object: what still exists after minutes may stay for ever.
    pub fn wait_for_name(&self) -> Duration {
        let age = self.crontab.creation_timestamp().map(|created| self.now.duration_since(created.0));
        let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default(); // zero if the clock was put back
        (age / 10).clamp(OCCUPIED.0, OCCUPIED.1)
    }

    /// Whether a run is due or requested.
    pub fn has_to_decide(&self) -> bool {
        self.requested_run().is_some() || self.situation().due().is_some()
    }

    /// Whether the decision depends on which Jobs are active. A stale cache could then make it wrong.
    pub fn depends_on_jobs(&self) -> bool {
        let due = !matches!(self.situation().decide(), Decision::Nothing | Decision::Skip(_, Skip::TooLate));
        self.crontab.spec.concurrency_policy != ConcurrencyPolicy::Allow && (due || self.requested_run().is_some())
    }

    /// Returns why a requested run must be skipped, if it must. `startingDeadlineSeconds` applies only to scheduled runs.
    pub fn against_running_now(&self) -> Option<Missed> {
        let situation = self.situation();
        match situation.concurrency {
            Concurrency::Forbid if situation.active > 0 => Some(Missed::StillRunning),
            Concurrency::Allow if situation.active >= situation.max_active => Some(Missed::TooManyActive),
            _ => None,
        }
    }

    /// Records that this run is skipped. Returns the events to emit.
    pub fn skip(&mut self, due: Due, why: Missed) -> Vec<Event> {
        let mut events: Vec<Event> = many(due).into_iter().collect();
        if self.tells_again(due.time, why) {
            events.push(self.left_out(Run::At(due.time), why));
        }
        self.memory.last_missed = Some((due.time, why.reason().to_owned()));
        events
    }

    /// Records that this run has its Job. Returns the events to emit.
    pub fn started(&mut self, due: Due, job: LiveJob) -> Vec<Event> {
        self.memory.last_schedule = self.memory.last_schedule.max(Some(due.time));
        self.add(job);
        many(due).into_iter().collect()
    }

    /// Records that the `run-now` request is handled: with a Job, or skipped.
    pub fn answered(&mut self, token: &str, job: Option<LiveJob>) {
        self.memory.handle(token);
        if let Some(job) = job {
            self.add(job);
        }
    }

    /// Records that these Jobs were deleted to make room for a new one.
    pub fn replace(&mut self, jobs: Vec<LiveJob>) {
        self.jobs.retain(|known| jobs.iter().all(|job| job.uid != known.uid));
        self.replaced = jobs;
    }

    /// Whether an earlier reconcile has replaced Jobs but could not write that to the status: with `Replace`, a Job is active
    /// that the status does not list.
    fn has_replaced(&self, left: &[JobReference]) -> bool {
        let is_new = |job: &LiveJob| left.iter().all(|reference| *job.uid != *reference.uid);
        self.crontab.spec.concurrency_policy == ConcurrencyPolicy::Replace && self.active().any(is_new)
    }

    /// Returns the events about Jobs that the status listed as active and no longer does.
    pub fn departed(&self, left: &[JobReference]) -> Vec<Event> {
        let event = |reference: &JobReference| {
            let (name, is) = (&reference.name, |job: &&LiveJob| *job.uid == *reference.uid);
            if self.replaced.iter().any(|job| is(&job)) {
                return None; // `SuccessfulDelete` has been emitted
            }
            let Some(job) = self.jobs.iter().find(is) else {
                if self.has_replaced(left) {
                    return None;
                }
                return Some(Event::normal("MissingJob", format!("Active job went missing: {name}")));
            };
            let how = if job.end()?.failure.is_some() { "Failed" } else { "Complete" };
            Some(Event::normal("SawCompletedJob", format!("Saw completed job: {name}, status: {how}")))
        };
        left.iter().filter_map(event).collect()
    }

    /// Returns the event about a skipped run.
    pub fn left_out(&self, run: Run<'_>, why: Missed) -> Event {
        let (time, which) = match run {
            Run::At(time) => (time, format!("the run at {time}")),
            Run::Now(_) => (self.now, format!("the run that the annotation {RUN_NOW} requests")),
        };
        match why {
            Missed::TooLate => Event::warning("MissSchedule", format!("Missed scheduled time to start a job: {time}")),
            Missed::StillRunning => Event::normal(
                "JobAlreadyActive",
                "Not starting job because prior execution is running and concurrency policy is Forbid",
            ),
            Missed::TooManyActive => Event::warning(
                "TooManyActiveJobs",
                format!("Not starting job because {} jobs are active (maxActiveJobs)", self.active_count()),
            ),
            Missed::NameTaken => Event::warning(
                "JobNameConflict",
                format!(
                    "Job \"{}\" already exists and is not managed by CronTab; {which} is skipped",
                    run.job_name(self.crontab),
                ),
            ),
        }
    }

    fn add(&mut self, job: LiveJob) {
        self.jobs.retain(|known| known.uid != job.uid);
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.push(job);
        self.look(jobs);
    }

    fn active_count(&self) -> u32 {
        u32::try_from(self.active().count()).unwrap_or(u32::MAX)
    }

    /// Whether a skipped run emits an event. While the same run stays active, the first skipped run does, and then one an hour.
    fn tells_again(&self, time: Timestamp, why: Missed) -> bool {
        let reported =
            self.memory.last_missed.as_ref().filter(|(_, reason)| reason == why.reason()).map(|(time, _)| *time);
        let oldest = self.active().next().map(|job| time_of(job));
        match (why, oldest, reported) {
            (Missed::StillRunning | Missed::TooManyActive, Some(since), Some(reported)) if reported > since => {
                let hours = |time: Timestamp| time.duration_since(since).as_secs() / TELL_AGAIN.as_secs().cast_signed();
                hours(time) > hours(reported)
            }
            _ => true,
        }
    }
}

impl Memory {
    /// Reads the memory from the status. Without a status, it contains only the creation time of the object.
    fn of(crontab: &CronTab, timing: &Timing, now: Timestamp) -> Self {
        let none = CronTabStatus::default();
        let status = crontab.status.as_ref().unwrap_or(&none);
        let spec = &crontab.spec;
        let created = crontab.creation_timestamp().map_or(now, |time| time.0);
        let remembered = if was_out_of_effect(status) {
            // An empty hash differs from all others: the schedule takes effect now, as after an edit.
            Some(Anchor { hash: String::new(), since: created })
        } else {
            status.schedule.clone().map(|Since { hash, since }| Anchor { hash, since })
        };
        let anchor = Anchor::now(remembered.as_ref(), (&spec.cron_spec, &timing.zone, spec.is_held()), created, now);
        Self {
            anchor,
            last_schedule: status.last_schedule_time,
            last_missed: status
                .last_missed_time
                .map(|time| (time, status.last_missed_reason.clone().unwrap_or_default())),
            last_run_now: status.last_run_now.clone(),
            run_now_count: status.run_now_count,
            last_success: status.last_successful_time,
            last_failure: status.last_failure.clone(),
        }
    }

    /// Returns the latest scheduled time that was decided on.
    pub fn last(&self) -> Option<Timestamp> {
        self.last_schedule.max(self.last_missed.as_ref().map(|(time, _)| *time))
    }

    /// Records that the `run-now` request with this token is handled.
    fn handle(&mut self, token: &str) {
        self.last_run_now = Some(remembered(token));
        self.run_now_count = self.run_now_count.wrapping_add(1);
    }

    /// Adds what a Job shows: its scheduled time, and how and when it ended.
    fn observe(&mut self, job: &Live<JobView>) {
        self.last_schedule = self.last_schedule.max(job.scheduled());
        let Some(end) = job.end() else { return };
        let at = end.at.or(job.started()).or(job.created);
        match (&end.failure, at) {
            (None, at) => self.last_success = self.last_success.max(at),
            (Some(reason), Some(time)) if self.last_failure.as_ref().is_none_or(|before| before.time < time) => {
                self.last_failure = Some(Failure { job: job.name.to_string(), time, reason: reason.to_string() });
            }
            _ => {}
        }
    }
}

impl Missed {
    /// Returns the event's reason, which is also `status.lastMissedReason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TooLate => "MissSchedule",
            Self::StillRunning => "JobAlreadyActive",
            Self::TooManyActive => "TooManyActiveJobs",
            Self::NameTaken => "JobNameConflict",
        }
    }
}

impl From<Skip> for Missed {
    fn from(skip: Skip) -> Self {
        match skip {
            Skip::TooLate => Self::TooLate,
            Skip::StillRunning => Self::StillRunning,
            Skip::TooManyActive => Self::TooManyActive,
        }
    }
}

/// Returns the scheduled time of a Job. A requested Job has none; its creation time counts.
fn time_of(job: &Live<JobView>) -> Timestamp {
    job.scheduled().or(job.created).unwrap_or(Timestamp::MAX)
}

fn many(due: Due) -> Option<Event> {
    due.has_missed_many().then(|| {
        Event::warning(
            "TooManyMissedTimes",
            format!(
                "{} start times were missed; only the latest is started. Set or decrease spec.startingDeadlineSeconds or \
                 check clock skew",
                due.missed
            ),
        )
    })
}

/// Whether no schedule was in effect at the last reconcile: the object was paused, or its spec was invalid. Runs that were due until
/// now are then not started.
fn was_out_of_effect(status: &CronTabStatus) -> bool {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let reasons = ["Paused", ProblemKind::INVALID_SPEC.reason];
    ready.is_some_and(|ready| reasons.contains(&&*ready.reason) || Wrong::REASONS.contains(&&*ready.reason))
}

fn concurrency(spec: &CronTabSpec) -> Concurrency {
    match spec.concurrency_policy {
        ConcurrencyPolicy::Allow => Concurrency::Allow,
        ConcurrencyPolicy::Forbid => Concurrency::Forbid,
        ConcurrencyPolicy::Replace => Concurrency::Replace,
    }
}

/// Returns the form of a token that the status stores.
fn remembered(token: &str) -> String {
    if token.chars().count() <= TOKEN_CHARACTERS {
        token.to_owned()
    } else {
        format!("{:032x}", xxh3_128(token.as_bytes()))
    }
}

/// Returns the whole second at or before an instant, because the status stores whole seconds.
fn second(time: Timestamp) -> Timestamp {
    let floor = time.as_second() - i64::from(time.subsec_nanosecond() < 0);
    Timestamp::from_second(floor).unwrap_or(time)
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

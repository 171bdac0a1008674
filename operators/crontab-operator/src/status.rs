//! The status of a CronTab: its past, active and next runs, and the problems for its conditions.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use manager::{Health, Problem, ProblemKind, Report, Verdict};
use workloads::{App, ClockReading, JobView, Live, PodView, pods};

use crate::{
    CronTab,
    api::v1::{CronTabStatus, JobReference, Since},
    known::{Known, LiveJob, Memory, Missed},
    timing::Wrong,
};

manager::standard_status!(CronTabStatus, fenced);

/// The maximum number of Jobs in `status.active`, as in the schema.
const LISTED: usize = 128;
/// How long a pod may be unschedulable before `Degraded` reports it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// More Jobs are active than `maxActiveJobs` allows.
const TOO_MANY_ACTIVE_JOBS: ProblemKind = ProblemKind::new("TooManyActiveJobs", 110);
/// The Job of the last run failed.
const LAST_RUN_FAILED: ProblemKind = ProblemKind::new("LastRunFailed", 120);

/// Returns the status and the health of a CronTab with a valid schedule.
pub fn of(known: &Known<'_>, pods: &[Arc<Live<PodView>>]) -> Report<CronTabStatus> {
    let next = known.situation().next();
    let Memory { anchor, last_schedule, last_missed, last_run_now, last_success, last_failure } = known.memory.clone();
    let (last_missed_time, last_missed_reason) = last_missed.unzip();
    let status = CronTabStatus {
        last_schedule_time: last_schedule,
        last_successful_time: last_success,
        last_missed_time,
        last_missed_reason: last_missed_reason.filter(|reason| !reason.is_empty()),
        next_schedule_time: next,
        last_failure,
        schedule: Some(Since { hash: anchor.hash, since: anchor.since }),
        last_run_now,
        ..running(known.crontab, &known.jobs)
    };
    Report { status, health: health(known, pods, next) }
}

/// Returns the status and the health of a CronTab with an invalid schedule or zone. Active Jobs continue, and there is no next
/// run.
pub fn wrong(crontab: &CronTab, jobs: &[LiveJob], wrong: &Wrong) -> Report<CronTabStatus> {
    let stored = crontab.status.clone().unwrap_or_default();
    let CronTabStatus { active, active_jobs, replicas, label_selector, .. } = running(crontab, jobs);
    let status = CronTabStatus { active, active_jobs, replicas, label_selector, next_schedule_time: None, ..stored };
    let problem = wrong.problem();
    let ready = Verdict::no(problem.kind.reason, problem.message.clone());
    let health =
        Health { available: None, progressing: None, problems: vec![problem], ready, stays_ready: true, recheck: None };
    Report { status, health }
}

/// Whether `stored` equals `wanted`, apart from the fields that the runtime sets.
pub fn is_stored(wanted: &CronTabStatus, stored: Option<&CronTabStatus>) -> bool {
    stored.is_some_and(|stored| {
        let filled_in = CronTabStatus {
            conditions: stored.conditions.clone(),
            fence: stored.fence.clone(),
            observed_generation: stored.observed_generation,
            last_handled_reconcile_at: stored.last_handled_reconcile_at.clone(),
            ..wanted.clone()
        };
        filled_in == *stored
    })
}

/// Returns a status with only the fields about active Jobs set.
fn running(crontab: &CronTab, jobs: &[LiveJob]) -> CronTabStatus {
    let active: Vec<&LiveJob> = jobs.iter().filter(|job| job.end().is_none()).collect();
    CronTabStatus {
        active_jobs: i32::try_from(active.len()).unwrap_or(i32::MAX),
        replicas: active.iter().map(|job| job.pods()).sum(),
        active: active.into_iter().take(LISTED).map(|job| reference(job)).collect(),
        label_selector: App::of(crontab).to_string(),
        ..Default::default()
    }
}

fn reference(job: &Live<JobView>) -> JobReference {
    JobReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        namespace: job.namespace.to_string(),
        name: job.name.to_string(),
        uid: job.uid.to_string(),
    }
}

fn health(known: &Known<'_>, pods: &[Arc<Live<PodView>>], next: Option<Timestamp>) -> Health {
    let conditions = known.crontab.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let diagnosis = pods::diagnose(pods, PATIENCE, ClockReading::new(known.now, conditions));
    // The kubelet restarts a program that fails: only the result of the whole run tells whether this is a problem.
    let mut problems: Vec<Problem> = diagnosis
        .problems
        .into_iter()
        .filter(|problem| problem.kind != ProblemKind::CRASH_LOOPING)
        .map(not_starting)
        .collect();
    problems.extend(last_run_failed(&known.memory));
    problems.extend(too_many_active(known));
    Health {
        available: None,
        progressing: None,
        problems,
        ready: ready(known.crontab, next),
        stays_ready: true,
        recheck: diagnosis.recheck,
    }
}

fn not_starting(problem: Problem) -> Problem {
    match problem.kind {
        ProblemKind::UNSCHEDULABLE => Problem { kind: ProblemKind::PODS_NOT_STARTING, ..problem },
        _ => problem,
    }
}

fn last_run_failed(memory: &Memory) -> Option<Problem> {
    let failure = memory.last_failure.as_ref()?;
    let failed_last = memory.last_success.is_none_or(|success| success < failure.time);
    failed_last.then(|| Problem::new(LAST_RUN_FAILED, format!("job {} failed: {}", failure.job, failure.reason)))
}

fn too_many_active(known: &Known<'_>) -> Option<Problem> {
    let (time, reason) = known.memory.last_missed.as_ref()?;
    let holds = reason == Missed::TooManyActive.reason()
        && known.memory.last_schedule.is_none_or(|started| started < *time)
        && known.against_running_now() == Some(Missed::TooManyActive);
    holds.then(|| Problem::new(TOO_MANY_ACTIVE_JOBS, known.left_out(Missed::TooManyActive, *time).message))
}

fn ready(crontab: &CronTab, next: Option<Timestamp>) -> Verdict {
    if crontab.spec.suspend {
        return Verdict::yes("Suspended", "spec.suspend is true: no runs are started");
    }
    match next {
        _ if crontab.spec.replicas == 0 => Verdict::yes("ScaledToZero", "spec.replicas is 0: no runs are started"),
        Some(time) => Verdict::yes("Scheduled", format!("next run at {time}")),
        None => Verdict::yes("Scheduled", format!("{} has no next run", crontab.name_any())),
    }
}

#[cfg(test)]
mod tests;

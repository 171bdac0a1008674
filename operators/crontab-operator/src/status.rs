//! The status of a CronTab: its past, active and next runs, and the problems for its conditions.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use manager::{Health, Problem, ProblemKind, Report, Verdict};
use workloads::{App, ClockReading, JobView, Live, PodView, SecurityPolicy, pods};

use crate::{
    CronTab,
    api::v1::{CronTabStatus, JobReference, Since},
    desired::Run,
    known::{Known, LiveJob, Memory, Missed},
    timing::Wrong,
};

manager::standard_status!(CronTabStatus, fenced, {
    fn clear_plans(&mut self) {
        self.next_schedule_time = None;
    }
});

/// The type of the condition about the run that ended last.
const LAST_RUN_SUCCEEDED: &str = "LastRunSucceeded";

/// The maximum number of Jobs in `status.active`, as in the schema.
const LISTED: usize = 128;
/// How long a pod may be unschedulable before `Degraded` reports it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// More Jobs are active than `maxActiveJobs` allows.
const TOO_MANY_ACTIVE_JOBS: ProblemKind = ProblemKind::new("TooManyActiveJobs", 110);
/// The Job of the last run failed. The object is never `Stalled` because of it: further runs start.
const LAST_RUN_FAILED: ProblemKind = ProblemKind::new("LastRunFailed", 120).never_stalls();

/// Returns the status and the health of a CronTab with a valid schedule. `security` says which profiles it may set.
pub fn of(known: &Known<'_>, pods: &[Arc<Live<PodView>>], security: SecurityPolicy) -> Report<CronTabStatus> {
    let Memory { anchor, last_schedule, last_missed, last_run_now, run_now_count, last_success, last_failure } =
        known.memory.clone();
    let (last_missed_time, last_missed_reason) = last_missed.unzip();
    let status = CronTabStatus {
        last_schedule_time: last_schedule,
        last_successful_time: last_success,
        last_missed_time,
        last_missed_reason: last_missed_reason.filter(|reason| !reason.is_empty()),
        next_schedule_time: known.situation().next(),
        last_failure,
        schedule: Some(Since { hash: anchor.hash, since: anchor.since }),
        last_run_now,
        run_now_count,
        ..running(known.crontab, &known.jobs)
    };
    let own = last_run(&status, known.crontab.status.as_ref());
    Report { health: Health { own, ..health(known, pods, &status, security) }, status }
}

/// Returns the status and the health of a CronTab with an invalid schedule or zone. Active Jobs continue, and there is no next
/// run.
pub fn wrong(crontab: &CronTab, jobs: &[LiveJob], wrong: &Wrong) -> Report<CronTabStatus> {
    let stored = crontab.status.clone().unwrap_or_default();
    let CronTabStatus { active, active_jobs, replicas, label_selector, .. } = running(crontab, jobs);
    let status = CronTabStatus { active, active_jobs, replicas, label_selector, next_schedule_time: None, ..stored };
    let problem = wrong.problem();
    let ready = Verdict::no(problem.kind.reason, problem.message.clone());
    let own = last_run(&status, crontab.status.as_ref());
    Report { health: Health { problems: vec![problem], stays_ready: true, own, ..Health::of(ready) }, status }
}

/// Returns the condition about the run that ended last; none if no run has ended. A status without this condition is from an
/// earlier version of the operator: it gets the condition when something else changes, so that an upgrade causes no writes.
fn last_run(status: &CronTabStatus, stored: Option<&CronTabStatus>) -> Vec<(&'static str, Verdict)> {
    let is_known = stored.iter().flat_map(|it| &it.conditions).any(|it| it.type_ == LAST_RUN_SUCCEEDED);
    if !is_known && is_stored(status, stored) {
        return Vec::new();
    }
    let completed =
        status.last_successful_time.map(|time| Verdict::yes("JobComplete", format!("a run completed at {time}")));
    let failed = status.failed_last().map(|failure| Verdict::no("JobFailed", failure.to_string()));
    failed.or(completed).into_iter().map(|verdict| (LAST_RUN_SUCCEEDED, verdict)).collect()
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

/// Whether `stored` reports a refused request, which may be a deletion.
pub fn reports_refusal(stored: Option<&CronTabStatus>) -> bool {
    let conditions = stored.map_or(&[][..], |status| &status.conditions);
    let degraded = conditions.iter().find(|condition| condition.type_ == "Degraded" && condition.status == "True");
    let reasons = [ProblemKind::FORBIDDEN.reason, ProblemKind::CHILD_REJECTED.reason];
    // The message names the problems beside the first one.
    let names = |reason: &str| degraded.is_some_and(|it| it.reason == reason || it.message.contains(reason));
    reasons.into_iter().any(names)
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

fn health(known: &Known<'_>, pods: &[Arc<Live<PodView>>], status: &CronTabStatus, security: SecurityPolicy) -> Health {
    let conditions = known.crontab.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let diagnosis = pods::diagnose(pods, PATIENCE, ClockReading::new(known.now, conditions), Some(security));
    // The kubelet restarts a program that fails: only the result of the whole run tells whether this is a problem.
    let mut problems: Vec<Problem> = diagnosis
        .problems
        .into_iter()
        .filter(|problem| problem.kind != ProblemKind::CRASH_LOOPING)
        .map(not_starting)
        .collect();
    problems.extend(status.failed_last().map(|failure| Problem::new(LAST_RUN_FAILED, failure.to_string())));
    problems.extend(too_many_active(known));
    Health {
        problems,
        stays_ready: true,
        recheck: diagnosis.recheck,
        ..Health::of(ready(known.crontab, status.next_schedule_time))
    }
}

fn not_starting(problem: Problem) -> Problem {
    match problem.kind {
        ProblemKind::UNSCHEDULABLE => Problem { kind: ProblemKind::PODS_NOT_STARTING, ..problem },
        _ => problem,
    }
}

fn too_many_active(known: &Known<'_>) -> Option<Problem> {
    let (time, reason) = known.memory.last_missed.as_ref()?;
    let holds = reason == Missed::TooManyActive.reason()
        && known.memory.last_schedule.is_none_or(|started| started < *time)
        && known.against_running_now() == Some(Missed::TooManyActive);
    holds.then(|| Problem::new(TOO_MANY_ACTIVE_JOBS, known.left_out(Run::At(*time), Missed::TooManyActive).message))
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

//! Judges the Jobs of a `CronTab`: which of them run at the same time, which of them the operator deletes, and what the status says of
//! those that have ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use model_apiserver::Change;
use serde_json::Value;
use simulation::{Period, condition};

use super::{JOBS, creation_time, every::most_active};

/// How a Job may end, with the field that limits how many such Jobs stay, and the default of that field.
pub(crate) const ENDS: [(&str, &str, u64); 2] =
    [("Complete", "successfulJobsHistoryLimit", 3), ("Failed", "failedJobsHistoryLimit", 1)];
/// What the names of the operator's processes begin with.
const OPERATOR: &str = "operator";

/// Section 4.5 of the specification, item 7: unless the policy is `Allow`, no Job starts while another one of the object is active;
/// with `Allow`, none starts while `maxActiveJobs` are. Only `Replace` deletes active Jobs. Nothing disturbs the period. Jobs from
/// before it count since their first change in it.
pub(crate) fn judge_concurrency(object: &Value, period: &Period) -> Result<(), String> {
    let policy = object["spec"]["concurrencyPolicy"].as_str().unwrap_or("Forbid");
    let most = if policy == "Allow" { most_active(&object["spec"]) } else { 1 };
    let mut active = BTreeSet::new();
    for change in changes_of_jobs(object, period) {
        let (was_active, is_active) = (is_active(change.before.as_ref()), is_active(change.after.as_ref()));
        if was_active && change.after.is_none() && is_by_operator(change) && policy != "Replace" {
            return Err(format!(
                "the operator has deleted {}, which was active, and the policy is {policy}",
                change.key
            ));
        }
        if !is_active {
            active.remove(&change.key);
        } else if active.insert(&change.key) && change.before.is_none() && active.len() > most {
            return Err(format!(
                "{} starts, the policy is {policy}, at most {most} may be active, and these Jobs are: {active:?}",
                change.key
            ));
        }
    }
    Ok(())
}

/// Section 4.5 of the specification, item 4: the newest finished Jobs stay. When the operator deletes a Job that was created in the
/// period, the newer ones have been created in the period too, and as many of them as the limit says have ended in the same way.
pub(crate) fn judge_history(object: &Value, period: &Period) -> Result<(), String> {
    let spec = &object["spec"];
    // With a TTL, others go at the same time. A Job from before the clocks were put back may be newer by its start time.
    if !spec["ttlSecondsAfterFinished"].is_null() || period.latest_before > period.from {
        return Ok(());
    }
    let (mut created, mut kept) = (BTreeSet::new(), BTreeMap::new());
    for change in changes_of_jobs(object, period) {
        match (&change.before, &change.after) {
            (None, Some(job)) => {
                if creation_time(job).is_some_and(|time| time > period.from) {
                    created.insert(&change.key);
                }
            }
            (Some(_), Some(job)) => {
                if let Some(end) = end_of(job) {
                    kept.insert(&change.key, end);
                }
            }
            (Some(job), None) => {
                kept.remove(&change.key);
                let end = end_of(job).filter(|_| is_by_operator(change) && created.contains(&change.key));
                let Some((type_, field, default)) = end else { continue };
                let count = kept.values().filter(|(other, ..)| *other == type_).count();
                if count < limit(spec, field, default) {
                    let key = &change.key;
                    return Err(format!("the operator has deleted {key}, and only {count} newer Jobs are {type_}"));
                }
            }
            (None, None) => {}
        }
    }
    Ok(())
}

/// Section 4.8 of the specification: the status knows of each Job that has ended, and the condition says how the last run ended.
/// Later runs may have ended whose Jobs are gone. `jobs` are the Jobs of the object.
pub(crate) fn judge_last_run(status: &Value, jobs: &[Value]) -> Result<(), String> {
    let (success, failure) = (time(&status["lastSuccessfulTime"]), time(&status["lastFailure"]["time"]));
    for (type_, known) in [("Complete", success), ("Failed", failure)] {
        let last = jobs.iter().filter_map(|job| ended_at(job, type_)).max();
        if last > known {
            return Err(format!("a Job was {type_} at {last:?}, and the status knows only of {known:?}"));
        }
    }
    if failure.is_some() && failure == success {
        return Ok(()); // which one was the last is open
    }
    // Without a run that has ended, there is no condition.
    let (degraded, last_run) =
        if failure > success { ("True", Some("False")) } else { ("False", success.map(|_| "True")) };
    for (type_, wanted) in [("Degraded", Some(degraded)), ("LastRunSucceeded", last_run)] {
        let found = condition(status, type_);
        if found["status"].as_str() != wanted {
            return Err(format!(
                "{type_} is {found}, the last success was at {success:?}, the last failure at {failure:?}"
            ));
        }
    }
    Ok(())
}

/// How many Jobs that have ended in one way stay at most.
pub(super) fn limit(spec: &Value, field: &str, default: u64) -> usize {
    usize::try_from(spec[field].as_u64().unwrap_or(default)).unwrap_or(usize::MAX)
}

fn changes_of_jobs<'a>(object: &Value, period: &'a Period) -> impl Iterator<Item = &'a Change> {
    let uid = object["metadata"]["uid"].clone();
    let is_ours = move |change: &&Change| {
        let job = change.after.as_ref().or(change.before.as_ref());
        *change.resource == *JOBS && job.is_some_and(|job| job["metadata"]["ownerReferences"][0]["uid"] == uid)
    };
    period.changes.iter().filter(is_ours)
}

fn is_by_operator(change: &Change) -> bool {
    change.writer.starts_with(OPERATOR)
}

/// Whether there is this Job, its run is not over, and it is not being deleted.
fn is_active(job: Option<&Arc<Value>>) -> bool {
    job.is_some_and(|job| job["metadata"]["deletionTimestamp"].is_null() && end_of(job).is_none())
}

/// How the Job has ended, if it has.
fn end_of(job: &Value) -> Option<(&'static str, &'static str, u64)> {
    ENDS.into_iter().find(|(type_, ..)| condition(&job["status"], type_)["status"] == "True")
}

/// When the Job has ended in this way, if it has.
fn ended_at(job: &Value, type_: &str) -> Option<Timestamp> {
    let end = Some(condition(&job["status"], type_)).filter(|end| end["status"] == "True")?;
    time(&job["status"]["completionTime"]).or_else(|| time(&end["lastTransitionTime"]))
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

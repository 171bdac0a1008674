//! The Job history: which finished Jobs are deleted, and when.

use jiff::{SignedDuration, Timestamp};

use crate::{api::v1::CronTabSpec, known::LiveJob};

/// Returns the finished Jobs to delete: first those that are too old, then the completed and last the failed ones beyond the history
/// limits. Within each of these three groups, the oldest come first, because a reconcile may delete only some.
pub fn surplus(spec: &CronTabSpec, jobs: &[LiveJob], now: Timestamp) -> Vec<LiveJob> {
    let mut finished: Vec<&LiveJob> = finished(jobs).collect();
    finished.sort_by(|a, b| a.order().cmp(&b.order()));
    let is_too_old = |job: &&LiveJob| expiry(spec, job).is_some_and(|time| time <= now);
    let (expired, kept): (Vec<&LiveJob>, Vec<&LiveJob>) = finished.into_iter().partition(is_too_old);
    let (failed, completed): (Vec<&LiveJob>, Vec<&LiveJob>) =
        kept.into_iter().partition(|job| job.end().is_some_and(|end| end.failure.is_some()));
    let beyond = |jobs: &[&LiveJob], limit: usize| -> Vec<LiveJob> {
        jobs[..jobs.len().saturating_sub(limit)].iter().map(|job| (*job).clone()).collect()
    };
    let mut surplus = beyond(&expired, 0);
    surplus.extend(beyond(&completed, spec.successful_jobs_history_limit()));
    surplus.extend(beyond(&failed, spec.failed_jobs_history_limit()));
    surplus
}

/// Returns when the next finished Job becomes too old.
pub fn next_expiry(spec: &CronTabSpec, jobs: &[LiveJob], now: Timestamp) -> Option<Timestamp> {
    finished(jobs).filter_map(|job| expiry(spec, job)).filter(|time| *time > now).min()
}

fn finished(jobs: &[LiveJob]) -> impl Iterator<Item = &LiveJob> {
    jobs.iter().filter(|job| job.end().is_some() && job.deleting.is_none())
}

/// Returns when a finished Job becomes too old (`ttlSecondsAfterFinished`); `None` for never.
fn expiry(spec: &CronTabSpec, job: &LiveJob) -> Option<Timestamp> {
    let longest = SignedDuration::from_secs(spec.ttl_seconds_after_finished?.into());
    let ended = job.end()?.at.or(job.started()).or(job.created)?;
    ended.checked_add(longest).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use workloads::Live;

    use super::*;
    use crate::{
        known::testing::{at, job},
        samples,
    };

    /// Returns the names of the surplus Jobs. `+` marks a completed Job, `-` a failed one; the others are active.
    fn gone(limits: (i32, i32), jobs: &[(&str, &str)]) -> Vec<String> {
        let spec = json!({
            "cronSpec": "@daily", "image": "a", "successfulJobsHistoryLimit": limits.0, "failedJobsHistoryLimit": limits.1,
        });
        names(&surplus(&samples::with_spec(&spec).spec, &jobs_of(jobs), at("2026-11-20T12:00:00Z")))
    }

    fn jobs_of(jobs: &[(&str, &str)]) -> Vec<LiveJob> {
        jobs.iter().map(|(name, how)| job(name, how)).collect()
    }

    fn names(jobs: &[LiveJob]) -> Vec<String> {
        jobs.iter().map(|job| job.name.to_string()).collect()
    }

    #[test]
    fn history_keeps_the_newest_jobs() {
        let jobs = [
            ("a", "+ 10:00"),
            ("d", "- 10:01"),
            ("b", "+ 10:05"),
            ("c", "+ 10:04"),
            ("e", "- 10:02"),
            ("f", "+ 10:03"),
            ("g", "10:00"),
        ];
        assert_eq!(gone((3, 1), &jobs), ["a", "d"]);
        assert_eq!(gone((0, 0), &jobs), ["a", "f", "c", "b", "d", "e"]);
        assert_eq!(gone((9, 9), &jobs), [""; 0]);
        assert_eq!(gone((1, 9), &[("b", "+ 10:00"), ("a", "+ 10:00")]), ["a"], "equal times: in order of the names");
    }

    #[test]
    fn job_that_is_being_deleted_is_not_deleted_again() {
        let spec = json!({"cronSpec": "@daily", "image": "a", "successfulJobsHistoryLimit": 0});
        let mut jobs = vec![job("a", "+ 10:00"), job("b", "+ 10:01")];
        let deleted = Live { deleting: jobs[0].created, ..(*jobs[0]).clone() };
        jobs[0] = Arc::new(deleted);
        let surplus = surplus(&samples::with_spec(&spec).spec, &jobs, at("2026-11-20T12:00:00Z"));
        assert_eq!(names(&surplus), ["b"]);
    }

    /// Each Job ends half a minute after its start.
    #[test]
    fn job_goes_when_its_ttl_has_passed() {
        let jobs = jobs_of(&[("c", "- 10:02"), ("a", "+ 10:00"), ("b", "+ 10:01"), ("active", "09:00")]);
        for (ttl, now, gone, next) in [
            (json!(null), "10:59:00", "", None),
            (json!(600), "10:10:29.9", "", Some("10:10:30")),
            (json!(600), "10:10:30", "a", Some("10:11:30")),
            (json!(600), "10:12:00", "a b", Some("10:12:30")),
            (json!(600), "10:12:30", "a b c", None),
            (json!(0), "10:01:00", "a", Some("10:01:30")), // the clock was put back
            (json!(i32::MAX), "10:59:00", "", Some("2094-12-08T13:14:37Z")),
        ] {
            let spec = json!({"cronSpec": "@daily", "image": "a", "ttlSecondsAfterFinished": ttl});
            let (spec, now) = (samples::with_spec(&spec).spec, at(&format!("2026-11-20T{now}Z")));
            let expected = next.map(|time| if time.len() > 8 { at(time) } else { at(&format!("2026-11-20T{time}Z")) });
            assert_eq!(names(&surplus(&spec, &jobs, now)).join(" "), gone, "{ttl} at {now}");
            assert_eq!(next_expiry(&spec, &jobs, now), expected, "{ttl} at {now}");
        }
    }

    /// A Job that goes for its age makes room in the history.
    #[test]
    fn history_limits_count_only_jobs_that_stay() {
        let spec = json!({
            "cronSpec": "@daily", "image": "a", "successfulJobsHistoryLimit": 1, "ttlSecondsAfterFinished": 60,
        });
        let jobs = jobs_of(&[("a", "+ 10:00"), ("b", "+ 10:01")]);
        let surplus = surplus(&samples::with_spec(&spec).spec, &jobs, at("2026-11-20T10:02:00Z"));
        assert_eq!(names(&surplus), ["a"]);
    }
}

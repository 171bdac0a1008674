//! The Job history: which finished Jobs are deleted.

use crate::{api::v1::CronTabSpec, known::LiveJob};

/// Returns the finished Jobs beyond the history limits: first the completed ones, then the failed ones, each the oldest first.
pub fn surplus(spec: &CronTabSpec, jobs: &[LiveJob]) -> Vec<LiveJob> {
    let mut finished: Vec<&LiveJob> = jobs.iter().filter(|job| job.end().is_some() && job.deleting.is_none()).collect();
    finished.sort_by(|a, b| a.order().cmp(&b.order()));
    let (failed, completed): (Vec<&LiveJob>, Vec<&LiveJob>) =
        finished.into_iter().partition(|job| job.end().is_some_and(|end| end.failure.is_some()));
    let beyond = |jobs: &[&LiveJob], limit: usize| -> Vec<LiveJob> {
        jobs[..jobs.len().saturating_sub(limit)].iter().map(|job| (*job).clone()).collect()
    };
    let mut surplus = beyond(&completed, spec.successful_jobs_history_limit());
    surplus.extend(beyond(&failed, spec.failed_jobs_history_limit()));
    surplus
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use workloads::Live;

    use super::*;
    use crate::{known::testing::job, samples};

    /// Returns the names of the surplus Jobs. `+` marks a completed Job, `-` a failed one; the others are active.
    fn gone(limits: (i32, i32), jobs: &[(&str, &str)]) -> Vec<String> {
        let spec = json!({
            "cronSpec": "@daily", "image": "a", "successfulJobsHistoryLimit": limits.0, "failedJobsHistoryLimit": limits.1,
        });
        let jobs: Vec<LiveJob> = jobs.iter().map(|(name, how)| job(name, how)).collect();
        surplus(&samples::with_spec(&spec).spec, &jobs).iter().map(|job| job.name.to_string()).collect()
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
        let surplus = surplus(&samples::with_spec(&spec).spec, &jobs);
        assert_eq!(surplus.iter().map(|job| &*job.name).collect::<Vec<_>>(), ["b"]);
    }
}

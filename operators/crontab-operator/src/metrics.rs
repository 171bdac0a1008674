//! The operator's own metrics.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use manager::{MetricRegistry, Objects};
use prometheus::{Histogram, IntCounterVec, IntGaugeVec};

use crate::{
    CronTab,
    api::v1::{CronTabSpec, CronTabStatus},
    known::Missed,
    timing::Timing,
};

/// Buckets of the start delay, from a tenth of a second to an hour.
const SECONDS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

/// The outcome of an attempt to start a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Tally {
    /// Its Job was created, this long after its scheduled time.
    Started(SignedDuration),
    /// Its Job was created because the user requested the run.
    Requested,
    /// It was skipped.
    Missed(Missed),
    /// Its Job could not be created. The operator tries again.
    Failed,
}

/// The metrics about runs.
#[derive(Debug, Clone)]
pub(crate) struct Runs {
    delay: Histogram,
    total: IntCounterVec,
}

impl Runs {
    pub(crate) fn new(registry: &MetricRegistry) -> Self {
        let delay = registry.histograms(
            "crontab_operator_start_delay_seconds",
            "How long after its scheduled time the Job of a run was created.",
            &[],
            &SECONDS,
        );
        let help = "Attempts to start a run, by result: started, skipped_forbid, skipped_too_many, missed_deadline, \
                    name_conflict, error.";
        let total = registry.counters("crontab_operator_runs_total", help, &["result"]);
        for result in ["started", "skipped_forbid", "skipped_too_many", "missed_deadline", "name_conflict", "error"] {
            total.with_label_values(&[result]);
        }
        Self { delay: delay.with_label_values::<&str>(&[]), total }
    }

    pub(crate) fn count(&self, tally: Tally) {
        if let Tally::Started(delay) = tally {
            self.delay.observe(delay.as_secs_f64().max(0.0));
        }
        self.total.with_label_values(&[result(tally)]).inc();
    }
}

fn result(tally: Tally) -> &'static str {
    match tally {
        Tally::Started(_) | Tally::Requested => "started",
        Tally::Missed(Missed::StillRunning) => "skipped_forbid",
        Tally::Missed(Missed::TooManyActive) => "skipped_too_many",
        Tally::Missed(Missed::TooLate) => "missed_deadline",
        Tally::Missed(Missed::NameTaken) => "name_conflict",
        Tally::Failed => "error",
    }
}

/// Returns a function that sets the gauges of each object: active Jobs, next run, and how the last runs ended. The runtime calls
/// it at each scrape.
pub(crate) fn gauges(registry: &MetricRegistry) -> impl Fn(Objects<'_, CronTab>, Timestamp) + Send + Sync + use<> {
    let make = |name, help| registry.gauges(name, help, &["namespace", "name"]);
    let gauges = Gauges {
        active: make("crontab_operator_active_jobs", "Number of active Jobs of each CronTab."),
        next: make("crontab_operator_next_run_timestamp_seconds", "When each CronTab runs next."),
        success: make("crontab_operator_last_success_timestamp_seconds", "When a run of each CronTab last completed."),
        succeeded: make(
            "crontab_operator_last_run_succeeded",
            "1 if the run of each CronTab that ended last has completed, 0 if it has failed.",
        ),
        unsuccessful: make(
            "crontab_operator_runs_without_success",
            "Number of scheduled times of each CronTab since a run last completed, or since its schedule took effect.",
        ),
        since: make(
            "crontab_operator_without_success_since_timestamp_seconds",
            "When a run of each CronTab last completed, or when its schedule took effect, whichever is later.",
        ),
    };
    move |crontabs, _| gauges.show(crontabs)
}

struct Gauges {
    active: IntGaugeVec,
    next: IntGaugeVec,
    success: IntGaugeVec,
    succeeded: IntGaugeVec,
    unsuccessful: IntGaugeVec,
    since: IntGaugeVec,
}

impl Gauges {
    fn show(&self, crontabs: Objects<'_, CronTab>) {
        for gauge in [&self.active, &self.next, &self.success, &self.succeeded, &self.unsuccessful, &self.since] {
            gauge.reset(); // drops the series of deleted objects
        }
        for crontab in crontabs {
            let Some(status) = &crontab.status else { continue };
            let (namespace, name) = (crontab.namespace().unwrap_or_default(), crontab.name_any());
            let labels = [namespace.as_str(), name.as_str()];
            self.active.with_label_values(&labels).set(status.active_jobs.into());
            let show = |gauge: &IntGaugeVec, value: Option<i64>| {
                if let Some(value) = value {
                    gauge.with_label_values(&labels).set(value);
                }
            };
            show(&self.next, status.next_schedule_time.map(Timestamp::as_second));
            show(&self.success, status.last_successful_time.map(Timestamp::as_second));
            show(&self.succeeded, has_succeeded(status).map(i64::from));
            show(&self.unsuccessful, runs_without_success(&crontab.spec, status));
            show(&self.since, without_success_since(status).map(Timestamp::as_second));
        }
    }
}

/// Whether the run that ended last has completed; `None` if no run has ended.
fn has_succeeded(status: &CronTabStatus) -> Option<bool> {
    let has_ended = status.last_successful_time.is_some() || status.last_failure.is_some();
    has_ended.then(|| status.failed_last().is_none())
}

/// Returns when a run last completed, or when the schedule took effect, whichever is later. `None` while no schedule is in effect.
fn without_success_since(status: &CronTabStatus) -> Option<Timestamp> {
    let in_effect = status.schedule.as_ref().filter(|_| status.next_schedule_time.is_some())?;
    Some(in_effect.since.max(status.last_successful_time.unwrap_or(Timestamp::MIN)))
}

/// Counts the scheduled times that have passed since a run last completed, or since the schedule took effect. The newest of them may
/// be active. `None` while no schedule is in effect.
fn runs_without_success(spec: &CronTabSpec, status: &CronTabStatus) -> Option<i64> {
    let next = status.next_schedule_time?;
    let Timing { schedule, zone } = Timing::of(spec).ok()?;
    let since = without_success_since(status)?;
    let times = schedule.times(&zone, since);
    // While the API server refuses the Job of a run, the run stays due, and the status records neither a start nor a skip. So every
    // time before that of the next run counts. `jitterSeconds` may delay its start, but not beyond the time after it.
    let passed = times.until(next).and_then(|time| time.checked_sub(SignedDuration::from_secs(1)).ok());
    let Some(last) = passed.max(status.last_schedule_time).max(status.last_missed_time) else { return Some(0) };
    i64::try_from(times.count(since, last)).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    #[test]
    fn every_result_is_exposed_from_the_start() {
        let registry = MetricRegistry::default();
        let runs = Runs::new(&registry);
        runs.count(Tally::Started(SignedDuration::from_millis(300)));
        runs.count(Tally::Missed(Missed::StillRunning));
        let count = |result: &str| runs.total.with_label_values(&[result]).get();
        assert_eq!((count("started"), count("skipped_forbid"), count("error")), (1, 1, 0));
        assert!((runs.delay.get_sample_sum() - 0.3).abs() < 1e-9);
    }

    #[test]
    fn gauges_exist_only_while_the_object_exists() {
        let labels = ["namespace", "name"];
        let gauge = |name: &str| IntGaugeVec::new(prometheus::Opts::new(name, name), &labels).expect("a metric");
        let gauges = Gauges {
            active: gauge("a"),
            next: gauge("b"),
            success: gauge("c"),
            succeeded: gauge("d"),
            unsuccessful: gauge("e"),
            since: gauge("f"),
        };
        let mut crontab = samples::seed();
        let status = json!({"activeJobs": 2, "nextScheduleTime": "2026-11-20T00:01:00Z"});
        crontab.status = Some(serde_json::from_value(status).expect("a status"));
        let shown = |gauge: &IntGaugeVec| {
            let families = prometheus::core::Collector::collect(gauge);
            families
                .iter()
                .flat_map(prometheus::proto::MetricFamily::get_metric)
                .map(|it| it.get_gauge().get_value())
                .collect::<Vec<_>>()
        };
        gauges.show(&mut [Arc::new(crontab)].into_iter());
        assert_eq!((shown(&gauges.active), shown(&gauges.next)), (vec![2.0], vec![1_795_132_860.0]));
        assert!(shown(&gauges.success).is_empty());
        gauges.show(&mut std::iter::empty());
        assert!(shown(&gauges.active).is_empty());
    }

    fn status(status: &Value) -> CronTabStatus {
        serde_json::from_value(status.clone()).expect("a status")
    }

    #[test]
    fn last_run_succeeded_follows_the_newest_end() {
        let failed_at = |time: &str| json!({"job": "a", "time": time, "reason": "BackoffLimitExceeded"});
        let (early, late) = ("2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z");
        for (past, succeeded) in [
            (json!({}), None),
            (json!({"lastSuccessfulTime": early}), Some(true)),
            (json!({"lastFailure": failed_at(early)}), Some(false)),
            (json!({"lastSuccessfulTime": early, "lastFailure": failed_at(late)}), Some(false)),
            (json!({"lastSuccessfulTime": late, "lastFailure": failed_at(early)}), Some(true)),
        ] {
            assert_eq!(has_succeeded(&status(&past)), succeeded, "{past}");
        }
    }

    #[test]
    fn runs_count_as_unsuccessful_from_the_last_success_or_edit() {
        // A Friday. The schedule has no times at the weekend.
        let spec = samples::with_spec(&json!({"cronSpec": "0 9-17 * * 1-5", "image": "a"})).spec;
        let of = |more: &Value| {
            let mut past = json!({
                "nextScheduleTime": "2026-11-23T10:00:00Z", "schedule": {"hash": "h", "since": "2026-11-20T15:30:00Z"},
            });
            past.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            runs_without_success(&spec, &status(&past))
        };
        let monday = "2026-11-23T09:00:00Z";
        assert_eq!(of(&json!({"nextScheduleTime": "2026-11-20T16:00:00Z"})), Some(0), "no time has passed");
        assert_eq!(of(&json!({})), Some(3), "the API server refuses the Jobs");
        assert_eq!(of(&json!({"lastScheduleTime": monday})), Some(3), "16:00, 17:00 and 9:00");
        let skipped = json!({"lastScheduleTime": "2026-11-20T16:00:00Z", "lastMissedTime": monday});
        assert_eq!(of(&skipped), Some(3), "a skipped run has no success either");
        let friday = "2026-11-20T17:00:30Z";
        assert_eq!(of(&json!({"lastScheduleTime": monday, "lastSuccessfulTime": friday})), Some(1));
        let earlier = json!({"lastScheduleTime": monday, "lastSuccessfulTime": "2026-11-20T09:00:30Z"});
        assert_eq!(of(&earlier), Some(3), "not before the edit at 15:30");
        assert_eq!(
            of(&json!({"lastScheduleTime": monday, "nextScheduleTime": null})),
            None,
            "no schedule is in effect"
        );
        let every = samples::with_spec(&json!({"cronSpec": "@every 10m", "image": "a"})).spec;
        let past = json!({
            "nextScheduleTime": "2026-11-20T16:10:00Z", "schedule": {"hash": "h", "since": "2026-11-20T15:00:00Z"},
            "lastScheduleTime": "2026-11-20T16:00:00Z",
        });
        assert_eq!(runs_without_success(&every, &status(&past)), Some(6));
    }

    /// The first run of a CronTab may take hours: the alert about missing success must know since when there could be one.
    #[test]
    fn success_is_missing_since_the_last_one_or_since_the_schedule_took_effect() {
        let of = |next: &Value, last: &Value| {
            let schedule = json!({"hash": "h", "since": "2026-11-20T15:30:00Z"});
            let past = json!({"nextScheduleTime": next, "schedule": schedule, "lastSuccessfulTime": last});
            without_success_since(&status(&past)).map(|it| it.to_string())
        };
        let next = json!("2026-11-20T19:00:00Z");
        for (last, since) in [
            (json!(null), "2026-11-20T15:30:00Z"),
            (json!("2026-11-20T15:29:00Z"), "2026-11-20T15:30:00Z"),
            (json!("2026-11-20T17:01:00Z"), "2026-11-20T17:01:00Z"),
        ] {
            assert_eq!(of(&next, &last).as_deref(), Some(since), "{last}");
        }
        assert_eq!(of(&json!(null), &json!(null)), None, "no schedule is in effect");
    }

    #[test]
    fn time_whose_start_jitter_delays_has_not_passed() {
        let spec = json!({"cronSpec": "0 * * * *", "image": "a", "jitterSeconds": 600});
        let of = |next: &str| {
            let past = json!({"nextScheduleTime": next, "schedule": {"hash": "h", "since": "2026-11-20T09:30:00Z"}});
            runs_without_success(&samples::with_spec(&spec).spec, &status(&past))
        };
        assert_eq!(of("2026-11-20T10:09:59Z"), Some(0));
        assert_eq!(of("2026-11-20T11:00:00Z"), Some(1));
    }
}

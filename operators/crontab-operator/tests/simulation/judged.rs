//! The judge has to find each mistake that it is for. Worlds of a correct operator make none of them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use model_apiserver::Change;
use serde_json::{Value, json};
use simulation::Period;

use crate::subject::{
    every,
    jobs::{judge_concurrency, judge_history, judge_last_run},
};

/// What happens to a Job of this number.
#[derive(Debug, Clone, Copy)]
enum Step {
    Starts(u8),
    Completes(u8),
    Fails(u8),
    /// The operator deletes it.
    Deletes(u8),
    /// The garbage collector does.
    Collects(u8),
}

use Step::{Collects, Completes, Deletes, Fails, Starts};

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn object(spec: &Value) -> Value {
    json!({"metadata": {"uid": "uid"}, "spec": spec})
}

/// A Job without an end.
const ACTIVE: &str = "";

/// The Job of this number, which was created so many seconds after the period has begun, and has ended in this way.
fn job(number: u8, second: i64, end: &str) -> Value {
    let time = (START + SignedDuration::from_secs(second)).to_string();
    let condition = json!({"type": end, "status": "True", "lastTransitionTime": time});
    json!({
        "metadata": {"name": format!("a-{number}"), "creationTimestamp": time, "ownerReferences": [{"uid": "uid"}]},
        "status": {"conditions": if end == ACTIVE { Vec::new() } else { vec![condition] }},
    })
}

/// A period in which this happens to Jobs. Those of the numbers below `old` are from before it.
fn period(old: u8, steps: &[Step]) -> Period {
    let change = |step: &Step| {
        let (number, before, after) = match *step {
            Starts(number) => (number, None, Some(ACTIVE)),
            Completes(number) => (number, Some(ACTIVE), Some("Complete")),
            Fails(number) => (number, Some(ACTIVE), Some("Failed")),
            Deletes(number) | Collects(number) => (number, Some(last_end(number, steps)), None),
        };
        let second = if number < old { -60 } else { 60 };
        let state = |end: Option<&str>| end.map(|end| Arc::new(job(number, second, end)));
        Change {
            version: 1,
            resource: "jobs.batch".into(),
            key: format!("shop/a-{number}").into(),
            before: state(before),
            after: state(after),
            writer: if matches!(step, Collects(_)) { "garbage-collector" } else { "operator-0" }.into(),
        }
    };
    let changes = steps.iter().map(change).collect();
    Period { from: START, latest_before: START, until: START + SignedDuration::from_mins(31), changes }
}

/// How the Job of this number has ended before it goes.
fn last_end(number: u8, steps: &[Step]) -> &'static str {
    let end = steps.iter().find_map(|step| match *step {
        Completes(other) if other == number => Some("Complete"),
        Fails(other) if other == number => Some("Failed"),
        _ => None,
    });
    end.unwrap_or(ACTIVE)
}

#[test]
fn runs_that_overlap_against_the_policy_are_found() {
    let is_right = |policy: &str, steps: &[Step]| {
        judge_concurrency(&object(&json!({"concurrencyPolicy": policy})), &period(0, steps)).is_ok()
    };
    let (apart, overlapping) = ([Starts(1), Completes(1), Starts(2)], [Starts(1), Starts(2)]);
    let (replaced, missing) = ([Starts(1), Deletes(1), Starts(2)], [Starts(1), Collects(1), Starts(2)]);
    for (policy, may_overlap, may_replace) in
        [("Allow", true, false), ("Forbid", false, false), ("Replace", false, true)]
    {
        assert!(is_right(policy, &apart) && is_right(policy, &missing), "{policy}");
        assert_eq!(is_right(policy, &overlapping), may_overlap, "{policy}");
        assert_eq!(is_right(policy, &replaced), may_replace, "{policy}");
    }
    assert!(judge_concurrency(&object(&json!({})), &period(0, &overlapping)).is_err(), "the default is Forbid");
    let with_most = |most: u8, steps: &[Step]| {
        judge_concurrency(&object(&json!({"concurrencyPolicy": "Allow", "maxActiveJobs": most})), &period(0, steps))
    };
    assert!(with_most(1, &apart).is_ok() && with_most(1, &overlapping).is_err());
    let third = [&overlapping[..], &[Starts(3)]].concat();
    assert!(with_most(2, &overlapping).is_ok() && with_most(2, &third).is_err());
    let of_another = json!({"metadata": {"uid": "other"}, "spec": {}});
    assert_eq!(judge_concurrency(&of_another, &period(0, &overlapping)), Ok(()));
}

#[test]
fn job_that_the_history_has_to_keep_is_missed() {
    let with = |spec: Value, period: &Period| judge_history(&object(&spec), period).is_ok();
    let usual = |old: u8, steps: &[Step]| with(json!({}), &period(old, steps));
    let four = [Starts(1), Completes(1), Starts(2), Completes(2), Starts(3), Completes(3), Starts(4), Completes(4)];
    assert!(usual(0, &[&four[..], &[Deletes(1)]].concat()));
    assert!(!usual(0, &[&four[..6], &[Deletes(1)]].concat()), "three completed Jobs have to stay");
    assert!(!usual(0, &[&four[..], &[Deletes(1), Deletes(2)]].concat()));
    assert!(usual(0, &[&four[..6], &[Collects(1)]].concat()), "the operator has not deleted it");
    assert!(usual(2, &[&four[..4], &[Deletes(1)]].concat()), "more may have ended before the period");
    let failed = [Starts(1), Fails(1), Starts(2), Fails(2)];
    assert!(usual(0, &[&failed[..], &[Deletes(1)]].concat()));
    assert!(!usual(0, &[&failed[..], &[Deletes(1), Deletes(2)]].concat()));
    assert!(!usual(0, &[&failed[..2], &four[2..], &[Deletes(1)]].concat()), "completed ones do not count");

    let deleted = [&four[..2], &[Deletes(1)]].concat();
    assert!(with(json!({"successfulJobsHistoryLimit": 0}), &period(0, &deleted)));
    assert!(
        with(json!({"ttlSecondsAfterFinished": 60}), &period(0, &deleted)),
        "others may have gone at the same time"
    );
    let put_back = Period { latest_before: START + SignedDuration::from_hours(1), ..period(0, &deleted) };
    assert!(with(json!({}), &put_back), "older Jobs may have later start times");
}

#[test]
fn status_that_hides_how_the_last_run_ended_is_found() {
    let time = |second: i64| (START + SignedDuration::from_secs(second)).to_string();
    let status = |success: Option<i64>, failure: Option<i64>, degraded: &str, last_run: Option<&str>| {
        let mut conditions = vec![json!({"type": "Degraded", "status": degraded})];
        conditions.extend(last_run.map(|it| json!({"type": "LastRunSucceeded", "status": it})));
        let failure = failure.map(|second| json!({"time": time(second)}));
        json!({"lastSuccessfulTime": success.map(time), "lastFailure": failure, "conditions": conditions})
    };
    let jobs = [job(1, 10, "Complete"), job(2, 20, "Failed")];
    let failed = status(Some(10), Some(20), "True", Some("False"));
    assert_eq!(judge_last_run(&failed, &jobs), Ok(()));
    for wrong in [
        status(None, Some(20), "True", Some("False")),
        status(Some(10), None, "False", Some("True")),
        status(Some(10), Some(20), "False", Some("True")),
        status(Some(10), Some(20), "True", Some("True")),
        status(Some(10), Some(20), "True", None),
        status(Some(5), Some(20), "True", Some("False")),
    ] {
        assert!(judge_last_run(&wrong, &jobs).is_err(), "{wrong}");
    }
    let later = status(Some(30), Some(20), "False", Some("True"));
    assert_eq!(judge_last_run(&later, &jobs), Ok(()), "the Job of the last run is gone");
    assert_eq!(judge_last_run(&status(None, None, "False", None), &[]), Ok(()));
    assert!(judge_last_run(&status(None, None, "False", Some("True")), &[]).is_err(), "no run has ended");
}

#[test]
fn runs_beside_the_grid_of_every_and_missing_ones_are_found() {
    // The times of the runs, in seconds after the begin of a period of 31 minutes.
    let with = |spec: &Value, seconds: i64, times: &[i64]| {
        let made: Vec<Timestamp> = times.iter().map(|second| START + SignedDuration::from_secs(*second)).collect();
        every::judge(spec, &period(0, &[]), seconds, &made)
    };
    let forbid = json!({});
    let usual = |times: &[i64]| with(&forbid, 420, times).is_ok();
    assert!(usual(&[5, 425, 845, 1_265, 1_685]) && usual(&[419, 839, 1_259, 1_679]));
    assert!(!usual(&[5, 425, 846, 1_266, 1_686]), "one is a second late");
    assert!(!usual(&[5, 425, 1_265, 1_685]), "one is missing");
    assert!(!usual(&[845, 1_265, 1_685]) && !usual(&[5, 425, 845]) && !usual(&[]));

    // Only runs that overlap may be left out.
    let all: Vec<i64> = (0..38).map(|number| 50 * number).collect();
    let half: Vec<i64> = all.iter().copied().step_by(2).collect();
    let allow = |most: u8| json!({"concurrencyPolicy": "Allow", "maxActiveJobs": most});
    for spec in [forbid.clone(), allow(1), allow(3), json!({"concurrencyPolicy": "Replace"})] {
        assert_eq!(with(&spec, 50, &all), Ok(()), "{spec}");
    }
    for (spec, is_right) in [
        (forbid.clone(), true),
        (allow(1), true),
        (allow(3), false),
        (json!({"concurrencyPolicy": "Allow"}), false),
        (json!({"concurrencyPolicy": "Replace"}), false),
    ] {
        assert_eq!(with(&spec, 50, &half).is_ok(), is_right, "{spec}");
    }
    assert!(with(&forbid, 50, &all[..20]).is_err(), "the runs end");

    let put_back = Period { latest_before: START + SignedDuration::from_hours(1), ..period(0, &[]) };
    assert_eq!(every::judge(&forbid, &put_back, 420, &[]), Ok(()), "the clocks have not passed the last run");
}

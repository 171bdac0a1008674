use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use workloads::SecurityPolicy;

use super::{testing::at, testing::job, *};
use crate::samples;

/// Returns the sample with these changes of its spec, and with this status.
fn crontab(spec: &Value, status: &Value) -> CronTab {
    let mut whole = json!({"cronSpec": "0 * * * *", "image": "a"});
    whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    CronTab { status: serde_json::from_value(status.clone()).expect("a status"), ..samples::with_spec(&whole) }
}

fn timing(crontab: &CronTab) -> Timing {
    Timing::of(&crontab.spec).expect("a schedule")
}

/// Returns the status that a reconcile writes now.
fn remember(crontab: &CronTab, now: &str) -> CronTabStatus {
    let timing = timing(crontab);
    crate::status::of(&Known::of(crontab, &timing, vec![], at(now)), &[], SecurityPolicy::default()).status
}

fn due(crontab: &CronTab, now: &str) -> Option<Timestamp> {
    let timing = timing(crontab);
    Known::of(crontab, &timing, vec![], at(now)).situation().due().map(|due| due.time)
}

#[test]
fn edit_or_resume_starts_no_earlier_run() {
    let daily = crontab(&json!({"cronSpec": "0 0 * * *"}), &json!({}));
    let status = remember(&daily, "2026-11-20T12:30:00Z");
    assert_eq!(status.schedule.as_ref().map(|it| it.since), Some(at("2026-11-19T12:00:00Z")), "in the first reconcile");

    // 4.13.9: an edit at 15:00 sets the schedule to noon. No run is due before noon of the next day.
    let mut edited = crontab(&json!({"cronSpec": "0 12 * * *"}), &json!({}));
    edited.status = Some(status.clone());
    assert_eq!(due(&edited, "2026-11-20T15:00:00.5Z"), None);
    edited.status = Some(remember(&edited, "2026-11-20T15:00:00.5Z"));
    assert_eq!(
        edited.status.as_ref().and_then(|it| it.schedule.as_ref()).map(|it| it.since),
        Some(at("2026-11-20T15:00:00Z"))
    );
    assert_eq!(due(&edited, "2026-11-21T11:59:59Z"), None);
    assert_eq!(due(&edited, "2026-11-21T12:00:00Z"), Some(at("2026-11-21T12:00:00Z")));

    for held in [json!({"suspend": true}), json!({"replicas": 0})] {
        let mut crontab = crontab(&held, &json!({}));
        crontab.status = Some(remember(&crontab, "2026-11-20T10:00:30Z"));
        assert_eq!(crontab.status.as_ref().and_then(|it| it.next_schedule_time), None);
        assert_eq!(due(&crontab, "2026-11-20T14:30:00Z"), None);
        crontab.spec.suspend = false;
        crontab.spec.replicas = 1;
        assert_eq!(due(&crontab, "2026-11-20T15:00:01Z"), None, "{held}");
        crontab.status = Some(remember(&crontab, "2026-11-20T15:00:01Z"));
        assert_eq!(due(&crontab, "2026-11-20T16:00:00Z"), Some(at("2026-11-20T16:00:00Z")));
    }
}

/// Another client that changes the recorded time again and again is no edit: the runtime restores the status ever more slowly.
#[test]
fn only_an_edit_that_the_status_lacks_is_unrecorded() {
    let is_unrecorded = |generation: i64, hash: Option<&str>| {
        let mut crontab = crontab(&json!({}), &json!({}));
        let mut status = CronTabStatus { observed_generation: Some(1), ..remember(&crontab, "2026-11-20T10:00:30Z") };
        if let (Some(hash), Some(schedule)) = (hash, &mut status.schedule) {
            hash.clone_into(&mut schedule.hash);
        }
        crontab.status = Some(status);
        crontab.metadata.generation = Some(generation);
        let timing = timing(&crontab);
        Known::of(&crontab, &timing, vec![], at("2026-11-20T10:30:00Z")).has_unrecorded_edit()
    };
    assert!(is_unrecorded(2, Some("former")));
    assert!(!is_unrecorded(2, None), "of another field");
    assert!(!is_unrecorded(1, Some("former")), "the status was changed");
    let new = crontab(&json!({}), &json!({}));
    let new = CronTab { status: None, ..new };
    let timing = timing(&new);
    assert!(!Known::of(&new, &timing, vec![], at("2026-11-20T10:30:00Z")).has_unrecorded_edit(), "a new object");
}

#[test]
fn outage_makes_up_a_missed_run_but_a_pause_or_an_invalid_schedule_does_not() {
    let mut crontab = crontab(&json!({}), &json!({}));
    crontab.status = Some(remember(&crontab, "2026-11-20T10:00:30Z"));
    assert_eq!(due(&crontab, "2026-11-20T15:00:01Z"), Some(at("2026-11-20T15:00:00Z")), "after an outage");
    for schedule in [crontab.status.as_ref().and_then(|status| status.schedule.clone()), None] {
        for reason in ["Paused", "InvalidSpec", "InvalidSchedule", "UnknownTimeZone"] {
            let ready = json!([{"type": "Ready", "status": "Unknown", "reason": reason, "message": "", "lastTransitionTime": "2026-11-20T10:01:00Z"}]);
            let mut halted = crontab.clone();
            let status = halted.status.as_mut().expect("a status");
            status.conditions = serde_json::from_value(ready).expect("conditions");
            status.schedule.clone_from(&schedule);
            assert_eq!(due(&halted, "2026-11-20T15:00:01Z"), None, "after {reason}, with {schedule:?}");
            let resumed = remember(&halted, "2026-11-20T15:00:01Z");
            assert_eq!(resumed.schedule.map(|it| it.since), Some(at("2026-11-20T15:00:01Z")), "{reason}");
        }
    }
}

#[test]
fn last_times_are_recovered_from_jobs() {
    let crontab = crontab(
        &json!({}),
        &json!({"lastScheduleTime": "2026-11-20T08:00:00Z", "lastSuccessfulTime": "2026-11-20T08:01:00Z"}),
    );
    let timing = timing(&crontab);
    let jobs = vec![job("b", "- 10:00"), job("a", "+ 09:00"), job("c", "11:00"), job("d", "- 08:30")];
    let known = Known::of(&crontab, &timing, jobs, at("2026-11-20T11:30:00Z"));
    assert_eq!(known.memory.last(), Some(at("2026-11-20T11:00:00Z")));
    assert_eq!(known.memory.last_success, Some(at("2026-11-20T09:00:30Z")));
    let failure = known.memory.last_failure.clone().expect("a failure");
    assert_eq!((failure.job.as_str(), failure.reason.as_str()), ("b", "BackoffLimitExceeded"));
    assert_eq!(known.active().map(|job| &*job.name).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn skipped_runs_emit_a_first_and_then_hourly_events() {
    let crontab = crontab(&json!({"cronSpec": "* * * * *"}), &json!({"lastScheduleTime": "2026-11-20T10:00:00Z"}));
    let timing = timing(&crontab);
    let mut known = Known::of(&crontab, &timing, vec![job("a", "10:00")], at("2026-11-20T10:00:00Z"));
    let mut told = Vec::new();
    for minute in 1..=180 {
        known.now = at("2026-11-20T10:00:00Z") + Duration::from_secs(minute * 60);
        let Decision::Skip(due, why) = known.situation().decide() else { panic!("{minute}") };
        let events = known.skip(due, why.into());
        assert!(events.iter().all(|event| event.reason == "JobAlreadyActive"));
        told.extend(events.iter().map(|_| minute));
    }
    assert_eq!(told, [1, 60, 120, 180]);
    assert_eq!(known.memory.last_missed.map(|(_, reason)| reason).as_deref(), Some("JobAlreadyActive"));
}

#[test]
fn many_missed_times_emit_an_event_and_start_the_newest() {
    let crontab = crontab(&json!({"cronSpec": "* * * * *"}), &json!({}));
    let timing = timing(&crontab);
    for (now, told) in [("2026-11-19T13:41:30Z", 0), ("2026-11-19T13:42:30Z", 1), ("2096-11-19T13:42:30Z", 1)] {
        let mut known = Known::of(&crontab, &timing, vec![], at(now));
        let Decision::Start(due) = known.situation().decide() else { panic!("{now}") };
        assert_eq!(due.time, second(at(now)) - Duration::from_secs(30));
        let events = known.started(due, job("a", "10:00"));
        assert_eq!(events.len(), told, "{now}: {events:?}");
        assert!(
            events.iter().all(
                |event| event.reason == "TooManyMissedTimes" && event.message.starts_with(&due.missed.to_string())
            )
        );
    }
}

#[test]
fn run_now_token_is_handled_once() {
    let mut crontab = crontab(&json!({"suspend": true}), &json!({}));
    let before = remember(&crontab, "2026-11-20T09:00:00Z");
    let long = "x".repeat(100_000);
    for token in ["a", "", "2026-11-20", "2026-11-01T00:00:00Z", &long] {
        crontab.annotations_mut().insert(RUN_NOW.to_owned(), token.to_owned());
        crontab.status = Some(before.clone());
        let timing = timing(&crontab);
        let mut known = Known::of(&crontab, &timing, vec![], at("2026-11-20T10:00:00Z"));
        assert_eq!(known.answer_inherited_request(), None, "the operator knows the object");
        assert_eq!(known.requested_run(), Some(token));
        assert!(known.has_to_decide() && known.depends_on_jobs());
        known.answered(token, None);
        assert_eq!(known.requested_run(), None);
        let status = crate::status::of(&known, &[], SecurityPolicy::default()).status;
        assert!(status.last_run_now.as_ref().is_some_and(|token| token.len() <= 128));
        let again = CronTab { status: Some(status), ..crontab.clone() };
        assert_eq!(Known::of(&again, &timing, vec![], at("2026-11-20T10:00:00Z")).requested_run(), None);
    }
}

/// A user returns to an earlier token. Only a Job with the name of the present request was created for it.
#[test]
fn job_of_an_earlier_request_with_this_token_is_not_taken_for_its_own() {
    let mut crontab = crontab(&json!({"cronSpec": "0 12 * * *"}), &json!({"lastRunNow": "b", "runNowCount": 2}));
    crontab.annotations_mut().insert(RUN_NOW.to_owned(), "a".to_owned());
    let timing = timing(&crontab);
    for (count, requested, handled) in [(0, Some("a"), 2), (2, None, 3)] {
        let status = CronTabStatus { run_now_count: count, ..CronTabStatus::default() };
        let name = Run::Now("a").job_name(&CronTab { status: Some(status), ..crontab.clone() });
        let known = Known::of(&crontab, &timing, vec![job(&name, "+ 09:00")], at("2026-11-20T10:00:00Z"));
        assert_eq!((known.requested_run(), known.memory.run_now_count), (requested, handled), "{count}");
    }
}

/// A copy or a restored object carries the annotation of its origin, and a status can be lost.
#[test]
fn run_now_token_of_an_object_without_memory_starts_no_run() {
    let (now, created, long_ago) = ("2026-11-20T10:00:00Z", "2026-11-20T09:59:58Z", "2026-11-01T00:00:00Z");
    let ready =
        json!({"type": "Ready", "status": "Unknown", "reason": "Paused", "message": "", "lastTransitionTime": now});
    let paused = json!({"conditions": [ready]});
    for (created, status, token, is_own) in [
        (created, &Value::Null, "a", false),
        (created, &Value::Null, "", false),
        (created, &paused, "a", false), // a copy that was paused until now
        (created, &Value::Null, "2026-11-20T09:59:57.9Z", false), // before the creation
        (created, &Value::Null, "2026-11-20T09:59:58Z", true),
        (created, &Value::Null, "2026-11-20T11:00:02+01:00", true), // a clock that is ahead
        (created, &Value::Null, "2036-11-20T10:00:00Z", false),
        (long_ago, &Value::Null, "2026-11-20T09:45:00Z", false), // answered before the status was lost
        (long_ago, &Value::Null, "2026-11-20T09:55:00Z", true),
    ] {
        for suspend in [true, false] {
            let mut crontab = crontab(&json!({"cronSpec": "0 12 * * *", "suspend": suspend}), status);
            crontab.metadata.creation_timestamp = Some(Time(at(created)));
            crontab.annotations_mut().insert(RUN_NOW.to_owned(), token.to_owned());
            let timing = timing(&crontab);
            let mut known = Known::of(&crontab, &timing, vec![], at(now));
            assert!(known.has_to_decide());
            let event = known.answer_inherited_request();
            assert_eq!(event.map(|it| it.reason), (!is_own).then_some("RunNowIgnored"), "{token:?} of {created}");
            assert_eq!(known.requested_run(), is_own.then_some(token));
            assert_eq!(known.has_unrecorded_runs(), !is_own, "the status has to record the answer first");
        }
    }
}

#[test]
fn wait_for_an_occupied_name_grows_with_the_age_of_the_object() {
    let mut crontab = crontab(&json!({}), &json!({}));
    for (created, wait) in [
        ("2026-11-20T10:00:00Z", 1),
        ("2026-11-20T09:59:51Z", 1),
        ("2026-11-20T09:58:20Z", 10),
        ("2026-11-20T09:55:00Z", 30),
        ("2026-11-01T00:00:00Z", 60),
        ("2026-11-20T10:30:00Z", 1), // the clock was put back
    ] {
        crontab.metadata.creation_timestamp = Some(Time(at(created)));
        let timing = timing(&crontab);
        let known = Known::of(&crontab, &timing, vec![], at("2026-11-20T10:00:00Z"));
        assert_eq!(known.wait_for_name(), Duration::from_secs(wait), "{created}");
    }
}

#[test]
fn departed_jobs_emit_completed_or_missing_events() {
    let crontab = crontab(&json!({}), &json!({}));
    let timing = timing(&crontab);
    let jobs = vec![job("a", "+ 10:00"), job("b", "- 10:00"), job("c", "10:00")];
    let mut known = Known::of(&crontab, &timing, jobs, at("2026-11-20T11:30:00Z"));
    let left = ["a", "b", "c", "d"].map(|name| JobReference {
        name: name.to_owned(),
        uid: format!("uid of {name}"),
        ..Default::default()
    });
    let told = |known: &Known<'_>| known.departed(&left).into_iter().map(|event| event.message).collect::<Vec<_>>();
    assert_eq!(
        told(&known),
        [
            "Saw completed job: a, status: Complete",
            "Saw completed job: b, status: Failed",
            "Active job went missing: d"
        ]
    );
    let before = told(&known);
    known.replace(vec![job("c", "10:00"), job("d", "10:00")]);
    assert_eq!(told(&known), before[..2], "replaced Jobs emit no MissingJob");
}

#[test]
fn replaced_job_is_not_reported_missing_on_retry() {
    let left = [JobReference { name: "old".to_owned(), uid: "uid of old".to_owned(), ..Default::default() }];
    for (policy, told) in [("Replace", 0), ("Allow", 1)] {
        let crontab = crontab(&json!({"concurrencyPolicy": policy}), &json!({}));
        let timing = timing(&crontab);
        let known = Known::of(&crontab, &timing, vec![job("new", "11:00")], at("2026-11-20T11:00:00Z"));
        assert_eq!(known.departed(&left).len(), told, "{policy}");
    }
}

#[test]
fn started_job_counts_once_and_a_replaced_one_does_not_count() {
    let crontab = crontab(&json!({}), &json!({}));
    let timing = timing(&crontab);
    let jobs = vec![job("a", "10:00"), job("b", "+ 10:01")];
    let mut known = Known::of(&crontab, &timing, jobs, at("2026-11-20T11:00:00Z"));
    let names = |known: &Known<'_>| known.jobs.iter().map(|job| job.name.to_string()).collect::<Vec<_>>();
    for _ in 0..2 {
        known.started(Due { time: at("2026-11-20T11:00:00Z"), missed: 0 }, job("c", "11:00"));
    }
    assert_eq!((names(&known).join(" "), known.active().count()), ("a b c".to_owned(), 2));
    known.replace(vec![job("a", "10:00")]);
    assert_eq!((names(&known).join(" "), known.active().count()), ("b c".to_owned(), 1));
}

#[test]
fn older_job_does_not_replace_the_failure_that_the_status_remembers() {
    let failure = json!({"job": "later", "time": "2026-11-20T12:00:00Z", "reason": "DeadlineExceeded"});
    let crontab = crontab(&json!({}), &json!({"lastFailure": failure}));
    let timing = timing(&crontab);
    let known = Known::of(&crontab, &timing, vec![job("a", "- 10:00")], at("2026-11-20T12:30:00Z"));
    assert_eq!(known.memory.last_failure.map(|failure| failure.job).as_deref(), Some("later"));
}

#[test]
fn skipped_run_is_told_again_for_another_active_run_or_another_reason() {
    for (missed, reason, told) in [
        ("09:30", "JobAlreadyActive", 1), // while an earlier run was active
        ("10:00", "JobAlreadyActive", 1), // the active Job was requested in that minute
        ("10:01", "JobAlreadyActive", 0),
        ("10:01", "MissSchedule", 1),
    ] {
        let status = json!({"lastMissedTime": format!("2026-11-20T{missed}:00Z"), "lastMissedReason": reason});
        let crontab = crontab(&json!({"cronSpec": "* * * * *"}), &status);
        let timing = timing(&crontab);
        let time = at("2026-11-20T10:02:00Z");
        let mut known = Known::of(&crontab, &timing, vec![job("a", "10:00")], time);
        let events = known.skip(Due { time, missed: 0 }, Missed::StillRunning);
        assert_eq!(events.len(), told, "{missed} {reason}");
    }
}

#[test]
fn requested_run_is_skipped_by_policy_and_number_of_active_jobs() {
    for (policy, active, why) in [
        ("Forbid", 0, None),
        ("Forbid", 1, Some(Missed::StillRunning)),
        ("Forbid", 3, Some(Missed::StillRunning)),
        ("Allow", 0, None),
        ("Allow", 1, None),
        ("Allow", 2, Some(Missed::TooManyActive)),
        ("Allow", 3, Some(Missed::TooManyActive)),
        ("Replace", 3, None),
    ] {
        let crontab = crontab(&json!({"concurrencyPolicy": policy, "maxActiveJobs": 2}), &json!({}));
        let timing = timing(&crontab);
        let jobs = (0..active).map(|number| job(&format!("job-{number}"), "10:00")).collect();
        let known = Known::of(&crontab, &timing, jobs, at("2026-11-20T10:30:00Z"));
        assert_eq!(known.against_running_now(), why, "{policy} with {active}");
    }
}

/// Only a decision that depends on the Jobs reads them anew.
#[test]
fn decision_depends_on_jobs_only_if_a_run_may_meet_another() {
    for (policy, deadline, request, now, has_to_decide, depends) in [
        ("Forbid", None, false, "10:30:00", false, false),
        ("Forbid", None, false, "11:00:01", true, true),
        ("Replace", None, false, "11:00:01", true, true),
        ("Allow", None, false, "11:00:01", true, false),
        ("Forbid", Some(60), false, "11:30:00", true, false), // too late, whatever runs
        ("Forbid", Some(60), true, "11:30:00", true, true),
        ("Forbid", None, true, "10:30:00", true, true),
        ("Allow", None, true, "10:30:00", true, false),
    ] {
        let spec = json!({"concurrencyPolicy": policy, "startingDeadlineSeconds": deadline});
        let mut crontab = crontab(&spec, &json!({"lastScheduleTime": "2026-11-20T10:00:00Z"}));
        if request {
            crontab.annotations_mut().insert(RUN_NOW.to_owned(), "a".to_owned());
        }
        let timing = timing(&crontab);
        let known = Known::of(&crontab, &timing, vec![], at(&format!("2026-11-20T{now}Z")));
        let decision = (known.has_to_decide(), known.depends_on_jobs());
        assert_eq!(decision, (has_to_decide, depends), "{policy} {deadline:?} {request} {now}");
    }
}

#[test]
fn runs_that_the_status_lacks_are_unrecorded() {
    for (status, jobs, expected) in [
        (json!({}), vec![], false),
        (json!({}), vec![job("a", "10:00")], true),
        (json!({"lastScheduleTime": "2026-11-20T10:00:00Z"}), vec![job("a", "10:00")], false),
        (json!({"lastScheduleTime": "2026-11-20T10:00:00Z", "lastRunNow": "b"}), vec![], false),
        (json!({"lastScheduleTime": "2026-11-20T09:00:00Z"}), vec![job("a", "10:00")], true),
    ] {
        let crontab = crontab(&json!({}), &status);
        let timing = timing(&crontab);
        let known = Known::of(&crontab, &timing, jobs, at("2026-11-20T10:30:00Z"));
        assert_eq!(known.has_unrecorded_runs(), expected, "{status}");
    }
}

#[test]
fn job_is_recorded_if_the_status_shows_all_of_it() {
    let failure = |time: &str| json!({"lastFailure": {"job": "a", "time": time, "reason": "x"}});
    for (more, how, expected) in [
        (json!({}), "+ 10:00", true),
        (json!({}), "+ 09:00", true),
        (json!({"lastScheduleTime": "2026-11-20T09:00:00Z"}), "+ 10:00", false),
        (json!({"lastSuccessfulTime": "2026-11-20T10:00:29Z"}), "+ 10:00", false),
        (json!({}), "- 10:00", false),
        (failure("2026-11-20T10:00:30Z"), "- 10:00", true),
        (failure("2026-11-20T10:00:29Z"), "- 10:00", false),
        (json!({"active": [{"uid": "uid of a"}]}), "+ 10:00", false),
        (json!({"active": [{"uid": "uid of b"}]}), "+ 10:00", true),
    ] {
        let mut status =
            json!({"lastScheduleTime": "2026-11-20T10:00:00Z", "lastSuccessfulTime": "2026-11-20T10:00:30Z"});
        status.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let mut crontab = crontab(&json!({}), &status);
        let (timing, job) = (timing(&crontab), job("a", how));
        let is_recorded = |crontab: &CronTab, job: &LiveJob| {
            Known::of(crontab, &timing, vec![job.clone()], at("2026-11-20T10:30:00Z")).is_recorded(job)
        };
        assert_eq!(is_recorded(&crontab, &job), expected, "{how} {status}");
        crontab.annotations_mut().insert(RUN_NOW.to_owned(), "a".to_owned());
        assert_eq!(is_recorded(&crontab, &job), expected, "another Job is that of the request: {how} {status}");
        let requested = Arc::new(Live { name: Run::Now("a").job_name(&crontab).into(), ..(*job).clone() });
        assert!(!is_recorded(&crontab, &requested), "{how} {status}");
        crontab.status = None;
        assert!(!is_recorded(&crontab, &job), "{how}, without a status");
    }
}

#[test]
fn time_is_cut_to_the_second_before_it() {
    for (time, whole) in [
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z"),
        ("2026-11-20T10:00:00.9Z", "2026-11-20T10:00:00Z"),
        ("1969-12-31T23:59:58Z", "1969-12-31T23:59:58Z"),
        ("1969-12-31T23:59:58.1Z", "1969-12-31T23:59:58Z"),
    ] {
        assert_eq!(second(at(time)), at(whole), "{time}");
    }
}

use serde_json::{Value, json};

use super::*;
use crate::{
    known::testing::{at, job},
    samples,
    timing::Timing,
};

fn crontab(spec: &Value, status: &Value) -> CronTab {
    let mut whole = json!({"cronSpec": "0 * * * *", "image": "a"});
    whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    CronTab { status: serde_json::from_value(status.clone()).expect("a status"), ..samples::with_spec(&whole) }
}

fn report(crontab: &CronTab, jobs: Vec<LiveJob>, pods: &[Arc<Live<PodView>>]) -> Report<CronTabStatus> {
    let timing = Timing::of(&crontab.spec).expect("a schedule");
    of(&Known::of(crontab, &timing, jobs, at("2026-11-20T11:30:00Z")), pods, SecurityPolicy::default())
}

fn reasons(report: &Report<CronTabStatus>) -> Vec<&str> {
    report.health.problems.iter().map(|problem| problem.kind.reason).collect()
}

fn waiting(reason: &str, message: &str) -> Arc<Live<PodView>> {
    let container = json!({"name": "cron", "image": "a", "state": {"waiting": {"reason": reason, "message": message}}});
    pod(&json!({"phase": "Pending", "containerStatuses": [container]}))
}

fn pod(status: &Value) -> Arc<Live<PodView>> {
    Arc::new(Live {
        namespace: "default".into(),
        name: "p".into(),
        uid: "p".into(),
        generation: 0,
        created: Some(at("2026-11-20T11:29:30Z")),
        deleting: None,
        view: serde_json::from_value(json!({"status": status})).expect("a view"),
    })
}

#[test]
fn status_reports_past_active_and_next_runs() {
    let jobs = vec![job("c", "11:00"), job("a", "+ 09:00"), job("b", "10:00")];
    let Report { status, health } = report(&crontab(&json!({}), &json!({})), jobs, &[]);
    assert_eq!(status.active.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!((status.active_jobs, status.replicas), (2, 2));
    assert_eq!(status.active[0].uid, "uid of b");
    assert_eq!(status.last_schedule_time, Some(at("2026-11-20T11:00:00Z")));
    assert_eq!(status.last_successful_time, Some(at("2026-11-20T09:00:30Z")));
    assert_eq!(status.next_schedule_time, Some(at("2026-11-20T12:00:00Z")));
    assert_eq!(status.label_selector, "app.kubernetes.io/instance=my-new-cron-object,app.kubernetes.io/name=crontab");
    assert_eq!(health.ready, Verdict::yes("Scheduled", "next run at 2026-11-20T12:00:00Z"));
    assert!(health.problems.is_empty() && health.stays_ready);
}

#[test]
fn suspended_or_scaled_to_zero_has_no_next_run() {
    for (spec, reason) in [(json!({"suspend": true}), "Suspended"), (json!({"replicas": 0}), "ScaledToZero")] {
        let Report { status, health } = report(&crontab(&spec, &json!({})), vec![], &[]);
        assert_eq!((health.ready.status, health.ready.reason), (true, reason));
        assert_eq!(status.next_schedule_time, None);
    }
}

#[test]
fn failure_is_reported_until_a_later_run_completes() {
    let told = |jobs: Vec<LiveJob>, status: &Value| {
        let report = report(&crontab(&json!({}), status), jobs, &[]);
        report.health.problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>()
    };
    let failed = ["job b failed: BackoffLimitExceeded"];
    assert_eq!(told(vec![job("a", "+ 09:00"), job("b", "- 10:00")], &json!({})), failed);
    assert_eq!(told(vec![job("b", "- 10:00"), job("c", "+ 11:00")], &json!({})), [""; 0]);
    let gone = json!({"lastFailure": {"job": "b", "time": "2026-11-20T10:00:30Z", "reason": "BackoffLimitExceeded"}});
    assert_eq!(told(vec![job("a", "+ 09:00")], &gone), failed);
    assert_eq!(told(vec![job("c", "+ 11:00")], &gone), [""; 0]);
}

#[test]
fn failed_run_degrades_but_never_stalls() {
    let failed = report(&crontab(&json!({"suspend": true}), &json!({})), vec![job("b", "- 10:00")], &[]);
    let kinds: Vec<(&str, bool)> = failed.health.problems.iter().map(|it| (it.kind.reason, it.kind.stalls)).collect();
    assert_eq!(kinds, [("LastRunFailed", false)]);
}

#[test]
fn pod_start_failures_are_reported() {
    let one = crontab(&json!({}), &json!({}));
    let with = |pod: Arc<Live<PodView>>| report(&one, vec![], &[pod]);
    assert_eq!(reasons(&with(waiting("ImagePullBackOff", "not found"))), ["ImagePullFailed"]);
    let root = waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root");
    assert_eq!(reasons(&with(root)), ["ImageRunsAsRoot"]);
    let crashing = waiting("CrashLoopBackOff", "back-off");
    assert_eq!(reasons(&with(crashing)), [""; 0], "only the result of the run counts");

    let unschedulable = |since: &str| {
        pod(&json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/1 nodes", "lastTransitionTime": since},
        ]}))
    };
    let early = with(unschedulable("2026-11-20T11:29:01Z"));
    assert_eq!((reasons(&early).len(), early.health.recheck), (0, Some(at("2026-11-20T11:30:01Z"))));
    assert_eq!(reasons(&with(unschedulable("2026-11-20T11:29:00Z"))), ["PodsNotStarting"]);
}

#[test]
fn too_many_active_jobs_are_reported_until_one_ends() {
    let spec = json!({"concurrencyPolicy": "Allow", "maxActiveJobs": 2});
    let missed = json!({"lastMissedTime": "2026-11-20T11:10:00Z", "lastMissedReason": "TooManyActiveJobs"});
    let crontab = crontab(&spec, &missed);
    let full = report(&crontab, vec![job("a", "10:00"), job("b", "11:00")], &[]);
    assert_eq!(full.health.problems[0].message, "Not starting job because 2 jobs are active (maxActiveJobs)");
    assert!(reasons(&report(&crontab, vec![job("a", "+ 10:00"), job("b", "11:00")], &[])).is_empty());
}

#[test]
fn invalid_schedule_keeps_active_jobs_and_stored_state() {
    let stored = json!({
        "lastScheduleTime": "2026-11-20T10:00:00Z", "nextScheduleTime": "2026-11-20T12:00:00Z",
        "schedule": {"hash": "h", "since": "2026-11-20T09:00:00Z"},
    });
    let crontab = crontab(&json!({"cronSpec": "* * * *"}), &stored);
    let error = Timing::of(&crontab.spec).expect_err("wrong");
    let Report { status, health } = wrong(&crontab, &[job("a", "10:00")], &error);
    assert_eq!((status.next_schedule_time, status.active_jobs), (None, 1));
    assert_eq!(status.schedule.map(|it| it.hash).as_deref(), Some("h"));
    assert_eq!((health.ready.status, health.ready.reason), (false, "InvalidSchedule"));
    assert!(health.ready.message.starts_with("invalid cronSpec \"* * * *\": "), "{}", health.ready.message);
}

#[test]
fn is_stored_ignores_fields_set_by_the_runtime() {
    let wanted = report(&crontab(&json!({}), &json!({})), vec![], &[]).status;
    assert!(!is_stored(&wanted, None));
    let stored =
        CronTabStatus { observed_generation: Some(3), last_handled_reconcile_at: Some("x".into()), ..wanted.clone() };
    assert!(is_stored(&wanted, Some(&stored)));
    assert!(!is_stored(&wanted, Some(&CronTabStatus { active_jobs: 1, ..stored })));
}

/// Returns the condition about the run that ended last.
fn last_run_of(report: &Report<CronTabStatus>) -> Option<(bool, String)> {
    let own = report.health.own.iter().find(|(type_, _)| *type_ == "LastRunSucceeded");
    own.map(|(_, verdict)| (verdict.status, format!("{}: {}", verdict.reason, verdict.message)))
}

#[test]
fn condition_says_whether_the_last_run_succeeded() {
    let none = report(&crontab(&json!({}), &json!({})), vec![job("c", "11:00")], &[]);
    assert_eq!(last_run_of(&none), None, "no run has ended");
    let completed = (true, "JobComplete: a run completed at 2026-11-20T11:00:30Z".to_owned());
    let failed = (false, "JobFailed: job b failed: BackoffLimitExceeded".to_owned());
    for (jobs, told) in [
        (vec![job("b", "- 10:00")], &failed),
        (vec![job("a", "+ 09:00"), job("b", "- 10:00"), job("c", "11:00")], &failed),
        (vec![job("b", "- 10:00"), job("c", "+ 11:00")], &completed),
    ] {
        assert_eq!(last_run_of(&report(&crontab(&json!({}), &json!({})), jobs, &[])).as_ref(), Some(told));
    }
    let invalid = crontab(&json!({"cronSpec": "* * * *"}), &json!({"lastSuccessfulTime": "2026-11-20T11:00:30Z"}));
    let error = Timing::of(&invalid.spec).expect_err("wrong");
    assert_eq!(last_run_of(&wrong(&invalid, &[job("a", "10:00")], &error)), Some(completed));
}

/// A status that an earlier version of the operator has written lacks the condition.
#[test]
fn upgrade_alone_adds_no_condition() {
    let jobs = || vec![job("b", "- 10:00")];
    let mut old = crontab(&json!({}), &json!({}));
    old.status = Some(report(&old, jobs(), &[]).status);
    assert_eq!(last_run_of(&report(&old, jobs(), &[])), None);
    let started = report(&old, vec![job("b", "- 10:00"), job("c", "11:00")], &[]);
    assert_eq!(last_run_of(&started).map(|it| it.0), Some(false), "it comes with the next write");

    let condition = json!([{
        "type": "LastRunSucceeded", "status": "False", "reason": "JobFailed", "message": "", "lastTransitionTime": "2026-11-20T10:00:30Z",
    }]);
    old.status.as_mut().expect("a status").conditions = serde_json::from_value(condition).expect("conditions");
    assert_eq!(last_run_of(&report(&old, jobs(), &[])).map(|it| it.0), Some(false), "it stays");
}

#[test]
fn stored_refusal_is_found_also_beside_other_problems() {
    for (status, reason, message, expected) in [
        ("True", "Forbidden", "jobs is forbidden", true),
        ("True", "ChildRejected", "a webhook denied the request", true),
        ("True", "ImagePullFailed", "no such image; also: ChildRejected, LastRunFailed", true),
        ("True", "LastRunFailed", "Job a failed", false),
        ("False", "AsExpected", "", false),
    ] {
        let degraded = json!({
            "type": "Degraded", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-20T10:00:30Z",
        });
        let stored = crontab(&json!({}), &json!({"conditions": [degraded]})).status;
        assert_eq!(reports_refusal(stored.as_ref()), expected, "{reason}: {message}");
    }
    assert!(!reports_refusal(None));
}

#[test]
fn halted_object_shows_no_next_run() {
    let mut status = report(&crontab(&json!({}), &json!({})), vec![job("b", "10:00")], &[]).status;
    let before = status.clone();
    assert!(before.next_schedule_time.is_some());
    manager::Status::clear_plans(&mut status);
    assert_eq!(status, CronTabStatus { next_schedule_time: None, ..before });
}

/// `kubectl explain ct.status.conditions` is what users read before they wait for a condition.
#[test]
fn explain_says_what_ready_means_and_what_a_successful_run_means() {
    let definition = manager::normalize(&<CronTab as kube::CustomResourceExt>::crd());
    let definition = serde_json::to_value(definition).expect("JSON");
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let said = schema["properties"]["status"]["properties"]["conditions"]["description"].as_str().unwrap_or_default();
    for sentence in [
        "Ready: the schedule is valid and in effect, or runs are suspended; it says nothing about the results of runs.",
        "LastRunSucceeded: the run that ended last completed; absent until a run has ended.",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
}

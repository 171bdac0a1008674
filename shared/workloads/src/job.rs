//! The cached view of a Job: its scheduled time, its progress, and how it ended.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde::Deserialize;
use serde_json::Value;

use crate::{Child, Live, Viewed, defaults};

impl Viewed for Job {
    type View = JobView;
}

impl Child for Job {
    fn set_defaults(object: &mut Value) {
        defaults::job(object);
    }

    /// Compares the pod templates. Only the number of parallel pods and the suspension of a Job can change later.
    fn immutable_difference(live: &Value, desired: &Value) -> Option<&'static str> {
        let template = |job: &Value| job.pointer("/spec/template").cloned();
        (template(live) != template(desired)).then_some("template")
    }
}

/// The part of a Job that reconcilers read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "wire::Job")]
pub struct JobView {
    scheduled: Option<Timestamp>,
    started: Option<Timestamp>,
    pods: i32,
    end: Option<Box<End>>,
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// When it ended.
    pub at: Option<Timestamp>,
    /// Why it failed: the reason of its condition (`BackoffLimitExceeded`); `None` if it completed.
    pub failure: Option<Box<str>>,
}

impl JobView {
    /// The time that the Job was created for: its annotation `<group>/scheduled-at`, of any group.
    pub fn scheduled(&self) -> Option<Timestamp> {
        self.scheduled
    }

    /// `status.startTime`.
    pub fn started(&self) -> Option<Timestamp> {
        self.started
    }

    /// `status.active`: pods that run or are pending.
    pub fn pods(&self) -> i32 {
        self.pods
    }

    /// How it ended; `None` while its pods may still run.
    pub fn end(&self) -> Option<&End> {
        self.end.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        self.end().map_or(0, |end| size_of::<End>() + end.failure.as_deref().map_or(0, str::len))
    }
}

impl Live<JobView> {
    /// The sort key of the job history: by start time, Jobs that never started last, ties by name.
    pub fn order(&self) -> (bool, Option<Timestamp>, &str) {
        (self.started.is_none(), self.started, &self.name)
    }
}

/// The wire format of a Job, reduced to the fields that the view needs.
mod wire {
    use std::collections::HashMap;

    use super::{Deserialize, End, JobView, Timestamp};
    use crate::{condition::Condition, text::head};

    /// Limits the memory of a view. Kubernetes's own reasons are shorter.
    const REASON_BYTES: usize = 64;

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Job {
        metadata: Metadata,
        status: Status,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Metadata {
        annotations: Option<HashMap<Box<str>, Box<str>>>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Status {
        active: i32,
        start_time: Option<Timestamp>,
        completion_time: Option<Timestamp>,
        conditions: Vec<Condition>,
    }

    impl From<Job> for JobView {
        fn from(Job { metadata, status }: Job) -> Self {
            let annotations = metadata.annotations.unwrap_or_default();
            let scheduled = annotations.iter().find(|(name, _)| name.ends_with("/scheduled-at"));
            let condition =
                |name: &str| status.conditions.iter().find(|it| &*it.r#type == name && &*it.status == "True");
            let completed = condition("Complete")
                .map(|it| End { at: status.completion_time.or(it.last_transition_time), failure: None });
            let failed = condition("Failed")
                .map(|it| End { at: it.last_transition_time, failure: Some(head(&it.reason, REASON_BYTES).into()) });
            Self {
                scheduled: scheduled.and_then(|(_, time)| time.parse().ok()),
                started: status.start_time,
                pods: status.active,
                end: completed.or(failed).map(Box::new),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(object: Value) -> JobView {
        serde_json::from_value(object).expect("a view of the object")
    }

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    #[test]
    fn unobserved_job_is_not_started() {
        let annotations = json!({"a/b": "c", "stable.example.com/scheduled-at": "2026-11-20T01:01:00+01:00"});
        let fresh = view(json!({"metadata": {"annotations": annotations}}));
        assert_eq!((fresh.scheduled(), fresh.started()), (Some(at("2026-11-20T00:01:00Z")), None));
        assert_eq!((fresh.pods(), fresh.end()), (0, None));
        assert_eq!(view(json!({"metadata": {"annotations": null}})).scheduled(), None);
        assert_eq!(view(json!({"metadata": {"annotations": {"x/scheduled-at": "soon"}}})).scheduled(), None);
    }

    #[test]
    fn end_follows_complete_and_failed_conditions() {
        let (started, ended) = ("2026-11-20T00:01:01Z", "2026-11-20T00:02:00Z");
        let with = |type_: &str, status: &str| {
            let condition =
                json!({"type": type_, "status": status, "reason": "BackoffLimitExceeded", "lastTransitionTime": ended});
            let status = json!({"active": 2, "startTime": started, "conditions": [condition]});
            view(json!({"status": status}))
        };
        let running = with("Suspended", "True");
        assert_eq!((running.started(), running.pods(), running.end()), (Some(at(started)), 2, None));
        assert_eq!(with("Failed", "False").end(), None);
        for almost in ["FailureTarget", "SuccessCriteriaMet"] {
            assert_eq!(with(almost, "True").end(), None, "its pods may still run");
        }
        assert_eq!(with("Complete", "True").end(), Some(&End { at: Some(at(ended)), failure: None }));
        let failure = Some("BackoffLimitExceeded".into());
        assert_eq!(with("Failed", "True").end(), Some(&End { at: Some(at(ended)), failure }));
    }

    #[test]
    fn history_order_matches_batch_v1() {
        let live = |(name, started): (&str, Option<&str>)| Live {
            namespace: "default".into(),
            name: name.into(),
            uid: name.into(),
            generation: 1,
            created: None,
            deleting: None,
            view: view(json!({"status": {"startTime": started}})),
        };
        let sorted = |jobs: [(&str, Option<&str>); 2]| {
            let mut jobs = jobs.map(live);
            jobs.sort_by(|a, b| a.order().cmp(&b.order()));
            jobs.map(|job| job.name.to_string())
        };
        let (early, late) = (Some("2018-01-01T01:01:01Z"), Some("2019-01-01T01:01:01Z"));
        assert_eq!(sorted([("b", None), ("a", None)]), ["a", "b"]);
        assert_eq!(sorted([("b", early), ("a", early)]), ["a", "b"]);
        assert_eq!(sorted([("a", None), ("b", early)]), ["b", "a"]);
        assert_eq!(sorted([("a", late), ("b", early)]), ["b", "a"]);
    }

    #[test]
    fn job_template_is_immutable() {
        let running = |image: &str, pods: i32| json!({"spec": {"parallelism": pods, "template": {"image": image}}});
        assert_eq!(Job::immutable_difference(&running("a", 1), &running("b", 1)), Some("template"));
        assert_eq!(Job::immutable_difference(&running("a", 1), &running("a", 2)), None);
    }
}

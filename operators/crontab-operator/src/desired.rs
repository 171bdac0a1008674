//! The desired Job of one run. The runtime adds the namespace and the owner reference.

use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::{Job, JobSpec},
    core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec, SecurityContext},
};
use kube::{ResourceExt, core::ObjectMeta};
use schedule::Zone;
use workloads::{App, ImagePullPolicy, SecurityProfile, normalize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{CronTab, api::v1::CronTabSpec};

/// The name of the container that runs the image.
pub const CONTAINER: &str = "cron";

/// The annotation of a Job with the scheduled time of its run.
pub const SCHEDULED_AT: &str = "stable.example.com/scheduled-at";

/// The environment variable that passes the scheduled time to the program.
pub const SCHEDULED_AT_VARIABLE: &str = "CRON_SCHEDULED_AT";

/// The run that a Job is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run<'a> {
    /// The run of this scheduled time.
    At(Timestamp),
    /// A run that the user has requested with this token (`run-now`).
    Now(&'a str),
}

impl Run<'_> {
    /// Returns the name of its Job. Each run has one name, so that the API server accepts only one Job for it.
    ///
    /// The name for a requested run also depends on how many requests were handled before: a user may return to an earlier token
    /// while the Job of the earlier request still exists.
    pub fn job_name(self, crontab: &CronTab) -> String {
        match self {
            Self::At(time) => format!("{}-{:010}", crontab.name_any(), time.as_second()),
            Self::Now(token) => {
                let handled = crontab.status.as_ref().map_or(0, |status| status.run_now_count);
                let hash = xxh3_64_with_seed(token.as_bytes(), handled.into());
                format!("{}-{:010x}", crontab.name_any(), hash >> 24)
            }
        }
    }
}

/// Returns the Job of a run.
pub fn job(crontab: &CronTab, run: Run<'_>, zone: &Zone, profile: SecurityProfile) -> Job {
    let spec = &crontab.spec;
    let app = App::of(crontab);
    let scheduled = match run {
        Run::At(time) => Some(in_zone(time, zone)),
        Run::Now(_) => None,
    };
    let annotations = scheduled.clone().map(|time| [(SCHEDULED_AT.to_owned(), time)].into());
    Job {
        metadata: ObjectMeta { annotations, ..app.metadata(run.job_name(crontab)) },
        spec: Some(JobSpec {
            completions: Some(spec.replicas),
            parallelism: Some(spec.replicas),
            completion_mode: Some("Indexed".to_owned()),
            backoff_limit: Some(spec.backoff_limit.unwrap_or(6)),
            active_deadline_seconds: spec.active_deadline_seconds,
            // Without a TTL: Kubernetes could delete the Job before the status remembers the run, which would then start again.
            ttl_seconds_after_finished: None,
            template: PodTemplateSpec {
                metadata: Some(app.pod_metadata(&spec.pod_labels, &spec.pod_annotations)),
                spec: Some(pod(spec, profile, scheduled)),
            },
            ..Default::default()
        }),
        status: None,
    }
}

/// Formats a time in RFC 3339, with the offset of the zone; with `Z` for UTC.
fn in_zone(time: Timestamp, zone: &Zone) -> String {
    let zone = zone.time_zone();
    if *zone == jiff::tz::TimeZone::UTC {
        return time.to_string();
    }
    time.display_with_offset(zone.to_offset(time)).to_string()
}

fn pod(spec: &CronTabSpec, profile: SecurityProfile, scheduled: Option<String>) -> PodSpec {
    PodSpec {
        restart_policy: Some(spec.restart_policy.unwrap_or_default().name()),
        containers: vec![container(spec, profile, scheduled)],
        image_pull_secrets: normalize::list(&spec.image_pull_secrets),
        node_selector: normalize::map(&spec.node_selector),
        tolerations: normalize::list(&spec.tolerations),
        volumes: normalize::list(&spec.volumes),
        ..profile.pod_as(spec.service_account_name.as_deref())
    }
}

fn container(spec: &CronTabSpec, profile: SecurityProfile, scheduled: Option<String>) -> Container {
    Container {
        name: CONTAINER.to_owned(),
        image: Some(spec.image.clone()),
        image_pull_policy: spec.image_pull_policy.map(ImagePullPolicy::name),
        command: normalize::list(&spec.command),
        args: normalize::list(&spec.args),
        env: env(spec, scheduled),
        env_from: normalize::list(&spec.env_from),
        resources: normalize::resources_or_default(spec.resources.as_ref()),
        security_context: Some(SecurityContext { run_as_user: spec.run_as_user, ..profile.container() }),
        volume_mounts: normalize::list(&spec.volume_mounts),
        termination_message_policy: Some(workloads::LAST_WORDS.to_owned()),
        ..Default::default()
    }
}

/// Puts our variable first, so that the user's variables can refer to it with `$(…)`.
fn env(spec: &CronTabSpec, scheduled: Option<String>) -> Option<Vec<EnvVar>> {
    let ours =
        scheduled.map(|time| EnvVar { name: SCHEDULED_AT_VARIABLE.to_owned(), value: Some(time), value_from: None });
    let theirs = spec.env.iter().filter(|variable| variable.name != SCHEDULED_AT_VARIABLE).cloned();
    normalize::list(&ours.into_iter().chain(theirs).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{api::v1::CronTabStatus, samples};

    fn at(time: &str) -> Run<'static> {
        Run::At(time.parse().expect("a time"))
    }

    fn of(spec: &Value) -> JobSpec {
        let crontab = samples::with_spec(spec);
        job(&crontab, at("2026-11-20T00:01:00Z"), &Zone::utc(), SecurityProfile::default()).spec.expect("a spec")
    }

    #[test]
    fn the_job_of_the_sample() {
        let run = at("2026-11-20T00:01:00Z");
        insta::assert_yaml_snapshot!(job(&samples::seed(), run, &Zone::utc(), SecurityProfile::default()));
    }

    #[test]
    fn the_job_of_the_report() {
        let zone = Zone::named("Europe/Berlin").expect("a zone");
        let run = at("2026-11-20T03:30:00Z");
        insta::assert_yaml_snapshot!(job(&samples::report(), run, &zone, SecurityProfile::default()));
    }

    #[test]
    fn times_are_formatted_in_the_zone() {
        for (zone, told) in [
            ("UTC", "2026-11-20T00:01:00Z"),
            ("Europe/Berlin", "2026-11-20T01:01:00+01:00"),
            ("Asia/Kathmandu", "2026-11-20T05:46:00+05:45"),
        ] {
            let zone = Zone::named(zone).expect("a zone");
            assert_eq!(in_zone("2026-11-20T00:01:00Z".parse().expect("a time"), &zone), told);
        }
    }

    #[test]
    fn job_name_fits_the_length_limit() {
        let mut crontab = samples::seed();
        crontab.metadata.name = Some("a".repeat(49));
        for run in [at("2026-11-20T00:00:30Z"), at("2001-09-09T01:46:40Z"), Run::Now("x"), Run::Now("")] {
            let name = run.job_name(&crontab);
            // The host name of a pod is `<job>-<index>`, with an index up to 99.
            assert_eq!(name.len() + 3, 63, "{name}");
        }
        assert_ne!(Run::Now("x").job_name(&crontab), Run::Now("y").job_name(&crontab));
    }

    #[test]
    fn each_request_has_a_job_of_its_own() {
        let name = |count: u32| {
            let status = CronTabStatus { run_now_count: count, ..CronTabStatus::default() };
            Run::Now("x").job_name(&CronTab { status: Some(status), ..samples::seed() })
        };
        assert_eq!(
            name(0),
            Run::Now("x").job_name(&samples::seed()),
            "also after an upgrade from a version without the count"
        );
        assert!(name(0) != name(1) && name(1) != name(2) && name(2) != name(0));
    }

    #[test]
    fn failed_program_leaves_the_end_of_its_log() {
        let pod = of(&json!({"cronSpec": "@daily", "image": "a"})).template.spec.expect("a pod");
        assert_eq!(pod.containers[0].termination_message_policy.as_deref(), Some("FallbackToLogsOnError"));
    }

    #[test]
    fn only_the_operator_deletes_finished_jobs() {
        let spec = of(&json!({"cronSpec": "@daily", "image": "a", "ttlSecondsAfterFinished": 600}));
        assert_eq!(spec.ttl_seconds_after_finished, None);
    }

    #[test]
    fn user_variables_can_use_but_not_hide_the_time() {
        let env =
            json!([{"name": "CRON_SCHEDULED_AT", "value": "never"}, {"name": "DAY", "value": "$(CRON_SCHEDULED_AT)"}]);
        let spec = of(&json!({"cronSpec": "@daily", "image": "a", "env": env}));
        let env = spec.template.spec.expect("a pod").containers[0].env.clone().expect("variables");
        let names: Vec<_> = env.iter().map(|it| (it.name.as_str(), it.value.as_deref().unwrap_or_default())).collect();
        assert_eq!(names, [("CRON_SCHEDULED_AT", "2026-11-20T00:01:00Z"), ("DAY", "$(CRON_SCHEDULED_AT)")]);
    }

    #[test]
    fn run_now_job_has_no_scheduled_time() {
        let crontab = samples::seed();
        let job = job(&crontab, Run::Now("x"), &Zone::utc(), SecurityProfile::default());
        assert_eq!(job.metadata.annotations, None);
        assert_eq!(job.spec.and_then(|it| it.template.spec).expect("a pod").containers[0].env, None);
    }

    #[test]
    fn pod_follows_security_profile_and_service_account() {
        let pod = |more: Value| {
            let mut spec = json!({"cronSpec": "@daily", "image": "a"});
            spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            of(&spec).template.spec.expect("a pod")
        };
        let restricted = pod(json!({}));
        assert_eq!(restricted.automount_service_account_token, Some(false));
        assert_eq!(restricted.security_context.and_then(|it| it.run_as_non_root), Some(true));
        let named = pod(json!({"serviceAccountName": "me"}));
        assert_eq!(named.automount_service_account_token, None);
        let crontab = samples::with_spec(&json!({"cronSpec": "@daily", "image": "a", "runAsUser": 0}));
        let run = at("2026-11-20T00:01:00Z");
        let root = job(&crontab, run, &Zone::utc(), SecurityProfile::RootAllowed);
        let root = root.spec.and_then(|spec| spec.template.spec).expect("a pod");
        assert_eq!(root.security_context.and_then(|it| it.run_as_non_root), None);
        assert_eq!(root.containers[0].security_context.as_ref().and_then(|it| it.run_as_user), Some(0));
    }
}

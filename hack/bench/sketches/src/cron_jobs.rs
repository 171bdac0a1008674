//! The `CronJob` of kubebuilder's tutorial: it runs a Job at each time of a schedule, and keeps some of the Jobs that ended.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::{Job, JobTemplateSpec},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use manager::{Action, Context, Controller, Creation, Error, FieldError, Health, Manager, Operator, Report, Verdict};
use schedule::{Schedule, Zone};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use workloads::schemas;

/// Runs a Job at each time of a schedule.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "sketches.example.com", version = "v1", kind = "CronJob", namespaced, status = "CronJobStatus")]
#[serde(rename_all = "camelCase")]
pub struct CronJobSpec {
    /// When to run, in UTC.
    #[schemars(length(min = 1, max = 100))]
    schedule: String,
    /// How many seconds late a run may start. Default: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    starting_deadline_seconds: Option<i64>,
    /// What happens if a run is due while another one is active: both run, the new one waits for its end, or the active one is
    /// deleted.
    #[serde(default)]
    concurrency_policy: ConcurrencyPolicy,
    /// Whether no further runs start.
    #[serde(default)]
    suspend: bool,
    /// The Job of each run.
    #[schemars(schema_with = "any_object")]
    job_template: JobTemplateSpec,
    /// How many completed Jobs to keep. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000))]
    successful_jobs_history_limit: Option<u16>,
    /// How many failed Jobs to keep. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000))]
    failed_jobs_history_limit: Option<u16>,
}

/// What happens if a run is due while another one is active.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum ConcurrencyPolicy {
    #[default]
    Allow,
    Forbid,
    Replace,
}

/// The state of a `CronJob`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CronJobStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_handled_reconcile_at: Option<String>,
    #[schemars(schema_with = "schemas::conditions")]
    conditions: Vec<Condition>,
    /// The names of the active Jobs.
    active: Vec<String>,
    /// The time of the latest run that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    last_schedule_time: Option<Timestamp>,
}
manager::standard_status!(CronJobStatus);

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The operator of [`CronJob`].
#[derive(Debug)]
pub struct CronJobs;

impl Operator for CronJobs {
    fn name(&self) -> &'static str {
        "cronjobs"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![CronJob::crd()]
    }

    fn sample(&self) -> &'static str {
        "{apiVersion: sketches.example.com/v1, kind: CronJob, metadata: {name: tick},
          spec: {schedule: '* * * * *', suspend: true, jobTemplate: {}}}"
    }

    fn setup(&self, manager: &mut Manager) {
        manager.add(Controller::of::<CronJob>().owns::<Job>().reconcile(reconcile));
    }
}

async fn reconcile(cron_job: Arc<CronJob>, ctx: Context<CronJob>) -> Result<Action, Error> {
    let (spec, now) = (&cron_job.spec, ctx.now());
    let invalid = |why: schedule::Error| FieldError { field: "spec.schedule".to_owned(), why: why.to_string() };
    let schedule: Schedule = spec.schedule.parse().map_err(invalid)?;
    let created = cron_job.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    ctx.sync_cache::<Job>().await?; // a former leader may have started a run that the watch has not delivered
    let jobs = ctx.owned::<Job>();
    let stored = cron_job.status.as_ref().and_then(|status| status.last_schedule_time);
    let mut last = jobs.iter().filter_map(|job| job.scheduled()).chain(stored).max();
    let active: Vec<_> = jobs.iter().filter(|job| job.end().is_none()).collect();

    let zone = Zone::utc();
    let times = schedule.times(&zone, last.unwrap_or(created));
    let in_time = |time: &Timestamp| spec.starting_deadline_seconds.is_none_or(|limit| seconds(*time, now) <= limit);
    let is_held = spec.suspend || (spec.concurrency_policy == ConcurrencyPolicy::Forbid && !active.is_empty());
    let due = times.until(now).filter(|time| !is_held && *time > last.unwrap_or(created)).filter(in_time);
    if let Some(time) = due {
        let mut is_free = true;
        if spec.concurrency_policy == ConcurrencyPolicy::Replace {
            for job in &active {
                is_free &= ctx.delete::<Job>(job).await?;
            }
        }
        if is_free && let Creation::Created(_) | Creation::Ours(_) = ctx.create(run(&cron_job, time)).await? {
            last = Some(time);
        }
    }

    let (ended, active): (Vec<_>, Vec<_>) = ctx.owned::<Job>().into_iter().partition(|job| job.end().is_some());
    let (failed, successful): (Vec<_>, Vec<_>) =
        ended.into_iter().partition(|job| job.end().is_some_and(|end| end.failure.is_some()));
    let verdict = match (spec.suspend, failed.len(), active.len()) {
        (true, ..) => Verdict::no("Suspended", "no further runs start"),
        (_, 1.., _) => Verdict::no("JobsFailed", format!("{} Jobs have failed", failed.len())),
        (_, _, 1..) => Verdict::yes("JobsActive", format!("{} Jobs are active", active.len())),
        _ => Verdict::yes("AllJobsCompleted", "all Jobs have completed"),
    };
    let active = active.iter().map(|job| job.name.to_string()).collect();
    let status = CronJobStatus { active, last_schedule_time: last, ..CronJobStatus::default() };
    let limits = [spec.successful_jobs_history_limit, spec.failed_jobs_history_limit];
    for (mut jobs, limit) in [successful, failed].into_iter().zip(limits) {
        jobs.sort_by(|one, other| other.order().cmp(&one.order()));
        for job in jobs.iter().skip(limit.map_or(usize::MAX, usize::from)) {
            // Once its Job is gone, only the status records a run.
            if job.scheduled() <= stored {
                ctx.delete::<Job>(job).await?;
            }
        }
    }
    // After the deletions, because the status also reports those that the API server refuses.
    ctx.apply_status(Report { status, health: Health::of(verdict) }).await?;
    if let Some(next) = times.after(now).filter(|_| !spec.suspend) {
        ctx.requeue_at(next);
    }
    Ok(Action::Done)
}

fn seconds(from: Timestamp, until: Timestamp) -> i64 {
    until.duration_since(from).as_secs()
}

/// The Job of the run of this time. The name follows from the time, so there is only one.
fn run(cron_job: &CronJob, time: Timestamp) -> Job {
    let JobTemplateSpec { metadata, spec } = cron_job.spec.job_template.clone();
    let mut metadata = metadata.unwrap_or_default();
    metadata.name = Some(format!("{}-{}", cron_job.name_any(), time.as_second()));
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert("sketches.example.com/scheduled-at".to_owned(), time.to_string());
    Job { metadata, spec, ..Job::default() }
}

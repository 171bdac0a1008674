//! `stable.example.com/v1`.
//!
//! Doc comments here are what `kubectl explain` prints. A field that says *Default* and is optional gets that default
//! from the operator, so it is not written into the object and a later release may change it. The API server fills in
//! `replicas`, `suspend` and `concurrencyPolicy`, which people look for.

#![expect(unreachable_pub, reason = "KubeSchema derives through a hidden copy of the struct")]
#![expect(clippy::doc_markdown, reason = "kubectl explain would print the backticks")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements, Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use workloads::{Fence, ImagePullPolicy, SecurityProfile, schemas};

/// What should run, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "stable.example.com",
    version = "v1",
    kind = "CronTab",
    plural = "crontabs",
    shortname = "ct",
    category = "all",
    namespaced,
    doc = "Runs an image by the clock: one Job for each time of a cron expression.",
    derive = "PartialEq",
    status = "CronTabStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    ),
    printcolumn(name = "SCHEDULE", type_ = "string", json_path = ".spec.cronSpec"),
    printcolumn(name = "TIMEZONE", type_ = "string", json_path = ".spec.timeZone", priority = 1),
    printcolumn(name = "SUSPEND", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "ACTIVE", type_ = "integer", json_path = ".status.activeJobs"),
    printcolumn(name = "LAST SCHEDULE", type_ = "date", json_path = ".status.lastScheduleTime"),
    printcolumn(name = "NEXT", type_ = "string", json_path = ".status.nextScheduleTime"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 49")
        .message("metadata.name must be a DNS-1035 label of at most 49 characters")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!self.cronSpec.contains('TZ=')",
        "message": "cannot use TZ or CRON_TZ in cronSpec, use timeZone instead",
    },
    {
        "rule": "!has(self.runAsUser) || self.runAsUser >= 1 || (has(self.securityProfile) && self.securityProfile != 'Restricted')",
        "message": "runAsUser must be at least 1 under Restricted",
    },
]))]
pub struct CronTabSpec {
    /// When it runs: minute, hour, day of month, month and day of week (0-6, 0 is Sunday), as in crontab(5); or @hourly,
    /// @daily, @weekly, @monthly, @yearly; or @every and a time such as 90m.
    #[schemars(length(min = 1, max = 256))]
    pub cron_spec: String,

    /// What runs: an image, by tag or by digest.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: String,

    /// How many pods each run has. Each of them finds its number in JOB_COMPLETION_INDEX. 0 stops running. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,

    /// The zone whose clocks cronSpec is about, such as Europe/Berlin: a name of the IANA database. Default: UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = [{
        "rule": "self != 'Local' && self.matches('^[A-Za-z0-9+_.-]{1,14}(/[A-Za-z0-9+_.-]{1,14}){0,3}$')",
        "message": "timeZone must be an IANA time zone name",
    }]))]
    pub time_zone: Option<String>,

    /// Whether no new runs are started. Those that run go on, and what is left out meanwhile is not made up for. Default:
    /// false.
    #[serde(default)]
    pub suspend: bool,

    /// What happens at a time of the schedule when the run before goes on. Forbid: the new one is left out. Allow: both
    /// run. Replace: the old one is ended. Default: Forbid.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,

    /// How late a run may be started, after the operator or its API server was away; below 10 counts as 10. Default: however
    /// late, the newest one is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,

    /// How many Jobs that completed are kept. Default: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub successful_jobs_history_limit: Option<i32>,

    /// How many Jobs that failed are kept. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_jobs_history_limit: Option<i32>,

    /// With Allow: how many Jobs may run at a time before new ones are left out. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_active_jobs: Option<i32>,

    /// The program, in place of the image's entrypoint. Default: the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::words")]
    pub command: Vec<String>,

    /// The arguments, in place of the image's. Default: the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::words")]
    pub args: Vec<String>,

    /// Environment variables, beside CRON_SCHEDULED_AT, the time that the run is for. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::env")]
    pub env: Vec<EnvVar>,

    /// Secrets and ConfigMaps whose keys all become environment variables; those in env win. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::env_from")]
    pub env_from: Vec<EnvFromSource>,

    /// Files for the pods: empty folders, and what is in ConfigMaps and Secrets. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::volumes")]
    pub volumes: Vec<Volume>,

    /// Where the volumes are found. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::volume_mounts")]
    pub volume_mounts: Vec<VolumeMount>,

    /// CPU and memory of each pod, taken as they are written. Default: a request of 50m CPU and 64Mi memory, no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resources")]
    pub resources: Option<ResourceRequirements>,

    /// When the kubelet pulls the image. Default: Always for the tag latest, else IfNotPresent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets with the credentials to pull the image with. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::pull_secrets")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// ServiceAccount of the pods, whose token they then get, unless it says otherwise. Default: the namespace's default,
    /// without a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,

    /// Labels that the machines must have to run pods. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints of machines that the pods tolerate. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::tolerations")]
    pub tolerations: Vec<Toleration>,

    /// How long a run may take before it is ended and counts as failed. Default: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// How often the pods of a run may fail before the run counts as failed. Default: 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub backoff_limit: Option<i32>,

    /// What happens when the program fails. OnFailure: it is started again in its pod. Never: there is another pod, and the
    /// one that failed stays, with its logs. Default: OnFailure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,

    /// What the pods may do. Restricted: not root, no privileges, as the restricted Pod Security Standard asks for.
    /// RootAllowed: the same, but an image may run as root. Baseline: also with the usual capabilities. Default: the
    /// operator's --default-security-profile, Restricted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_profile: Option<SecurityProfile>,

    /// The user as which the container runs; at least 1 under Restricted. Default: the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub run_as_user: Option<i64>,

    /// Labels for the pods, beside the operator's own, which win. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub pod_labels: BTreeMap<String, String>,

    /// Annotations for the pods. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::annotations")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// What happens when the run before goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum ConcurrencyPolicy {
    Allow,
    #[default]
    Forbid,
    Replace,
}

/// What happens when the program fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the field's description explains them, and the schema would lose these")]
pub enum RestartPolicy {
    #[default]
    OnFailure,
    Never,
}

/// What has run, what runs, and what will.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": Fence::RULE, "message": Fence::MESSAGE}]))]
pub struct CronTabStatus {
    /// The Jobs that run, in the order of their times; at most 128 of them.
    #[schemars(length(max = 128))]
    pub active: Vec<JobReference>,

    /// How many Jobs run.
    pub active_jobs: i32,

    /// Pods that run.
    pub replicas: i32,

    /// Selects the pods; for kubectl scale and autoscalers.
    #[schemars(length(max = 256))]
    pub label_selector: String,

    /// The time of the latest run that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub last_schedule_time: Option<Timestamp>,

    /// When a run last completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub last_successful_time: Option<Timestamp>,

    /// The time of the latest run that was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub last_missed_time: Option<Timestamp>,

    /// Why that run was left out: MissSchedule (too late for startingDeadlineSeconds), JobAlreadyActive, TooManyActiveJobs or
    /// JobNameConflict.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_missed_reason: Option<String>,

    /// The next time of the schedule; absent while nothing is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub next_schedule_time: Option<Timestamp>,

    /// The run that failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,

    /// Since when the schedule is as it is: nothing before is made up for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Since>,

    /// The last value of the annotation stable.example.com/run-now that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub last_run_now: Option<String>,

    /// The last value of the annotation stable.example.com/reconcile-requested-at that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub last_handled_reconcile_at: Option<String>,

    /// The leadership under which this was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,

    /// The generation of the object that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready and Degraded; Stalled while it is true.
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

/// A Job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct JobReference {
    /// batch/v1.
    #[schemars(length(max = 64))]
    pub api_version: String,

    /// Job.
    #[schemars(length(max = 64))]
    pub kind: String,

    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,

    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// Its uid.
    #[schemars(length(max = 64))]
    pub uid: String,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// Its Job, which may be gone.
    #[schemars(length(max = 253))]
    pub job: String,

    /// When it was given up.
    #[schemars(schema_with = "time")]
    pub time: Timestamp,

    /// Why, in a word of Kubernetes such as BackoffLimitExceeded.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub reason: String,
}

/// Since when a schedule is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Since {
    /// Of cronSpec, timeZone, and whether runs are started at all.
    #[schemars(length(max = 64))]
    pub hash: String,

    /// Times after this one count.
    #[schemars(schema_with = "time")]
    pub since: Timestamp,
}

impl CronTabSpec {
    /// Whether no runs are started.
    pub fn is_held(&self) -> bool {
        self.suspend || self.replicas == 0
    }

    /// `successfulJobsHistoryLimit`, or its default.
    pub fn successful_jobs_history_limit(&self) -> usize {
        limit(self.successful_jobs_history_limit, 3)
    }

    /// `failedJobsHistoryLimit`, or its default.
    pub fn failed_jobs_history_limit(&self) -> usize {
        limit(self.failed_jobs_history_limit, 1)
    }

    /// `maxActiveJobs`, or its default.
    pub fn max_active_jobs(&self) -> u32 {
        self.max_active_jobs.unwrap_or(10).unsigned_abs()
    }
}

impl RestartPolicy {
    /// As the API writes it.
    pub fn name(self) -> String {
        match self {
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
        .to_owned()
    }
}

fn limit(given: Option<i32>, default: usize) -> usize {
    given.map_or(default, |given| usize::try_from(given).unwrap_or_default())
}

fn one() -> i32 {
    1
}

/// An instant. Without bounds of its own: the format has them.
fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

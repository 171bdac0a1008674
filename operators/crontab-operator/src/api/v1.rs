//! `stable.example.com/v1`.
//!
//! `kubectl explain` prints the doc comments of this module. An optional field whose comment names a *Default* gets it from the
//! operator: the object does not contain the value, and a later release may change it. Only `replicas`, `suspend` and
//! `concurrencyPolicy` get their defaults from the API server, so that users find them in the object.

#![expect(unreachable_pub, reason = "KubeSchema derives through a hidden copy of the struct")]
#![expect(clippy::doc_markdown, reason = "kubectl explain would print the backticks")]

use std::{
    collections::BTreeMap,
    fmt::{Display, Formatter},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements, Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::{Fence, ImagePullPolicy, SecurityProfile, schemas};

/// What to run, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "stable.example.com",
    version = "v1",
    kind = "CronTab",
    plural = "crontabs",
    shortname = "ct",
    category = "all",
    namespaced,
    doc = "Runs an image on a schedule: one Job for each time of its cron expressions.",
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
    // The reason of `Degraded` while that is true, otherwise the reason of `Ready`, which stays true if runs fail.
    printcolumn(
        name = "STATUS",
        type_ = "string",
        json_path = r#".status.conditions[?(@.reason!="AsExpected")].reason"#
    ),
    printcolumn(name = "ACTIVE", type_ = "integer", json_path = ".status.activeJobs"),
    printcolumn(name = "LAST SCHEDULE", type_ = "date", json_path = ".status.lastScheduleTime"),
    printcolumn(name = "NEXT", type_ = "string", json_path = ".status.nextScheduleTime"),
    printcolumn(name = "LAST SUCCESS", type_ = "date", json_path = ".status.lastSuccessfulTime", priority = 1),
    printcolumn(name = "LAST FAILURE", type_ = "date", json_path = ".status.lastFailure.time", priority = 1),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    // Of the same condition as STATUS.
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = r#".status.conditions[?(@.reason!="AsExpected")].message"#,
        priority = 1
    ),
    selectable = ".spec.suspend",
    selectable = ".spec.timeZone",
    selectable = ".spec.image",
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
    /// The schedule, in the syntax of batch/v1 CronJob: minute (0-59), hour (0-23), day of month (1-31), month (1-12 or jan-dec)
    /// and day of week (0-6 or sun-sat, 0 is Sunday, 7 is not allowed). A field is *, or a list of values, ranges (1-5) and
    /// steps (*/5, 10-40/10). If one of the two day fields is *, the other one decides; if neither is, a day has to match only
    /// one of them. Unlike in crontab(5), */2 in a day field is not *. Or @hourly, @daily, @weekly, @monthly, @yearly. Up to
    /// eight of these, divided by semicolons, are one schedule, such as 0 9 * * mon-fri; 0 12 * * sat; a time that several of them
    /// name has one run. Or @every and a duration of at least 10s, such as 90m, counted from the last run.
    #[schemars(length(min = 1, max = 256), extend("x-kubernetes-validations" = [
        {
            "rule": "self.matches('^[^;]*(;[^;]*){0,7}$')",
            "message": "cronSpec may have at most 8 expressions",
        },
        {
            "rule": "!self.contains(';') || !self.contains('@every')",
            "message": "@every cannot be one of several expressions in cronSpec",
        },
    ]))]
    pub cron_spec: String,

    /// The image that each run starts, by tag or by digest.
    #[schemars(length(min = 1, max = 512), extend("x-kubernetes-validations" = [{
        "rule": r"self.matches('^\\S+$')",
        "message": "image must not contain blanks",
    }]))]
    pub image: String,

    /// How many pods each run has. Each pod finds its index in JOB_COMPLETION_INDEX. With 0, no runs are started. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,

    /// The time zone of cronSpec: a name of the IANA database, such as Europe/Berlin. Default: UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = [{
        "rule": "self != 'Local' && self.matches('^[A-Za-z0-9+_.-]{1,14}(/[A-Za-z0-9+_.-]{1,14}){0,3}$')",
        "message": "timeZone must be an IANA time zone name",
    }]))]
    pub time_zone: Option<String>,

    /// Whether to start no new runs. Active runs continue. Runs that are due while this is true are not started later.
    /// Default: false.
    #[serde(default)]
    pub suspend: bool,

    /// What happens when a run is due and the previous run is still active. Forbid: the new run is skipped. Allow: both run.
    /// Replace: the Job of the previous run is deleted. Default: Forbid.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,

    /// How late a run may start, for example after an outage of the operator or the API server. A value below 10 counts as 10.
    /// Default: no limit; after an outage, the newest of the missed runs is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,

    /// Each run starts up to this many seconds after its scheduled time, but at most after half of the time until the next one.
    /// The delay of a run depends only on the object and the scheduled time, so it is the same after a restart. The name of the
    /// Job and CRON_SCHEDULED_AT keep the scheduled time. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub jitter_seconds: Option<i32>,

    /// How many completed Jobs are kept. Default: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub successful_jobs_history_limit: Option<i32>,

    /// How many failed Jobs are kept. The failed pods of a Job are deleted with it, and their logs too. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_jobs_history_limit: Option<i32>,

    /// After how many seconds the operator deletes a finished Job, even if the history limits would keep it. The status remembers
    /// how the run ended. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// With concurrencyPolicy Allow: how many Jobs may be active at a time. Further runs are skipped. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_active_jobs: Option<i32>,

    /// The program, instead of the image's entrypoint. Default: the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::words")]
    pub command: Vec<String>,

    /// The arguments, instead of the image's. Default: the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::words")]
    pub args: Vec<String>,

    /// Environment variables. The operator adds CRON_SCHEDULED_AT, the scheduled time of the run. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::env")]
    pub env: Vec<EnvVar>,

    /// Secrets and ConfigMaps whose keys all become environment variables. Variables in env take precedence. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::env_from")]
    pub env_from: Vec<EnvFromSource>,

    /// Volumes of the pods: of the types emptyDir, configMap, secret and projected. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::volumes")]
    pub volumes: Vec<Volume>,

    /// Where the container mounts the volumes. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::volume_mounts")]
    pub volume_mounts: Vec<VolumeMount>,

    /// CPU and memory of each pod, passed on without changes. Default: a request of 50m CPU and 64Mi memory, no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resources")]
    pub resources: Option<ResourceRequirements>,

    /// When the kubelet pulls the image. Default: Always for the tag latest, else IfNotPresent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets with the credentials for pulling the image. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::pull_secrets")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// ServiceAccount of the pods. The pods get its token, unless the ServiceAccount turns that off. Default: the default
    /// ServiceAccount of the namespace, without a token (with one under Baseline).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,

    /// Labels that a node must have to run the pods. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub node_selector: BTreeMap<String, String>,

    /// Node taints that the pods tolerate. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::tolerations")]
    pub tolerations: Vec<Toleration>,

    /// How long a run may take. Then its pods are stopped and it counts as failed. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// How many times the pods of a run may fail before the run counts as failed. Default: 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub backoff_limit: Option<i32>,

    /// What happens when the program fails. OnFailure: it is started again in the same pod; when the run fails for good, Kubernetes
    /// deletes the pod, and its logs are lost. Never: a new pod is created, and the failed pods stay with their logs until the Job
    /// is deleted, so that kubectl logs can show why a run failed. Default: OnFailure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,

    /// What the pods may do. Restricted: the restricted Pod Security Standard; no root user, no privileges. RootAllowed: the
    /// same, but the image may run as root. Baseline: also with the container runtime's default capabilities. Default: the
    /// operator's --default-security-profile, which is Restricted unless the administrator sets another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_profile: Option<SecurityProfile>,

    /// The ID of the user that the container runs as; at least 1 under Restricted. Default: the image's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub run_as_user: Option<i64>,

    /// Additional labels of the pods. The operator's own labels take precedence. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub pod_labels: BTreeMap<String, String>,

    /// Annotations of the pods. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::annotations")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// What happens when a run is due and the previous run is still active.
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

/// The past, active and next runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": Fence::RULE, "message": Fence::MESSAGE}]))]
pub struct CronTabStatus {
    /// The active Jobs, in the order of their scheduled times; at most 128 are listed.
    #[schemars(length(max = 128))]
    pub active: Vec<JobReference>,

    /// How many Jobs are active.
    pub active_jobs: i32,

    /// How many pods of these Jobs run or are pending.
    pub replicas: i32,

    /// The label selector of the pods, for kubectl scale and autoscalers.
    #[schemars(length(max = 256))]
    pub label_selector: String,

    /// The scheduled time of the latest run that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_schedule_time: Option<Timestamp>,

    /// When a run last completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_successful_time: Option<Timestamp>,

    /// The scheduled time of the latest run that was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_missed_time: Option<Timestamp>,

    /// Why that run was skipped: MissSchedule (too late for startingDeadlineSeconds), JobAlreadyActive, TooManyActiveJobs or
    /// JobNameConflict.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_missed_reason: Option<String>,

    /// When the next run starts: its scheduled time, and its share of jitterSeconds. Absent while no runs are started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub next_schedule_time: Option<Timestamp>,

    /// The latest run that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,

    /// Since when the schedule is in effect. No run that was due before is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Since>,

    /// The value of the annotation stable.example.com/run-now that the operator has handled last; a hash of it if it is longer
    /// than 128 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub last_run_now: Option<String>,

    /// How many requests by stable.example.com/run-now the operator has handled.
    #[serde(skip_serializing_if = "is_zero")]
    pub run_now_count: u32,

    /// The value of the annotation stable.example.com/reconcile-requested-at that the operator has handled last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub last_handled_reconcile_at: Option<String>,

    /// The leadership term under which this status was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,

    /// The generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready: the schedule is valid and in effect, or runs are suspended; it says nothing about the results of runs.
    /// LastRunSucceeded: the run that ended last completed; absent until a run has ended. Degraded: a user should act, as its
    /// reason says; for instance LastRunFailed, until a run completes again. Stalled, only while it is True: Degraded for more than
    /// a minute for another reason than LastRunFailed.
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Vec<Condition>,
}

/// A reference to a Job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct JobReference {
    /// Always batch/v1.
    #[schemars(length(max = 64))]
    pub api_version: String,

    /// Always Job.
    #[schemars(length(max = 64))]
    pub kind: String,

    /// The namespace of the Job.
    #[schemars(length(max = 63))]
    pub namespace: String,

    /// The name of the Job.
    #[schemars(length(max = 253))]
    pub name: String,

    /// The uid of the Job.
    #[schemars(length(max = 64))]
    pub uid: String,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The name of its Job, which may have been deleted since.
    #[schemars(length(max = 253))]
    pub job: String,

    /// When the Job failed.
    #[schemars(schema_with = "schemas::time")]
    pub time: Timestamp,

    /// The reason from the condition of the Job, such as BackoffLimitExceeded.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub reason: String,
}

/// Since when a schedule is in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Since {
    /// A hash of cronSpec, of timeZone, and of whether runs are started at all.
    #[schemars(length(max = 64))]
    pub hash: String,

    /// Only runs that are due after this time are started.
    #[schemars(schema_with = "schemas::time")]
    pub since: Timestamp,
}

impl CronTabSpec {
    /// Whether the spec starts no runs: `suspend`, or no replicas.
    pub fn is_held(&self) -> bool {
        self.suspend || self.replicas == 0
    }

    /// Returns `successfulJobsHistoryLimit`, or its default.
    pub fn successful_jobs_history_limit(&self) -> usize {
        limit(self.successful_jobs_history_limit, 3)
    }

    /// Returns `failedJobsHistoryLimit`, or its default.
    pub fn failed_jobs_history_limit(&self) -> usize {
        limit(self.failed_jobs_history_limit, 1)
    }

    /// Returns `jitterSeconds`, or its default.
    pub fn jitter_seconds(&self) -> u32 {
        self.jitter_seconds.unwrap_or_default().unsigned_abs()
    }

    /// Returns `maxActiveJobs`, or its default.
    pub fn max_active_jobs(&self) -> u32 {
        self.max_active_jobs.unwrap_or(10).unsigned_abs()
    }
}

impl CronTabStatus {
    /// Returns the failure of the run that ended last; `None` if that run completed.
    pub fn failed_last(&self) -> Option<&Failure> {
        let failure = self.last_failure.as_ref()?;
        self.last_successful_time.is_none_or(|success| success < failure.time).then_some(failure)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "job {} failed: {}", self.job, self.reason)
    }
}

impl RestartPolicy {
    /// Returns the name in the Kubernetes API.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

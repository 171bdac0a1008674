//! What users of the chart can set. The comments here are what they read.
#![expect(clippy::doc_markdown, reason = "the comments become descriptions in YAML, not Rust documentation")]

mod metrics;
mod operators;
mod pods;

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value};

pub use metrics::Metrics;
pub use operators::{Flag, own_flags};
use pods::{BookingServer, NetworkPolicy, PodDisruptionBudget};

/// A Kubernetes object or a part of one, which Kubernetes checks itself.
type Open = Map<String, Value>;

/// Values of the chart `operators`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct Values {
    /// One entry for each operator. Its flag switches together: controller, definition, permissions, webhooks, alerts, dashboard, roles for users, notes.
    #[schemars(schema_with = "operators::schema")]
    operators: Map<String, Value>,
    /// One Deployment for all operators, or one for each, with its own ServiceAccount, Lease, Services, certificate and monitor.
    topology: Topology,
    /// Pods of each Deployment: one works, the others stand by with warm caches. null leaves the number to an autoscaler or to `kubectl scale`.
    replicas: Option<u16>,
    /// Image of everything that this chart runs.
    image: Image,
    /// Prefix for every image, those that the operators choose for their pods included: a mirror for clusters without internet.
    image_registry: String,
    /// Secrets with which images are pulled.
    image_pull_secrets: Vec<Open>,
    /// One of several replicas works; needed for more than one.
    leader_election: LeaderElection,
    /// Namespaces to work in. A list narrows what is watched and what is permitted; empty is all of them.
    watch_namespaces: Vec<String>,
    /// Metrics for Prometheus, behind a proxy that asks the API server who may read them.
    metrics: Metrics,
    /// Alerts, for the Prometheus operator.
    prometheus_rule: PrometheusRule,
    /// A dashboard for Grafana, in a ConfigMap that its sidecar finds.
    dashboard: Dashboard,
    /// Webhooks: objects are checked and converted before they are stored.
    webhooks: Webhooks,
    /// Definitions of the operators' kinds.
    crds: Crds,
    /// Permissions.
    rbac: Rbac,
    /// Who the operators are to the API server.
    service_account: ServiceAccount,
    /// The booking server of the samples, which FlightTickets are booked with when no other provider is named.
    booking_server: BookingServer,
    /// Logs and traces.
    telemetry: Telemetry,
    /// Keeps one pod when nodes are drained; made only for more than one replica.
    pod_disruption_budget: PodDisruptionBudget,
    /// Who may call the pods.
    network_policy: NetworkPolicy,
    /// Requests and limits of the operators. README.md says what was measured.
    resources: Open,
    /// Security context of each pod.
    pod_security_context: Open,
    /// Security context of each container.
    security_context: Open,
    /// Time for running reconciles to end; the operators take 30 s at most.
    termination_grace_period_seconds: u32,
    /// PriorityClass of the pods.
    priority_class_name: String,
    /// Nodes on which the pods may run.
    node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    tolerations: Vec<Open>,
    /// Affinity of the pods.
    affinity: Open,
    /// Spread of the pods. A constraint without a `labelSelector` gets that of its Deployment.
    topology_spread_constraints: Vec<Open>,
    /// Labels of the pods.
    pod_labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    pod_annotations: BTreeMap<String, String>,
    /// Labels of everything.
    common_labels: BTreeMap<String, String>,
    /// Flags for the operators, as `controller-manager run --help` lists them.
    extra_args: Vec<String>,
    /// Environment of the operators.
    extra_env: Vec<Open>,
    /// Volumes of the pods.
    extra_volumes: Vec<Open>,
    /// Where the operators find them.
    extra_volume_mounts: Vec<Open>,
    /// Objects to install as well; texts in them are templates.
    extra_objects: Vec<Open>,
    /// Instead of the chart's name, in the names of objects.
    name_override: String,
    /// Instead of the release's name, in the names of objects.
    fullname_override: String,
    /// For charts that depend on this one: what their `condition` reads. Nothing here does.
    enabled: bool,
    /// For charts that depend on this one: Helm hands it to all charts. Nothing here reads it.
    global: Open,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Topology {
    Combined,
    #[expect(dead_code, reason = "not the default")]
    Separate,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Image {
    /// Registry and name.
    #[schemars(length(min = 1))]
    repository: String,
    /// The chart's appVersion when empty.
    tag: String,
    /// `sha256:…`; wins over the tag.
    #[schemars(regex(pattern = "^(sha256:[0-9a-f]{64})?$"))]
    digest: String,
    /// When nodes pull it.
    pull_policy: PullPolicy,
}

#[derive(Debug, Serialize, JsonSchema)]
enum PullPolicy {
    IfNotPresent,
    #[expect(dead_code, reason = "not the default")]
    Always,
    #[expect(dead_code, reason = "not the default")]
    Never,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct LeaderElection {
    /// Whether there is an election.
    enabled: bool,
    /// How long a standby waits after the leader's last sign of life.
    #[schemars(regex(pattern = "^([0-9]+(h|m|s|ms))+$"))]
    lease_duration: String,
    /// How long a leader works after its last sign of life; shorter than the lease.
    #[schemars(regex(pattern = "^([0-9]+(h|m|s|ms))+$"))]
    renew_deadline: String,
    /// How often the leader gives a sign of life.
    #[schemars(regex(pattern = "^([0-9]+(h|m|s|ms))+$"))]
    retry_period: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct PrometheusRule {
    /// Whether it is made.
    enabled: bool,
    /// Its labels, by which a Prometheus chooses its rules.
    labels: BTreeMap<String, String>,
    /// Where the runbooks are; each alert's name is appended.
    runbook_url: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Dashboard {
    /// Whether it is made.
    enabled: bool,
    /// Labels by which Grafana's sidecar finds it.
    labels: BTreeMap<String, String>,
    /// Annotations, such as the folder in Grafana.
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Webhooks {
    /// Whether they are served. Without them, only the definitions' schemas check objects, and only stored versions are served.
    enabled: bool,
    /// Port of the pods.
    #[schemars(range(min = 1, max = 65535))]
    port: u16,
    /// Serve on the nodes' network, where the API server cannot reach pods. Such pods are refused where Pod Security is restricted.
    host_network: bool,
    /// What the API server does with an object when nobody answers; webhooks that only warn are always ignored then.
    failure_policy: FailurePolicy,
    /// Which namespaces' objects are checked, beside the chart's own and kube-system, which never are.
    namespace_selector: Open,
    /// How long the API server waits.
    #[schemars(range(min = 1, max = 30))]
    timeout_seconds: u8,
    /// Certificates from cert-manager instead of our own; the permissions for our own are not granted then.
    cert_manager: CertManager,
}

#[derive(Debug, Serialize, JsonSchema)]
enum FailurePolicy {
    Fail,
    #[expect(dead_code, reason = "not the default")]
    Ignore,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct CertManager {
    /// Whether cert-manager makes the certificates.
    enabled: bool,
    /// Who signs; a self-signing Issuer is made when empty.
    issuer_ref: Open,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Crds {
    /// Whether definitions are installed and upgraded with the release.
    enabled: bool,
    /// Whether they, and so all objects of their kinds, stay when their operator is switched off or the release is uninstalled.
    keep: bool,
    /// Annotations of the definitions.
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Rbac {
    /// Whether roles and bindings are made.
    create: bool,
    /// Whether the roles view, edit and admin of namespaces include the operators' kinds.
    aggregate: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct ServiceAccount {
    /// Whether it is made; else `name` must be there.
    create: bool,
    /// Its name; that of its Deployment when empty. With topology separate, the name of the operator is appended.
    name: String,
    /// Its annotations.
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Telemetry {
    /// Where traces go by OTLP over gRPC, such as `http://collector.tracing:4317`; nowhere when empty.
    otlp_endpoint: String,
    /// A level, or levels by target: `info,manager=debug`.
    #[schemars(length(min = 1))]
    log_level: String,
    /// json, or text for people.
    log_format: LogFormat,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LogFormat {
    Json,
    #[expect(dead_code, reason = "not the default")]
    Text,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            operators: operators::defaults(),
            topology: Topology::Combined,
            replicas: Some(1),
            image: Image {
                repository: "localhost/operators/controller-manager".to_owned(),
                tag: String::new(),
                digest: String::new(),
                pull_policy: PullPolicy::IfNotPresent,
            },
            image_registry: String::new(),
            image_pull_secrets: Vec::new(),
            leader_election: LeaderElection {
                enabled: true,
                lease_duration: "15s".to_owned(),
                renew_deadline: "10s".to_owned(),
                retry_period: "2s".to_owned(),
            },
            watch_namespaces: Vec::new(),
            metrics: Metrics::default(),
            prometheus_rule: PrometheusRule { enabled: false, labels: BTreeMap::new(), runbook_url: String::new() },
            dashboard: Dashboard {
                enabled: false,
                labels: [("grafana_dashboard".to_owned(), "1".to_owned())].into(),
                annotations: [("grafana_folder".to_owned(), "Operators".to_owned())].into(),
            },
            webhooks: Webhooks {
                enabled: true,
                port: 9443,
                host_network: false,
                failure_policy: FailurePolicy::Fail,
                namespace_selector: Open::new(),
                timeout_seconds: 5,
                cert_manager: CertManager { enabled: false, issuer_ref: Open::new() },
            },
            crds: Crds { enabled: true, keep: true, annotations: BTreeMap::new() },
            rbac: Rbac { create: true, aggregate: true },
            service_account: ServiceAccount { create: true, name: String::new(), annotations: BTreeMap::new() },
            booking_server: BookingServer::default(),
            telemetry: Telemetry {
                otlp_endpoint: String::new(),
                log_level: "info".to_owned(),
                log_format: LogFormat::Json,
            },
            pod_disruption_budget: PodDisruptionBudget::default(),
            network_policy: NetworkPolicy::default(),
            resources: pods::resources("10m", "32Mi", "128Mi"),
            pod_security_context: pods::pod_security_context(),
            security_context: pods::security_context(),
            termination_grace_period_seconds: 40,
            priority_class_name: String::new(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            affinity: Open::new(),
            topology_spread_constraints: Vec::new(),
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            common_labels: BTreeMap::new(),
            extra_args: Vec::new(),
            extra_env: Vec::new(),
            extra_volumes: Vec::new(),
            extra_volume_mounts: Vec::new(),
            extra_objects: Vec::new(),
            name_override: String::new(),
            fullname_override: String::new(),
            enabled: true,
            global: Open::new(),
        }
    }
}

/// The JSON Schema of the values: closed, and each key described.
pub fn schema() -> Schema {
    // Inline: a reader of the schema, or of an editor's tooltip, sees each key where it is.
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Values>()
}

//! The values of the chart. The doc comments of the fields become the descriptions in `values.yaml`, its schema and its table.
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
use pods::{BookingServer, CaBundle, NetworkPolicy, PodDisruptionBudget, Probes, Service};

/// A Kubernetes object or a part of one. Its schema is left open: the API server validates it.
type Open = Map<String, Value>;

/// Values of the chart `operators`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct Values {
    /// Settings of each operator. `enabled` switches everything that belongs to the operator: controller, CRDs, permissions, webhooks, alerts, dashboard panels, roles for users and notes.
    #[schemars(schema_with = "operators::schema")]
    operators: Map<String, Value>,
    /// `combined` runs all operators in one Deployment. `separate` runs each operator in a Deployment of its own, with its own ServiceAccount, Lease, Services, certificate and monitor. A plain `helm upgrade` with another value lets old and new leaders overlap: use the three commands in README.md, "Changing `topology`".
    topology: Topology,
    /// Number of pods of each Deployment. One pod leads; the others are standbys with warm caches. With null, the chart leaves the number to an autoscaler or to `kubectl scale`.
    replicas: Option<u16>,
    /// Update strategy of the Deployments. When empty, that of Kubernetes; with `webhooks.hostNetwork`, one that stops a pod before it starts its replacement, since both need the same ports of a node.
    strategy: Open,
    /// Image of all containers of this chart, except kube-rbac-proxy.
    image: Image,
    /// Prefix of the default images of this chart and of the operators' pods, such as a mirror for clusters without internet. Images in other values and in the spec of an object stay unchanged. `controller-manager images` lists the operators' images.
    image_registry: String,
    /// Secrets with the credentials for pulling images.
    image_pull_secrets: Vec<Open>,
    /// Leader election between the replicas.
    leader_election: LeaderElection,
    /// Namespaces whose objects the operators reconcile; empty means all namespaces. A list also limits the watches and the permissions to these namespaces.
    #[schemars(extend("uniqueItems" = true))]
    watch_namespaces: Vec<String>,
    /// Labels of the namespaces whose objects the operators reconcile, as an alternative to `watchNamespaces`; namespaces join and leave at run time. The permissions are those for the whole cluster: RBAC knows no labels.
    watch_namespace_labels: BTreeMap<String, String>,
    /// Metrics for Prometheus, behind a proxy that checks the permissions of each client at the API server.
    metrics: Metrics,
    /// Alerts: a PrometheusRule for the Prometheus operator.
    prometheus_rule: PrometheusRule,
    /// Dashboard for Grafana, in a ConfigMap that Grafana's sidecar loads.
    dashboard: Dashboard,
    /// Webhooks that validate, default and convert objects before the API server stores them.
    webhooks: Webhooks,
    /// CustomResourceDefinitions (CRDs) of the operators' kinds.
    crds: Crds,
    /// Roles and their bindings.
    rbac: Rbac,
    /// ServiceAccount of the operators.
    service_account: ServiceAccount,
    /// Booking server for the samples: an operator with a value `provider` uses it if no other provider is configured.
    booking_server: BookingServer,
    /// Logs and traces.
    telemetry: Telemetry,
    /// Certificate authorities that the operators trust for an `https` provider or collector of traces. The image contains none. A changed bundle needs a restart of the pods.
    ca_bundle: CaBundle,
    /// PodDisruptionBudget of each Deployment, which limits how many pods a node drain removes at once.
    pod_disruption_budget: PodDisruptionBudget,
    /// Services of the webhooks, of the metrics and of the booking server.
    service: Service,
    /// Timing of the probes of the operators' containers, such as `{periodSeconds: 30, failureThreshold: 5}`.
    probes: Probes,
    /// NetworkPolicies that limit which clients can connect to the pods.
    network_policy: NetworkPolicy,
    /// Requests and limits of the operators. README.md has measurements.
    resources: Open,
    /// Whether pods name fixed users and groups. With false, the chart's pods and the operators' pods leave them out: for OpenShift (SCC `restricted-v2`), which gives each namespace its own.
    fixed_user_ids: bool,
    /// Security context of each pod.
    pod_security_context: Open,
    /// Security context of each container.
    security_context: Open,
    /// Seconds that a stopping pod has to finish running reconciles, after `shutdownDelaySeconds`. The operators need at most 30 s by default.
    termination_grace_period_seconds: u32,
    /// Seconds that a new pod must be ready before `helm --wait` returns and an update goes on. Nodes learn with a delay that a pod is ready, and until then a request for a webhook fails.
    min_ready_seconds: u32,
    /// Seconds for which a stopping pod goes on as before. Nodes learn with a delay that a pod stops, and until then they send requests for webhooks and metrics to it. 0: it stops at once, and a request may fail.
    shutdown_delay_seconds: u32,
    /// PriorityClass of the pods.
    priority_class_name: String,
    /// Nodes on which the pods may run.
    node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    tolerations: Vec<Open>,
    /// Affinity of the pods.
    affinity: Open,
    /// Topology spread constraints of the pods. A constraint without a `labelSelector` gets the selector of its Deployment.
    topology_spread_constraints: Vec<Open>,
    /// Additional labels of the operators' pods.
    pod_labels: BTreeMap<String, String>,
    /// Additional annotations of the operators' pods.
    pod_annotations: BTreeMap<String, String>,
    /// Additional labels of every object of this chart.
    common_labels: BTreeMap<String, String>,
    /// Additional annotations of every object of this chart. An annotation that an object has by itself takes precedence. Pods of Deployments get `podAnnotations` only, so that a change does not replace them.
    common_annotations: BTreeMap<String, String>,
    /// Additional flags of the operators; `controller-manager run --help` lists all flags.
    extra_args: Vec<String>,
    /// Additional environment variables of the operators.
    extra_env: Vec<Open>,
    /// Additional volumes of the operators' pods.
    extra_volumes: Vec<Open>,
    /// Additional volume mounts of the operators' containers, for `extraVolumes`.
    extra_volume_mounts: Vec<Open>,
    /// Additional objects to install. Helm evaluates template expressions in them.
    extra_objects: Vec<Open>,
    /// Replaces the chart's name in the names of objects.
    #[schemars(regex(pattern = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"))]
    name_override: String,
    /// Replaces the release's name in the names of objects.
    #[schemars(regex(pattern = "^([a-z]([-a-z0-9]*[a-z0-9])?)?$"))]
    fullname_override: String,
    /// Switch for parent charts, which name it in the `condition` of their dependency. This chart does not read it.
    enabled: bool,
    /// Global values of a parent chart, which Helm passes to all its charts. This chart does not read them.
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
    /// Tag of the image; empty means the chart's appVersion.
    tag: String,
    /// Digest of the image, `sha256:…`. It takes precedence over the tag.
    #[schemars(regex(pattern = "^(sha256:[0-9a-f]{64})?$"))]
    digest: String,
    /// Pull policy of the image.
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
    /// Whether the replicas elect a leader, which alone reconciles. Must be true unless `replicas` is 1 or 0.
    enabled: bool,
    /// How long a standby waits after the leader's last renewal of the Lease before it takes over.
    #[schemars(regex(pattern = "^([0-9]+(h|m|s|ms))+$"))]
    lease_duration: String,
    /// How long a leader continues after its last renewal. Must be shorter than `leaseDuration`, and longer than 1.2 times `retryPeriod`.
    #[schemars(regex(pattern = "^([0-9]+(h|m|s|ms))+$"))]
    renew_deadline: String,
    /// How often the leader renews the Lease.
    #[schemars(regex(pattern = "^([0-9]+(h|m|s|ms))+$"))]
    retry_period: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct PrometheusRule {
    /// Whether the chart creates the PrometheusRule.
    enabled: bool,
    /// Additional labels, for the `ruleSelector` of a Prometheus.
    labels: BTreeMap<String, String>,
    /// Namespace of the PrometheusRule, for a Prometheus that reads rules from certain namespaces; empty means the release's.
    namespace: String,
    /// Additional labels of every alert, such as those by which Alertmanager chooses the receiver.
    alert_labels: BTreeMap<String, String>,
    /// Settings of single alerts by their names, such as `OperatorForbidden: {enabled: false}`.
    alerts: BTreeMap<String, Alert>,
    /// Days that may be left of the webhooks' certificate before an alert fires. With cert-manager, choose less than is left at a renewal, which is a third of the Certificate's duration by default.
    #[schemars(range(min = 0.01))]
    certificate_days: f64,
    /// Address of the published runbooks (docs/runbooks.md), for the annotation `runbook_url`. The chart appends each alert's name in lower case, so end it with `#`. Empty: each alert has its runbook as text, in the annotation `runbook`.
    runbook_url: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Alert {
    /// Whether the rule has this alert; true by default.
    enabled: bool,
    /// How long the condition must hold before the alert fires, in place of the chart's time.
    #[schemars(regex(pattern = "^([0-9]+(ms|[smhdwy]))*$"))]
    r#for: String,
    /// Additional labels of this alert. A label `severity` replaces the chart's.
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Dashboard {
    /// Whether the chart creates the dashboard.
    enabled: bool,
    /// Namespace of the ConfigMap, for a Grafana that reads dashboards from certain namespaces; empty means the release's.
    namespace: String,
    /// Labels by which Grafana's sidecar finds the ConfigMap.
    labels: BTreeMap<String, String>,
    /// Annotations of the ConfigMap, such as the folder in Grafana.
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Webhooks {
    /// Whether the operators serve webhooks. Without webhooks, only the schemas of the CRDs validate objects, and only the stored version of each kind is served.
    enabled: bool,
    /// Port of the webhooks in the pods.
    #[schemars(range(min = 1, max = 65535))]
    port: u16,
    /// Whether the pods run in the nodes' network, for clusters whose API server cannot reach pods. Namespaces with the restricted Pod Security Standard reject such pods.
    host_network: bool,
    /// What the API server does with a request when a webhook does not answer: reject it (`Fail`) or accept it (`Ignore`). Webhooks that only warn always use `Ignore`.
    failure_policy: FailurePolicy,
    /// Label selector of the namespaces whose objects the webhooks check. They check neither the namespace of the release nor kube-system.
    namespace_selector: Open,
    /// Seconds that the API server waits for the answer of a webhook.
    #[schemars(range(min = 1, max = 30))]
    timeout_seconds: u8,
    /// Webhook certificates from cert-manager. By default, the operators create and renew their own.
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
    /// Whether cert-manager issues the certificates. The operators then get no permissions to manage their own.
    enabled: bool,
    /// Reference to the Issuer that signs the certificates. When empty, the chart creates a self-signing Issuer.
    issuer_ref: Open,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Crds {
    /// Whether Helm installs and upgrades the CRDs with the release.
    enabled: bool,
    /// Whether Helm keeps the CRDs, and so all objects of their kinds, when their operator is disabled or the release is uninstalled.
    keep: bool,
    /// Additional annotations of the CRDs.
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Rbac {
    /// Whether the chart creates roles and bindings. Without them, `helm test` has no test, because it needs a role of its own.
    create: bool,
    /// Whether the chart adds permissions on the operators' kinds to the cluster roles `view`, `edit` and `admin`.
    aggregate: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct ServiceAccount {
    /// Whether the chart creates the ServiceAccount. If not, `name` must name an existing one.
    create: bool,
    /// Name of the ServiceAccount; empty means the name of its Deployment. With `topology: separate`, the chart appends the name of the operator.
    name: String,
    /// Annotations of the ServiceAccount.
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Telemetry {
    /// Address of the OTLP collector that receives traces over gRPC, such as `http://collector.tracing:4317`. Empty: no traces. `https` needs `caBundle`.
    #[schemars(regex(pattern = "^(https?://.+)?$"))]
    otlp_endpoint: String,
    /// Log level, or a list of levels by target, such as `info,manager=debug,cache=debug`.
    #[schemars(regex(
        pattern = r"^((^|,)(([^,=]+=)?(off|error|warn|info|debug|trace|OFF|ERROR|WARN|INFO|DEBUG|TRACE|[0-5])|[^,]*[\[{}\]][^,]*))+$"
    ))]
    log_level: String,
    /// Format of the logs: `json` for log collectors, or human-readable `text`.
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
            strategy: Open::new(),
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
            watch_namespace_labels: BTreeMap::new(),
            metrics: Metrics::default(),
            prometheus_rule: PrometheusRule {
                enabled: false,
                labels: BTreeMap::new(),
                namespace: String::new(),
                alert_labels: BTreeMap::new(),
                alerts: BTreeMap::new(),
                certificate_days: 7.0,
                runbook_url: String::new(),
            },
            dashboard: Dashboard {
                enabled: false,
                namespace: String::new(),
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
            ca_bundle: CaBundle::default(),
            pod_disruption_budget: PodDisruptionBudget::default(),
            service: Service::default(),
            probes: Probes::default(),
            network_policy: NetworkPolicy::default(),
            resources: pods::resources("10m", "32Mi", "128Mi"),
            fixed_user_ids: true,
            pod_security_context: pods::pod_security_context(),
            security_context: pods::security_context(),
            termination_grace_period_seconds: 40,
            min_ready_seconds: 3,
            shutdown_delay_seconds: 5,
            priority_class_name: String::new(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            affinity: Open::new(),
            topology_spread_constraints: Vec::new(),
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            common_labels: BTreeMap::new(),
            common_annotations: BTreeMap::new(),
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

/// The JSON Schema of the values. It refuses unknown keys and describes each key.
pub fn schema() -> Schema {
    // Inline, so that readers of the schema and of editors' tooltips see each key at its place.
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Values>()
}

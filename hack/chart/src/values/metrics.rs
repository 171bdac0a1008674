//! Values of the metrics: the proxy that authorizes clients, and the monitors of the Prometheus operator.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Open, pods};

/// Metrics for Prometheus.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct Metrics {
    /// Whether the operators serve metrics.
    enabled: bool,
    /// Port of the metrics, in the pods and of the Service. `proxy.kind: none` uses 8080 instead.
    #[schemars(range(min = 1, max = 65535))]
    port: u16,
    /// Proxy that asks the API server whether a client may read the metrics.
    proxy: Proxy,
    /// ServiceMonitor for the Prometheus operator, which finds the pods through the Service.
    service_monitor: Monitor,
    /// PodMonitor for the Prometheus operator, which finds the pods by their labels.
    pod_monitor: Monitor,
    /// Whether the Service has the annotations `prometheus.io/*`, for a Prometheus without the Prometheus operator.
    prometheus_scrape_annotations: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Proxy {
    /// `metrics-proxy` is a sidecar from this chart's image. `kube-rbac-proxy` is the upstream sidecar with the same flags. `builtin` needs no sidecar: the manager itself serves TLS and asks the API server. `none` serves all clients without TLS at port 8080; use it for tests only.
    kind: ProxyKind,
    /// Image of kube-rbac-proxy.
    image: ProxyImage,
    /// Requests and limits of the sidecar. `builtin` and `none` have no sidecar.
    resources: Open,
    /// TLS settings of the proxy.
    tls: ProxyTls,
    /// Audiences that a client's token must have; empty means the API server's audiences.
    audiences: Vec<String>,
    /// Additional flags of the sidecar.
    extra_args: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ProxyKind {
    MetricsProxy,
    #[expect(dead_code, reason = "not the default")]
    KubeRbacProxy,
    #[expect(dead_code, reason = "not the default")]
    Builtin,
    #[expect(dead_code, reason = "not the default")]
    None,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct ProxyImage {
    /// Registry and name.
    #[schemars(length(min = 1))]
    repository: String,
    /// Tag of the image.
    tag: String,
    /// Digest of the image, `sha256:…`. It takes precedence over the tag.
    #[schemars(regex(pattern = "^(sha256:[0-9a-f]{64})?$"))]
    digest: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct ProxyTls {
    /// Secret with `tls.crt` and `tls.key`. A replaced pair is used without a restart. When empty, each start creates a self-signed certificate.
    secret_name: String,
    /// Minimum version of TLS.
    min_version: TlsVersion,
    /// Allowed cipher suites, by their names in Go; empty means all secure ones.
    cipher_suites: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
enum TlsVersion {
    #[serde(rename = "VersionTLS12")]
    Tls12,
    #[serde(rename = "VersionTLS13")]
    #[expect(dead_code, reason = "not the default")]
    Tls13,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Monitor {
    /// Whether the chart creates the monitor.
    enabled: bool,
    /// What to do if the cluster does not know the kind of the monitor: render it anyway, or skip it. `skip` also skips it in `helm template`, which asks no cluster.
    if_missing: IfMissing,
    /// Time between scrapes; empty means the default of Prometheus.
    interval: String,
    /// Time limit of a scrape; empty means the default of Prometheus.
    scrape_timeout: String,
    /// Additional labels, for the monitor selector of a Prometheus.
    labels: BTreeMap<String, String>,
    /// Namespace of the monitor and of the Secret with the token, for a Prometheus that reads monitors from certain namespaces; empty means the release's.
    namespace: String,
    /// Secret with the token that Prometheus sends to the proxy, in the namespace of the monitor.
    token_secret: TokenSecret,
    /// SafeTLSConfig of the scrapes, for a client certificate or for the CA of the proxy's certificate. When empty, Prometheus does not verify the proxy's certificate, because it is self-signed by default.
    tls_config: Open,
    /// Relabelings of the targets.
    relabelings: Vec<Open>,
    /// Relabelings of the metrics.
    metric_relabelings: Vec<Open>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct TokenSecret {
    /// Name of the Secret, in the namespace of the monitor. When empty, the chart creates a ServiceAccount that may only read metrics, and a Secret with its token.
    name: String,
    /// Key of the token in the Secret.
    #[schemars(length(min = 1))]
    key: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum IfMissing {
    Render,
    #[expect(dead_code, reason = "not the default")]
    Skip,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            enabled: true,
            port: 8443,
            proxy: Proxy {
                kind: ProxyKind::MetricsProxy,
                image: ProxyImage {
                    repository: "quay.io/brancz/kube-rbac-proxy".to_owned(),
                    tag: "v0.21.0".to_owned(),
                    digest: String::new(),
                },
                resources: pods::resources("5m", "16Mi", "64Mi"),
                tls: ProxyTls { secret_name: String::new(), min_version: TlsVersion::Tls12, cipher_suites: Vec::new() },
                audiences: Vec::new(),
                extra_args: Vec::new(),
            },
            service_monitor: Monitor::default(),
            pod_monitor: Monitor::default(),
            prometheus_scrape_annotations: false,
        }
    }
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            enabled: false,
            if_missing: IfMissing::Render,
            interval: String::new(),
            scrape_timeout: String::new(),
            labels: BTreeMap::new(),
            namespace: String::new(),
            token_secret: TokenSecret { name: String::new(), key: "token".to_owned() },
            tls_config: Open::new(),
            relabelings: Vec::new(),
            metric_relabelings: Vec::new(),
        }
    }
}

//! Metrics, and who may read them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Open, pods};

/// Metrics for Prometheus.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct Metrics {
    /// Whether there are any.
    enabled: bool,
    /// Port of the proxy, in the pods and of the Service.
    #[schemars(range(min = 1, max = 65535))]
    port: u16,
    /// What asks the API server who may read them.
    proxy: Proxy,
    /// For the Prometheus operator: scrape through the Service.
    service_monitor: Monitor,
    /// For the Prometheus operator: scrape the pods.
    pod_monitor: Monitor,
    /// Annotations `prometheus.io/*` at the Service, for a Prometheus without its operator.
    prometheus_scrape_annotations: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct Proxy {
    /// metrics-proxy is a sidecar from our image, kube-rbac-proxy the same from upstream's. builtin is no sidecar: the manager asks itself. none serves everybody, without TLS, at port 8080: for tests.
    kind: ProxyKind,
    /// Image of kube-rbac-proxy.
    image: ProxyImage,
    /// Requests and limits of the sidecar.
    resources: Open,
    /// Its certificate.
    tls: ProxyTls,
    /// Audiences that a token must be for; the API server's when empty.
    audiences: Vec<String>,
    /// More flags for the sidecar.
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
    /// Its tag.
    tag: String,
    /// `sha256:…`; wins over the tag.
    #[schemars(regex(pattern = "^(sha256:[0-9a-f]{64})?$"))]
    digest: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct ProxyTls {
    /// Secret with tls.crt and tls.key; replaced pairs are used without a restart. When empty, each start makes a certificate that nobody has signed.
    secret_name: String,
    /// Oldest version of TLS.
    min_version: TlsVersion,
    /// Cipher suites by their names in Go; all sound ones when empty.
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
    /// Whether it is made.
    enabled: bool,
    /// When the cluster does not know the kind: render it all the same, or skip it. `helm template` asks no cluster, and so skips.
    if_missing: IfMissing,
    /// Time between scrapes; that of Prometheus when empty.
    interval: String,
    /// Limit of a scrape; that of Prometheus when empty.
    scrape_timeout: String,
    /// Its labels, by which a Prometheus chooses its monitors.
    labels: BTreeMap<String, String>,
    /// Secret in the namespace of this release with the token that Prometheus shows.
    token_secret: TokenSecret,
    /// A SafeTLSConfig, for a client certificate or for the authority of the proxy's. When empty, the certificate is not checked, since by default nobody has signed it.
    tls_config: Open,
    /// Relabelings of targets.
    relabelings: Vec<Open>,
    /// Relabelings of metrics.
    metric_relabelings: Vec<Open>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
struct TokenSecret {
    /// Its name. When empty, a ServiceAccount that may only read metrics is made, and a Secret with its token.
    name: String,
    /// Its key.
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
            token_secret: TokenSecret { name: String::new(), key: "token".to_owned() },
            tls_config: Open::new(),
            relabelings: Vec::new(),
            metric_relabelings: Vec::new(),
        }
    }
}

//! Traces over OTLP: one for each reconcile, with its requests to the API server as child spans. Off by default. An
//! unreachable collector only increments a counter.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig, tonic_types::transport::ClientTlsConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData},
};
use tracing::{Metadata, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, filter::FilterFn, registry::LookupSpan};

/// The target of the spans that make up traces. They have their own level, so that logs do not show them.
pub(crate) const TARGET: &str = "manager::trace";
/// Time limit for sending the last spans when the process ends.
const FLUSH: Duration = Duration::from_secs(2);
/// The standard variables that turn traces on; the first that is set has the endpoint.
const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The variables of the downward API that the chart sets when traces are on, and the attributes of the sender that they become.
const OF_POD: [(&str, &str); 4] = [
    ("POD_NAME", "k8s.pod.name"),
    ("POD_NAMESPACE", "k8s.namespace.name"),
    ("POD_UID", "k8s.pod.uid"),
    ("NODE_NAME", "k8s.node.name"),
];

/// The exporter of traces, if they are on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traces {
    provider: Option<SdkTracerProvider>,
    dropped: Arc<AtomicU64>,
}

impl Traces {
    /// Sets up export to `endpoint`, or to that of the standard variables. Traces are off without either. Must be called in a
    /// tokio runtime. Sends nothing yet.
    ///
    /// # Errors
    ///
    /// The endpoint is invalid; the message names the flag.
    pub(super) fn start(endpoint: Option<&str>) -> Result<Self, String> {
        let from_environment = VARIABLES.iter().filter_map(|name| std::env::var(name).ok()).find(|it| !it.is_empty());
        let Some(address) = endpoint.map(str::to_owned).or(from_environment) else { return Ok(Self::default()) };
        let mut builder = SpanExporter::builder().with_tonic();
        if let Some(endpoint) = endpoint {
            if !["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
                return Err(format!(
                    "--otlp-endpoint: \"{endpoint}\" is not of the form http://HOST:PORT or https://HOST:PORT"
                ));
            }
            builder = builder.with_endpoint(endpoint);
        }
        let is_tls = address.starts_with("https://");
        if is_tls {
            // The authorities of the system, or those in the file that SSL_CERT_FILE names.
            builder = builder.with_tls_config(ClientTlsConfig::new().with_native_roots());
        }
        let exporter = builder.build().map_err(|error| {
            let hint = "; for https, set SSL_CERT_FILE to a file with the certificate authorities to trust";
            format!("--otlp-endpoint: {error}{}", if is_tls { hint } else { "" })
        })?;
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Counted { exporter, dropped: dropped.clone() };
        // The sampler, the size of batches and further attributes come from the standard variables.
        let provider = SdkTracerProvider::builder().with_batch_exporter(counted);
        let provider = provider.with_resource(resource(|name| std::env::var(name).ok())).build();
        Ok(Self { provider: Some(provider), dropped })
    }

    pub(super) fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer = self.provider.as_ref()?.tracer("controller-manager");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
        let ours = |metadata: &Metadata<'_>| metadata.is_span() && metadata.target() == TARGET;
        Some(layer.with_tracked_inactivity(false).with_filter(FilterFn::new(ours)))
    }

    /// The number of spans that could not be sent.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Sends the buffered spans at the end of the process. Blocks for up to [`FLUSH`].
    pub(crate) fn flush(&self) {
        if let Some(provider) = &self.provider {
            drop(provider.shutdown_with_timeout(FLUSH));
        }
    }
}

/// The resource attributes of the sender: its build, and its pod by the variables of its environment.
fn resource(variable: impl Fn(&str) -> Option<String>) -> Resource {
    let mut resource = Resource::builder()
        .with_attribute(opentelemetry::KeyValue::new("service.version", crate::build_info::VERSION))
        .with_attribute(opentelemetry::KeyValue::new("vcs.ref.head.revision", crate::build_info::COMMIT));
    if variable("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("controller-manager");
    }
    for (name, attribute) in OF_POD {
        if let Some(value) = variable(name) {
            resource = resource.with_attribute(opentelemetry::KeyValue::new(attribute, value));
        }
    }
    resource.build()
}

/// The W3C `traceparent` of the current reconcile, for requests to external systems; `None` when it is not traced.
pub fn traceparent() -> Option<String> {
    let context = tracing::Span::current().context();
    let span = context.span();
    let context = span.span_context();
    let (trace, span, flags) = (context.trace_id(), context.span_id(), context.trace_flags().to_u8());
    context.is_valid().then(|| format!("00-{trace}-{span}-{flags:02x}"))
}

/// Counts the spans that could not be sent.
#[derive(Debug)]
struct Counted {
    exporter: SpanExporter,
    dropped: Arc<AtomicU64>,
}

impl opentelemetry_sdk::trace::SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let sent = self.exporter.export(batch).await;
        if sent.is_err() {
            self.dropped.fetch_add(spans, Ordering::Relaxed);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::Key;

    use super::*;

    #[test]
    fn traces_name_the_build_and_the_pod() {
        let resource = resource(|name| Some(format!("the {name}")));
        let of = |key: &'static str| resource.get(&Key::new(key)).map(|value| value.to_string());
        assert_eq!(of("k8s.namespace.name").as_deref(), Some("the POD_NAMESPACE"));
        assert_eq!(of("k8s.pod.uid").as_deref(), Some("the POD_UID"));
        assert_eq!(of("k8s.node.name").as_deref(), Some("the NODE_NAME"));
        assert_eq!(of("service.version").as_deref(), Some(crate::build_info::VERSION));
        assert_eq!(of("vcs.ref.head.revision").as_deref(), Some(crate::build_info::COMMIT));
    }
}

//! The Prometheus metrics of the proxy.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use prometheus::{Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};
use serving::{CertificateError, Dropped, Observer};

use crate::{cache::Known, lane::Unanswered};

/// The Prometheus metrics of the proxy. All names begin with `metrics_proxy_`.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    reviews: IntCounterVec,
    upstream: HistogramVec,
    reloads: IntCounterVec,
    certificate: IntGauge,
    connections: IntGauge,
    dropped: IntCounterVec,
}

impl Metrics {
    /// Makes all metrics, with counters at zero.
    pub fn new() -> Result<Self, prometheus::Error> {
        let name = |name: &str, help: &str| Opts::new(format!("metrics_proxy_{name}"), help);
        let counter = |it: &str, help: &str, labels: &[&str]| IntCounterVec::new(name(it, help), labels);
        let gauge = |it: &str, help: &str| IntGauge::with_opts(name(it, help));
        let buckets = vec![0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];
        let upstream = HistogramOpts::new(
            "metrics_proxy_upstream_seconds",
            "How long the upstream took to begin its answer, by the first digit of the status, or error.",
        );
        let metrics = Self {
            registry: Registry::new(),
            requests: counter("requests_total", "Requests that were answered, by status.", &["code"])?,
            reviews: counter(
                "reviews_total",
                "Reviews of tokens and access, by answer (yes, no, error, refused) and its source (review, shared, cache).",
                &["kind", "answer", "from"],
            )?,
            upstream: HistogramVec::new(upstream.buckets(buckets), &["code"])?,
            reloads: counter("certificate_reloads_total", "Reloads of changed certificates and bundles.", &["result"])?,
            certificate: gauge(
                "certificate_expiry_timestamp_seconds",
                "When the serving certificate expires, in seconds since 1970.",
            )?,
            connections: gauge("connections", "Open connections.")?,
            dropped: counter("connections_dropped_total", "Connections that the proxy ended, by reason.", &["reason"])?,
        };
        let Self { registry, requests, reviews, upstream, reloads, certificate, connections, dropped } = &metrics;
        for counter in [requests, reviews, reloads, dropped] {
            registry.register(Box::new(counter.clone()))?;
        }
        for gauge in [certificate, connections] {
            registry.register(Box::new(gauge.clone()))?;
        }
        registry.register(Box::new(upstream.clone()))?;
        for result in ["success", "error"] {
            reloads.with_label_values(&[result]);
        }
        for reason in Dropped::ALL {
            dropped.with_label_values(&[reason.as_str()]);
        }
        Ok(metrics)
    }

    pub(crate) fn answered(&self, status: StatusCode) {
        self.requests.with_label_values(&[status.as_str()]).inc();
    }

    pub(crate) fn reviewed(&self, kind: &str, known: Known, answer: Result<bool, &Unanswered>) {
        let answer = match answer {
            Ok(true) => "yes",
            Ok(false) => "no",
            Err(Unanswered::Crowded) => "refused",
            Err(Unanswered::Failed(_)) => "error",
        };
        let from = match known {
            Known::Remembered => "cache",
            Known::Shared => "shared",
            Known::Reviewed => "review",
        };
        self.reviews.with_label_values(&[kind, answer, from]).inc();
    }

    pub(crate) fn upstream(&self, status: Option<StatusCode>, took: Duration) {
        let code = match status.map(|status| status.as_u16() / 100) {
            Some(2) => "2xx",
            Some(3) => "3xx",
            Some(4) => "4xx",
            Some(5) => "5xx",
            _ => "error",
        };
        self.upstream.with_label_values(&[code]).observe(took.as_secs_f64());
    }

    /// Renders all metrics in the text format of Prometheus.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }
}

impl Observer for Metrics {
    fn certificate(&self, not_after: SystemTime) {
        let since_1970 = not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.certificate.set(i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX));
    }

    fn reloaded(&self, outcome: Result<(), &CertificateError>) {
        match outcome {
            Ok(()) => tracing::info!("certificates reloaded"),
            Err(error) => tracing::error!(%error, "certificates could not be reloaded; the old ones stay in use"),
        }
        self.reloads.with_label_values(&[if outcome.is_ok() { "success" } else { "error" }]).inc();
    }

    fn connections(&self, open: usize) {
        self.connections.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    fn dropped(&self, why: Dropped) {
        self.dropped.with_label_values(&[why.as_str()]).inc();
    }
}

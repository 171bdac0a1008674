//! The metrics of the webhook server: those of controller-runtime, and the expiry of the certificate.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use api_errors::chain;
use prometheus::IntCounter;
use webhooks::{CONVERT, Conversion};

use super::Metrics;

/// Updates the metrics with what the webhook server reports.
pub(crate) struct WebhookMetrics(pub(crate) Arc<Metrics>);

impl WebhookMetrics {
    fn conversions(&self, conversion: &Conversion<'_>) -> IntCounter {
        let Conversion { kind, from, to, succeeded } = conversion;
        let result = if *succeeded { "success" } else { "error" };
        self.0.conversions.with_label_values(&[*kind, *from, *to, result])
    }
}

impl webhooks::Observer for WebhookMetrics {
    fn serves(&self, path: &str) {
        for code in ["200", "500"] {
            self.0.webhook_requests.with_label_values(&[path, code]);
        }
        self.0.webhook_running.with_label_values(&[path]);
        self.0.webhook_seconds.with_label_values(&[path]);
    }

    fn started(&self, path: &str) {
        self.0.webhook_running.with_label_values(&[path]).inc();
    }

    fn answered(&self, path: &str, code: u16, took: Duration) {
        self.0.webhook_seconds.with_label_values(&[path]).observe(took.as_secs_f64());
        self.0.webhook_requests.with_label_values(&[path, &code.to_string()]).inc();
        self.0.webhook_running.with_label_values(&[path]).dec();
    }

    fn converts(&self, conversion: &Conversion<'_>) {
        self.conversions(conversion);
    }

    fn converted(&self, conversion: &Conversion<'_>) {
        self.conversions(conversion).inc();
    }

    fn panicked(&self, path: &str) {
        let counter = if path == CONVERT { &self.0.conversion_panics } else { &self.0.webhook_panics };
        counter.inc();
    }
}

impl serving::Observer for WebhookMetrics {
    fn certificate(&self, not_after: SystemTime) {
        let seconds = not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        self.0.certificate_expiry.with_label_values::<&str>(&[]).set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    fn reloaded(&self, outcome: Result<(), &serving::CertificateError>) {
        self.0.certificate_reads.inc();
        if let Err(error) = outcome {
            self.0.certificate_errors.inc();
            tracing::error!(error = chain(error), "Cannot replace the webhook certificate");
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serving::Certificates;

    use super::*;
    use crate::metrics::MetricRegistry;

    #[test]
    fn panics_of_conversions_are_counted_apart() {
        let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
        let observer = WebhookMetrics(metrics.clone());
        webhooks::Observer::panicked(&observer, CONVERT);
        webhooks::Observer::panicked(&observer, "/validate-a");
        webhooks::Observer::panicked(&observer, "/validate-b");
        assert_eq!((metrics.conversion_panics.get(), metrics.webhook_panics.get()), (1, 2));
    }

    #[test]
    fn conversions_are_counted_by_version_and_result() {
        let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
        let observer = WebhookMetrics(metrics.clone());
        let conversion = |succeeded| Conversion { kind: "Cache", from: "v1alpha1", to: "v1", succeeded };
        webhooks::Observer::converts(&observer, &conversion(false));
        webhooks::Observer::converted(&observer, &conversion(true));
        webhooks::Observer::converted(&observer, &conversion(true));
        let text = metrics.text();
        for line in [
            "operator_webhook_conversions_total{from=\"v1alpha1\",kind=\"Cache\",result=\"success\",to=\"v1\"} 2",
            "operator_webhook_conversions_total{from=\"v1alpha1\",kind=\"Cache\",result=\"error\",to=\"v1\"} 0",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn certificate_reads_and_read_errors_are_counted() {
        let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
        let [first, second] = [(); 2].map(|()| {
            let made = rcgen::generate_simple_self_signed(["a".to_owned()]).expect("a certificate");
            (made.cert.pem(), made.signing_key.serialize_pem())
        });
        let certificates = Certificates::from_pem(first.0.as_bytes(), first.1.as_bytes()).expect("a pair");
        certificates.observe(Arc::new(WebhookMetrics(metrics.clone())));
        let expiry = metrics.certificate_expiry.with_label_values::<&str>(&[]).get();
        assert!(expiry > Timestamp::now().as_second(), "{expiry}");
        let before = metrics.certificate_reads.get();
        certificates.replace(second.0.as_bytes(), second.1.as_bytes()).expect("a pair");
        assert_eq!((metrics.certificate_reads.get() - before, metrics.certificate_errors.get()), (1, 0));
        certificates.replace(first.0.as_bytes(), second.1.as_bytes()).expect_err("keys do not match");
        assert_eq!((metrics.certificate_reads.get() - before, metrics.certificate_errors.get()), (2, 1));
    }
}

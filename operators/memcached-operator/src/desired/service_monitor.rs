//! The `ServiceMonitor` that makes the Prometheus operator scrape the exporters.

use kube::ResourceExt;
use workloads::{App, Endpoint, ServiceMonitor};

use super::exporter;
use crate::api::Memcached;

/// Returns the monitor; `None` if it is disabled, or if there is no exporter to scrape.
pub fn service_monitor(memcached: &Memcached) -> Option<ServiceMonitor> {
    let settings = memcached.spec.metrics()?.service_monitor.as_ref().filter(|it| it.enabled)?;
    let endpoint = Endpoint { port: exporter::PORT.to_owned(), interval: settings.interval.clone() };
    Some(workloads::service_monitor(memcached.name_any(), &App::of(memcached), &settings.labels, endpoint))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn of(monitor: &Value, exporter: bool) -> Value {
        let metrics = json!({"enabled": exporter, "serviceMonitor": monitor});
        serde_json::to_value(service_monitor(&samples::with_spec(&json!({"metrics": metrics})))).expect("JSON")
    }

    #[test]
    fn monitor_scrapes_the_metrics_port_of_the_service() {
        let monitor = of(&json!({"enabled": true}), true);
        let app = json!({
            "app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": "memcached-sample",
        });
        assert_eq!(
            monitor["spec"],
            json!({"endpoints": [{"port": "metrics", "interval": "30s"}], "selector": {"matchLabels": app}})
        );
        assert_eq!(monitor["metadata"]["name"], "memcached-sample");
    }

    #[test]
    fn monitor_has_user_labels_but_operator_labels_win() {
        let labels = json!({"release": "prometheus", "app.kubernetes.io/name": "mine"});
        let monitor = of(&json!({"enabled": true, "interval": "1m30s", "labels": labels}), true);
        assert_eq!(monitor["spec"]["endpoints"][0]["interval"], "1m30s");
        let labels = &monitor["metadata"]["labels"];
        assert_eq!(
            (&labels["release"], &labels["app.kubernetes.io/name"]),
            (&json!("prometheus"), &json!("memcached"))
        );
    }

    #[test]
    fn no_monitor_without_an_exporter() {
        assert_eq!(of(&json!({"enabled": true}), false), Value::Null);
        assert_eq!(of(&json!({}), true), Value::Null);
    }
}

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
    fn it_scrapes_the_port_of_the_service_that_carries_our_labels() {
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
    fn it_carries_the_labels_by_which_it_is_found_and_ours_win() {
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
    fn without_an_exporter_there_is_nothing_to_scrape() {
        assert_eq!(of(&json!({"enabled": true}), false), Value::Null);
        assert_eq!(of(&json!({}), true), Value::Null);
    }
}

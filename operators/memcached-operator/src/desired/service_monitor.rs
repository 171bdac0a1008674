//! The `ServiceMonitor` that makes the Prometheus operator scrape the exporters.

use kube::ResourceExt;
use workloads::{App, Endpoint, ServiceMonitor};

use super::exporter;
use crate::api::{Memcached, v1::ServiceMonitorSettings};

/// The shortest interval of scrapes, in milliseconds. A tenant must not make Prometheus scrape each pod a thousand times a second.
const SHORTEST: u64 = 1000;

/// The longest duration that Prometheus reads, in milliseconds: nanoseconds in 63 bits.
const LONGEST: u64 = i64::MAX as u64 / 1_000_000;
/// The units of Prometheus in their order, in milliseconds.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 60 * 60 * 1000),
    ("w", 7 * 24 * 60 * 60 * 1000),
    ("d", 24 * 60 * 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("m", 60 * 1000),
    ("s", 1000),
    ("ms", 1),
];

/// Returns the monitor; `None` if it is disabled, or if there is no exporter to scrape.
pub fn service_monitor(memcached: &Memcached) -> Option<ServiceMonitor> {
    let settings = memcached.spec.metrics()?.service_monitor.as_ref().filter(|it| it.enabled)?;
    let endpoint = Endpoint { port: exporter::PORT.to_owned(), interval: interval(settings) };
    Some(workloads::service_monitor(memcached.name_any(), &App::of(memcached), &settings.labels, endpoint))
}

/// The interval of the settings. Objects with another text, from before the schema refused it, get the default: the API server would
/// refuse the monitor, or Prometheus would scrape too often.
fn interval(settings: &ServiceMonitorSettings) -> String {
    if milliseconds(&settings.interval).is_some_and(|it| it >= SHORTEST) {
        settings.interval.clone()
    } else {
        ServiceMonitorSettings::default().interval
    }
}

/// The milliseconds of a duration of Prometheus, such as `1m30s`; `None` if the text is not one, or is longer than Prometheus reads.
fn milliseconds(text: &str) -> Option<u64> {
    let (mut rest, mut sum, mut units) = (text, 0_u64, UNITS.iter());
    while !rest.is_empty() {
        let (number, more) = rest.split_at(rest.find(|it: char| !it.is_ascii_digit())?);
        let (unit, more) = more.split_at(more.find(|it: char| it.is_ascii_digit()).unwrap_or(more.len()));
        // Goes on behind the unit before: each one occurs once, and in this order.
        let (_, length) = units.find(|(name, _)| *name == unit)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*length)?)?;
        rest = more;
    }
    Some(sum).filter(|sum| *sum <= LONGEST)
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
    fn stored_interval_below_a_second_becomes_the_default() {
        for (stored, used) in [
            ("1ms", "30s"),
            ("999ms", "30s"),
            ("0s", "30s"),
            ("0h0m", "30s"),
            ("often", "30s"),
            ("5", "30s"),
            ("s", "30s"),
            ("", "30s"),
            ("1s1m", "30s"),
            ("1m1m", "30s"),
            ("400y", "30s"),
            ("99999999999999999999y", "30s"),
            ("1s", "1s"),
            ("1500ms", "1500ms"),
            ("0m2s", "0m2s"),
            ("1m30s", "1m30s"),
            ("1y2w3d4h", "1y2w3d4h"),
        ] {
            let monitor = of(&json!({"enabled": true, "interval": stored}), true);
            assert_eq!(monitor["spec"]["endpoints"][0]["interval"], used, "{stored:?}");
        }
    }

    /// Prometheus reads durations of up to about 292 years. The limit in a unit proves the length of that unit.
    #[test]
    fn longest_duration_has_292_years_in_every_unit() {
        for (most, unit) in [
            (292, "y"),
            (15_250, "w"),
            (106_751, "d"),
            (2_562_047, "h"),
            (153_722_867, "m"),
            (9_223_372_036, "s"),
            (9_223_372_036_854_u64, "ms"),
        ] {
            assert!(milliseconds(&format!("{most}{unit}")).is_some(), "{most}{unit}");
            assert_eq!(milliseconds(&format!("{}{unit}", most + 1)), None, "one more than {most}{unit}");
        }
        assert_eq!(milliseconds("1m30s5ms"), Some(90_005));
    }

    #[test]
    fn no_monitor_without_an_exporter() {
        assert_eq!(of(&json!({"enabled": true}), false), Value::Null);
        assert_eq!(of(&json!({}), true), Value::Null);
    }
}

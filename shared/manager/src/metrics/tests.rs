//! Compares names, labels and buckets with controller-runtime's, because dashboards and alerts depend on them.

use std::sync::Arc;

use super::*;

/// Name, type and labels of controller-runtime's metrics.
const UPSTREAM: &[(&str, &str, &[&str])] = &[
    ("certwatcher_read_certificate_errors_total", "counter", &[]),
    ("certwatcher_read_certificate_total", "counter", &[]),
    ("controller_runtime_active_workers", "gauge", &["controller"]),
    ("controller_runtime_conversion_webhook_panics_total", "counter", &[]),
    ("controller_runtime_max_concurrent_reconciles", "gauge", &["controller"]),
    ("controller_runtime_reconcile_errors_total", "counter", &["controller"]),
    ("controller_runtime_reconcile_panics_total", "counter", &["controller"]),
    ("controller_runtime_reconcile_time_seconds", "histogram", &["controller"]),
    ("controller_runtime_reconcile_timeouts_total", "counter", &["controller"]),
    ("controller_runtime_reconcile_total", "counter", &["controller", "result"]),
    ("controller_runtime_terminal_reconcile_errors_total", "counter", &["controller"]),
    ("controller_runtime_webhook_latency_seconds", "histogram", &["webhook"]),
    ("controller_runtime_webhook_panics_total", "counter", &[]),
    ("controller_runtime_webhook_requests_in_flight", "gauge", &["webhook"]),
    ("controller_runtime_webhook_requests_total", "counter", &["webhook", "code"]),
    ("leader_election_master_status", "gauge", &["name"]),
    ("leader_election_slowpath_total", "counter", &["name"]),
    ("rest_client_requests_total", "counter", &["code", "method", "host"]),
    ("workqueue_adds_total", "counter", &["name", "controller"]),
    ("workqueue_depth", "gauge", &["name", "controller", "priority"]),
    ("workqueue_longest_running_processor_seconds", "gauge", &["name", "controller"]),
    ("workqueue_queue_duration_seconds", "histogram", &["name", "controller"]),
    ("workqueue_retries_total", "counter", &["name", "controller"]),
    ("workqueue_unfinished_work_seconds", "gauge", &["name", "controller"]),
    ("workqueue_work_duration_seconds", "histogram", &["name", "controller"]),
];

/// Our own metrics. `--metrics-max-objects` bounds the cardinality of labels that name objects.
const OURS: &[(&str, &str, &[&str])] = &[
    ("operator_api_warnings_total", "counter", &[]),
    ("operator_build_info", "gauge", &["version", "commit"]),
    ("operator_events_dropped_total", "counter", &[]),
    ("operator_informer_last_event_timestamp_seconds", "gauge", &["kind"]),
    ("operator_informer_objects", "gauge", &["kind"]),
    ("operator_informer_restarts_total", "counter", &["kind", "reason"]),
    ("operator_resource_condition", "gauge", &["kind", "namespace", "name", "type", "status"]),
    ("operator_resource_condition_aggregated", "gauge", &["kind"]),
    ("operator_resource_conditions", "gauge", &["kind", "type", "status"]),
    ("operator_skipped_writes_total", "counter", &["kind", "op"]),
    ("operator_trace_spans_dropped_total", "counter", &[]),
    ("operator_undecodable_objects", "gauge", &["kind"]),
    ("operator_waiting_objects", "gauge", &["kind"]),
    ("operator_webhook_certificate_expiry_timestamp_seconds", "gauge", &[]),
    ("operator_webhook_conversions_total", "counter", &["kind", "from", "to", "result"]),
];

/// What the library's collector shows of the process.
const PROCESS: &[(&str, &str, &[&str])] = &[
    ("process_cpu_seconds_total", "counter", &[]),
    ("process_max_fds", "gauge", &[]),
    ("process_open_fds", "gauge", &[]),
    ("process_resident_memory_bytes", "gauge", &[]),
    ("process_start_time_seconds", "gauge", &[]),
    ("process_threads", "gauge", &[]),
    ("process_virtual_memory_bytes", "gauge", &[]),
];

/// The upper bounds of each histogram, as in the label `le`.
const BUCKETS: &[(&str, &str)] = &[
    ("controller_runtime_reconcile_time_seconds", RECONCILE),
    ("controller_runtime_webhook_latency_seconds", TENFOLD),
    ("workqueue_queue_duration_seconds", TENFOLD),
    ("workqueue_work_duration_seconds", TENFOLD),
];
const RECONCILE: &str = "0.005 0.01 0.025 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.6 0.7 0.8 0.9 1 1.25 1.5 \
                         1.75 2 2.5 3 3.5 4 4.5 5 6 7 8 9 10 15 20 25 30 40 50 60 +Inf";
const TENFOLD: &str = "0.00000001 0.0000001 0.000001 0.00001 0.0001 0.001 0.01 0.1 1 10 100 1000 +Inf";

#[test]
fn every_metric_is_listed_as_upstreams_or_ours() {
    let registry = MetricRegistry::default();
    Metrics::new(&registry);
    let described = registry.descriptions();
    let served: Vec<(&str, &str, Vec<&str>)> = described
        .iter()
        .map(|it| (it.name.as_str(), it.kind, it.labels.iter().map(String::as_str).collect()))
        .collect();
    let listed = [UPSTREAM, OURS, PROCESS].concat();
    let mut listed: Vec<_> = listed.iter().map(|(name, kind, labels)| (*name, *kind, labels.to_vec())).collect();
    listed.sort();
    assert_eq!(served, listed);

    let text = registry.text();
    for (name, kind, _) in PROCESS {
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name}: {text}");
    }
}

/// Between scrapes they would only take memory.
#[test]
fn series_that_name_objects_end_with_the_scrape() {
    let registry = MetricRegistry::default();
    let metrics = Metrics::new(&registry);
    let parts = registry.gauges_of_objects("toy_operator_parts", "Parts of each object.", &["name"]);
    let condition = serde_json::json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let conditions: Vec<Condition> = vec![serde_json::from_value(condition).expect("a condition")];
    let named = ["operator_resource_condition{", "toy_operator_parts{"];
    for _ in 0..2 {
        let text = metrics.scrape(|| {
            metrics.show_conditions("Toy", &ObjectKey::new("default", "toy"), &conditions, false);
            parts.with_label_values(&["toy"]).set(1);
        });
        assert!(named.iter().all(|name| text.contains(name)), "{text}");
        let kept = registry.text();
        assert!(!named.iter().any(|name| kept.contains(name)), "{kept}");
        assert!(kept.contains("operator_resource_conditions{"), "{kept}");
    }
}

#[test]
fn histograms_have_upstreams_buckets() {
    let registry = MetricRegistry::default();
    let metrics = Arc::new(Metrics::new(&registry));
    metrics.prepare("toy", 1);
    webhooks::Observer::serves(&WebhookMetrics(metrics.clone()), "/validate-toy");
    let text = metrics.text();
    let described = registry.descriptions();
    let histograms = described.iter().filter(|it| it.kind == "histogram").map(|it| it.name.as_str());
    let served: Vec<(&str, String)> = histograms
        .map(|name| {
            let buckets = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix("_bucket{"));
            let bounds: Vec<&str> = buckets.filter_map(|line| line.split("le=\"").nth(1)?.split('"').next()).collect();
            (name, bounds.join(" "))
        })
        .collect();
    let listed: Vec<(&str, String)> = BUCKETS.iter().map(|(name, bounds)| (*name, (*bounds).to_owned())).collect();
    assert_eq!(served, listed);
}

//! The metrics of the process. They have controller-runtime's names, labels and buckets, so that its dashboards and alerts keep
//! working. A few of our own are named `operator_*`.

use parking_lot::Mutex;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use prometheus::{GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec};

use cache::{InformerFigures, ObjectKey};

mod children;
mod fleet;
mod registry;
pub(crate) mod secure;
#[cfg(test)]
mod tests;
mod webhook;

pub(crate) use children::{ChildMetrics, Written};
pub use fleet::{FleetMetrics, Pods};
pub use registry::{Described, MetricRegistry};
pub(crate) use webhook::WebhookMetrics;

/// Buckets of `controller_runtime_reconcile_time_seconds`, from controller-runtime.
const RECONCILE_SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];
/// Buckets of the work queue's histograms: 10 ns × 10ⁿ, from controller-runtime.
const QUEUE_SECONDS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// All metrics of one process.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: MetricRegistry,
    pub(crate) reconcile_total: IntCounterVec,
    pub(crate) reconcile_errors: IntCounterVec,
    pub(crate) terminal_errors: IntCounterVec,
    pub(crate) panics: IntCounterVec,
    pub(crate) timeouts: IntCounterVec,
    pub(crate) max_concurrent: IntGaugeVec,
    pub(crate) active_workers: IntGaugeVec,
    pub(crate) reconcile_seconds: HistogramVec,
    pub(crate) queue_depth: IntGaugeVec,
    pub(crate) queue_adds: IntCounterVec,
    pub(crate) queue_retries: IntCounterVec,
    pub(crate) queue_seconds: HistogramVec,
    pub(crate) work_seconds: HistogramVec,
    pub(crate) unfinished_seconds: GaugeVec,
    pub(crate) longest_seconds: GaugeVec,
    pub(crate) client_requests: IntCounterVec,
    pub(crate) client_warnings: IntCounter,
    pub(crate) leader_status: IntGaugeVec,
    pub(crate) leader_slowpath: IntCounterVec,
    pub(crate) events_dropped: IntCounter,
    pub(crate) spans_dropped: IntCounter,
    pub(crate) skipped_writes: IntCounterVec,
    pub(crate) webhook_seconds: HistogramVec,
    pub(crate) webhook_requests: IntCounterVec,
    pub(crate) webhook_running: IntGaugeVec,
    pub(crate) webhook_panics: IntCounter,
    pub(crate) conversion_panics: IntCounter,
    pub(crate) conversions: IntCounterVec,
    pub(crate) certificate_reads: IntCounter,
    pub(crate) certificate_errors: IntCounter,
    pub(crate) certificate_expiry: IntGaugeVec,
    informer_objects: IntGaugeVec,
    informer_last_event: IntGaugeVec,
    informer_restarts: IntCounterVec,
    undecodable: IntGaugeVec,
    waiting: IntGaugeVec,
    condition: IntGaugeVec,
    conditions: IntGaugeVec,
    conditions_aggregated: IntGaugeVec,
    /// Serializes scrapes: each one resets the series that are computed from objects, and computes them again.
    scraping: Mutex<()>,
}

impl Metrics {
    #[expect(clippy::too_many_lines, reason = "a table: one entry a metric")]
    pub(crate) fn new(make: &MetricRegistry) -> Self {
        let queue = &["name", "controller"];
        let metrics = Self {
            reconcile_total: make.counters(
                "controller_runtime_reconcile_total",
                "Total number of reconciliations per controller",
                &["controller", "result"],
            ),
            reconcile_errors: make.counters(
                "controller_runtime_reconcile_errors_total",
                "Total number of reconciliation errors per controller",
                &["controller"],
            ),
            terminal_errors: make.counters(
                "controller_runtime_terminal_reconcile_errors_total",
                "Total number of terminal reconciliation errors per controller",
                &["controller"],
            ),
            panics: make.counters(
                "controller_runtime_reconcile_panics_total",
                "Total number of reconciliation panics per controller",
                &["controller"],
            ),
            timeouts: make.counters(
                "controller_runtime_reconcile_timeouts_total",
                "Total number of reconciliation timeouts per controller",
                &["controller"],
            ),
            max_concurrent: make.gauges(
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller",
                &["controller"],
            ),
            active_workers: make.gauges(
                "controller_runtime_active_workers",
                "Number of currently used workers per controller",
                &["controller"],
            ),
            reconcile_seconds: make.histograms(
                "controller_runtime_reconcile_time_seconds",
                "Length of time per reconciliation per controller",
                &["controller"],
                RECONCILE_SECONDS,
            ),
            queue_depth: make.gauges(
                "workqueue_depth",
                "Current depth of workqueue by workqueue and priority",
                &["name", "controller", "priority"],
            ),
            queue_adds: make.counters("workqueue_adds_total", "Total number of adds handled by workqueue", queue),
            queue_retries: make.counters(
                "workqueue_retries_total",
                "Total number of retries handled by workqueue",
                queue,
            ),
            queue_seconds: make.histograms(
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested",
                queue,
                QUEUE_SECONDS,
            ),
            work_seconds: make.histograms(
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes.",
                queue,
                QUEUE_SECONDS,
            ),
            unfinished_seconds: make.floats(
                "workqueue_unfinished_work_seconds",
                "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
                queue,
            ),
            longest_seconds: make.floats(
                "workqueue_longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running.",
                queue,
            ),
            client_requests: make.counters(
                "rest_client_requests_total",
                "Number of HTTP requests, partitioned by status code, method, and host.",
                &["code", "method", "host"],
            ),
            client_warnings: make.counter(
                "operator_api_warnings_total",
                "Number of warnings in answers of the API server, for instance about deprecated versions.",
            ),
            leader_status: make.gauges(
                "leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master.",
                &["name"],
            ),
            leader_slowpath: make.counters(
                "leader_election_slowpath_total",
                "Total number of slow path exercised in renewing leader leases.",
                &["name"],
            ),
            events_dropped: make.counter(
                "operator_events_dropped_total",
                "Events that were not sent because the buffer was full",
            ),
            spans_dropped: make.counter(
                "operator_trace_spans_dropped_total",
                "Trace spans that could not be sent to a collector",
            ),
            skipped_writes: make.counters(
                "operator_skipped_writes_total",
                "Writes that were not sent because the object is already in the desired state",
                &["kind", "op"],
            ),
            webhook_seconds: make.histograms(
                "controller_runtime_webhook_latency_seconds",
                "Histogram of the latency of processing admission requests",
                &["webhook"],
                QUEUE_SECONDS,
            ),
            webhook_requests: make.counters(
                "controller_runtime_webhook_requests_total",
                "Total number of admission requests by HTTP status code.",
                &["webhook", "code"],
            ),
            webhook_running: make.gauges(
                "controller_runtime_webhook_requests_in_flight",
                "Current number of admission requests being served.",
                &["webhook"],
            ),
            webhook_panics: make.counter(
                "controller_runtime_webhook_panics_total",
                "Total number of webhook panics",
            ),
            conversions: make.counters(
                "operator_webhook_conversions_total",
                "Objects that the conversion webhook converted or could not convert, by their version and the requested one",
                &["kind", "from", "to", "result"],
            ),
            conversion_panics: make.counter(
                "controller_runtime_conversion_webhook_panics_total",
                "Total number of conversion webhook panics",
            ),
            certificate_reads: make.counter(
                "certwatcher_read_certificate_total",
                "Total number of certificate reads",
            ),
            certificate_errors: make.counter(
                "certwatcher_read_certificate_errors_total",
                "Total number of certificate read errors",
            ),
            certificate_expiry: make.gauges(
                "operator_webhook_certificate_expiry_timestamp_seconds",
                "When the serving certificate of the webhooks expires",
                &[],
            ),
            informer_objects: make.gauges("operator_informer_objects", "Objects in the cache", &["kind"]),
            informer_last_event: make.gauges(
                "operator_informer_last_event_timestamp_seconds",
                "When the API server last sent anything on the quietest watch",
                &["kind"],
            ),
            informer_restarts: make.counters(
                "operator_informer_restarts_total",
                "Watches that ended and were started again",
                &["kind", "reason"],
            ),
            undecodable: make.gauges(
                "operator_undecodable_objects",
                "Objects that do not match their schema and are skipped",
                &["kind"],
            ),
            waiting: make.gauges(
                "operator_waiting_objects",
                "Objects that wait for a list which their reconcile needs, mostly because the API server refuses it",
                &["kind"],
            ),
            condition: make.gauges_of_objects(
                "operator_resource_condition",
                "Conditions of each object, 1 for their current status; see operator_resource_condition_aggregated",
                &["kind", "namespace", "name", "type", "status"],
            ),
            conditions: make.gauges(
                "operator_resource_conditions",
                "Objects by the status of their conditions",
                &["kind", "type", "status"],
            ),
            conditions_aggregated: make.gauges(
                "operator_resource_condition_aggregated",
                "1 when a kind has more objects than --metrics-max-objects, and operator_resource_condition leaves it out",
                &["kind"],
            ),
            scraping: Mutex::default(),
            registry: make.clone(),
        };
        let build = make.gauges("operator_build_info", "Version of this build", &["version", "commit"]);
        build.with_label_values(&[crate::build_info::VERSION, crate::build_info::COMMIT]).set(1);
        #[cfg(target_os = "linux")]
        make.add(prometheus::process_collector::ProcessCollector::for_self());
        metrics
    }

    /// Creates the series of one controller with the value 0, so that rates work from the first scrape.
    pub(crate) fn prepare(&self, controller: &str, max_concurrent: usize) {
        for result in ["success", "error", "requeue", "requeue_after"] {
            self.reconcile_total.with_label_values(&[controller, result]);
        }
        for counter in [&self.reconcile_errors, &self.terminal_errors, &self.panics, &self.timeouts] {
            counter.with_label_values(&[controller]);
        }
        self.max_concurrent.with_label_values(&[controller]).set(i64::try_from(max_concurrent).unwrap_or(i64::MAX));
        self.active_workers.with_label_values(&[controller]).set(0);
        self.reconcile_seconds.with_label_values(&[controller]);
        for counter in [&self.queue_adds, &self.queue_retries] {
            counter.with_label_values(&[controller, controller]);
        }
        self.queue_depth.with_label_values(&[controller, controller, "0"]);
        for histogram in [&self.queue_seconds, &self.work_seconds] {
            histogram.with_label_values(&[controller, controller]);
        }
    }

    /// Sets the metrics of one informer, on a scrape.
    pub(crate) fn show_informer(&self, figures: &InformerFigures<'_>) {
        let InformerFigures { kind, objects, undecodable, last_heard, restarts } = figures;
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.informer_objects.with_label_values(&[kind]).set(gauge(*objects));
        self.undecodable.with_label_values(&[kind]).set(gauge(*undecodable));
        self.informer_last_event.with_label_values(&[kind]).set(*last_heard);
        for (reason, count) in restarts {
            let restarts = self.informer_restarts.with_label_values(&[kind, reason]);
            restarts.inc_by(count.saturating_sub(restarts.get()));
        }
    }

    /// Sets the gauges of one queue's running work, on a scrape.
    pub(crate) fn show_queue(&self, controller: &str, unfinished: workqueue::Unfinished) {
        let labels = [controller, controller];
        self.unfinished_seconds.with_label_values(&labels).set(unfinished.total.as_secs_f64());
        self.longest_seconds.with_label_values(&labels).set(unfinished.longest.as_secs_f64());
    }

    /// Sets how many objects of a kind wait for a list, on a scrape.
    pub(crate) fn show_waiting(&self, kind: &str, objects: usize) {
        self.waiting.with_label_values(&[kind]).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Sets whether a kind has too many objects for one series each (`--metrics-max-objects`).
    pub(crate) fn show_aggregated(&self, kind: &str, aggregated: bool) {
        self.conditions_aggregated.with_label_values(&[kind]).set(aggregated.into());
    }

    /// Counts the conditions of one object. Unless `aggregated`, also sets series with its name: they have a cardinality of one
    /// per object.
    pub(crate) fn show_conditions(&self, kind: &str, key: &ObjectKey, conditions: &[Condition], aggregated: bool) {
        for Condition { type_, status, .. } in conditions {
            self.conditions.with_label_values(&[kind, type_, status]).inc();
            if !aggregated {
                self.condition.with_label_values(&[kind, &*key.namespace, &*key.name, type_, status]).set(1);
            }
        }
    }

    /// The metrics in Prometheus text format. Resets the series of conditions first; `refresh` has to set everything that is
    /// computed on a scrape. Afterwards no series of `gauges_of_objects` names an object.
    pub(crate) fn scrape(&self, refresh: impl FnOnce()) -> String {
        let _one_at_a_time = self.scraping.lock();
        self.registry.forget_objects(); // a scrape that panicked may have left some
        self.conditions.reset();
        refresh();
        let text = self.text();
        self.registry.forget_objects();
        text
    }

    fn text(&self) -> String {
        self.registry.text()
    }
}

//! The registry of metrics, which also keeps their descriptions for generated documentation.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    TextEncoder,
    core::{Collector, Desc},
};

/// The metrics of one process. Clones share one registry.
///
/// # Panics
///
/// Every method that adds a metric panics when its name or a label is invalid in Prometheus, or the name is registered
/// already. The first test of an operator finds such mistakes.
#[derive(Debug, Clone, Default)]
pub struct MetricRegistry {
    registry: Registry,
    described: Arc<Mutex<Vec<Described>>>,
    /// Gauges whose labels name objects.
    of_objects: Arc<Mutex<Vec<IntGaugeVec>>>,
    /// The value of `--metrics-max-objects`; `None` if no process has set it.
    max_objects: Option<usize>,
}

/// The description of a metric, for documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The full name, such as `controller_runtime_reconcile_total`.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// The text of its `# HELP` line.
    pub help: String,
}

impl MetricRegistry {
    /// A registry of a process with this value of `--metrics-max-objects`.
    pub(crate) fn limited(max_objects: usize) -> Self {
        Self { max_objects: Some(max_objects), ..Self::default() }
    }

    /// For a kind with more objects than this, no label names an object.
    pub(crate) fn max_objects(&self) -> usize {
        self.max_objects.unwrap_or(usize::MAX)
    }

    /// Adds a counter without labels.
    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.described("counter", must(name, IntCounter::new(name, help)))
    }

    /// Adds a counter with these labels.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.described("counter", must(name, IntCounterVec::new(Opts::new(name, help), labels)))
    }

    /// Adds a gauge of whole numbers with these labels.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.described("gauge", must(name, IntGaugeVec::new(Opts::new(name, help), labels)))
    }

    /// Adds a gauge of whole numbers whose labels name objects. Each scrape sets all of its series and drops them in the end: between
    /// scrapes, the three of a fleet's object would take about 2 KiB.
    pub(crate) fn gauges_of_objects(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        let gauges = self.gauges(name, help, labels);
        self.of_objects.lock().push(gauges.clone());
        gauges
    }

    /// Drops all series whose labels name objects.
    pub(crate) fn forget_objects(&self) {
        self.of_objects.lock().iter().for_each(IntGaugeVec::reset);
    }

    /// Adds a gauge with these labels.
    pub fn floats(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.described("gauge", must(name, GaugeVec::new(Opts::new(name, help), labels)))
    }

    /// Adds a histogram with these labels and upper bounds of its buckets.
    pub fn histograms(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.described("histogram", must(name, HistogramVec::new(options, labels)))
    }

    /// All added metrics, sorted by name.
    pub fn descriptions(&self) -> Vec<Described> {
        let mut described = self.described.lock().clone();
        described.sort_by(|a, b| a.name.cmp(&b.name));
        described
    }

    /// Adds a collector that brings its own counters and gauges.
    #[cfg(target_os = "linux")]
    pub(crate) fn add(&self, collector: impl Collector + 'static) {
        // A description lacks the type. By convention, the name of a counter ends in `_total`, and that of a gauge does not.
        self.register(collector, |desc| if desc.fq_name.ends_with("_total") { "counter" } else { "gauge" });
    }

    /// The Prometheus text format.
    pub(crate) fn text(&self) -> String {
        let mut buffer = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut buffer) {
            tracing::error!(%error, "Metrics do not encode");
        }
        String::from_utf8(buffer).unwrap_or_default()
    }

    fn described<C: Collector + Clone + 'static>(&self, kind: &'static str, collector: C) -> C {
        self.register(collector.clone(), |_| kind);
        collector
    }

    /// Adds a collector, and the descriptions of its metrics with the kind of each.
    fn register(&self, collector: impl Collector + 'static, kind: impl Fn(&Desc) -> &'static str) {
        let describe = |desc: &Desc| Described {
            name: desc.fq_name.clone(),
            kind: kind(desc),
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
        };
        let described = collector.desc().into_iter().map(describe);
        self.described.lock().extend(described);
        must("collector", self.registry.register(Box::new(collector)));
    }
}

fn must<T>(name: &str, result: Result<T, prometheus::Error>) -> T {
    result.unwrap_or_else(|error| panic!("metric {name} cannot be registered: {error}"))
}

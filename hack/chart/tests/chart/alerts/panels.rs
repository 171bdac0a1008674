//! Tests of what the panels and the variables show. Each replica exports the gauges of all objects, so a plain sum counts every object
//! once for each replica.
//!
//! No test draws the dashboard in Grafana, because none can be had here: the Go module proxy answers 403 for its module, and what npm
//! and `PyPI` have under its name is something else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{dashboard, observed, promtool_accepts, with_labels};

/// The file `observability/tests/panels.yaml`.
#[derive(Deserialize)]
struct Tests {
    series: Vec<Series>,
    /// The samples of each query of a panel, by its title.
    panels: BTreeMap<String, Vec<Value>>,
}

#[derive(Deserialize)]
struct Series {
    #[serde(rename = "series")]
    selector: String,
    /// What the leader exports, and the other replica too unless it has a value of its own.
    value: u32,
    standby: Option<u32>,
}

/// The series as Prometheus has them: from two replicas of the release in each of two clusters.
fn scraped(series: &[Series]) -> Vec<Value> {
    let mut scraped = Vec::new();
    let info = Series { selector: "operator_build_info".to_owned(), value: 1, standby: None };
    for Series { selector, value, standby } in series.iter().chain([&info]) {
        for cluster in ["one", "two"] {
            for (replica, address, value) in
                [("a", "10.0.0.1:8443", *value), ("b", "10.0.0.2:8443", standby.unwrap_or(*value))]
            {
                let mut labels = format!(
                    r#"cluster="{cluster}", job="operators-controller-manager-metrics", instance="{address}", pod="{cluster}-{replica}""#
                );
                // With `honorLabels`, the label of an object's metric stays, and other metrics get the pod's.
                if !selector.contains("namespace=") {
                    labels += r#", namespace="operators-system""#;
                }
                scraped.push(json!({"series": with_labels(selector, &labels), "values": value.to_string()}));
            }
        }
    }
    scraped
}

/// What Grafana puts in place of a variable whose value is `All`: the pattern for `All`, or else the list of its options. No kind is
/// listed before its first object.
fn pattern_of_all(variable: &Value) -> &str {
    match (variable["allValue"].as_str(), variable["name"].as_str().unwrap()) {
        (Some(pattern), _) => pattern,
        (None, "namespace") => "(operators-system)",
        (None, "job") => "(operators-controller-manager-metrics)",
        (None, _) => "()",
    }
}

/// The query if each variable has the value `All`.
fn of_all(variables: &[Value], query: &str) -> String {
    variables.iter().fold(query.to_owned(), |query, variable| {
        query.replace(&format!("${}", variable["name"].as_str().unwrap()), pattern_of_all(variable))
    })
}

/// The queries of each panel that reads gauges: the others read ranges of counters.
fn queries(dashboard: &Value) -> BTreeMap<String, Vec<String>> {
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let mut panels = BTreeMap::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().into_iter().flatten();
        let queries: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
        if queries.iter().any(|query| !query.contains("[$__rate_interval]")) {
            let queries = queries.iter().map(|query| of_all(variables, query)).collect();
            panels.insert(panel["title"].as_str().unwrap().to_owned(), queries);
        }
    }
    panels
}

fn counts<T>(panels: &BTreeMap<String, Vec<T>>) -> BTreeMap<&str, usize> {
    panels.iter().map(|(title, of_queries)| (title.as_str(), of_queries.len())).collect()
}

/// The file with the series and the samples of the tests.
fn tests() -> Tests {
    let text = fs::read_to_string(chart::folder().join("observability/tests/panels.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// Evaluates these expressions for the series.
///
/// # Panics
///
/// If promtool finds other samples.
fn evaluate(series: &[Series], expressions: &[Value]) {
    let tests = json!({"rule_files": [], "evaluation_interval": "1m", "tests": [{
        "interval": "1m",
        "input_series": scraped(series),
        "promql_expr_test": expressions,
    }]});
    promtool_accepts(&json!({"groups": []}), &tests);
}

#[test]
fn panels_count_each_object_once_however_many_replicas_export_it() {
    let Tests { series, panels } = tests();
    let rendered = observed(&json!({}));
    let queries = queries(&dashboard(&rendered).1);
    assert_eq!(counts(&queries), counts(&panels), "each panel of gauges must have a test, with samples for each query");
    let pairs = queries.values().flatten().zip(panels.values().flatten());
    let check = |(query, samples)| json!({"expr": query, "eval_time": "0m", "exp_samples": samples});
    evaluate(&series, &pairs.map(check).collect::<Vec<_>>());
}

/// Above `--metrics-max-objects`, a release exports sums without names, which look alike in all releases but for the job.
#[test]
fn panels_add_the_sums_of_several_releases() {
    let rendered = observed(&json!({}));
    let queries = queries(&dashboard(&rendered).1);
    let first = "operators-controller-manager-metrics";
    for (panel, metric) in [("Nodes", "memcached_operator_nodes"), ("Replicas", "helloapp_operator_replicas")] {
        let series: Vec<Value> = [(first, 3), ("others-metrics", 4)]
            .into_iter()
            .flat_map(|(job, sum)| {
                let labels = format!(r#"job="{job}", instance="{job}""#);
                let info = with_labels("operator_build_info", &format!(r#"{labels}, namespace="operators-system""#));
                let objects = with_labels(&format!("{metric}{{state=\"ready\"}}"), &labels);
                [json!({"series": info, "values": "1"}), json!({"series": objects, "values": sum.to_string()})]
            })
            .collect();
        let query = queries[panel][0].replace(first, &format!("{first}|others-metrics"));
        let samples = json!([{"labels": r#"{state="ready"}"#, "value": 7}]);
        let test = json!({"expr": query, "eval_time": "0m", "exp_samples": samples});
        let tests = json!({"rule_files": [], "evaluation_interval": "1m", "tests": [{
            "interval": "1m", "input_series": series, "promql_expr_test": [test],
        }]});
        promtool_accepts(&json!({"groups": []}), &tests);
    }
}

/// What each variable offers for the series of the tests, in the order of the dashboard.
const OPTIONS: [(&str, &[&str]); 4] = [
    ("cluster", &["one", "two"]),
    ("namespace", &["operators-system"]),
    ("job", &["operators-controller-manager-metrics"]),
    ("kind", &["Memcached"]),
];

#[test]
fn variables_offer_what_the_operators_export() {
    let rendered = observed(&json!({}));
    let (_, dashboard) = dashboard(&rendered);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let of_metrics: Vec<_> = variables.iter().filter(|variable| variable["type"] == "query").collect();
    assert_eq!(of_metrics.len(), OPTIONS.len());
    let check = |(variable, (name, options)): (&&Value, &(&str, &[&str]))| {
        assert_eq!(variable["name"], *name);
        let query = of_all(variables, variable["query"]["query"].as_str().unwrap());
        let listed = query.strip_prefix("label_values(").and_then(|query| query.strip_suffix(')')).unwrap();
        let (series, label) = listed.rsplit_once(", ").unwrap();
        let sample = |option: &&str| json!({"labels": format!("{{{name}=\"{option}\"}}"), "value": 1});
        let samples: Vec<_> = options.iter().map(sample).collect();
        json!({"expr": format!("group by ({label}) ({series})"), "eval_time": "0m", "exp_samples": samples})
    };
    evaluate(&tests().series, &of_metrics.iter().zip(&OPTIONS).map(check).collect::<Vec<_>>());
}

/// The unit of what a query measures.
fn unit_of(query: &str) -> &'static str {
    if query.contains("_seconds_bucket") {
        "s"
    } else if query.contains("cpu_seconds_total") {
        "percentunit"
    } else if query.contains("requests_total") {
        "reqps"
    } else if query.contains("rate(") {
        "ops"
    } else if query.contains("_bytes ") {
        "bytes"
    } else {
        "short"
    }
}

/// The labels of the series that a query returns: those of its outermost aggregation. An instance has one pod.
fn labels_of(query: &str) -> BTreeSet<&str> {
    let quantile = query.strip_prefix("histogram_quantile(").and_then(|rest| rest.split_once(", "));
    let query = quantile.map_or(query, |(_, aggregation)| aggregation);
    let by = ["sum by (", "max by ("].iter().find_map(|aggregation| query.strip_prefix(*aggregation));
    let labels = by.and_then(|rest| rest.split_once(')')).map_or("", |(labels, _)| labels);
    labels.split(", ").filter(|label| !["", "le", "instance"].contains(label)).collect()
}

#[test]
fn units_and_legends_of_panels_suit_their_queries() {
    let rendered = observed(&json!({}));
    let (_, dashboard) = dashboard(&rendered);
    let mut labelled = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        let mut legends = BTreeSet::new();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let [query, legend] = ["expr", "legendFormat"].map(|key| target[key].as_str().unwrap());
            let query = query.split_whitespace().collect::<Vec<_>>().join(" ");
            let place = format!("{}: {query}", panel["title"]);
            assert_eq!(panel["fieldConfig"]["defaults"]["unit"], unit_of(&query), "{place}");
            let named: BTreeSet<_> =
                legend.split("{{").skip(1).filter_map(|part| Some(part.split_once("}}")?.0)).collect();
            assert_eq!(named, labels_of(&query), "{place}: lines of several series would have the same name, or none");
            assert!(legends.insert(legend.to_owned()), "{place}: another query has this legend, too");
            labelled += usize::from(!named.is_empty());
        }
    }
    assert!(labelled > 15, "{labelled}");
}

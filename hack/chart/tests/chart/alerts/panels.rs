//! Tests of what the panels of gauges show of several replicas. Each replica exports the gauges of all objects, so a plain sum
//! counts every object once for each replica.

use std::{collections::BTreeMap, fs};

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

/// The queries of each panel that reads gauges: the others read ranges of counters.
fn queries(dashboard: &Value) -> BTreeMap<String, Vec<String>> {
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let of_all = |query: &&str| {
        variables.iter().fold((*query).to_owned(), |query, variable| {
            query.replace(&format!("${}", variable["name"].as_str().unwrap()), pattern_of_all(variable))
        })
    };
    let mut panels = BTreeMap::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().into_iter().flatten();
        let queries: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
        if queries.iter().any(|query| !query.contains("[$__rate_interval]")) {
            panels.insert(panel["title"].as_str().unwrap().to_owned(), queries.iter().map(of_all).collect());
        }
    }
    panels
}

fn counts<T>(panels: &BTreeMap<String, Vec<T>>) -> BTreeMap<&str, usize> {
    panels.iter().map(|(title, of_queries)| (title.as_str(), of_queries.len())).collect()
}

#[test]
fn panels_count_each_object_once_however_many_replicas_export_it() {
    let text = fs::read_to_string(chart::folder().join("observability/tests/panels.yaml")).unwrap();
    let Tests { series, panels } = serde_saphyr::from_str(&text).unwrap();
    let rendered = observed(&json!({}));
    let queries = queries(&dashboard(&rendered).1);
    assert_eq!(counts(&queries), counts(&panels), "each panel of gauges must have a test, with samples for each query");
    let pairs = queries.values().flatten().zip(panels.values().flatten());
    let check = |(query, samples)| json!({"expr": query, "eval_time": "0m", "exp_samples": samples});
    let tests = json!({"rule_files": [], "evaluation_interval": "1m", "tests": [{
        "interval": "1m",
        "input_series": scraped(&series),
        "promql_expr_test": pairs.map(check).collect::<Vec<Value>>(),
    }]});
    promtool_accepts(&json!({"groups": []}), &tests);
}

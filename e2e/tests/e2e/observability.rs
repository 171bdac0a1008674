//! Tests of alerts, dashboards and their metrics, with a real Prometheus.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use chart::helm::{Helm, Version};
use cluster::Access;
use controller_manager::OPERATORS;
use helloapp_operator::HelloApp;
use installation::{metrics, prometheus::Prometheus};
use manager_testing::World;
use memcached_operator::Memcached;
use serde_json::{Value, json};

use crate::kit::{app_is_ready, world_with};

const MINUTELY: &str = r#"{
    "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "minutely"},
    "spec": {"cronSpec": "* * * * *", "image": "docker.io/library/busybox:1.36", "runAsUser": 65532, "command": ["date"]}
}"#;

/// The queries of kubebuilder's dashboards (its plugin `grafana/v1-alpha`), with values for their variables.
const KUBEBUILDER: &[&str] = &[
    r#"controller_runtime_active_workers{job="operators", namespace="operators-system"}"#,
    r#"sum(rate(controller_runtime_reconcile_total{job="operators", namespace="operators-system"}[5m])) by (instance, pod)"#,
    r#"sum(rate(controller_runtime_reconcile_errors_total{job="operators", namespace="operators-system"}[5m])) by (instance, pod)"#,
    r#"workqueue_depth{job="operators", namespace="operators-system"}"#,
    r#"histogram_quantile(0.50, sum(rate(workqueue_queue_duration_seconds_bucket{job="operators", namespace="operators-system"}[5m])) by (instance, name, le))"#,
    r#"sum(rate(workqueue_adds_total{job="operators", namespace="operators-system"}[5m])) by (instance, name)"#,
    r#"histogram_quantile(0.50, sum(rate(workqueue_work_duration_seconds_bucket{job="operators", namespace="operators-system"}[5m])) by (instance, name, le))"#,
    r#"sum(rate(workqueue_retries_total{job="operators", namespace="operators-system"}[5m])) by (instance, name)"#,
    r#"rate(workqueue_unfinished_work_seconds{job="operators", namespace="operators-system"}[5m])"#,
    r#"rate(process_cpu_seconds_total{job="operators", namespace="operators-system"}[5m]) * 100"#,
    r#"process_resident_memory_bytes{job="operators", namespace="operators-system"}"#,
];

/// The alerting rules and the dashboard of the chart with all operators.
fn rendered() -> (Value, Value) {
    let enabled = json!({"enabled": true});
    let operators: serde_json::Map<_, _> =
        OPERATORS.iter().map(|operator| (operator.name().to_owned(), enabled.clone())).collect();
    let values = json!({"operators": operators, "prometheusRule": enabled, "dashboard": enabled});
    let rendered = Helm::of(Version::Four).and_then(|helm| helm.template(&values, &[])).expect("the chart renders");
    let rules = rendered.of("PrometheusRule").next().expect("a rule")["spec"].clone();
    let dashboards = rendered.object("ConfigMap", "operators-dashboard").expect("a dashboard");
    let dashboard = dashboards["data"].as_object().expect("files").values().next().expect("a dashboard");
    (rules, serde_json::from_str(dashboard.as_str().expect("a text")).expect("JSON"))
}

fn all<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a Value> {
    let Some((first, rest)) = path.split_first() else { return vec![value] };
    value[*first].as_array().into_iter().flatten().flat_map(|item| all(item, rest)).collect()
}

fn texts<'a>(values: impl IntoIterator<Item = &'a Value>, key: &str) -> BTreeSet<&'a str> {
    values.into_iter().filter_map(|value| value[key].as_str()).collect()
}

/// The names of this repository's metrics in an expression.
fn named(expression: &str) -> BTreeSet<String> {
    let is_ours = |word: &&str| {
        ["controller_", "workqueue_", "operator_", "rest_", "leader_", "process_"].iter().any(|it| word.starts_with(it))
            || word.contains("_operator_")
    };
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(is_ours).map(ToOwned::to_owned).collect()
}

/// Waits until a query returns a number, and describes the result.
async fn data(world: &World, prometheus: &Arc<Prometheus>, query: &str) -> String {
    let variables = ["$cluster", "$namespace", "$job", "$kind"];
    let query = variables.iter().fold(query.replace("$__rate_interval", "5m"), |query, name| query.replace(name, ".*"));
    world
        .within(Duration::from_mins(2), &format!("{query} has data"), async || {
            let (prometheus, query) = (Arc::clone(prometheus), query.clone());
            let ask = move || prometheus.query(&query);
            let samples = tokio::task::spawn_blocking(ask).await.expect("no panic").expect("an answer");
            let some = samples.iter().find(|sample| !sample.value.is_nan())?;
            Some(format!("{} series, {} = {:.3}", samples.len(), some.labels, some.value))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_returns_data_through_the_proxy() {
    let Some(world) = world_with(Access::Network).await else { return };
    let (rules, dashboard) = rendered();
    let (cluster, groups) = (Arc::clone(&world.cluster), rules.clone());
    let started = tokio::task::spawn_blocking(move || {
        let token = metrics::token(&cluster, "prometheus")?;
        metrics::let_read(&cluster, "prometheus")?;
        Prometheus::start(&cluster, &token, &groups)
    });
    let prometheus = Arc::new(started.await.expect("no panic").expect("Prometheus runs"));
    // Rates need samples from before an event, so both replicas must have been scraped before the first one.
    data(&world, &prometheus, "count(count_over_time(up[1m]) > 1) == 2").await;
    for operator in OPERATORS {
        world.apply(operator.sample()).await;
    }
    world.apply(MINUTELY).await;
    // The first pods do not count as a rollout, but a change of the pods does.
    world.until_condition::<Memcached>("memcached-sample", "Ready", "True", "Ready").await;
    world.patch::<Memcached>("memcached-sample", json!({"spec": {"config": {"memoryMB": 65}}})).await;
    app_is_ready(&world, "helloapp-sample").await;
    let env = json!([{"name": "GREETING", "value": "hello"}]);
    // Each new pod has to run for 10 seconds, as the app has no probe. With this surge, all of them start at once.
    let spec = json!({"env": env, "size": 4, "rollout": {"maxSurge": "100%"}});
    world.patch::<HelloApp>("helloapp-sample", json!({"spec": spec})).await;

    let mut table = String::new();
    for query in texts(all(&dashboard, &["panels", "targets"]), "expr").into_iter().chain(KUBEBUILDER.iter().copied()) {
        let _ = writeln!(table, "{query}\n    {}", data(&world, &prometheus, query).await);
    }
    println!("{table}");
    let alerts = texts(all(&rules, &["groups", "rules"]), "expr");
    for metric in alerts.into_iter().flat_map(named).collect::<BTreeSet<_>>() {
        data(&world, &prometheus, &metric).await;
    }
    let firing = r#"ALERTS{alertstate="firing"}"#.to_owned();
    let firing = tokio::task::spawn_blocking(move || prometheus.query(&firing)).await.expect("no panic");
    assert_eq!(firing.expect("an answer"), [], "no alert may fire");
}

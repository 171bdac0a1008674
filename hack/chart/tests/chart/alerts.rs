//! Tests of the alerts and of the dashboard as the chart renders them; promtool evaluates the alerts.

mod panels;

use std::{collections::BTreeSet, fs, path::Path};

use chart::rendered::Rendered;
use controller_manager::OPERATORS;
use installation::prometheus::promtool;
use serde_json::{Map, Value, json};

use crate::kit::{deep, render};

/// The tests in which each alert except `OperatorAbsent` fires. Their series are those of foreign programs in other tests.
const FIRES: [&str; 2] = ["everything fires where nothing is well", "the booking provider fails for all namespaces"];

/// Alerts about series that are missing: foreign series must not silence them.
const ABSENCE: &str = "OperatorAbsent";

/// The alert that fires in the second test only: the first has the alert about a single namespace instead.
const OF_ALL_NAMESPACES: &str = "FlightTicketProviderUnavailable";

/// The labels that Prometheus gives to the series of a pod of the release.
const OURS: &str = r#"job="operators-controller-manager-metrics", instance="10.0.0.1:8443""#;

/// What tells the release apart from others: the labels that name its lease.
const LEASE: &str = r#"namespace="operators-system", name="operators-controller-manager""#;

/// Renders the alerts and the dashboard of all operators, with these values in addition.
fn observed(values: &Value) -> Rendered {
    let enabled = json!({"enabled": true});
    let operators: Map<_, _> = OPERATORS.iter().map(|it| (it.name().to_owned(), enabled.clone())).collect();
    let mut all = json!({"operators": operators, "prometheusRule": enabled, "dashboard": enabled});
    for (key, value) in values.as_object().unwrap() {
        match (all[key].as_object_mut(), value) {
            (Some(there), Value::Object(value)) => there.extend(value.clone()),
            _ => all[key] = value.clone(),
        }
    }
    render(&all)
}

fn rule(rendered: &Rendered) -> &Value {
    rendered.of("PrometheusRule").next().unwrap()
}

fn alerts(rendered: &Rendered) -> Vec<&Value> {
    let groups = rule(rendered)["spec"]["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect()
}

fn alert<'a>(rendered: &'a Rendered, name: &str) -> Option<&'a Value> {
    alerts(rendered).into_iter().find(|rule| rule["alert"] == name)
}

fn names<'a>(alerts: impl IntoIterator<Item = &'a Value>) -> BTreeSet<&'a str> {
    alerts.into_iter().map(|rule| rule["alert"].as_str().unwrap()).collect()
}

/// The tests of `observability/tests/alerts.yaml`, with the labels of a target in each series that has none.
fn tests() -> Value {
    let text = fs::read_to_string(chart::folder().join("observability/tests/alerts.yaml")).unwrap();
    let mut tests: Value = serde_saphyr::from_str(&text).unwrap();
    for series in all_series(&mut tests) {
        let text = series.as_str().unwrap();
        if !text.contains("instance=") && !text.starts_with("kube_") {
            *series = json!(with_labels(text, OURS));
        }
    }
    tests
}

fn all_series(tests: &mut Value) -> impl Iterator<Item = &mut Value> {
    let tests = tests["tests"].as_array_mut().unwrap().iter_mut();
    let series = tests.flat_map(|test| test["input_series"].as_array_mut().unwrap());
    series.map(|series| &mut series["series"])
}

fn with_labels(series: &str, labels: &str) -> String {
    match series.split_once('{') {
        Some((name, rest)) => format!("{name}{{{labels}, {rest}"),
        None => format!("{series}{{{labels}}}"),
    }
}

/// Runs promtool with these rules and tests.
///
/// # Panics
///
/// If promtool finds a mistake, with its output.
fn promtool_accepts(rules: &Value, tests: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, value: &Value| fs::write(Path::join(folder.path(), file), value.to_string()).unwrap();
    write("rules.yaml", rules);
    write("tests.yaml", tests);
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]] {
        let output = promtool().unwrap().args(arguments).current_dir(folder.path()).output().unwrap();
        let says = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&says));
    }
}

#[test]
fn every_alert_fires_once_and_is_silent_where_all_is_well() {
    let rendered = observed(&json!({}));
    let all = names(alerts(&rendered));
    let tests = tests();
    let silent: BTreeSet<_> = deep(&tests, "alertname").into_iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(all, silent, "tests of silence");
    let text = tests.to_string();
    let fires = |alert: &&str| text.contains(&format!(r#"{{alertname=\"{alert}\", "#));
    assert_eq!(all.iter().copied().filter(fires).collect::<BTreeSet<_>>(), all, "tests of firing");
    promtool_accepts(&rule(&rendered)["spec"], &tests);
}

/// The series as another target has it, of a release with this prefix of its names in this namespace.
fn of_another(series: &str, (target, namespace, release): (&str, &str, &str)) -> String {
    let bare = series.replace(OURS, "TARGET").replace("\"operators-system\"", "NAMESPACE");
    let renamed = bare.replace("\"operators-", &format!("\"{release}-"));
    renamed.replace("TARGET", target).replace("NAMESPACE", &format!("{namespace:?}"))
}

/// The tests in which alerts fire, with their series given to another program and to other releases: one of the same name in another
/// namespace, and one of another name in the same namespace. Prometheus scrapes the latter with the same `job`. `expected` returns
/// what a test, by its name, has to find.
fn tests_with_foreign_series(expected: impl Fn(&str) -> Value) -> Value {
    let mut tests = tests();
    let all = tests["tests"].as_array_mut().unwrap();
    all.retain(|test| FIRES.contains(&test["name"].as_str().unwrap()));
    assert_eq!(all.len(), FIRES.len());
    let program = (r#"job="kubelet", instance="10.0.0.9:10250""#, "elsewhere", "kubelet");
    let releases = [
        (r#"job="other-operators-controller-manager-metrics", instance="10.0.0.8:8443""#, "elsewhere", "operators"),
        (r#"job="operators-controller-manager-metrics", instance="10.0.0.7:8443""#, "operators-system", "operators-b"),
    ];
    for test in all {
        let mut series = Vec::new();
        for entry in test["input_series"].as_array().unwrap() {
            let ours = entry["series"].as_str().unwrap();
            let is_of_releases = ours.starts_with("kube_") || ours.contains(LEASE);
            for other in releases.into_iter().chain((!is_of_releases).then_some(program)) {
                series.push(json!({"series": of_another(ours, other), "values": entry["values"]}));
            }
        }
        let lease = format!("leader_election_master_status{{{LEASE}}}");
        series.push(json!({"series": with_labels(&lease, OURS), "values": "1x60"}));
        test["input_series"] = json!(series);
        test["promql_expr_test"] = json!([expected(test["name"].as_str().unwrap())]);
    }
    tests
}

#[test]
fn series_of_other_programs_and_of_other_releases_raise_no_alert() {
    let rendered = observed(&json!({}));
    let tests = tests_with_foreign_series(
        |_| json!({"expr": "count by (alertname) (ALERTS)", "eval_time": "59m", "exp_samples": []}),
    );
    promtool_accepts(&rule(&rendered)["spec"], &tests);
}

/// Without the part of its expression that names the release, each alert fires for the foreign series of the test above. So that
/// test has a foreign series for each alert.
#[test]
fn only_its_guard_keeps_an_alert_silent_about_other_programs() {
    let rendered = observed(&json!({}));
    let mut bare = rule(&rendered)["spec"].clone();
    for group in bare["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            let guarded = rule["expr"].as_str().unwrap().to_owned();
            let own = r#"namespace="operators-system""#;
            let lease = format!(r#"leader_election_master_status{{{own}, name=~"operators-(controller-manager)"}}"#);
            let guard = format!(" and on (cluster, job, instance) {lease}");
            let without =
                [&guard, &format!("{own}, "), own].iter().fold(guarded.clone(), |it, part| it.replace(*part, ""));
            assert_ne!(without, guarded, "{} does not name the release", rule["alert"]);
            rule["expr"] = json!(without);
        }
    }
    let all = names(alerts(&rendered));
    assert!(all.contains(ABSENCE) && all.contains(OF_ALL_NAMESPACES));
    let tests = tests_with_foreign_series(|test| {
        let isolated = test != FIRES[0];
        let fires = |name: &&&str| **name != ABSENCE && isolated == (**name == OF_ALL_NAMESPACES);
        let sample = |name: &&str| json!({"labels": format!("{{alertname=\"{name}\"}}"), "value": 1});
        let these = if isolated { format!("=\"{OF_ALL_NAMESPACES}\"") } else { "=~\".+\"".to_owned() };
        let firing = format!("group by (alertname) (ALERTS{{alertstate=\"firing\", alertname{these}}})");
        let samples: Vec<_> = all.iter().filter(fires).map(sample).collect();
        json!({"expr": firing, "eval_time": "59m", "exp_samples": samples})
    });
    promtool_accepts(&bare, &tests);
}

/// Without an election, the controllers of a Deployment tell of it, and only the namespace tells releases apart.
#[test]
fn absence_of_one_deployment_of_several_raises_an_alert() {
    let lease = |namespace: &str, name: &str| {
        format!("leader_election_master_status{{namespace=\"{namespace}\", name=\"{name}\"}}")
    };
    let controller = |namespace: &str, name: &str| {
        let labels = format!("namespace=\"{namespace}\", controller=\"{name}\"");
        format!("controller_runtime_max_concurrent_reconciles{{{labels}}}")
    };
    let others = ["crontab", "flightticket", "foo", "helloapp"];
    let mut elected = others.map(|it| lease("operators-system", &format!("operators-{it}"))).to_vec();
    elected.push(lease("elsewhere", "operators-memcached")); // these two are of other releases
    elected.push(lease("operators-system", "operators-b-memcached"));
    let mut alone = others.map(|it| controller("operators-system", it)).to_vec();
    alone.push(controller("elsewhere", "memcached"));
    for (election, series, missing) in
        [(true, elected, "name=\"operators-memcached\""), (false, alone, "controller=\"memcached\"")]
    {
        let rendered = observed(&json!({"topology": "separate", "leaderElection": {"enabled": election}}));
        let series: Vec<_> = series.iter().map(|series| json!({"series": series, "values": "1x60"})).collect();
        let labels = format!("{{alertname=\"OperatorAbsent\", {missing}}}");
        let tests = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [{
            "interval": "1m",
            "input_series": series,
            "promql_expr_test": [{
                "expr": "count by (alertname, controller, name) (ALERTS{alertstate=\"firing\"})", "eval_time": "59m",
                "exp_samples": [{"labels": labels, "value": 1}],
            }],
        }]});
        promtool_accepts(&rule(&rendered)["spec"], &tests);
    }
}

/// Without an election there is no lease that names the release.
#[test]
fn without_an_election_the_namespace_tells_releases_apart() {
    let rendered = observed(&json!({"leaderElection": {"enabled": false}}));
    let expression = alert(&rendered, "OperatorForbidden").unwrap()["expr"].as_str().unwrap();
    let guard = r#"and on (cluster, job, instance) operator_build_info{namespace="operators-system"}"#;
    assert!(expression.contains(guard), "{expression}");
    let absent = r#"absent(operator_build_info{namespace="operators-system"})"#;
    assert_eq!(alert(&rendered, ABSENCE).unwrap()["expr"], absent);
}

#[test]
fn single_alerts_can_be_changed_and_switched_off() {
    let of_alert = json!({"for": "1h", "labels": {"severity": "info"}});
    let rendered = observed(&json!({"prometheusRule": {
        "namespace": "monitoring", "alertLabels": {"team": "platform"}, "certificateDays": 0.25,
        "alerts": {"OperatorForbidden": {"enabled": false}, "OperatorQueueSlow": of_alert},
    }}));
    assert_eq!(rule(&rendered)["metadata"]["namespace"], "monitoring");
    assert!(alert(&rendered, "OperatorForbidden").is_none());
    let changed = alert(&rendered, "OperatorQueueSlow").unwrap();
    assert_eq!((&changed["for"], &changed["labels"]), (&json!("1h"), &json!({"severity": "info", "team": "platform"})));
    let other = alert(&rendered, "OperatorAbsent").unwrap();
    assert_eq!((&other["for"], &other["labels"]), (&json!("5m"), &json!({"severity": "critical", "team": "platform"})));
    let expires = alert(&rendered, "OperatorWebhookCertificateExpires").unwrap();
    assert!(expires["expr"].as_str().unwrap().trim_end().ends_with("< 21600"), "{}", expires["expr"]);
    let usual = observed(&json!({}));
    let all: Vec<&str> = names(alerts(&usual)).into_iter().collect();
    assert_eq!(alerts(&rendered).len() + 1, all.len());
    // Of each two neighbours, one is off and the other one is changed; then the reverse.
    for off in [0, 1] {
        let own = |number: usize| {
            if number % 2 == off {
                return json!({"enabled": false});
            }
            json!({"for": format!("{number}h"), "labels": {"severity": format!("of {number}")}})
        };
        let values: Map<_, _> = all.iter().enumerate().map(|(n, name)| ((*name).to_owned(), own(n))).collect();
        let rendered = observed(&json!({"prometheusRule": {"alerts": values}}));
        for (number, name) in all.iter().enumerate() {
            let found = alert(&rendered, name);
            assert_eq!(found.is_none(), number % 2 == off, "{name}");
            if let Some(rule) = found {
                assert_eq!(rule["for"], format!("{number}h"), "{name}");
                assert_eq!(rule["labels"]["severity"], format!("of {number}"), "{name}");
            }
        }
    }
}

#[test]
fn every_alert_has_a_runbook_as_link_or_as_text() {
    let runbooks = fs::read_to_string(chart::folder().join("../../docs/runbooks.md")).unwrap();
    let sections: BTreeSet<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let texts = observed(&json!({}));
    assert_eq!(names(alerts(&texts)), sections, "each alert must have a runbook, and each runbook an alert");
    for rule in alerts(&texts) {
        let text = rule["annotations"]["runbook"].as_str().unwrap();
        let parts = ["**Means**", "**Look**", "**Do**"];
        assert_eq!(parts.map(|part| text.matches(part).count()), [1; 3], "{}: {text}", rule["alert"]);
        assert!(!text.contains("## ") && !text.contains("<release>"), "{text}");
    }
    let links = observed(&json!({"prometheusRule": {"runbookUrl": "https://example.com/runbooks.md#"}}));
    for rule in alerts(&links) {
        let link = format!("https://example.com/runbooks.md#{}", rule["alert"].as_str().unwrap().to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], link);
        assert_eq!(rule["annotations"]["runbook"], Value::Null);
    }
}

fn dashboard(rendered: &Rendered) -> (&str, Value) {
    let data = rendered.object("ConfigMap", "operators-dashboard").unwrap()["data"].as_object().unwrap();
    let (file, text) = data.iter().next().unwrap();
    (file, serde_json::from_str(text.as_str().unwrap()).unwrap())
}

#[test]
fn panels_of_the_dashboard_have_a_place_and_an_id_of_their_own() {
    let rendered = observed(&json!({}));
    let (_, dashboard) = dashboard(&rendered);
    let version = dashboard["schemaVersion"].as_i64();
    assert!(version.is_some_and(|version| version > 0), "Grafana would migrate it from the oldest: {version:?}");
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 10);
    let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    // Grafana's grid has 24 columns. It moves panels that overlap, so that none is where the chart puts it.
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_i64().unwrap());
        let title = &panel["title"];
        assert!(x >= 0 && y >= 0 && w > 0 && h > 0 && x + w <= 24, "{title}: {}", panel["gridPos"]);
        for cell in (x..x + w).flat_map(|column| (y..y + h).map(move |line| (column, line))) {
            assert!(taken.insert(cell), "{title} overlaps another panel at {cell:?}");
        }
    }
}

#[test]
fn dashboard_shows_only_this_projects_programs_and_has_its_own_identity() {
    let rendered = observed(&json!({"dashboard": {"namespace": "grafana"}}));
    assert_eq!(rendered.object("ConfigMap", "operators-dashboard").unwrap()["metadata"]["namespace"], "grafana");
    let (file, dashboard) = dashboard(&rendered);
    assert_eq!(file, "operators-system-operators.json");
    let variables: Vec<_> = dashboard["templating"]["list"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(json!(variables), json!(["datasource", "cluster", "namespace", "job", "kind"]));
    let queries = deep(&dashboard["panels"], "expr");
    assert!(queries.len() > 20);
    let ours = "on (cluster, job, instance) operator_build_info{cluster=~\"$cluster\", namespace=~\"$namespace\", job=~\"$job\"}";
    let capitals = |text: &str| ["OURS", "CONTROLLER"].iter().any(|word| text.contains(word));
    for query in queries {
        let text = query.as_str().unwrap();
        assert!(text.contains(ours) && !capitals(text), "{text}");
    }
    let other = observed(&json!({"fullnameOverride": "other"}));
    let others = other.object("ConfigMap", "other-dashboard").unwrap()["data"]["operators-system-other.json"].clone();
    let others: Value = serde_json::from_str(others.as_str().unwrap()).unwrap();
    assert_ne!(dashboard["uid"], others["uid"]);
    let uid = dashboard["uid"].as_str().unwrap();
    assert!(uid.starts_with("operators-") && uid.len() <= 40, "{uid}");
}

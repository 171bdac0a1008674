//! A lint in both directions: every value changes what the chart renders, and the templates read only values that exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use chart::{document, values::Values};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::kit::{for_each, helm, render};

/// Values that only parent charts and Helm read.
const OF_PARENTS: [&str; 2] = ["enabled", "global"];

/// Values under which each value has an effect: the first whose key begins the path.
fn base(path: &str) -> Value {
    let on = json!({"enabled": true});
    if path == "metrics.enabled" {
        return json!({});
    }
    let mut base = json!({"networkPolicy": on, "dashboard": on, "prometheusRule": on, "replicas": 2});
    let is_of_own_deployment = ["env", "resources"].contains(&path.rsplit('.').next().unwrap());
    let more = match path {
        _ if path.starts_with("metrics.podMonitor") => json!({"metrics": {"podMonitor": on}}),
        _ if path.starts_with("metrics.serviceMonitor") => json!({"metrics": {"serviceMonitor": on}}),
        _ if path.starts_with("metrics.proxy.image") => json!({"metrics": {"proxy": {"kind": "kube-rbac-proxy"}}}),
        _ if path.starts_with("webhooks.certManager.issuerRef") => json!({"webhooks": {"certManager": on}}),
        _ if path.starts_with("bookingServer.persistence") => json!({"bookingServer": {"persistence": on}}),
        _ if path.starts_with("operators.") && is_of_own_deployment => {
            let operator = path.split('.').nth(1).unwrap();
            json!({"topology": "separate", "operators": {operator: on}})
        }
        _ if path.starts_with("operators.foo.") => json!({"operators": {"foo": on}}),
        "caBundle.key" => json!({"caBundle": {"configMapName": "authorities"}}),
        "serviceAccount.create" => json!({"serviceAccount": {"name": "existing"}}),
        "leaderElection.enabled" => json!({"replicas": 1}),
        "operators.flightticket.provider.tokenFile" | "operators.flightticket.provider.caFile" => {
            json!({"bookingServer": {"enabled": false}})
        }
        _ => json!({}),
    };
    merge(&mut base, &more);
    base
}

/// A value that differs from this one and that the schema and the refusals accept.
fn changed(path: &str, value: &Value) -> Value {
    let last = path.rsplit('.').next().unwrap();
    let selector = json!([{"podSelector": {"matchLabels": {"a": "b"}}}]);
    match last {
        "topology" => json!("separate"),
        "kind" => json!("builtin"),
        "pullPolicy" => json!("Always"),
        "minVersion" => json!("VersionTLS13"),
        "ifMissing" => json!("skip"),
        "failurePolicy" => json!("Ignore"),
        "logFormat" => json!("text"),
        "ipFamilyPolicy" => json!("SingleStack"),
        "ipFamilies" => json!(["IPv6"]),
        "digest" => json!(format!("sha256:{}", "0".repeat(64))),
        "leaseDuration" | "timeout" | "pollInterval" => json!("31s"),
        "renewDeadline" => json!("11s"),
        "retryPeriod" => json!("3s"),
        "url" | "otlpEndpoint" => json!("https://changed.example.com"),
        "logLevel" => json!("debug"),
        "alerts" => json!({"OperatorAbsent": {"enabled": false}}),
        "webhooksFrom" | "metricsFrom" | "probesFrom" => selector,
        "egress" => json!([{"ports": [{"port": 443}]}]),
        "extraArgs" => json!(["--changed"]),
        "imagePullSecrets" => json!([{"name": "changed"}]),
        "env" | "extraEnv" => json!([{"name": "CHANGED", "value": "1"}]),
        "extraObjects" => json!([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "changed"}}]),
        "topologySpreadConstraints" => json!([{"maxSkew": 3}]),
        "tolerations" | "extraVolumes" | "extraVolumeMounts" | "relabelings" | "metricRelabelings" => {
            json!([{"key": "changed", "name": "changed"}])
        }
        "replicas" => json!(3),
        "port" => json!(7000),
        _ => match value {
            Value::Bool(on) => json!(!on),
            Value::Number(number) => json!(number.as_f64().unwrap() + 1.0),
            Value::Null if path == "bookingServer.enabled" => json!(false),
            Value::Null => json!(7),
            Value::Array(_) => json!(["changed"]),
            Value::Object(_) => json!({"changed": "yes"}),
            Value::String(_) => json!("changed"),
        },
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The values of this path alone.
fn at(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |value, key| json!({key: value}))
}

/// Every third of these, another third for each seed. Each takes Helm a second. `CHART_VALUES=all`, or no seed, selects all.
fn sample<T>(all: Vec<T>) -> Vec<T> {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse::<usize>().ok());
    match seed.filter(|_| std::env::var_os("CHART_VALUES").is_none()) {
        Some(seed) => all.into_iter().skip(seed % 3).step_by(3).collect(),
        None => all,
    }
}

#[test]
fn every_value_has_an_effect() {
    let defaults = serde_json::to_value(Values::default()).unwrap();
    let paths = document::paths().unwrap();
    let is_group = |path: &str| paths.iter().any(|other| other.starts_with(&format!("{path}.")));
    let leaves: Vec<String> =
        paths.iter().filter(|path| !is_group(path) && !OF_PARENTS.contains(&path.as_str())).cloned().collect();
    assert!(leaves.len() > 100);
    let leaves = sample(leaves);
    let text = |values: &Value| helm().template(values, &[]).map(|it| it.text).map_err(|error| format!("{error:#}"));
    let bases: BTreeSet<String> = leaves.iter().map(|path| base(path).to_string()).collect();
    let rendered = Mutex::new(BTreeMap::new());
    for_each(bases.into_iter().collect(), |base: String| {
        let before = text(&serde_json::from_str(&base).unwrap());
        rendered.lock().insert(base, before);
    });
    let rendered = rendered.into_inner();
    let without = Mutex::new(BTreeSet::new());
    for_each(leaves, |path| {
        let (before, mut after) = (base(&path), base(&path));
        let pointer = format!("/{}", path.replace('.', "/"));
        let value = before.pointer(&pointer).or_else(|| defaults.pointer(&pointer)).unwrap();
        merge(&mut after, &at(&path, changed(&path, value)));
        match (&rendered[&before.to_string()], text(&after)) {
            (Ok(before), Ok(after)) if *before == after => drop(without.lock().insert(path)),
            (Ok(_), Ok(_)) => {}
            (before, after) => {
                let errors = [before.as_ref().err().cloned(), after.err()];
                without.lock().insert(format!("{path}: {errors:?}"));
            }
        }
    });
    let without = without.into_inner();
    assert!(without.is_empty(), "{without:#?}");
}

/// The test above finds a value that no template reads. Several templates read each of these, and one of them may forget it.
#[test]
fn values_of_all_pods_reach_each_pod_and_each_container() {
    let pods =
        |values: &Value| render(values).pods().into_iter().map(|(it, spec)| (it, spec.clone())).collect::<Vec<_>>();
    for (values, place) in [
        (json!({"imagePullSecrets": [{"name": "changed"}]}), "/imagePullSecrets/0/name"),
        (json!({"priorityClassName": "changed"}), "/priorityClassName"),
        (json!({"nodeSelector": {"a": "changed"}}), "/nodeSelector/a"),
        (json!({"tolerations": [{"key": "changed"}]}), "/tolerations/0/key"),
        (json!({"affinity": {"a": "changed"}}), "/affinity/a"),
        (
            json!({"topologySpreadConstraints": [{"topologyKey": "changed"}]}),
            "/topologySpreadConstraints/0/topologyKey",
        ),
        (json!({"podSecurityContext": {"a": "changed"}}), "/securityContext/a"),
    ] {
        let pods = pods(&values);
        assert_eq!(pods.len(), 3, "of the operators, the booking server and the test");
        for (owner, spec) in pods {
            assert_eq!(spec.pointer(place), Some(&json!("changed")), "{owner}: {values}");
        }
    }
    for (values, place, wanted) in [
        (json!({"image": {"pullPolicy": "Never"}}), "/imagePullPolicy", "Never"),
        (json!({"securityContext": {"a": "changed"}}), "/securityContext/a", "changed"),
    ] {
        for (owner, spec) in pods(&values) {
            for container in spec["containers"].as_array().unwrap() {
                assert_eq!(container.pointer(place), Some(&json!(wanted)), "{owner}: {} {values}", container["name"]);
            }
        }
    }
    let text = render(&json!({"telemetry": {"logFormat": "text"}})).text;
    assert_eq!(text.matches("--log-format=text").count(), 2, "of the operators and of the booking server");
}

/// A user may have commented out all keys of a group, and YAML reads the rest as null.
#[test]
fn a_group_that_is_null_has_its_defaults() {
    let paths = document::paths().unwrap();
    let is_group = |path: &&String| paths.iter().any(|other| other.starts_with(&format!("{path}.")));
    let groups: Vec<String> = paths.iter().filter(is_group).cloned().collect();
    assert!(groups.len() > 25, "{groups:?}");
    for_each(sample(groups), |path| {
        let mut without = base(&path);
        let (group, key) = path.rsplit_once('.').unwrap_or(("", path.as_str()));
        let pointer = if group.is_empty() { String::new() } else { format!("/{}", group.replace('.', "/")) };
        if let Some(group) = without.pointer_mut(&pointer).and_then(Value::as_object_mut) {
            group.remove(key);
        }
        let mut nulled = without.clone();
        merge(&mut nulled, &at(&path, Value::Null));
        assert!(render(&nulled).text == render(&without).text, "null changes {path} under {without}");
    });
}

#[test]
fn each_template_restores_the_defaults_first() {
    let folder = chart::folder().join("templates");
    for folder in [folder.join("tests"), folder] {
        for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            let is_partial = file.file_name().unwrap().to_string_lossy().starts_with('_');
            let text = fs::read_to_string(&file).unwrap();
            let first = "{{- include \"operators.defaults\" . -}}\n";
            assert!(is_partial || text.starts_with(first), "{} begins with something else", file.display());
        }
    }
}

fn templates(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { templates(&path) } else { vec![fs::read_to_string(path).unwrap()] })
        .collect()
}

/// The keys at the beginning of `text`, such as `.a.b`, without the first dot.
fn keys(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.').unwrap_or(text.len());
    text[..end].trim_matches('.')
}

/// The values that a template reads: directly, and through variables such as `$metrics := .Values.metrics`, which hold within a
/// `define`. Keys that a template looks up below a `with` are not among them.
fn values_read(template: &str) -> BTreeSet<String> {
    let mut read = BTreeSet::new();
    for part in template.split("{{- define ") {
        for (at, mark) in part.match_indices(".Values.") {
            read.insert(keys(&part[at + mark.len()..]).to_owned());
        }
        for (at, mark) in part.match_indices(" := ") {
            let statement = part[..at].rsplit("{{").next().unwrap();
            if statement.contains("range ") {
                continue; // the variable is an element
            }
            let (name, assigned) = (part[..at].rsplit('$').next().unwrap(), &part[at + mark.len()..]);
            let assigned = assigned[..assigned.find("}}").unwrap()].trim_end_matches('-').trim();
            let path = ["$root.Values", "$.Values", ".Values"].iter().find_map(|all| assigned.strip_prefix(all));
            let Some(path) = path.filter(|path| path.chars().all(|it| it.is_ascii_alphanumeric() || it == '.')) else {
                continue;
            };
            let variable = format!("${name}.");
            for (at, _) in part.match_indices(&variable) {
                let below = keys(&part[at + variable.len()..]);
                read.insert(format!("{path}.{below}").trim_matches('.').to_owned());
            }
        }
    }
    read
}

#[test]
fn values_read_through_variables_are_found() {
    let template = "{{- define \"a\" -}}{{- $root := . -}}{{- $it := $root.Values -}}{{ $it.replicas }}{{ $other.tag }}\
        {{- range $name, $one := .Values.operators }}{{ $one.enabled }}{{ end -}}\
        {{- define \"b\" -}}{{- $it := .Values.image -}}{{ $it.tag }}{{ .Values.strategy }}{{- $x := list .Values.rbac -}}";
    let read: Vec<_> = values_read(template).into_iter().collect();
    assert_eq!(read, ["image", "image.tag", "operators", "rbac", "replicas", "strategy"]);
}

#[test]
fn templates_read_only_values_that_exist() {
    let known: BTreeSet<String> = document::paths().unwrap().into_iter().collect();
    let read: BTreeSet<String> =
        templates(&chart::folder().join("templates")).iter().flat_map(|text| values_read(text)).collect();
    assert!(read.contains("leaderElection.retryPeriod") && read.len() > 90, "{} {read:?}", read.len());
    // Below an open object, such as a selector, the templates may read any key.
    let is_group = |path: &str| known.iter().any(|it| it.starts_with(&format!("{path}.")));
    let is_open = |path: &String| known.iter().any(|it| !is_group(it) && path.starts_with(&format!("{it}.")));
    let unknown: Vec<_> = read.iter().filter(|path| !known.contains(*path) && !is_open(path)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn schema_and_defaults_have_the_same_keys() {
    fn collect(path: &str, schema: &Value, all: &mut BTreeSet<String>) {
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}").trim_start_matches('.').to_owned();
            collect(&path, below, all);
            all.insert(path);
        }
    }
    let schema: Value = serde_json::from_str(&document::values_schema().unwrap()).unwrap();
    let (mut described, defaults) = (BTreeSet::new(), document::paths().unwrap().into_iter().collect());
    collect("", &schema, &mut described);
    assert_eq!(described, defaults);
}

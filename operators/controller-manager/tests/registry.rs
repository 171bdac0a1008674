//! Tests that all operators must pass, including future ones, and tests of the command line that they share.

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    process::{Command, Output, Stdio},
};

use cluster::{Cluster, Nodes};
use controller_manager::{OPERATORS, manifests};
use manager::{namespace_selector_permissions, permissions};
use serde_json::{Value, json};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_controller-manager"));
    command.args(arguments).env_remove("KUBECONFIG").env("HOME", "/nonexistent").stdin(Stdio::null());
    command.output().expect("the binary starts")
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn operator_names_are_unique_and_lower_case() {
    let names: BTreeSet<&str> = OPERATORS.iter().map(|operator| operator.name()).collect();
    assert_eq!(names.len(), OPERATORS.len());
    assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())));
}

#[test]
fn operators_request_no_wildcard_permission() {
    for operator in OPERATORS {
        let rules = permissions(&[*operator]);
        assert!(!rules.is_empty(), "{}", operator.name());
        for rule in rules {
            let words = [rule.api_groups, rule.resources, Some(rule.verbs)].into_iter().flatten().flatten();
            assert!(words.into_iter().all(|word| word != "*"), "{}", operator.name());
        }
    }
}

/// Calls `check` with this schema and every schema below it, and with the path of each.
fn walk(schema: &Value, path: &str, check: &mut impl FnMut(&Value, &str)) {
    check(schema, path);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{path}.{name}"), check);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            walk(&schema[key], &format!("{path}[]"), check);
        }
    }
}

#[test]
fn every_crd_field_has_a_description_and_a_bound() {
    for definition in manifests::definitions() {
        let kind = definition["spec"]["names"]["kind"].as_str().expect("a kind");
        for version in definition["spec"]["versions"].as_array().expect("versions") {
            assert!(version["subresources"]["status"].is_object(), "{kind} has no status subresource");
            walk(&version["schema"]["openAPIV3Schema"], kind, &mut |schema, path| {
                assert!(schema["description"].is_string() || path.ends_with("[]"), "{path} has no description");
                let bounded = match schema["type"].as_str() {
                    Some("string") => ["maxLength", "enum", "format"].iter().any(|key| !schema[key].is_null()),
                    Some("array") => !schema["maxItems"].is_null(),
                    Some("object") if schema["additionalProperties"].is_object() => !schema["maxProperties"].is_null(),
                    _ => true,
                };
                assert!(bounded, "{path} has no bound");
            });
        }
    }
}

/// `kubectl get -o wide` says why an object does not work.
#[test]
fn every_version_of_every_kind_has_its_message_in_the_last_column_of_the_wide_table() {
    for definition in manifests::definitions() {
        let kind = &definition["spec"]["names"]["kind"];
        for version in definition["spec"]["versions"].as_array().expect("versions") {
            let columns = version["additionalPrinterColumns"].as_array().expect("columns");
            let column = columns.last().expect("a column");
            assert_eq!((&column["name"], &column["priority"]), (&json!("MESSAGE"), &json!(1)), "{kind}");
            let path = column["jsonPath"].as_str().expect("a path");
            assert!(path.starts_with(".status.conditions[") && path.ends_with("].message"), "{kind}: {path}");
        }
    }
}

#[test]
fn readme_lists_exactly_the_subcommands_of_the_binary() {
    let readme = include_str!("../../../README.md");
    let (_, table) = readme.split_once("Subcommands of the binary").expect("the table");
    let (table, _) = table.split_once("\n## ").expect("an end");
    let in_code = |row: &str| row.split('`').skip(1).step_by(2).map(first_word).collect::<Vec<_>>();
    let documented: BTreeSet<String> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .flat_map(|row| in_code(&format!("`{}", row.split('|').next().unwrap_or_default())))
        .collect();
    let help = String::from_utf8(run(&["--help"]).stdout).expect("text");
    let (_, commands) = help.split_once("Commands:\n").expect("commands");
    let offered: BTreeSet<String> =
        commands.lines().take_while(|line| !line.is_empty()).map(first_word).filter(|name| name != "help").collect();
    assert_eq!(documented, offered);
}

#[test]
fn images_lists_defaults_of_the_operators_and_images_of_their_samples() {
    let printed = String::from_utf8(run(&["images"]).stdout).expect("text");
    let images: Vec<&str> = printed.lines().collect();
    assert!(images.is_sorted(), "{images:?}");
    for name in [
        "docker.io/library/memcached:1.6",
        "docker.io/library/nginx:latest",
        "docker.io/prom/memcached-exporter:v0.15.4",
    ] {
        assert!(images.contains(&name), "{images:?}");
    }
    assert!(images.iter().any(|image| image.contains("nginx-unprivileged")), "{images:?}");
}

/// Without the image of the operators at hand, `helm show chart` prints the list.
#[test]
fn chart_names_the_images_that_the_binary_prints() {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/operators/Chart.yaml");
    let chart: Value = serde_saphyr::from_str(&fs::read_to_string(chart).expect("a chart")).expect("YAML");
    let list = chart["annotations"]["artifacthub.io/images"].as_str().expect("a list");
    let list: Vec<Value> = serde_saphyr::from_str(list).expect("YAML");
    let named: Vec<&str> = list.iter().map(|entry| entry["image"].as_str().expect("an image")).collect();
    let printed = String::from_utf8(run(&["images"]).stdout).expect("text");
    assert_eq!(named, printed.lines().collect::<Vec<_>>());
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn printed_definitions_permissions_and_webhooks_are_yaml_for_kubectl() {
    for (arguments, kind) in [
        (vec!["crds"], "kind: CustomResourceDefinition"),
        (vec!["rbac", "--metrics-secure"], "kind: ClusterRole"),
        (vec!["rbac", "--migrate-storage"], "customresourcedefinitions/status"),
        (vec!["webhooks", "--webhook-service", "a/b"], "kind: ValidatingWebhookConfiguration"),
        (vec!["docs"], "# "),
        (vec!["completions", "bash"], "complete"),
    ] {
        let output = run(&arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(kind), "{arguments:?}: {}{text}", error_of(&output));
    }
    assert_eq!(run(&["webhooks"]).status.code(), Some(2), "the Service is required");
    for half in ["b", "/b", "a/"] {
        let output = run(&["webhooks", "--webhook-service", half]);
        assert_eq!(output.status.code(), Some(2), "{half}");
        assert!(error_of(&output).contains("expected NAMESPACE/NAME"), "{half}");
    }
}

#[test]
fn rbac_prints_what_a_selector_of_namespaces_needs_beside_the_other_rules() {
    let rules = |arguments: &[&str]| {
        let printed = String::from_utf8(run(arguments).stdout).expect("text");
        let role: Value = serde_saphyr::from_str(&printed).expect("YAML");
        role["rules"].as_array().expect("rules").clone()
    };
    let mut expected = rules(&["rbac"]);
    let needed = json!(namespace_selector_permissions());
    expected.extend(needed.as_array().expect("rules").clone());
    assert_eq!(rules(&["rbac", "--watch-namespace-selector"]), expected);
}

#[test]
fn invalid_flag_prints_one_line_and_exits_with_2() {
    let output = run(&["--operators", "memcached,cronjob"]);
    assert_eq!(output.status.code(), Some(2));
    let error = error_of(&output);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("there is no operator \"cronjob\"; known are "), "{error}");
    assert!(OPERATORS.iter().all(|operator| error.contains(operator.name())), "{error}");

    let output = run(&["run", "--leader-elect", "--leader-election-namespace=a", "--leader-elect-lease-duration=5s"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(error_of(&output).contains("must be longer than the renew deadline (10s)"), "{}", error_of(&output));

    let output = run(&["run", "--reconcile-timeout", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(error_of(&output).contains("expected a time such as 30s, 10m or 1h30m"), "{}", error_of(&output));
}

#[test]
fn missing_kubeconfig_error_names_the_flag() {
    let output = run(&["run", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("give --kubeconfig, set KUBECONFIG"), "{}", error_of(&output));
}

#[test]
fn busy_port_error_names_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let flags = [("health probes", "--health-probe-bind-address"), ("metrics", "--metrics-bind-address")];
    for (purpose, flag) in flags {
        let others = flags.iter().filter(|(_, other)| *other != flag).flat_map(|(_, other)| [*other, "0"]);
        let arguments: Vec<&str> = ["run", flag, &address].into_iter().chain(others).collect();
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(1));
        let error = error_of(&output);
        assert!(error.contains(&format!("cannot listen on {address} for {purpose}")), "{error}");
        assert!(error.contains(flag), "{error}");
    }
}

#[test]
fn first_sigterm_stops_the_process_cleanly() {
    let Some(cluster) = cluster::or_skip(Cluster::shared(Nodes::None)) else { return };
    let kubeconfig = cluster.kubeconfig_for("stopping", &[]).expect("a kubeconfig");
    let mut child = Command::new(env!("CARGO_BIN_EXE_controller-manager"))
        .args(["run", "--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--kubeconfig"])
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("a pipe")));
    // The operator has no permission to list anything, and logs that once for each kind. This log line shows that it runs.
    let refused = lines.by_ref().map_while(Result::ok).find(|line| line.contains("may not list or watch"));
    assert!(refused.is_some());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("\"msg\":\"Stopping\"")), "{rest:?}");
    let told: Vec<Value> = rest.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let told =
        told.iter().filter(|line| line["state"].as_str().is_some_and(|it| it.starts_with("may not list or watch")));
    let kinds: Vec<&str> = told.filter_map(|line| line["kind"].as_str()).collect();
    assert_eq!(kinds.len(), kinds.iter().collect::<BTreeSet<_>>().len(), "logged once for each kind: {kinds:?}");
}

#[test]
fn plugin_finds_kinds_by_the_category_of_the_runtime() {
    assert_eq!(kubectl_operators::CATEGORY, manager::CATEGORY);
    for definition in manifests::definitions() {
        let categories = definition["spec"]["names"]["categories"].as_array().expect("categories");
        assert!(categories.iter().any(|category| category == manager::CATEGORY), "{categories:?}");
    }
}

//! What kubectl shows of every kind, on a real API server. The nightly run repeats this with the newest kubectl.

use std::{
    io::Write as _,
    process::Stdio,
    time::{Duration, Instant},
};

use cluster::{Cluster, Nodes};
use controller_manager::{OPERATORS, manifests};
use manager::CATEGORY;
use serde_json::{Value, json};

/// Runs kubectl, which reads this input if there is one. The error is what it says on standard error.
fn kubectl(cluster: &Cluster, arguments: &[&str], input: Option<&Value>) -> Result<String, String> {
    let mut command = cluster.kubectl(arguments);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl starts");
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        pipe.write_all(input.to_string().as_bytes()).expect("kubectl reads");
    }
    let output = child.wait_with_output().expect("kubectl ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Repeats until it succeeds: the API server publishes a new kind in several places, one after the other.
fn until(what: &str, mut attempt: impl FnMut() -> Result<String, String>) -> String {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        match attempt() {
            Ok(said) => return said,
            Err(error) => assert!(Instant::now() < deadline, "{what}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// A cluster with every kind and a sample of each. Returns the definitions, each with the name of its sample.
fn cluster_with_samples() -> Option<(Cluster, Vec<(Value, String)>)> {
    let cluster = cluster::or_skip(Cluster::fresh(Nodes::None))?;
    let apply = ["apply", "--server-side", "--filename=-"];
    let samples = OPERATORS.iter().map(|operator| serde_saphyr::from_str::<Value>(operator.sample()).expect("YAML"));
    let samples: Vec<Value> = samples.collect();
    let mut kinds = Vec::new();
    for definition in manifests::definitions() {
        kubectl(&cluster, &apply, Some(&definition)).expect("the definition is accepted");
        let kind = &definition["spec"]["names"]["kind"];
        let sample = samples.iter().find(|sample| sample["kind"] == *kind).expect("a sample");
        until("the kind is served", || kubectl(&cluster, &apply, Some(sample)));
        let name = text(&sample["metadata"]["name"]).to_owned();
        kinds.push((definition, name));
    }
    // This reads all kinds again, so that kubectl has no list from before the last one.
    kubectl(&cluster, &["api-resources"], None).expect("a list");
    Some((cluster, kinds))
}

/// The names of the columns, as kubectl prints them with `-o wide` or without.
fn columns(definition: &Value, is_wide: bool) -> Vec<&str> {
    let versions = definition["spec"]["versions"].as_array().expect("versions");
    let stored = versions.iter().find(|version| version["storage"] == true).expect("a stored version");
    let all = stored["additionalPrinterColumns"].as_array().expect("columns").iter();
    let shown = all.filter(|column| is_wide || column["priority"].as_i64().unwrap_or_default() == 0);
    shown.flat_map(|column| text(&column["name"]).split_whitespace()).collect()
}

#[test]
fn kubectl_finds_prints_and_explains_every_kind() {
    let Some((cluster, kinds)) = cluster_with_samples() else { return };
    let run = |arguments: &[&str]| kubectl(&cluster, arguments, None);
    for (definition, name) in &kinds {
        let names = &definition["spec"]["names"];
        let plural = text(&names["plural"]);
        let short = names["shortNames"].as_array().into_iter().flatten();
        for alias in [&names["plural"], &names["singular"]].into_iter().chain(short) {
            until("kubectl knows the name", || run(&["get", text(alias), name.as_str()]));
        }
        for (is_wide, format) in [(false, "--output="), (true, "--output=wide")] {
            let table = run(&["get", plural, format]).expect("a table");
            let mut lines = table.lines();
            let header: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
            assert_eq!(header, [&["NAME"], columns(definition, is_wide).as_slice()].concat(), "{plural} {format}");
            assert!(lines.any(|line| line.starts_with(name.as_str())), "{table}");
        }
        for part in ["", ".spec", ".status"] {
            let said = until("kubectl explains the kind", || run(&["explain", &format!("{plural}{part}")]));
            assert!(said.contains("FIELDS:") && !said.contains("<no description>"), "{plural}{part}: {said}");
        }
    }
    let all = run(&["get", CATEGORY, "--output=name"]).expect("a list");
    assert_eq!(all.lines().count(), kinds.len(), "{all}");
}

#[test]
fn kubectl_waits_for_a_status_of_the_present_generation() {
    let Some((cluster, kinds)) = cluster_with_samples() else { return };
    let run = |arguments: &[&str]| kubectl(&cluster, arguments, None);
    let (_, name) = kinds.iter().find(|(it, _)| it["spec"]["names"]["kind"] == "Memcached").expect("the kind");
    let object = format!("memcached/{name}");
    run(&["scale", &object, "--replicas=2"]).expect("is scaled");
    let generation = run(&["get", &object, "--output=jsonpath={.metadata.generation}"]).expect("the object");
    let generation: i64 = generation.parse().expect("a number");
    let report = |observed: i64| {
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": observed,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"status": {"observedGeneration": observed, "conditions": [ready]}}).to_string();
        run(&["patch", &object, "--subresource=status", "--type=merge", "--patch", &status]).expect("is stored");
    };
    let wait = || run(&["wait", "--for=condition=Ready", &object, "--timeout=1s"]);
    report(generation - 1);
    assert!(wait().expect_err("the status is old").contains("timed out"));
    report(generation);
    wait().expect("the status is of the present generation");
}

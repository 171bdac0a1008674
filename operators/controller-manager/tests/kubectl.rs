//! What kubectl shows of every kind, on a real API server. The nightly run repeats this with the newest kubectl.

use std::{
    io::Write as _,
    path::Path,
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

/// What stands before a block of commands in a README that a test runs.
const RUN: &str = "<!-- tested by: operators/controller-manager/tests/kubectl.rs \
                   commands_of_the_readmes_run_and_print_the_columns_that_they_show -->\n```console\n";

/// The commands in the marked blocks of a document, each with the first line that it prints there.
fn documented(readme: &str) -> Vec<(&str, Option<&str>)> {
    let blocks = readme.split(RUN).skip(1).filter_map(|rest| rest.split("```").next());
    let lines: Vec<&str> = blocks.flat_map(str::lines).collect();
    let mut commands = Vec::new();
    for (number, line) in lines.iter().copied().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command, lines.get(number + 1).copied().filter(|next| !next.starts_with("$ "))));
        }
    }
    commands
}

/// The first steps of a user. No operator runs here, so what a command waits for does not happen.
#[test]
fn commands_of_the_readmes_run_and_print_the_columns_that_they_show() {
    let Some((cluster, _)) = cluster_with_samples() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut tables = Vec::new();
    for operator in OPERATORS {
        let folder = root.join(format!("operators/{}-operator", operator.name()));
        let readme = std::fs::read_to_string(folder.join("README.md")).expect("a document");
        for (command, prints) in documented(&readme) {
            let waits = command.starts_with("kubectl wait ");
            let script = if waits { format!("{command} --timeout=1s") } else { command.to_owned() };
            let at = if command.contains(" operators/") { &root } else { &folder };
            let mut shell = cluster.exec("sh");
            let output =
                shell.args(["-euc", &script]).current_dir(at).stdin(Stdio::null()).output().expect("sh starts");
            let said = String::from_utf8_lossy(&output.stderr);
            let is_right = if waits { said.contains("timed out waiting") } else { output.status.success() };
            assert!(is_right, "{command}: {said}");
            if let Some(header) = prints.filter(|line| line.starts_with("NAME ")) {
                let text = String::from_utf8_lossy(&output.stdout);
                assert_eq!(words(text.lines().next().unwrap_or_default()), words(header), "{command}");
                tables.push(operator.name());
            }
        }
    }
    assert_eq!(tables.len(), 5, "{tables:?}");
}

/// All samples of an operator at once, as a user applies a folder.
#[test]
fn each_folder_of_samples_is_applied_as_a_whole() {
    let Some((cluster, _)) = cluster_with_samples() else { return };
    kubectl(&cluster, &["create", "namespace", "user"], None).expect("a namespace without samples");
    for operator in OPERATORS {
        let name = operator.name();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{name}-operator/samples"));
        let mut apply = cluster.kubectl(["apply", "--namespace", "user", "-f", "."]);
        let output = apply.current_dir(&folder).stdin(Stdio::null()).output().expect("kubectl starts");
        let [printed, said] = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        assert!(output.status.success() && !said.contains("Warning"), "{name}: {said}");
        let files = std::fs::read_dir(&folder).expect("samples").count();
        let created = printed.lines().filter(|line| line.ends_with(" created")).count();
        assert!(files > 0 && created == files, "{name}: {files} files, of which kubectl read others: {printed}");
    }
}

/// The manifests of a README that are of its kind, and excerpts of a spec.
#[test]
fn manifests_of_the_readmes_are_accepted() {
    let Some((cluster, _)) = cluster_with_samples() else { return };
    let dry_run = ["apply", "--server-side", "--dry-run=server", "--field-manager=reader", "--force-conflicts"];
    let mut accepted = 0;
    for operator in OPERATORS {
        let sample: Value = serde_saphyr::from_str(operator.sample()).expect("YAML");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{}-operator", operator.name()));
        let readme = std::fs::read_to_string(folder.join("README.md")).expect("a document");
        for block in readme.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let written: Value = serde_saphyr::from_str(block).expect("YAML");
            let mut object = sample.clone();
            if written["kind"] == sample["kind"] {
                object = written;
            } else if let Some(fields) = written["spec"].as_object().filter(|_| written["kind"].is_null()) {
                object["spec"].as_object_mut().expect("a spec").extend(fields.clone());
            } else {
                continue; // of another kind, or a part of one
            }
            let arguments = [dry_run.as_slice(), &["--filename=-"]].concat();
            kubectl(&cluster, &arguments, Some(&object)).unwrap_or_else(|error| panic!("{block}: {error}"));
            accepted += 1;
        }
    }
    assert!(accepted >= 12, "{accepted} manifests");
}

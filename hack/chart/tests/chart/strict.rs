//! Sends every rendered object to a real API server, which rejects unknown fields and invalid values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use chart::{NAMESPACE, plain, rendered::Rendered, schemas::Schemas};
use cluster::{Cluster, Nodes, or_skip};
use serde_json::{Value, json};

use crate::{
    flag_sets::everything,
    kit::{FlagSet, helm, render},
};

/// API groups of other products, whose kinds this API server does not know.
const FOREIGN: [&str; 2] = ["monitoring.coreos.com/v1", "cert-manager.io/v1"];

/// The oldest and the newest minor of Kubernetes that the chart supports.
const MINORS: [&str; 2] = ["1.31", "1.37"];

/// Renders with each operator alone, with all operators, and with all optional features.
fn renders() -> Vec<Rendered> {
    let sets = FlagSet::all();
    let validated = sets.iter().filter(|set| set.is_validated());
    let mut renders: Vec<_> = validated.clone().map(|set| render(&set.values())).collect();
    renders.extend(validated.filter(|set| set.enabled.len() > 1).map(|set| render(&everything(set))));
    renders.push(render(&json!({"watchNamespaces": [NAMESPACE], "metrics": {"proxy": {"kind": "kube-rbac-proxy"}}})));
    renders.push(render(
        &json!({"metrics": {"proxy": {"kind": "none"}}, "webhooks": {"enabled": false}, "replicas": null}),
    ));
    renders
}

/// Each object of a built-in kind of Kubernetes, without duplicates.
fn distinct(renders: &[Rendered]) -> BTreeMap<String, &Value> {
    let objects = renders.iter().flat_map(|rendered| &rendered.objects);
    let ours = objects.filter(|object| !FOREIGN.iter().any(|group| object["apiVersion"] == *group));
    ours.map(|object| (object.to_string(), object)).collect()
}

/// Most tests run only one minor of Kubernetes. For the others, these are their published schemas.
#[test]
fn the_oldest_and_the_newest_kubernetes_know_every_field() {
    let schemas = Schemas::of_all_minors().unwrap();
    let renders = renders();
    let chart = fs::read_to_string(chart::folder().join("Chart.yaml")).unwrap();
    let oldest = MINORS[0];
    assert!(chart.contains(&format!("kubeVersion: \">={oldest}.0-0\"")), "{chart}");
    for minor in MINORS {
        schemas.check(minor, distinct(&renders).into_values()).unwrap_or_else(|error| panic!("{minor}: {error:#}"));
    }
    let mut unknown = renders[0].of("Deployment").next().unwrap().clone();
    unknown["spec"]["template"]["spec"]["hostPod"] = json!(true);
    let error = schemas.check(oldest, [&unknown]).unwrap_err().to_string();
    assert!(error.contains("hostPod"), "{error}");
}

/// The snapshots below this folder in which the operators' own tests store what they create.
fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { snapshots(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|it| it == "snap")).collect()
}

/// Adds the objects in this value, at any depth.
fn add_objects(value: &Value, objects: &mut Vec<Value>) {
    match value {
        Value::Object(fields) if fields.contains_key("apiVersion") && fields.contains_key("kind") => {
            objects.push(value.clone());
        }
        Value::Object(fields) => {
            for field in fields.values() {
                add_objects(field, objects);
            }
        }
        Value::Array(items) => {
            for item in items {
                add_objects(item, objects);
            }
        }
        _ => {}
    }
}

/// An API server drops a field that it does not know, and the operator would apply it again for ever.
#[test]
fn the_oldest_and_the_newest_kubernetes_know_every_field_of_children() {
    let mut children = Vec::new();
    for file in snapshots(&chart::folder().join("../../operators")) {
        let text = fs::read_to_string(&file).unwrap();
        let (_, yaml) = text.split_once("\n---\n").unwrap();
        let stored = serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        add_objects(&stored, &mut children);
    }
    let kinds: BTreeSet<&str> = children.iter().filter_map(|child| child["kind"].as_str()).collect();
    for kind in ["Deployment", "Job", "PodDisruptionBudget", "Service"] {
        assert!(kinds.contains(kind), "no {kind}: {kinds:?}");
    }
    let schemas = Schemas::of_all_minors().unwrap();
    let children = children.iter().filter(|child| !FOREIGN.iter().any(|group| child["apiVersion"] == *group));
    for minor in MINORS {
        schemas.check(minor, children.clone()).unwrap_or_else(|error| panic!("{minor}: {error:#}"));
    }
}

#[test]
fn helm_refuses_an_older_kubernetes_and_renders_the_same_for_all_others() {
    let text = |version: &str| helm().template(&json!({}), &["--kube-version", version]).map(|it| it.text);
    let oldest = text("1.31.0").unwrap();
    assert_eq!(text("1.37.0").unwrap(), oldest);
    assert_eq!(text("1.31.2-eks-7f9249a").unwrap(), oldest, "providers append their own build");
    let error = text("1.30.14").unwrap_err().to_string();
    assert!(error.contains("requires kubeVersion: >=1.31.0-0"), "{error}");
}

#[test]
fn strict_api_server_accepts_every_object() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    let renders = renders();
    let distinct = distinct(&renders);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": distinct.values().collect::<Vec<_>>()});
    // The namespace enforces the restricted standard. The account must exist, or the API server refuses the pod that names it.
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let account = json!({"name": "operators-smoke-test", "namespace": NAMESPACE});
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "operators-smoke-test"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}),
    ] {
        feed(&mut cluster.kubectl(["apply", "--server-side", "--filename=-"]), object.to_string().as_bytes());
    }
    let mut kubectl = cluster.kubectl(["apply", "--server-side", "--force-conflicts", "--dry-run=server"]);
    feed(kubectl.args(["--validate=strict", "--filename=-"]), list.to_string().as_bytes());
    assert!(distinct.len() > 60, "only {} objects were tried", distinct.len());
}

#[test]
fn plain_manifests_apply_in_their_order() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    let rendered = helm().template(&json!({}), &["--skip-tests"]).unwrap();
    let files = plain::files(&rendered).unwrap();
    for (name, text) in files.iter().filter(|(name, _)| *name != "install.yaml") {
        println!("{name}");
        feed(cluster.kubectl(["apply", "--filename=-"]).arg("--validate=strict"), text.as_bytes());
    }
    // The single file contains the same objects, so kubectl changes nothing.
    let mut kubectl = cluster.kubectl(["apply", "--filename=-", "--validate=strict"]);
    let said = feed(&mut kubectl, files["install.yaml"].as_bytes());
    assert!(said.lines().all(|line| line.ends_with(" unchanged")), "{said}");
}

/// Runs the command with this input and returns its standard output.
///
/// # Panics
///
/// If the command fails, with its standard error.
fn feed(command: &mut Command, input: &[u8]) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

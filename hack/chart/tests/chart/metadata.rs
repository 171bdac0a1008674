//! Tests of the labels and annotations that users add to every object.

use std::{collections::BTreeSet, fs};

use chart::rendered::Rendered;
use serde_json::{Value, json};

use crate::{
    flag_sets::{KEPT, everything},
    kit::{FlagSet, of_manager, render},
};

const ARGO_CD: &str = "argocd.argoproj.io/sync-options";

/// Renders that together contain an object of each kind that a template has, with these values in addition.
fn renders(more: &Value) -> Vec<Rendered> {
    let sets = FlagSet::all();
    let mut all = everything(sets.last().unwrap());
    all["bookingServer"] = json!({"persistence": {"enabled": true}});
    all["webhooks"] = json!({"certManager": {"enabled": true}});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all.as_object_mut().unwrap().remove("extraObjects"); // the user writes their metadata
    let mut pods = all.clone();
    pods["metrics"] = json!({"podMonitor": {"enabled": true}});
    pods["topology"] = json!("combined");
    pods["webhooks"] = json!({});
    [all, pods].iter().map(render).collect()
}

/// The kinds of which some template has an object.
fn kinds_of_templates() -> BTreeSet<String> {
    let folder = chart::folder().join("templates");
    let folders = [folder.join("tests"), folder];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let texts = files.filter_map(|file| fs::read_to_string(file.unwrap().path()).ok());
    let kinds = texts.flat_map(|text| {
        let kinds = text.lines().filter_map(|line| line.strip_prefix("kind: ")).map(str::to_owned);
        kinds.filter(|kind| kind.chars().all(char::is_alphanumeric)).collect::<Vec<_>>()
    });
    kinds.collect()
}

#[test]
fn every_object_has_the_common_labels_and_annotations() {
    let mut seen = BTreeSet::new();
    for rendered in renders(&json!({"commonAnnotations": {"contact": "a@example.com"}, "commonLabels": {"team": "x"}}))
    {
        for object in &rendered.objects {
            let metadata = &object["metadata"];
            let name = format!("{} {}", object["kind"], metadata["name"]);
            assert_eq!(metadata["annotations"]["contact"], "a@example.com", "{name}");
            assert_eq!(metadata["labels"]["team"], "x", "{name}");
            seen.insert(object["kind"].as_str().unwrap().to_owned());
        }
    }
    let kinds = kinds_of_templates();
    assert!(kinds.len() > 12, "{kinds:?}");
    let unseen: Vec<_> = kinds.difference(&seen).collect();
    assert!(unseen.is_empty(), "no render has an object of these kinds: {unseen:?}");
}

#[test]
fn an_objects_own_annotations_take_precedence_over_common_ones() {
    let common =
        json!({"grafana_folder": "x", "helm.sh/resource-policy": "delete", ARGO_CD: "Prune=true, Replace=true"});
    let rendered = &renders(&json!({"commonAnnotations": common, "service": {"annotations": {ARGO_CD: "own"}}}))[0];
    let annotations = |kind: &str, name: &str| rendered.object(kind, name).unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations("ConfigMap", "operators-dashboard")["grafana_folder"], "Operators");
    assert_eq!(annotations("Service", "operators-booking-server")[ARGO_CD], "own");
    assert_eq!(annotations("Deployment", "operators-booking-server")[ARGO_CD], "Prune=true, Replace=true");
    for (kind, name) in [
        ("CustomResourceDefinition", "crontabs.stable.example.com"),
        ("PersistentVolumeClaim", "operators-booking-server"),
    ] {
        let kept = annotations(kind, name);
        for (key, value) in KEPT.iter().filter(|(key, _)| *key != ARGO_CD) {
            assert_eq!(kept[key], *value, "{kind}");
        }
        assert_eq!(kept[ARGO_CD], "Replace=true,Prune=false,Delete=false", "{kind}");
    }
    let of_pods = rendered.of("Deployment").map(|it| &it["spec"]["template"]["metadata"]["annotations"]);
    for annotations in of_pods {
        assert_eq!(annotations["grafana_folder"], Value::Null, "a change would replace the pods");
    }
}

#[test]
fn a_key_of_the_user_replaces_the_same_key_of_the_chart() {
    Rendered::parse("a: 1\na: 2\n").expect_err("as Flux, the reader of the tests refuses a key that appears twice");
    let labels = json!({"team": "own", "app.kubernetes.io/part-of": "monitoring"});
    let mut values = json!({
        "commonLabels": {"team": "common", "env": "common"},
        "metrics": {"serviceMonitor": {"enabled": true, "labels": labels}},
        "prometheusRule": {"enabled": true, "labels": labels},
        "dashboard": {"enabled": true, "labels": labels},
        "watchNamespaceLabels": labels,
        "podAnnotations": {"kubectl.kubernetes.io/default-container": "metrics-proxy"},
        "probes": {"liveness": {"httpGet": {"path": "/own"}}, "readiness": {"httpGet": {"scheme": "HTTP"}}},
    });
    let of_services = render(&values);
    values["metrics"] = json!({"podMonitor": {"enabled": true, "labels": labels}});
    let of_pods = render(&values);
    for (rendered, kind) in [
        (&of_services, "ServiceMonitor"),
        (&of_pods, "PodMonitor"),
        (&of_services, "PrometheusRule"),
        (&of_services, "ConfigMap"),
        (&of_services, "Namespace"),
    ] {
        let found = &rendered.of(kind).next().unwrap()["metadata"]["labels"];
        assert_eq!((&found["team"], &found["env"]), (&json!("own"), &json!("common")), "{kind}");
        assert_eq!(found["app.kubernetes.io/part-of"], "monitoring", "{kind}");
        assert_eq!(found["app.kubernetes.io/name"], "operators", "{kind}: the other labels stay");
    }
    let pod = &of_manager(&of_services, "Deployment")["spec"]["template"];
    assert_eq!(pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"], "metrics-proxy");
    let manager = &pod["spec"]["containers"][0];
    assert_eq!(manager["livenessProbe"]["httpGet"], json!({"path": "/own", "port": "probes"}));
    assert_eq!(manager["readinessProbe"]["httpGet"], json!({"path": "/readyz", "port": "probes", "scheme": "HTTP"}));
}

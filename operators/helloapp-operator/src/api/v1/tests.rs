use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::*;
use crate::HelloApp;

fn definition() -> Value {
    serde_json::to_value(HelloApp::crd()).expect("JSON")
}

fn spec_schema() -> Value {
    definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
}

#[test]
fn image_is_the_only_required_field() {
    assert_eq!(spec_schema()["required"], json!(["image"]));
    let spec: HelloAppSpec = serde_json::from_value(json!({"image": "a"})).expect("a spec");
    assert_eq!(serde_json::to_value(&spec).expect("JSON"), json!({"image": "a", "size": 1}));
}

#[test]
fn schema_bounds_the_fields() {
    let schema = spec_schema();
    let bounds = |field: &str| {
        (schema["properties"][field]["minimum"].as_f64(), schema["properties"][field]["maximum"].as_f64())
    };
    assert_eq!(bounds("size"), (Some(0.0), Some(100.0)));
    assert_eq!(bounds("port"), (Some(1.0), Some(65535.0)));
    assert_eq!(bounds("runAsUser"), (Some(0.0), None));
    assert_eq!(schema["properties"]["env"]["maxItems"], 100);
    assert_eq!(schema["properties"]["securityProfile"]["enum"], json!(["Restricted", "RootAllowed", "Baseline", null]));
}

#[test]
fn partial_objects_get_defaults() {
    let spec: HelloAppSpec = serde_json::from_value(json!({
        "image": "a", "rollout": {"maxSurge": 2}, "service": {"annotations": {"a": "b"}}, "probe": {"path": "/"},
    }))
    .expect("a spec");
    let rollout = spec.rollout();
    assert_eq!(
        (rollout.max_unavailable, rollout.progress_deadline_seconds),
        (IntOrString::String("25%".to_owned()), 600)
    );
    assert_eq!((spec.service().port, spec.service().enabled, spec.probe().disabled), (80, None, false));

    // The API server does the same.
    let schema = spec_schema();
    let default = |field: &str| schema.pointer(&format!("/properties/{field}/default")).cloned();
    for (field, expected) in [
        ("size", Some(json!(1))),
        ("service/properties/port", Some(json!(80))),
        ("service/properties/enabled", None),
        ("probe/properties/disabled", Some(json!(false))),
        ("rollout/properties/maxSurge", Some(json!("25%"))),
        ("rollout/properties/minReadySeconds", Some(json!(0))),
        ("podDisruptionBudget/properties/mode", Some(json!("Auto"))),
        ("service", None),
        ("rollout", None),
        ("rollback", None),
        ("securityProfile", None),
    ] {
        assert_eq!(default(field), expected, "{field}");
    }
}

#[test]
fn crd_defines_names_columns_and_scale() {
    let definition = definition();
    assert_eq!(definition["metadata"]["name"], "helloapps.apps.anupam.com");
    assert_eq!(definition["spec"]["names"]["shortNames"], json!(["ha"]));
    assert_eq!(definition["spec"]["names"]["categories"], json!(["all"]));
    let version = &definition["spec"]["versions"][0];
    let columns = version["additionalPrinterColumns"].as_array().expect("columns");
    let columns: Vec<_> = columns.iter().map(|it| (it["name"].as_str(), it["jsonPath"].as_str())).collect();
    assert_eq!(
        columns,
        [
            (Some("IMAGE"), Some(".spec.image")),
            (Some("SIZE"), Some(".spec.size")),
            (Some("READY"), Some(".status.readyReplicas")),
            (Some("STATUS"), Some(r#".status.conditions[?(@.type=="Ready")].reason"#)),
            (Some("URL"), Some(".status.url")),
            (Some("AGE"), Some(".metadata.creationTimestamp")),
            (Some("MESSAGE"), Some(r#".status.conditions[?(@.type=="Ready")].message"#)),
        ]
    );
    assert_eq!(
        version["subresources"]["scale"],
        json!({
            "specReplicasPath": ".spec.size",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.labelSelector",
        })
    );
}

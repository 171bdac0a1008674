//! The judge has to find each mistake that it is for. Worlds of a correct operator make none of them.

use model_apiserver::Model;
use serde_json::{Value, json};
use simulation::Subject;

use crate::subject::{HelloApp, wanted_deployment};

/// A `HelloApp` without pods, at rest.
fn object(fields: &Value) -> Value {
    let condition =
        |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason});
    let mut spec = json!({"image": "example.com/app:1", "size": 0});
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": "apps.anupam.com/v1", "kind": "HelloApp",
        "metadata": {"name": "a", "namespace": "shop", "uid": "uid of the HelloApp"},
        "spec": spec,
        "status": {
            "image": "example.com/app:1",
            "labelSelector": "app.kubernetes.io/instance=a,app.kubernetes.io/name=helloapp",
            "conditions": [
                condition("Ready", "True", "ScaledToZero"),
                condition("Available", "True", "ScaledToZero"),
                condition("Progressing", "False", "Stable"),
                condition("Degraded", "False", "AsExpected"),
            ],
        },
    })
}

/// Judges an object with these fields of the spec, whose Deployment is as another spec wants it.
fn judged(fields: &Value, has: &Value) -> Result<(), String> {
    let (model, mut deployment) = (Model::new(), wanted_deployment(&object(has)));
    deployment["apiVersion"] = "apps/v1".into();
    deployment["kind"] = "Deployment".into();
    deployment["metadata"]["name"] = "a".into();
    deployment["metadata"]["namespace"] = "shop".into();
    model.put(deployment);
    HelloApp.judge(&object(fields), &model)
}

#[test]
fn field_that_is_missing_or_left_over_or_of_an_earlier_spec_is_found() {
    let volume = |name: &str| json!([{"name": "config", "configMap": {"name": name}}]);
    let secret = |prefix: &str| json!([{"prefix": prefix, "secretRef": {"name": "s"}}]);
    for (field, value, other) in [
        ("volumes", volume("a"), volume("b")),
        (
            "volumeMounts",
            json!([{"name": "config", "mountPath": "/a"}]),
            json!([{"name": "config", "mountPath": "/b"}]),
        ),
        ("envFrom", secret("A_"), secret("B_")),
        ("args", json!(["a"]), json!(["b"])),
        ("nodeSelector", json!({"disk": "fast"}), json!({"disk": "slow"})),
        ("runAsUser", json!(1), json!(2)),
    ] {
        let (with, without) = (json!({field: value}), json!({}));
        assert_eq!(judged(&with, &with), Ok(()), "{field}");
        for (wants, has) in [(&with, &without), (&without, &with), (&with, &json!({field: other}))] {
            assert!(judged(wants, has).is_err(), "{field}: {wants} and {has}");
        }
    }
}

use serde_json::json;

use super::*;
use crate::object::Head;

/// A Deployment as the API server returns it: created by us with POST, then an `Update` by kubectl that added a sidecar
/// and a label, and status written by the Deployment controller.
fn live() -> Value {
    json!({
        "metadata": {
            "name": "cache",
            "labels": {"app.kubernetes.io/name": "memcached", "team": "x"},
            "managedFields": [
                {"manager": "memcached-controller", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
                    "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/name": {}}},
                    "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
                        "k:{\"name\":\"memcached\"}": {
                            ".": {}, "f:name": {}, "f:args": {}, "f:terminationMessagePath": {},
                            "f:resources": {".": {}, "f:limits": {".": {}, "f:memory": {}}},
                            "f:ports": {".": {}, "k:{\"containerPort\":11211,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}},
                        },
                    }}}},
                }},
                {"manager": "kubectl-edit", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:team": {}}},
                    "f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"sidecar\"}": {".": {}, "f:name": {}}}}}},
                }},
                {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:status": {"f:replicas": {}}}},
            ],
        },
        "spec": {"replicas": 3, "template": {"spec": {"containers": [
            {"name": "sidecar", "image": "s"},
            {"name": "memcached", "args": ["-m", "64"], "terminationMessagePath": "/dev/termination-log",
             "resources": {"limits": {"memory": "1Gi"}}, "ports": [{"containerPort": 11211, "protocol": "TCP"}]},
        ]}}},
        "status": {"replicas": 3},
    })
}

fn desired() -> Value {
    json!({
        "metadata": {"labels": {"app.kubernetes.io/name": "memcached"}},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [
            {"name": "memcached", "args": ["-m", "64"], "resources": {"limits": {"memory": "1Gi"}},
             "ports": [{"containerPort": 11211, "protocol": "TCP"}]},
        ]}}},
    })
}

fn defaulted() -> Value {
    let mut object = desired();
    object["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = json!("/dev/termination-log");
    object
}

fn print_of(live: &Value) -> Fingerprint {
    let text = live.to_string();
    let head: Head<'_> = serde_json::from_str(&text).expect("metadata");
    fingerprint(live, "memcached-controller", &head.metadata.managed_fields)
}

fn ours(live: &Value) -> Value {
    let text = live.to_string();
    let head: Head<'_> = serde_json::from_str(&text).expect("metadata");
    let fields = fields_of("memcached-controller", &head.metadata.managed_fields);
    fields.map_or(Value::Null, |(fields, _)| project(live, &fields))
}

fn changes(live: &Value, desired: &Value, defaulted: &Value) -> Vec<String> {
    compare(live, &ours(live), desired, defaulted).iter().map(|change| change.path.to_string()).collect()
}

#[test]
fn what_we_created_is_what_we_want_with_defaults() {
    let fingerprint = print_of(&live());
    assert!(fingerprint.from_create);
    assert_eq!(fingerprint.hash, hash(&defaulted()));
    assert!(changes(&live(), &desired(), &defaulted()).is_empty());
}

#[test]
fn sidecars_labels_and_status_of_others_do_not_matter() {
    let mut other = live();
    other["metadata"]["labels"]["team"] = json!("y");
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("t");
    other["status"]["replicas"] = json!(1);
    assert_eq!(print_of(&other), print_of(&live()));
}

#[test]
fn a_field_that_somebody_took_over_shows() {
    // `kubectl scale`: the value changes and the API server takes the field out of our entry.
    let mut scaled = live();
    scaled["spec"]["replicas"] = json!(1);
    scaled["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].as_object_mut().expect("fields").remove("f:replicas");
    scaled["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:replicas"] = json!({});
    assert_ne!(print_of(&scaled), print_of(&live()));
    assert_eq!(changes(&scaled, &desired(), &defaulted()), ["spec.replicas"]);
}

#[test]
fn a_field_with_the_right_value_that_somebody_else_holds_is_not_ours() {
    let mut taken = live();
    taken["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].as_object_mut().expect("fields").remove("f:replicas");
    assert_ne!(print_of(&taken), print_of(&live()));
    assert!(changes(&taken, &desired(), &defaulted()).is_empty());
    assert!(!covers(&ours(&taken), &desired()));
    assert!(covers(&ours(&live()), &desired()));
}

#[test]
fn a_field_that_we_no_longer_want_shows() {
    let mut less = desired();
    less["spec"]["template"]["spec"]["containers"][0].as_object_mut().expect("container").remove("args");
    let mut less_defaulted = defaulted();
    less_defaulted["spec"]["template"]["spec"]["containers"][0].as_object_mut().expect("container").remove("args");
    assert_eq!(changes(&live(), &less, &less_defaulted), ["spec.template.spec.containers[memcached].args"]);
}

#[test]
fn quantities_may_be_written_in_two_ways_but_arguments_may_not() {
    let mut other = desired();
    other["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("1024Mi");
    let mut with_defaults = defaulted();
    with_defaults["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("1024Mi");
    assert!(changes(&live(), &other, &with_defaults).is_empty());

    other["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["-m", "64.0"]);
    assert_eq!(changes(&live(), &other, &with_defaults), ["spec.template.spec.containers[memcached].args"]);
}

#[test]
fn the_manager_who_changed_a_field_is_named() {
    let mut scaled = live();
    scaled["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:replicas"] = json!({});
    let text = scaled.to_string();
    let head: Head<'_> = serde_json::from_str(&text).expect("metadata");
    let path = Path::default().field("spec").field("replicas");
    assert_eq!(holder(&path, "memcached-controller", &head.metadata.managed_fields), Some("kubectl-edit"));
}

#[test]
fn a_hash_does_not_depend_on_the_order_of_keys_but_on_everything_else() {
    let one: Value = serde_json::from_str(r#"{"a":1,"b":["x","y"]}"#).expect("json");
    let two: Value = serde_json::from_str(r#"{"b":["x","y"],"a":1}"#).expect("json");
    assert_eq!(hash(&one), hash(&two));
    for other in [r#"{"a":1,"b":["xy"]}"#, r#"{"a":1,"b":["y","x"]}"#, r#"{"a":"1","b":["x","y"]}"#, r#"{"ab":1}"#] {
        let other: Value = serde_json::from_str(other).expect("json");
        assert_ne!(hash(&one), hash(&other), "{other}");
    }
}

#[test]
fn set_elements_are_ours_one_by_one() {
    let live = json!({"finalizers": ["theirs", "ours"]});
    let fields = json!({"f:finalizers": {".": {}, "v:\"ours\"": {}}});
    assert_eq!(project(&live, &fields), json!({"finalizers": ["ours"]}));
}

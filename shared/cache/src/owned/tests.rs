//! Tests of fingerprints and of the comparison between live and desired objects.

use serde_json::json;

use super::*;
use crate::object::Head;

/// A Deployment as the API server returns it: we created it by POST, then kubectl added a sidecar and a label by an `Update`,
/// and the Deployment controller wrote the status.
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

fn fingerprint_of(live: &Value) -> Fingerprint {
    let text = live.to_string();
    let head: Head<'_> = serde_json::from_str(&text).expect("metadata");
    fingerprint(live, "memcached-controller", &head.metadata.managed_fields)
}

fn ours(live: &Value) -> Value {
    let text = live.to_string();
    let head: Head<'_> = serde_json::from_str(&text).expect("metadata");
    let fields = OwnedFields::of("memcached-controller", &head.metadata.managed_fields);
    fields.map_or(Value::Null, |fields| fields.project(live))
}

fn changes(live: &Value, desired: &Value, defaulted: &Value) -> Vec<String> {
    compare(live, &ours(live), desired, defaulted).iter().map(|change| change.path.to_string()).collect()
}

#[test]
fn fresh_child_matches_desired_object_with_defaults() {
    let fingerprint = fingerprint_of(&live());
    assert!(fingerprint.from_create);
    assert_eq!(fingerprint.hash, hash(&defaulted()));
    assert!(changes(&live(), &desired(), &defaulted()).is_empty());
}

#[test]
fn fields_of_other_managers_do_not_change_the_fingerprint() {
    let mut other = live();
    other["metadata"]["labels"]["team"] = json!("y");
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("t");
    other["status"]["replicas"] = json!(1);
    assert_eq!(fingerprint_of(&other), fingerprint_of(&live()));
}

#[test]
fn field_taken_over_by_another_manager_is_a_change() {
    // `kubectl scale` changes the value, and the API server takes the field out of our entry.
    let mut scaled = live();
    scaled["spec"]["replicas"] = json!(1);
    scaled["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].as_object_mut().expect("fields").remove("f:replicas");
    scaled["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:replicas"] = json!({});
    assert_ne!(fingerprint_of(&scaled), fingerprint_of(&live()));
    assert_eq!(changes(&scaled, &desired(), &defaulted()), ["spec.replicas"]);
}

#[test]
fn equal_field_of_another_manager_is_not_owned() {
    let mut taken = live();
    taken["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].as_object_mut().expect("fields").remove("f:replicas");
    assert_ne!(fingerprint_of(&taken), fingerprint_of(&live()));
    assert!(changes(&taken, &desired(), &defaulted()).is_empty());
    assert!(!covers(&taken, &ours(&taken), &desired()));
    assert!(covers(&live(), &ours(&live()), &desired()));
}

#[test]
fn dropped_field_is_a_change() {
    let mut less = desired();
    less["spec"]["template"]["spec"]["containers"][0].as_object_mut().expect("container").remove("args");
    let mut less_defaulted = defaulted();
    less_defaulted["spec"]["template"]["spec"]["containers"][0].as_object_mut().expect("container").remove("args");
    assert_eq!(changes(&live(), &less, &less_defaulted), ["spec.template.spec.containers[memcached].args"]);
}

#[test]
fn quantities_compare_by_value_and_arguments_by_text() {
    let mut other = desired();
    other["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("1024Mi");
    let mut with_defaults = defaulted();
    with_defaults["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("1024Mi");
    assert!(changes(&live(), &other, &with_defaults).is_empty());

    other["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["-m", "64.0"]);
    assert_eq!(changes(&live(), &other, &with_defaults), ["spec.template.spec.containers[memcached].args"]);
}

#[test]
fn holder_names_the_manager_of_a_field() {
    let mut scaled = live();
    scaled["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:replicas"] = json!({});
    let text = scaled.to_string();
    let head: Head<'_> = serde_json::from_str(&text).expect("metadata");
    let path = Path::default().field("spec").field("replicas");
    assert_eq!(holder(&path, "memcached-controller", &head.metadata.managed_fields), Some("kubectl-edit"));
    for (manager, expected) in [("kubectl-edit", true), ("memcached-controller", true), ("another", false)] {
        assert_eq!(is_held_by(&path, manager, &head.metadata.managed_fields), expected, "{manager}");
    }
}

#[test]
fn hash_ignores_only_the_order_of_keys() {
    let one: Value = serde_json::from_str(r#"{"a":1,"b":["x","y"]}"#).expect("json");
    let two: Value = serde_json::from_str(r#"{"b":["x","y"],"a":1}"#).expect("json");
    assert_eq!(hash(&one), hash(&two));
    for other in [r#"{"a":1,"b":["xy"]}"#, r#"{"a":1,"b":["y","x"]}"#, r#"{"a":"1","b":["x","y"]}"#, r#"{"ab":1}"#] {
        let other: Value = serde_json::from_str(other).expect("json");
        assert_ne!(hash(&one), hash(&other), "{other}");
    }
}

/// A live object with these entries in `managedFields`: manager and fields.
fn shared_by(object: Value, entries: &[(&str, Value)]) -> Value {
    let mut live = object;
    live["metadata"]["name"] = json!("cache");
    let entries =
        entries.iter().map(|(manager, fields)| json!({"manager": manager, "operation": "Apply", "fieldsV1": fields}));
    live["metadata"]["managedFields"] = entries.collect();
    live
}

const OURS: &str = "memcached-controller";

#[test]
fn set_elements_are_owned_individually() {
    let fields = json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"ours\"": {}}}});
    let live = shared_by(json!({"metadata": {"finalizers": ["theirs", "ours"]}}), &[(OURS, fields)]);
    let desired = json!({"metadata": {"finalizers": ["ours"]}});
    assert_eq!(ours(&live), desired);
    assert_eq!(changes(&live, &desired, &desired), [""; 0]);
    let two = json!({"metadata": {"finalizers": ["ours", "new"]}});
    assert_eq!(changes(&live, &two, &two), ["metadata.finalizers[new]"]);
    let none = json!({"metadata": {"finalizers": []}});
    assert_eq!(changes(&live, &none, &none), ["metadata.finalizers[ours]"]);
}

#[test]
fn removed_empty_value_is_a_change() {
    for empty in [json!(false), json!(0), json!(""), json!({}), json!([])] {
        let desired = json!({"spec": {"kept": 1, "field": empty}});
        let fields = json!({"f:spec": {"f:kept": {}, "f:field": {}}});
        let whole = shared_by(json!({"spec": {"kept": 1, "field": empty}}), &[(OURS, fields)]);
        assert_eq!(changes(&whole, &desired, &desired), [""; 0]);
        let robbed = shared_by(json!({"spec": {"kept": 1}}), &[(OURS, json!({"f:spec": {"f:kept": {}}}))]);
        assert_eq!(changes(&robbed, &desired, &desired), ["spec.field"], "{empty}");
        let no_more = json!({"spec": {"kept": 1}});
        assert_eq!(changes(&whole, &no_more, &no_more), ["spec.field"], "{empty}");
    }
    let live = shared_by(json!({"spec": {"kept": 1}}), &[(OURS, json!({"f:spec": {"f:kept": {}}}))]);
    let null = json!({"spec": {"kept": 1, "field": null}});
    assert_eq!(changes(&live, &null, &null), [""; 0], "null counts as absent");
}

#[test]
fn empty_value_of_another_manager_is_not_owned() {
    let live = shared_by(
        json!({"spec": {"kept": 1, "field": false}}),
        &[(OURS, json!({"f:spec": {"f:kept": {}}})), ("kubectl", json!({"f:spec": {"f:field": {}}}))],
    );
    let desired = json!({"spec": {"kept": 1, "field": false}});
    assert_eq!(changes(&live, &desired, &desired), [""; 0]);
    assert!(!covers(&live, &ours(&live), &desired));
}

#[test]
fn nothing_is_owned_after_managed_fields_are_cleared() {
    let mut cleared = live();
    cleared["metadata"].as_object_mut().expect("metadata").remove("managedFields");
    assert!(!fingerprint_of(&cleared).is_some());
    assert!(changes(&cleared, &desired(), &desired()).is_empty());
    assert!(!covers(&cleared, &ours(&cleared), &desired()));
}

#[test]
fn fields_of_others_below_our_empty_map_are_unowned() {
    let volumes = |volume: Value| json!({"spec": {"volumes": [volume]}});
    let below = |fields: Value| json!({"f:spec": {"f:volumes": {"k:{\"name\":\"data\"}": fields}}});
    let mine = below(json!({".": {}, "f:name": {}, "f:emptyDir": {}}));
    let theirs = below(json!({"f:emptyDir": {"f:sizeLimit": {}}}));
    let desired = volumes(json!({"name": "data", "emptyDir": {}}));
    let live = volumes(json!({"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}));
    let live = shared_by(live, &[(OURS, mine.clone()), ("kubectl", theirs)]);
    assert_eq!(ours(&live), desired);
    assert_eq!(fingerprint_of(&live).hash, hash(&desired));
    assert_eq!(changes(&live, &desired, &desired), [""; 0]);
    // No other manager can own a part of an atomic map.
    let selector = json!({"spec": {"selector": {"app": "a"}}});
    let live = shared_by(
        selector.clone(),
        &[(OURS, json!({"f:spec": {"f:selector": {}}})), ("kubectl", json!({"f:spec": {"f:selector": {}}}))],
    );
    assert_eq!(ours(&live), selector);
}

#[test]
fn port_without_protocol_counts_as_tcp() {
    let port = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}});
    let fields = json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}});
    let live = shared_by(port, &[(OURS, fields)]);
    let desired = json!({"spec": {"ports": [{"port": 80}]}});
    assert_eq!(changes(&live, &desired, &desired), [""; 0]);
    assert!(covers(&live, &ours(&live), &desired));
    let other = json!({"spec": {"ports": [{"port": 80, "protocol": "UDP"}]}});
    assert_eq!(changes(&live, &other, &other), ["spec.ports[80,UDP]", "spec.ports[80,TCP]"]);
}

#[test]
fn only_resource_quantities_compare_by_value() {
    for (path, same) in [
        (json!({"resources": {"limits": {"cpu": "V"}}}), true),
        (json!({"emptyDir": {"sizeLimit": "V"}}), true),
        (json!({"data": {"sizeLimit": "V"}}), false),
        (json!({"limits": {"cpu": "V"}}), false),
    ] {
        let with = |value: &str| serde_json::from_str::<Value>(&path.to_string().replace('V', value)).expect("JSON");
        let found = compare(&with("1"), &Value::Null, &with("1000m"), &Value::Null);
        assert_eq!(found.is_empty(), same, "{path}");
    }
}

#[test]
fn alternative_with_defaults_that_is_partly_ours_goes_once() {
    let probe = |handler: &Value| json!({"spec": {"containers": [{"name": "app", "readinessProbe": handler}]}});
    let live = probe(&json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}}));
    let owned = probe(&json!({"httpGet": {"port": 80}}));
    let desired = probe(&json!({"tcpSocket": {"port": 80}}));
    let changes = compare(&live, &owned, &desired, &desired);
    let paths: Vec<String> = changes.iter().map(|change| change.path.to_string()).collect();
    let handler = |name: &str| format!("spec.containers[app].readinessProbe.{name}");
    assert_eq!(paths, [handler("tcpSocket"), handler("httpGet")]);
}

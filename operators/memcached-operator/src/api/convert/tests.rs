use fastrand::Rng;
use serde_json::json;

use super::*;
use crate::{api::v1::MemcachedSpec, samples};

fn object(version: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("memcached.cache.example.com/{version}"), "kind": "Memcached",
        "metadata": {"name": "a", "namespace": "b", "uid": "c", "labels": {"d": "e"}}, "spec": spec,
    })
}

fn v1alpha1(size: &Value) -> Value {
    object("v1alpha1", &json!({"size": size, "port": 11311}))
}

fn converted(object: Value, wanted: &str) -> Value {
    convert(object, wanted).expect("conversion is total")
}

fn annotations(object: &Value) -> Value {
    object["metadata"]["annotations"].clone()
}

/// Each row of the table: the text, the number that it becomes, and the annotation.
#[test]
fn t10_every_size_text_round_trips_through_v1() {
    for (text, size, note) in [
        (json!("3"), 3, None),
        (json!("0"), 0, None),
        (json!("64"), 64, None),
        (json!("03"), 3, Some((RAW_SIZE, "03"))),
        (json!(" 3 "), 3, Some((RAW_SIZE, " 3 "))),
        (json!("+3"), 3, Some((RAW_SIZE, "+3"))),
        (json!("000"), 0, Some((RAW_SIZE, "000"))),
        (json!(""), 1, Some((INVALID_SIZE, r#""""#))),
        (json!("+"), 1, Some((INVALID_SIZE, r#""+""#))),
        (json!("three"), 1, Some((INVALID_SIZE, r#""three""#))),
        (json!("3.0"), 1, Some((INVALID_SIZE, r#""3.0""#))),
        (json!("1e1"), 1, Some((INVALID_SIZE, r#""1e1""#))),
        (json!("-1"), 1, Some((INVALID_SIZE, r#""-1""#))),
        (json!("65"), 1, Some((INVALID_SIZE, r#""65""#))),
        (json!("٣"), 1, Some((INVALID_SIZE, r#""٣""#))),
        (json!("99999999999999999999"), 1, Some((INVALID_SIZE, r#""99999999999999999999""#))),
        (json!(3), 1, Some((INVALID_SIZE, "3"))),
        (json!(true), 1, Some((INVALID_SIZE, "true"))),
        (json!({"a": ["b"]}), 1, Some((INVALID_SIZE, r#"{"a":["b"]}"#))),
    ] {
        let stored = converted(v1alpha1(&text), "v1");
        assert_eq!(stored["apiVersion"], "memcached.cache.example.com/v1");
        assert_eq!(stored["spec"], json!({"size": size, "port": 11311}), "{text}");
        let noted = note.map_or(Value::Null, |(key, value)| json!({key: value}));
        assert_eq!(annotations(&stored), noted, "{text}");
        assert_eq!(converted(stored.clone(), "v1alpha1"), v1alpha1(&text), "{text}");

        // A client has scaled the object since then: the annotation no longer applies.
        let mut scaled = stored;
        scaled["spec"]["size"] = json!(5);
        assert_eq!(converted(scaled, "v1alpha1"), v1alpha1(&json!("5")), "{text}");
    }
}

#[test]
fn t10_absent_size_becomes_explicit() {
    for spec in [json!({}), json!({"size": null}), Value::Null] {
        let stored = converted(object("v1alpha1", &spec), "v1");
        assert_eq!(stored, object("v1", &json!({"size": 1})), "{spec}");
        assert_eq!(converted(stored, "v1alpha1"), object("v1alpha1", &json!({"size": "1"})));
        assert_eq!(converted(object("v1", &spec), "v1alpha1"), object("v1alpha1", &json!({"size": "1"})));
    }
    let mut without = object("v1alpha1", &Value::Null);
    without.as_object_mut().expect("an object").remove("spec");
    assert_eq!(converted(without, "v1"), object("v1", &json!({"size": 1})));
}

#[test]
fn long_invalid_size_is_truncated_and_then_stable() {
    let long = |unit: &str| json!(unit.repeat(1000));
    for raw in [
        long("x"),
        long("é"),
        long("\u{1}"),
        long("3"),
        json!(vec!["x"; 1000]),
        json!(format!("3{}x", " ".repeat(300))),
    ] {
        let stored = converted(v1alpha1(&raw), "v1");
        let noted = annotations(&stored)[INVALID_SIZE].as_str().expect("a note").to_owned();
        assert!(noted.len() <= 256, "{noted}");
        let shown = converted(stored.clone(), "v1alpha1");
        assert!(shown["spec"]["size"].as_str().expect("a text").ends_with('…'), "{shown}");
        assert_eq!(converted(shown, "v1"), stored, "further conversions change nothing");
    }
}

#[test]
fn long_size_of_another_type_is_truncated_and_then_stable() {
    for raw in [json!(vec!["x"; 100]), json!("x".repeat(1000)), json!({"a": "\"".repeat(200)}), json!(["3"])] {
        let shown = converted(object("v1", &json!({"size": raw})), "v1alpha1");
        let stored = converted(shown.clone(), "v1");
        assert_eq!(converted(stored, "v1alpha1"), shown, "further conversions change nothing");
    }
}

#[test]
fn annotations_that_contradict_the_size_are_ignored() {
    for (key, value, size, expected) in [
        (RAW_SIZE, "04", 3, "3"),
        (RAW_SIZE, "three", 3, "3"),
        (INVALID_SIZE, "\"three\"", 3, "3"),
        (INVALID_SIZE, "\"5\"", 1, "1"),
        (INVALID_SIZE, "null", 1, "1"),
    ] {
        let mut stored = object("v1", &json!({"size": size}));
        stored["metadata"]["annotations"] = json!({key: value, "other": "kept"});
        let shown = converted(stored, "v1alpha1");
        assert_eq!(shown["spec"]["size"], expected, "{key}={value}");
        assert_eq!(annotations(&shown), json!({"other": "kept"}));
    }
    // A client has written the annotations in the version in which they mean nothing.
    let mut written = v1alpha1(&json!("3"));
    written["metadata"]["annotations"] = json!({RAW_SIZE: "3 ", INVALID_SIZE: "\"three\""});
    assert_eq!(converted(written, "v1")["metadata"].get("annotations"), None);
}

#[test]
fn any_stored_object_converts_to_both_versions() {
    let anything = [
        json!(null),
        json!(3.5),
        json!(true),
        json!("x"),
        json!([]),
        json!(["3"]),
        json!({}),
        json!({"size": 3}),
        json!(u64::MAX),
        json!(-1),
    ];
    for value in &anything {
        for version in ["v1", "v1alpha1"] {
            for spec in [value.clone(), json!({"size": value})] {
                let other = if version == "v1" { "v1alpha1" } else { "v1" };
                let there = converted(object(version, &spec), other);
                converted(there, version);
            }
            let mut strange = object(version, &json!({}));
            strange["metadata"] = value.clone();
            converted(strange, if version == "v1" { "v1alpha1" } else { "v1" });
        }
    }
}

#[test]
fn unknown_version_is_an_error() {
    for (present, wanted) in [("v1", "v2"), ("v2", "v1"), ("v1alpha1", "v1beta1")] {
        assert!(convert(object(present, &json!({})), wanted).is_err_and(|it| it.starts_with("there is no version v")));
    }
    assert_eq!(converted(object("v1", &json!({"size": 1})), "v1"), object("v1", &json!({"size": 1})));
}

#[test]
fn invalid_size_is_read_from_the_annotation() {
    let invalid = |size: i32, note: Option<&str>| {
        let mut memcached = samples::with_spec(&json!({"size": size}));
        memcached.metadata.annotations = note.map(|it| [(INVALID_SIZE.to_owned(), it.to_owned())].into());
        invalid_size(&memcached)
    };
    assert_eq!(invalid(1, Some("\"three\"")), Some("three".to_owned()));
    assert_eq!(invalid(1, Some("3")), Some("3".to_owned()));
    assert_eq!(invalid(2, Some("\"three\"")), None);
    assert_eq!(invalid(1, Some("\"1\"")), None);
    assert_eq!(invalid(1, None), None);
}

/// Ten thousand random objects that users may have stored. With `MEMCACHED_CASES`, that many, and different ones in each run.
#[test]
fn t10_valid_objects_round_trip_byte_by_byte() {
    let more: Option<usize> = std::env::var("MEMCACHED_CASES").ok().and_then(|it| it.parse().ok());
    let mut rng = if more.is_some() { Rng::new() } else { Rng::with_seed(10) };
    for _ in 0..more.unwrap_or(10_000) {
        let mut spec = random_spec(&mut rng);
        serde_json::from_value::<MemcachedSpec>(spec.clone()).expect("a valid spec");
        let mut stored = object("v1", &spec);
        stored["metadata"]["annotations"] = random_annotations(&mut rng);
        let there = converted(stored.clone(), "v1alpha1");
        assert_eq!(converted(there, "v1").to_string(), stored.to_string());

        let size = spec["size"].as_u64().expect("a size");
        let pad = ["", "0", "+", " ", "00", "\t"][rng.usize(..6)];
        spec["size"] = json!(format!("{pad}{size}"));
        let mut written = object("v1alpha1", &spec);
        if rng.bool() {
            written["metadata"]["annotations"] = json!({"other": "kept"});
        }
        let there = converted(written.clone(), "v1");
        serde_json::from_value::<Memcached>(there.clone()).expect("a valid object");
        assert_eq!(converted(there, "v1alpha1").to_string(), written.to_string());
    }
}

fn random_annotations(rng: &mut Rng) -> Value {
    let text: String = (0..rng.usize(0..8)).map(|_| rng.char(..)).collect();
    json!({"some": text, format!("key-{}", rng.u8(..)): "value"})
}

/// A random part of the fields, each with a random valid value.
fn random_spec(rng: &mut Rng) -> Value {
    let mut spec = json!({"size": rng.u8(..=64)});
    let fields = [
        ("image", json!(format!("memcached:{}", rng.u16(..)))),
        ("imagePullSecrets", json!([{"name": format!("pull-{}", rng.u8(..))}])),
        ("port", json!(rng.u16(1024..))),
        ("config", json!({"memoryMB": rng.u16(16..), "evictions": rng.bool(), "extraArgs": ["-o", "modern"]})),
        ("resources", json!({"limits": {"memory": format!("{}Mi", rng.u16(128..))}})),
        ("nodeSelector", json!({"disk": rng.alphanumeric().to_string()})),
        ("tolerations", json!([{"key": "a", "operator": "Exists"}])),
        ("antiAffinity", json!(["Soft", "Hard", "None"][rng.usize(..3)])),
        ("podDisruptionBudget", json!({"mode": "Auto", "maxUnavailable": format!("{}%", rng.u8(1..=100))})),
        ("service", json!({"type": "ClusterIP", "annotations": {"a": rng.char(..).to_string()}})),
        ("rollout", json!({"maxSurge": rng.u8(1..=100), "maxUnavailable": 0, "minReadySeconds": rng.u16(..3600)})),
        ("tls", json!({"secretName": "certs", "clientAuth": (["None", "Request", "Require"][rng.usize(..3)])})),
        ("auth", json!({"secretName": "users", "key": "file"})),
        ("networkPolicy", json!({"enabled": rng.bool(), "from": [{"podSelector": {}}]})),
        ("metrics", json!({"enabled": rng.bool(), "port": rng.u16(1024..)})),
        ("terminationGracePeriodSeconds", json!(rng.u16(6..=600))),
        ("podAnnotations", json!({"b": rng.char(..).to_string()})),
    ];
    for (name, value) in fields {
        if rng.bool() {
            spec[name] = value;
        }
    }
    spec
}

//! Tests of conversion reviews.

use super::*;
use crate::review::tests::{Cache, cache};

fn answered(webhooks: &[Webhook], body: &[u8]) -> Result<Value, Malformed> {
    convert(webhooks, body).map(|(answer, _)| serde_json::from_str(&answer).expect("JSON"))
}

fn between_versions(mut object: Value, version: &str) -> Result<Value, String> {
    match object["spec"]["size"].take() {
        Value::Null => Err("it has no size".to_owned()),
        size => {
            object["spec"]["size"] = if version == "v1" { json!(1) } else { json!(size.to_string()) };
            Ok(object)
        }
    }
}

fn ask_to_convert(objects: &[Value], wanted: &str) -> Value {
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u-2", "desiredAPIVersion": wanted, "objects": objects},
    });
    let webhooks = [Webhook::converting::<Cache>(between_versions)];
    answered(&webhooks, review.to_string().as_bytes()).expect("a review")["response"].clone()
}

#[test]
fn conversion_is_all_or_nothing() {
    let (good, bad) = (cache(&json!({"size": 2})), cache(&json!({})));
    let answer = ask_to_convert(&[good.clone(), good.clone()], "cache.example.com/v2");
    assert_eq!(answer["result"]["status"], "Success");
    assert_eq!(answer["convertedObjects"][1]["apiVersion"], "cache.example.com/v2");
    assert_eq!(answer["convertedObjects"][1]["spec"]["size"], "2");

    let answer = ask_to_convert(&[good.clone(), bad], "cache.example.com/v2");
    assert_eq!(answer["result"]["status"], "Failure");
    assert_eq!(answer["result"]["message"], "\"a\" cannot become cache.example.com/v2: it has no size");
    assert_eq!(answer["convertedObjects"], json!([]));

    let same = ask_to_convert(std::slice::from_ref(&good), "cache.example.com/v1");
    assert_eq!(same["convertedObjects"][0], good, "unchanged: it has this version already");
    let strange = ask_to_convert(&[good], "other.example.com/v1");
    assert_eq!(strange["result"]["status"], "Failure");
}

#[test]
fn conversion_stops_at_the_first_element_that_is_no_object() {
    let converted = std::cell::Cell::new(0);
    let list: Box<RawValue> = RawValue::from_string(format!("[{{}},{}0]", "0,".repeat(1000))).expect("JSON");
    let stopped = each(&list, |object| {
        converted.set(converted.get() + 1);
        convert_one(&[], object, "a/v1")
    });
    assert!(stopped.expect("a list").is_err());
    assert_eq!(converted.get(), 1);
    let all = ask_to_convert(&[json!(0)], "cache.example.com/v2");
    assert_eq!(all["result"]["status"], "Failure");
}

#[test]
fn objects_that_are_no_list_are_malformed() {
    for objects in ["0", "{}", "\"a\"", "[1"] {
        let body = format!(
            "{{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"ConversionReview\",\"request\":{{\"uid\":\"a\",\
             \"desiredAPIVersion\":\"a/v1\",\"objects\":{objects}}}}}"
        );
        assert!(answered(&[], body.as_bytes()).is_err(), "{objects}");
    }
}

//! Tests of conversion reviews.

use super::*;
use crate::review::tests::{Cache, cache};

fn answered(webhooks: &[Webhook], body: &[u8]) -> Result<Value, Malformed> {
    convert(webhooks, body, |_| ()).map(|(answer, _)| serde_json::from_str(&answer).expect("JSON"))
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

const VERSIONS: &[&str] = &["v1", "v2"];

fn review(objects: &[Value], wanted: &str) -> Vec<u8> {
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u-2", "desiredAPIVersion": wanted, "objects": objects},
    });
    review.to_string().into_bytes()
}

fn ask_to_convert(objects: &[Value], wanted: &str) -> Value {
    let webhooks = [Webhook::converting::<Cache>(VERSIONS, between_versions)];
    answered(&webhooks, &review(objects, wanted)).expect("a review")["response"].clone()
}

#[test]
fn every_conversion_is_reported_with_declared_versions_only() {
    let webhooks = [Webhook::converting::<Cache>(VERSIONS, |object, version| match &object["spec"]["size"] {
        Value::Null => panic!("it has no size"),
        _ => between_versions(object, version),
    })];
    let (good, bad) = (cache(&json!({"size": 2})), cache(&json!({})));
    let mut strange = good.clone();
    strange["apiVersion"] = json!("cache.example.com/v1; DROP");
    let reported = |objects: &[Value], wanted: &str| {
        let reports = std::cell::RefCell::new(Vec::new());
        let (_, outcome) = convert(&webhooks, &review(objects, wanted), |it| {
            assert_eq!(it.kind, "Cache");
            reports.borrow_mut().push((it.from.to_owned(), it.to.to_owned(), it.succeeded));
        })
        .expect("a review");
        (reports.into_inner(), outcome)
    };
    let report = |from: &str, to: &str, succeeded| (from.to_owned(), to.to_owned(), succeeded);
    let (v1, v2) = ("cache.example.com/v1", "cache.example.com/v2");
    for (objects, wanted, reports, outcome) in [
        (vec![good.clone(), good.clone()], v2, vec![report("v1", "v2", true); 2], Outcome::Answered),
        (vec![good.clone(), bad], v2, vec![report("v1", "v2", true), report("v1", "v2", false)], Outcome::Panicked),
        (vec![good.clone()], v1, vec![], Outcome::Answered),
        (vec![strange], v1, vec![report("unknown", "v1", false)], Outcome::Answered),
        (vec![good], "cache.example.com/v9", vec![report("v1", "unknown", false)], Outcome::Answered),
    ] {
        assert_eq!(reported(&objects, wanted), (reports, outcome), "{wanted}");
    }
    let possible: Vec<_> = possible(&webhooks).map(|it| (it.from, it.to, it.succeeded)).collect();
    assert_eq!(possible, [("v1", "v2", true), ("v1", "v2", false), ("v2", "v1", true), ("v2", "v1", false)]);
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
        convert_one(&[], object, "a/v1", &|_| (), &mut Outcome::Answered)
    });
    assert!(stopped.expect("a list").is_err());
    assert_eq!(converted.get(), 1);
    let all = ask_to_convert(&[json!(0)], "cache.example.com/v2");
    assert_eq!(all["result"]["status"], "Failure");
}

#[test]
fn answer_has_a_limited_length_whatever_the_converter_adds() {
    fn pad(mut object: Value, _: &str) -> Result<Value, String> {
        let bytes = object["spec"]["size"].as_u64().and_then(|size| usize::try_from(size).ok()).ok_or("no size")?;
        object["spec"]["padding"] = json!("x".repeat(bytes));
        Ok(object)
    }
    let webhooks = [Webhook::converting::<Cache>(VERSIONS, pad)];
    let padded = |bytes: usize| {
        let objects = vec![cache(&json!({"size": bytes})); 1000];
        answered(&webhooks, &review(&objects, "cache.example.com/v2")).expect("a review")["response"].clone()
    };
    let short = padded(100);
    assert_eq!(short["result"]["status"], "Success");
    assert_eq!(short["convertedObjects"].as_array().map(Vec::len), Some(1000));
    let long = padded(10_000);
    assert_eq!((&long["result"]["status"], &long["convertedObjects"]), (&json!("Failure"), &json!([])));
    let message = long["result"]["message"].as_str().expect("a message");
    assert!(message.starts_with("the answer would be too long"), "{message}");
}

#[test]
fn object_without_a_version_is_not_converted() {
    for wanted in ["", "cache.example.com/v2"] {
        let answer = ask_to_convert(&[json!({})], wanted);
        assert_eq!(answer["result"]["message"], "an object has no apiVersion", "{wanted}");
    }
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

//! Random admission and conversion reviews. Each gets an answer that fits, and its weight covers what it contains.

use fuzz::{Rng, Target};
use serde_json::{Value, json};

use crate::{
    ValidationResult, Webhook,
    conversion::convert,
    review::{
        Malformed, Outcome, admit,
        tests::{Cache, cache},
    },
    weight,
};

const ADMISSION: &str = "admission.k8s.io/v1";
const CONVERSION: &str = "apiextensions.k8s.io/v1";

fn admissions() -> Vec<Value> {
    let new = cache(&json!({"size": 3, "arguments": ["-p", "1"], "image": "a"}));
    let old = cache(&json!({"size": 9, "arguments": ["-p"]}));
    let review = |request: Value| json!({"apiVersion": ADMISSION, "kind": "AdmissionReview", "request": request});
    let user = json!({"username": "ann", "groups": ["a"], "uid": "7", "extra": {"a": ["b"]}});
    vec![
        review(
            json!({"uid": "u", "name": "a", "namespace": "n", "operation": "CREATE", "object": new, "userInfo": user}),
        ),
        review(json!({"uid": "u", "operation": "UPDATE", "object": new, "oldObject": old, "dryRun": true})),
        review(json!({"uid": "u", "operation": "DELETE", "object": null, "oldObject": old, "subResource": "status"})),
    ]
}

fn conversions() -> Vec<Value> {
    let object = cache(&json!({"size": 3}));
    let review = |wanted: &str, objects: Value| {
        let request = json!({"uid": "u", "desiredAPIVersion": wanted, "objects": objects});
        json!({"apiVersion": CONVERSION, "kind": "ConversionReview", "request": request})
    };
    vec![review("cache.example.com/v2", json!([object, object])), review("cache.example.com/v1", json!([object]))]
}

fn rules(old: Option<&Cache>, new: &Cache) -> ValidationResult {
    let mut findings = ValidationResult::none();
    if serde_json::to_string(new).is_ok_and(|it| it.contains("\"-p\"")) {
        findings.refuse("spec.arguments[0]", "no");
    }
    findings.warn(format!("{}{}", new.metadata.name.as_deref().unwrap_or_default(), "é".repeat(200)));
    if let Some(old) = old {
        findings.warn(format!("{old:?}"));
    }
    findings
}

fn name(cache: &mut Cache) {
    cache.metadata.labels.get_or_insert_default().insert("named".to_owned(), "yes".to_owned());
}

/// Values and keys in a document.
fn values(document: &Value) -> usize {
    1 + match document {
        Value::Array(list) => list.iter().map(values).sum::<usize>(),
        Value::Object(map) => map.values().map(|it| 1 + values(it)).sum(),
        _ => 0,
    }
}

fn generate(random: &mut Rng, examples: &[Value]) -> Vec<u8> {
    fuzz::json(random, examples)
}

#[test]
fn fuzz_admission() {
    let examples = admissions();
    let webhooks = [Webhook::validating(rules), Webhook::defaulting(name)];
    Target::new("admission", env!("CARGO_MANIFEST_DIR")).run(
        |random| generate(random, &examples),
        |body| {
            let document = serde_json::from_slice::<Value>(body).ok();
            if let Some(document) = &document {
                assert!(weight::of_admission(body) >= values(document).saturating_sub(1) * 64, "a light review");
            }
            let mut is_read = false;
            for webhook in &webhooks {
                let (answer, outcome) = match admit(webhook, body) {
                    Ok(answered) => answered,
                    Err(Malformed(why)) => {
                        assert!(why.len() <= 1024, "a long message: {}", why.len());
                        continue;
                    }
                };
                is_read = true;
                assert_eq!(outcome, Outcome::Answered);
                let answer: Value = serde_json::from_str(&answer).expect("JSON");
                let response = &answer["response"];
                assert!(response["allowed"].is_boolean(), "{answer}");
                let warnings = response["warnings"].as_array().into_iter().flatten();
                assert!(warnings.filter_map(Value::as_str).all(|it| it.len() <= 256), "{answer}");
                let Some(document) = &document else { continue };
                assert_eq!(response["uid"], document["request"]["uid"]);
                if let Some(patch) = response["patch"].as_str() {
                    let patch: k8s_openapi::ByteString = serde_json::from_value(json!(patch)).expect("base64");
                    let patch: json_patch::Patch = serde_json::from_slice(&patch.0).expect("a patch");
                    let mut object = document["request"]["object"].clone();
                    json_patch::patch(&mut object, &patch).expect("a patch that fits the object");
                    assert_eq!(object["metadata"]["labels"]["named"], "yes");
                }
            }
            is_read
        },
    );
}

#[test]
fn fuzz_conversion() {
    let examples = conversions();
    let upwards = |mut object: Value, _: &str| match object.pointer_mut("/spec/size").map(Value::take) {
        Some(Value::Number(size)) => {
            object["spec"]["size"] = json!(size.to_string());
            Ok(object)
        }
        _ => Err("it has no size".to_owned()),
    };
    let webhooks = [Webhook::converting::<Cache>(&["v1", "v2"], upwards)];
    Target::new("conversion", env!("CARGO_MANIFEST_DIR")).run(
        |random| generate(random, &examples),
        |body| {
            let document = serde_json::from_slice::<Value>(body).ok();
            if let Some(document) = &document {
                let objects = document["request"]["objects"].as_array().into_iter().flatten();
                let heaviest = objects.map(values).max().unwrap_or_default();
                assert!(weight::of_conversion(body) >= heaviest.saturating_sub(1) * 64, "a light review");
            }
            let Ok((answer, outcome)) = convert(&webhooks, body, |_| ()) else { return false };
            assert_eq!(outcome, Outcome::Answered);
            // An object that needs no conversion goes into the answer as it is, also if it is nested too deeply to be parsed.
            let Some(document) = &document else { return false };
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            let response = &answer["response"];
            let converted = response["convertedObjects"].as_array().expect("a list");
            if response["result"]["status"] != "Success" {
                assert!(response["result"]["message"].is_string() && converted.is_empty(), "{answer}");
            }
            assert_eq!(response["uid"], document["request"]["uid"]);
            let is_converted = response["result"]["status"] == "Success";
            if is_converted {
                let objects = document["request"]["objects"].as_array().map_or(&[][..], Vec::as_slice);
                assert_eq!(converted.len(), objects.len(), "{answer}");
                for (new, old) in converted.iter().zip(objects) {
                    assert_eq!(new["apiVersion"], document["request"]["desiredAPIVersion"]);
                    assert_eq!(new["metadata"]["name"], old["metadata"]["name"]);
                }
            }
            is_converted
        },
    );
}

//! Random admission and conversion reviews for the webhooks of all operators, also of future ones. The objects are samples and
//! drawn from the schemas; then a few places of each review change.

use std::{fs, path::Path};

use controller_manager::{OPERATORS, manifests};
use fuzz::{Rng, Target};
use manager::{Webhook, answer_review, declared_webhooks};
use manager_testing::drawn_value;
use serde_json::{Value, json, value::RawValue};

/// The largest code of a refusal that blames the object.
const LAST_OF_CLIENT: u64 = 499;

/// What the objects of random reviews come from.
struct Source {
    samples: Vec<Value>,
    /// The `apiVersion`, the kind and the schema of each version of each kind with a webhook.
    versions: Vec<(String, String, Value)>,
}

impl Source {
    /// `has` says for which group and kind there are webhooks.
    fn of(has: impl Fn(&str, &str) -> bool) -> Self {
        let mut versions = Vec::new();
        for definition in manifests::definitions() {
            let spec = &definition["spec"];
            let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
            for version in spec["versions"].as_array().expect("versions") {
                let schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
                versions.push((format!("{group}/{}", text(&version["name"])), kind.clone(), schema));
            }
        }
        versions.retain(|(api_version, kind, _)| has(api_version.split('/').next().unwrap_or_default(), kind));
        let is_known = |it: &Value| versions.iter().any(|(_, kind, _)| it["kind"] == **kind);
        let samples = samples().into_iter().filter(is_known).collect();
        Self { samples, versions }
    }

    fn object(&self, random: &mut Rng) -> Value {
        if random.u8(..3) == 0 {
            return random.choice(&self.samples).cloned().unwrap_or_default();
        }
        let (api_version, kind, schema) = &self.versions[random.usize(..self.versions.len())];
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "annotations": {"a": "b"}});
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": drawn_value(schema, random)})
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// All samples of all operators.
fn samples() -> Vec<Value> {
    let operators = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of operators");
    let mut samples = Vec::new();
    for operator in fs::read_dir(operators).expect("operators").flatten() {
        for file in fs::read_dir(operator.path().join("samples")).into_iter().flatten().flatten() {
            let yaml = fs::read_to_string(file.path()).expect("a sample");
            let documents = yaml.split("\n---\n").map(|it| serde_saphyr::from_str::<Value>(it).expect("YAML"));
            samples.extend(documents.filter(Value::is_object));
        }
    }
    assert!(samples.len() > OPERATORS.len() / 2, "{samples:?}");
    samples
}

fn admission(operation: &str, object: &Value, old: &Value) -> Value {
    let request = json!({
        "uid": "u", "name": "a", "namespace": "n", "operation": operation, "object": object, "oldObject": old,
        "userInfo": {"username": "ann", "groups": ["a"]}, "dryRun": false,
    });
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}

fn conversion(wanted: &str, objects: &Value) -> Value {
    let request = json!({"uid": "u", "desiredAPIVersion": wanted, "objects": objects});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request})
}

/// The response of a webhook, which must not panic; `None` if the body is not a review, or if it and the response contain an escape
/// that stands for no character, such as `\ud800`. A conversion returns an object that has the requested version already as it is.
fn response(webhooks: &[Webhook], path: &str, body: &[u8]) -> Option<Value> {
    let reply = answer_review(webhooks, path, body).ok()?;
    assert!(!reply.panicked, "{path} panicked");
    let answer = reply.review;
    assert_eq!(
        answer_review(webhooks, path, body).map(|it| it.review).as_ref(),
        Ok(&answer),
        "{path} answers otherwise"
    );
    match serde_json::from_str::<Value>(&answer) {
        Ok(review) => Some(review["response"].clone()),
        Err(error) => {
            let is_readable = serde_json::from_slice::<Value>(body).is_ok();
            assert!(!is_readable, "{path} answers a readable review unreadably: {error}");
            // The grammar of JSON allows such an escape, and the API server reads it as U+FFFD.
            serde_json::from_str::<Box<RawValue>>(&answer).expect("JSON");
            None
        }
    }
}

/// Checks one answer. Returns whether it permits the object; false if the body is not a review.
fn check_admission(webhooks: &[Webhook], path: &str, body: &[u8]) -> bool {
    let (Some(response), Ok(review)) = (response(webhooks, path, body), serde_json::from_slice::<Value>(body)) else {
        return false;
    };
    let request = &review["request"];
    assert_eq!(response["uid"], request["uid"]);
    let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    assert!(warnings.into_iter().all(|it| it.len() <= 256), "{response}");
    if response["allowed"] == false {
        let code = response["status"]["code"].as_u64().expect("a code");
        assert!((400..=LAST_OF_CLIENT).contains(&code), "{path} blames itself: {response}");
        assert!(!text(&response["status"]["message"]).is_empty(), "{response}");
    } else {
        assert_eq!(response["allowed"], true, "{response}");
    }
    // No rule may block an update that changes nothing, however the object came into the store.
    let same = admission("UPDATE", &request["object"], &request["object"]).to_string();
    if let Some(response) = self::response(webhooks, path, same.as_bytes()) {
        let is_foreign = response["status"]["code"] == 400; // not an object of this kind
        assert!(response["allowed"] == true || is_foreign, "{path} refuses an unchanged object: {response}");
    }
    let Some(encoded) = response["patch"].as_str() else { return response["allowed"] == true };
    let changes: k8s_openapi::ByteString = serde_json::from_value(json!(encoded)).expect("base64");
    let changes: json_patch::Patch = serde_json::from_slice(&changes.0).expect("a patch");
    let mut object = request["object"].clone();
    json_patch::patch(&mut object, &changes).expect("a patch that fits the object");
    let again = admission("UPDATE", &object, &request["object"]).to_string();
    let response = self::response(webhooks, path, again.as_bytes()).expect("a review");
    assert_eq!(response["patch"], Value::Null, "{path} changes its own result");
    response["allowed"] == true
}

#[test]
fn fuzz_operators_admission() {
    let webhooks = declared_webhooks(OPERATORS);
    let paths: Vec<String> = webhooks.iter().filter(|it| it.definition().is_none()).map(Webhook::path).collect();
    let has = |group: &str, kind: &str| {
        let end = format!("-{}", kind.to_lowercase());
        paths.iter().any(|path| path.contains(&group.replace('.', "-")) && path.ends_with(&end))
    };
    let source = Source::of(has);
    assert!(!source.samples.is_empty() && source.versions.len() >= paths.len(), "{paths:?}");
    for path in &paths {
        let permits =
            |it: &Value| check_admission(&webhooks, path, admission("CREATE", it, &Value::Null).to_string().as_bytes());
        assert!(
            source.samples.iter().any(permits),
            "{path} permits no sample, so the checks of permitted objects would never run"
        );
    }
    Target::new("operators-admission", env!("CARGO_MANIFEST_DIR")).run(
        |random| {
            let (new, old) = (source.object(random), source.object(random));
            let old = if random.bool() { Value::Null } else { old };
            let review = admission(if old.is_null() { "CREATE" } else { "UPDATE" }, &new, &old);
            fuzz::json(random, &[review])
        },
        |body| {
            let mut is_permitted = false;
            for path in &paths {
                is_permitted |= check_admission(&webhooks, path, body);
            }
            is_permitted
        },
    );
}

/// Checks that the API server can always read what it has stored. Returns whether the objects were converted; false if the body is
/// not a review of objects that can be stored.
fn check_conversion(webhooks: &[Webhook], versions: &[(String, String, Value)], body: &[u8]) -> bool {
    let (Some(answer), Ok(review)) = (response(webhooks, "/convert", body), serde_json::from_slice::<Value>(body))
    else {
        return false;
    };
    assert_eq!(answer["uid"], review["request"]["uid"]);
    let wanted = text(&review["request"]["desiredAPIVersion"]);
    let objects = review["request"]["objects"].as_array().map_or(&[][..], Vec::as_slice);
    let is_known = |api_version: &str, kind: &Value| versions.iter().any(|it| it.0 == api_version && *kind == it.1);
    let can_be_stored = |object: &Value| {
        let is_named = object["metadata"]["name"].is_string();
        is_named && is_known(&text(&object["apiVersion"]), &object["kind"]) && is_known(&wanted, &object["kind"])
    };
    let converted = answer["convertedObjects"].as_array().expect("a list");
    if !objects.iter().all(can_be_stored) {
        return false;
    }
    assert_eq!(answer["result"]["status"], "Success", "an object makes its list unreadable: {answer}");
    assert_eq!(converted.len(), objects.len());
    for (old, new) in objects.iter().zip(converted) {
        assert_eq!(new["apiVersion"], *wanted);
        assert_eq!((&old["metadata"]["name"], &old["kind"]), (&new["metadata"]["name"], &new["kind"]));
        // There and back again, the object stays what its readers have seen.
        let convert = |object: &Value, wanted: &str| {
            let review = conversion(wanted, &json!([object])).to_string();
            response(webhooks, "/convert", review.as_bytes()).expect("a review")["convertedObjects"][0].clone()
        };
        let back = convert(new, &text(&old["apiVersion"]));
        assert_eq!(convert(&back, &wanted), *new, "it changes on the way back and forth");
    }
    true
}

#[test]
fn fuzz_operators_conversion() {
    let webhooks = declared_webhooks(OPERATORS);
    let definitions: Vec<String> = webhooks.iter().filter_map(Webhook::definition).collect();
    let has = |group: &str, kind: &str| {
        definitions.iter().any(|it| {
            it.split_once('.').is_some_and(|(plural, of)| of == group && plural.starts_with(&kind.to_lowercase()))
        })
    };
    let source = Source::of(has);
    assert!(source.versions.len() > definitions.len(), "{definitions:?} have several versions each");
    for (wanted, kind, _) in &source.versions {
        let converts = |it: &&Value| {
            let review = conversion(wanted, &json!([it])).to_string();
            it["kind"] == **kind && check_conversion(&webhooks, &source.versions, review.as_bytes())
        };
        assert!(
            source.samples.iter().any(|it| converts(&it)),
            "no sample becomes {wanted}, so the checks would never run"
        );
    }
    Target::new("operators-conversion", env!("CARGO_MANIFEST_DIR")).run(
        |random| {
            let (wanted, ..) = &source.versions[random.usize(..source.versions.len())];
            let objects: Vec<Value> = (0..random.usize(1..4)).map(|_| source.object(random)).collect();
            fuzz::json(random, &[conversion(wanted, &json!(objects))])
        },
        |body| check_conversion(&webhooks, &source.versions, body),
    );
}

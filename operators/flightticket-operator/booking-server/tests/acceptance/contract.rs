//! Checks answers against the contract, `booking-api.yaml`.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock},
};

use http::HeaderMap;
use jsonschema::Validator;
use serde_json::{Value, json};

/// The document as JSON.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_saphyr::from_str(booking_server::DOCUMENT).expect("the document is YAML"))
}

/// Every answer in the contract, such as "post /v1/bookings 201".
pub(crate) fn documented() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (path, item) in document()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
            for status in operation["responses"].as_object().unwrap().keys() {
                known.insert(format!("{method} {path} {status}"));
            }
        }
    }
    known
}

/// Checks one answer, and returns its name in the contract.
///
/// # Panics
/// If the contract does not allow the answer.
pub(crate) fn check(method: &str, path: &str, status: u16, headers: &HeaderMap, body: &[u8]) -> String {
    let template = template(path);
    let method = method.to_lowercase();
    let name = format!("{method} {template} {status}");
    let steps = ["paths", &template, &method, "responses", &status.to_string()];
    let (mut place, response) = at(&steps).unwrap_or_else(|| panic!("{name} is not documented: {}", shown(body)));
    for (header, schema) in response["headers"].as_object().into_iter().flatten() {
        let schema = resolved(schema);
        match headers.get(header).map(|value| value.to_str().unwrap()) {
            None => assert_ne!(schema["required"], json!(true), "{name}: header {header} is missing"),
            Some(value) => {
                let validator = jsonschema::validator_for(&schema["schema"]).unwrap();
                assert!(validator.is_valid(&json!(value)), "{name}: header {header}: {value}");
            }
        }
    }
    let Some(content) = response["content"].as_object() else {
        assert!(body.is_empty(), "{name} has no body: {}", shown(body));
        return name;
    };
    let media = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    assert!(content.contains_key(media), "{name}: content type {media:?} is not documented");
    if media == "application/yaml" {
        return name;
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_else(|error| panic!("{name}: {error}: {}", shown(body)));
    place.extend(["content", media, "schema"].map(str::to_owned));
    let validator = validator(&place);
    let wrong: Vec<String> =
        validator.iter_errors(&body).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{name}: {wrong:#?} in {body:#}");
    if let Some(told) = body.get("code").filter(|_| status >= 400) {
        assert_eq!(body["status"], json!(status), "{name}: {told}");
    }
    name
}

fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned()
}

/// The path template of the contract that this path matches.
fn template(path: &str) -> String {
    let path = path.split('?').next().unwrap();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["v1", "bookings", _] => "/v1/bookings/{id}".to_owned(),
        ["v1", "bookings", _, "reference"] => "/v1/bookings/{id}/reference".to_owned(),
        ["v1", "references", _] => "/v1/references/{reference}".to_owned(),
        _ => path.to_owned(),
    }
}

/// The value at these steps, and its location after following `$ref`.
fn at(steps: &[&str]) -> Option<(Vec<String>, &'static Value)> {
    let mut place = Vec::new();
    let mut value = document();
    for step in steps {
        value = value.get(step)?;
        place.push((*step).to_owned());
        if let Some(reference) = value.get("$ref") {
            place = reference.as_str()?.trim_start_matches("#/").split('/').map(str::to_owned).collect();
            value = place.iter().try_fold(document(), |value, step| value.get(step))?;
        }
    }
    Some((place, value))
}

fn resolved(value: &'static Value) -> &'static Value {
    let Some(reference) = value["$ref"].as_str() else { return value };
    document().pointer(reference.trim_start_matches('#')).expect("the target of a $ref exists")
}

fn validator(place: &[String]) -> Arc<Validator> {
    static KNOWN: Mutex<Option<HashMap<Vec<String>, Arc<Validator>>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap();
    let known = known.get_or_insert_default();
    let made = known.entry(place.to_vec()).or_insert_with(|| {
        let steps = place.iter().map(|step| step.replace('~', "~0").replace('/', "~1"));
        let pointer = steps.fold(String::new(), |pointer, step| pointer + "/" + &step);
        let mut root = document().clone();
        root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        root["$ref"] = json!(format!("#{}", pointer.replace('{', "%7B").replace('}', "%7D")));
        Arc::new(jsonschema::options().should_validate_formats(true).build(&root).expect("the schema is valid"))
    });
    Arc::clone(made)
}

#[test]
fn undocumented_response_is_detected() {
    let fails = |method: &str, path: &str, status, headers: &[(&'static str, &'static str)], body: &str| {
        let (method, path, body) = (method.to_owned(), path.to_owned(), body.to_owned());
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        std::panic::catch_unwind(move || check(&method, &path, status, &headers, body.as_bytes())).is_err()
    };
    let json_type = ("content-type", "application/json");
    let standing = r#"{"reference":"r","state":"CANCELLED","bookingId":null}"#;
    assert!(!fails("GET", "/v1/references/r", 200, &[json_type], standing));
    assert!(fails("GET", "/v1/references/r", 201, &[json_type], standing), "the status");
    assert!(fails("PUT", "/v1/references/r", 200, &[json_type], standing), "the method");
    assert!(fails("GET", "/v2/references/r", 200, &[json_type], standing), "the path");
    assert!(fails("GET", "/v1/references/r", 200, &[("content-type", "text/html")], standing), "the type");
    assert!(fails("GET", "/v1/references/r", 200, &[json_type], &standing.replace("CANCELLED", "GONE")), "a value");
    assert!(fails("GET", "/v1/references/r", 200, &[json_type], &standing.replace("null", "null,\"x\":1")), "a field");
    let problem = r#"{"type":"about:blank","title":"","status":404,"code":"BOOKING_NOT_FOUND","detail":""}"#;
    let problem_type = ("content-type", "application/problem+json");
    assert!(!fails("GET", "/v1/bookings/x", 404, &[problem_type], problem));
    assert!(fails("GET", "/v1/bookings/x", 404, &[problem_type], &problem.replace("BOOKING", "ROUTE")), "a code");
    assert!(fails("GET", "/v1/bookings/x", 503, &[problem_type], problem), "a header that is missing");
}

#[test]
fn every_code_is_documented() {
    let told = booking_server::DOCUMENT;
    for code in booking_server::problem::Code::ALL {
        let is_for_no_path = ["NOT_FOUND", "METHOD_NOT_ALLOWED"].contains(&code.name());
        assert!(
            is_for_no_path
                || told.contains(&format!("enum: [{}", code.name()))
                || told.contains(&format!(", {}", code.name())),
            "{code:?}"
        );
    }
}

//! Draws values that a schema allows, whether or not they make sense.

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// Texts of many forms, and texts that programs often treat wrongly. The API server refuses those that match no pattern.
const TEXTS: &[&str] = &[
    "",
    " ",
    "0",
    "-1",
    "1",
    "a",
    "A",
    "a-b",
    "a.b/c",
    "/a/b",
    "a=b",
    "100m",
    "1Gi",
    "1e400",
    "9223372036854775808",
    "50%",
    "300s",
    "true",
    "null",
    "{}",
    "%s",
    "../..",
    "a\nb",
    "\u{202e}cba",
    "e\u{301}",
    "🦀",
    "localhost/a:1",
    "localhost/a@sha256:0",
    "http://[::1]:99999/",
    "* * * * *",
    "@every 10s",
    "Europe/Berlin",
    "2026-02-28T23:59:60Z",
];
/// The longest drawn text without a `maxLength`, in characters.
const LONG: u64 = 1_000;
/// The longest drawn list.
const LONG_LIST: u64 = 20;

/// Draws a value for this schema, an OpenAPI schema as in a CRD. Patterns and rules of CEL do not count.
pub fn value(schema: &Value, rng: &mut Rng) -> Value {
    if let Some(values) = schema["enum"].as_array().filter(|values| !values.is_empty()) {
        return values[rng.usize(..values.len())].clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if rng.bool() { integer(schema, rng) } else { text(schema, rng) };
    }
    match schema["type"].as_str() {
        Some("string") => text(schema, rng),
        Some("integer") => integer(schema, rng),
        Some("number") => json!([0.0, -0.5, 1e9, f64::MIN_POSITIVE][rng.usize(..4)]),
        Some("boolean") => json!(rng.bool()),
        Some("array") => {
            let least = schema["minItems"].as_u64().unwrap_or(0);
            let most = schema["maxItems"].as_u64().unwrap_or(LONG_LIST).min(LONG_LIST).max(least);
            let count = if rng.u8(..8) == 0 { most } else { least.max(rng.u64(..=most.min(2))) };
            (0..count).map(|_| value(&schema["items"], rng)).collect()
        }
        _ => object(schema, rng),
    }
}

fn object(schema: &Value, rng: &mut Rng) -> Value {
    let mut fields = Map::new();
    let required = schema["required"].as_array();
    let is_required = |name: &String| required.is_some_and(|names| names.iter().any(|it| it == name));
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if is_required(name) || rng.u8(..3) == 0 {
            fields.insert(name.clone(), value(schema, rng));
        }
    }
    if schema["additionalProperties"].is_object() {
        for _ in 0..rng.u8(..3) {
            let name = TEXTS[rng.usize(..TEXTS.len())].to_owned();
            fields.insert(name, value(&schema["additionalProperties"], rng));
        }
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true && rng.bool() {
        fields.insert("unknown".to_owned(), json!([{"nested": [1, "a", null]}]));
    }
    Value::Object(fields)
}

fn text(schema: &Value, rng: &mut Rng) -> Value {
    let least = schema["minLength"].as_u64().unwrap_or(0);
    let most = schema["maxLength"].as_u64().unwrap_or(LONG).max(least);
    if rng.u8(..6) == 0 {
        let length = [least, most][rng.usize(..2)];
        return (0..length).map(|_| 'a').collect::<String>().into();
    }
    json!(TEXTS[rng.usize(..TEXTS.len())])
}

/// Draws a number at one of the limits, or a small one.
#[expect(clippy::cast_possible_truncation, reason = "the limits of integers are whole numbers, stored as f64")]
fn integer(schema: &Value, rng: &mut Rng) -> Value {
    let (low, high) =
        if schema["format"] == "int32" { (i64::from(i32::MIN), i64::from(i32::MAX)) } else { (i64::MIN, i64::MAX) };
    let low = schema["minimum"].as_f64().map_or(low, |it| it as i64);
    let high = schema["maximum"].as_f64().map_or(high, |it| it as i64);
    json!([low, high, rng.i64(-2..100).clamp(low, high)][rng.usize(..3)])
}

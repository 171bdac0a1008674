//! Specs that were stored under an older, wider schema.

use fastrand::Rng;
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use super::draw;
use crate::interference::Run;

/// The keywords that limit values and are not needed to decode them.
const LIMITS: &[&str] = &[
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "minProperties",
    "multipleOf",
    "pattern",
    "x-kubernetes-validations",
];

/// Stores a spec with one to four properties of an older schema. Returns it if the present schema refuses it.
///
/// Properties that cannot be changed keep their values, because a client could not change them back. The keys of a list stay
/// unique: no schema of a list with keys has allowed anything else.
pub(super) async fn replace(run: &Run, properties: &Map<String, Value>, rng: &mut Rng) -> Option<Map<String, Value>> {
    let mut spec = run.story.object()["spec"].as_object().expect("a spec").clone();
    let is_mutable = |schema: &Value| !schema.to_string().contains("oldSelf");
    let names: Vec<&String> =
        properties.iter().filter(|(_, schema)| is_mutable(schema)).map(|(name, _)| name).collect();
    for _ in 0..rng.usize(1..=4) {
        let name = names[rng.usize(..names.len())];
        spec.insert(name.clone(), draw::value(&widened(&properties[name]), rng));
    }
    let mut object = run.user.api().get(run.user.name()).await.expect("the object");
    let generation = object.metadata.generation.unwrap_or_default();
    object.data["spec"] = Value::from(spec.clone());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let Err(kube::Error::Api(refused)) = run.user.api().replace(run.user.name(), &dry, &object).await else {
        return None;
    };
    let mut causes = refused.details.iter().flat_map(|details| &details.causes);
    if causes.any(|cause| cause.reason == "FieldValueDuplicate") {
        return None;
    }
    object.metadata.generation = Some(generation + 1);
    run.memory.model.put(serde_json::to_value(&object).expect("JSON"));
    Some(spec)
}

/// The schema without its limits, but for those of integers, which become about twice as wide.
fn widened(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, value)| !LIMITS.contains(&name.as_str()) || value.is_object());
            let wider = kept.map(|(name, value)| {
                // CRDs store the limits of integers as floating-point numbers.
                let value = match (name.as_str(), value.as_f64()) {
                    ("minimum", Some(limit)) => json!(limit - limit.abs() - 1.0),
                    ("maximum", Some(limit)) => json!(limit + limit.abs() + 1.0),
                    _ => widened(value),
                };
                (name.clone(), value)
            });
            wider.collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(widened).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_wider_and_properties_with_their_names_stay() {
        let schema = json!({
            "type": "object", "required": ["pattern"], "minProperties": 1, "properties": {
                "pattern": {"type": "string", "pattern": "^a$", "maxLength": 1, "enum": ["a"]},
                "size": {"type": "integer", "format": "int32", "minimum": 1.0, "maximum": 64.0},
                "delta": {"type": "integer", "minimum": -5.0, "x-kubernetes-validations": [{"rule": "self > 0"}]},
            },
        });
        let wider = json!({
            "type": "object", "required": ["pattern"], "properties": {
                "pattern": {"type": "string", "enum": ["a"]},
                "size": {"type": "integer", "format": "int32", "minimum": -1.0, "maximum": 129.0},
                "delta": {"type": "integer", "minimum": -11.0},
            },
        });
        assert_eq!(widened(&schema), wider);
    }
}

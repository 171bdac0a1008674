//! Adjusts the definitions that `kube` derives from Rust types, so that they read and behave like those of other projects.
//! Pure functions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

/// The category of all kinds of this runtime: `kubectl get operator-managed` lists their objects, and `kubectl operators` finds the
/// kinds by it. Every user may read categories, but not every user may read definitions.
pub const CATEGORY: &str = "operator-managed";

/// The longest description, in bytes. Longer ones are cut after their first paragraph: the core types bring kilobytes.
const LONGEST_DESCRIPTION: usize = 512;

/// Returns the definition as it should be installed.
///
/// * An optional field is not also nullable: the API server drops a `null` from a request.
/// * Whole numbers have the formats that Kubernetes knows.
/// * The fields of `status` have no defaults, because tools want to see what the controller wrote. Only a status as a whole
///   may have one: the status of an object that was never reconciled.
/// * A `spec` without required fields is itself optional.
/// * Descriptions are paragraphs, without the line breaks of the source.
/// * The kind is in the category [`CATEGORY`].
pub fn normalize(definition: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(definition).unwrap_or_default();
    categorize(&mut value["spec"]["names"]);
    for version in value["spec"]["versions"].as_array_mut().into_iter().flatten() {
        root(&mut version["schema"]["openAPIV3Schema"]);
    }
    // Only values of known fields were changed, so this still is a definition.
    serde_json::from_value(value).unwrap_or_else(|_| definition.clone())
}

/// Returns the definition as JSON for printing, with whole numbers written as such. (The Go types, and so the Rust ones, have
/// floating-point bounds, which would print as `0.0`.)
pub fn printed(definition: &CustomResourceDefinition) -> Value {
    let mut value = serde_json::to_value(definition).unwrap_or_default();
    write_whole_numbers(&mut value);
    value
}

fn categorize(names: &mut Value) {
    let Some(names) = names.as_object_mut() else { return };
    let categories = names.entry("categories").or_insert_with(|| json!([]));
    if let Some(categories) = categories.as_array_mut().filter(|all| !all.contains(&json!(CATEGORY))) {
        categories.push(json!(CATEGORY));
    }
}

fn root(schema: &mut Value) {
    any(schema);
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("title");
    if let Some(Value::Object(status)) = object.get_mut("properties").and_then(|it| it.get_mut("status")) {
        for_each_subschema(status, strip_defaults);
    }
    let spec = object.get_mut("properties").and_then(|it| it.get_mut("spec")).and_then(Value::as_object_mut);
    if let Some(spec) = spec.filter(|it| !it.contains_key("required")) {
        spec.insert("default".to_owned(), json!({}));
        remove_item(object, "required", &json!("spec"));
    }
}

/// Normalizes a schema at any depth, with its subschemas.
fn any(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    if object.remove("nullable").is_some() {
        remove_item(object, "enum", &Value::Null);
    }
    match object.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "int8" | "int16") => object.insert("format".to_owned(), json!("int32")),
        Some("uint" | "uint32" | "uint64" | "int") => object.insert("format".to_owned(), json!("int64")),
        _ => None,
    };
    if let Some(Value::String(description)) = object.get_mut("description") {
        *description = paragraphs(description);
    }
    for_each_subschema(object, any);
}

fn strip_defaults(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("default");
    for_each_subschema(object, strip_defaults);
}

fn for_each_subschema(object: &mut Map<String, Value>, f: fn(&mut Value)) {
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(f);
    }
    for key in ["items", "additionalProperties", "not"] {
        object.get_mut(key).into_iter().for_each(f);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(f);
    }
}

/// Removes `item` from the list `object.key`, and the list itself if it becomes empty.
fn remove_item(object: &mut Map<String, Value>, key: &str, item: &Value) {
    let Some(list) = object.get_mut(key).and_then(Value::as_array_mut) else { return };
    list.retain(|it| it != item);
    if list.is_empty() {
        object.remove(key);
    }
}

fn paragraphs(description: &str) -> String {
    let whole = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let all: Vec<_> = description.split("\n\n").map(whole).collect();
    let joined = all.join("\n\n");
    match all.into_iter().next() {
        Some(first) if joined.len() > LONGEST_DESCRIPTION => first,
        _ => joined,
    }
}

fn write_whole_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers),
        Value::Number(number) => {
            // `{:.0}` prints any whole f64 exactly, while a cast to an integer could round.
            let whole = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0).map(|it| format!("{it:.0}"));
            if let Some(whole) = whole.and_then(|it| it.parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(schema: &Value) -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com",
                "names": {"kind": "Foo", "plural": "foos"},
                "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        }))
        .expect("a definition")
    }

    fn normalized(schema: &Value) -> Value {
        let printed = printed(&normalize(&definition(schema)));
        printed["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    #[test]
    fn optional_fields_and_numbers_are_normalized() {
        let derived = json!({"properties": {
            "port": {"type": "integer", "format": "uint16", "nullable": true, "minimum": 0.0, "maximum": 65535.0},
            "mode": {"type": "string", "enum": ["A", "B", null], "nullable": true},
            "share": {"type": "number", "maximum": 0.5},
            "items": {"type": "array", "items": {"type": "integer", "format": "uint32", "nullable": true}},
        }});
        let expected = json!({"properties": {
            "port": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 65535},
            "mode": {"type": "string", "enum": ["A", "B"]},
            "share": {"type": "number", "maximum": 0.5},
            "items": {"type": "array", "items": {"type": "integer", "format": "int64"}},
        }});
        assert_eq!(normalized(&derived), expected);
    }

    #[test]
    fn every_kind_is_in_the_category_once() {
        let mut given = definition(&json!({"type": "object"}));
        given.spec.names.categories = Some(vec!["all".to_owned()]);
        let once = normalize(&given);
        assert_eq!(once.spec.names.categories, Some(vec!["all".to_owned(), CATEGORY.to_owned()]));
        assert_eq!(normalize(&once).spec.names.categories, once.spec.names.categories);
    }

    #[test]
    fn spec_without_required_fields_becomes_optional() {
        let derived = json!({"required": ["spec"], "title": "Foo", "properties": {"spec": {"type": "object"}}});
        assert_eq!(normalized(&derived), json!({"properties": {"spec": {"type": "object", "default": {}}}}));

        let strict = json!({"required": ["spec"], "properties": {"spec": {"type": "object", "required": ["image"]}}});
        assert_eq!(normalized(&strict), strict);
    }

    #[test]
    fn status_keeps_only_its_top_level_default() {
        let derived = json!({"properties": {"status": {
            "type": "object", "nullable": true, "properties": {"nodes": {"type": "array", "default": []}},
            "default": {"phase": "Pending"},
        }}});
        let expected = json!({"properties": {"status": {
            "type": "object", "properties": {"nodes": {"type": "array"}}, "default": {"phase": "Pending"},
        }}});
        assert_eq!(normalized(&derived), expected);
    }

    #[test]
    fn descriptions_are_joined_to_paragraphs_and_shortened() {
        assert_eq!(paragraphs("One\nsentence.\n\nAnother."), "One sentence.\n\nAnother.");
        assert_eq!(paragraphs(&format!("The point.\n\n{}", "words ".repeat(100))), "The point.");
    }
}

//! Structural schemas of custom resources: defaulting, pruning and merging. Pure.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    cause::Cause,
    scale_paths::ScalePaths,
    shape::{Rest, Shape},
    validate,
};

/// The `openAPIV3Schema` of one version.
#[derive(Debug, Clone)]
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn new(schema: Value) -> Self {
        Self(schema)
    }

    /// The shape of whole objects.
    pub(crate) fn shape(&self) -> Shape {
        let properties = self.0["properties"].as_object().into_iter().flatten();
        let mut fields = properties.map(|(name, schema)| (name.clone(), shape(schema))).collect();
        with_type(&mut fields);
        let keeps = self.0["x-kubernetes-preserve-unknown-fields"] == true;
        Shape::custom(fields, if keeps { Rest::Free } else { Rest::Closed })
    }

    /// Removes the fields that the schema does not declare.
    pub(crate) fn prune(&self, object: &mut Value) {
        prune(object, &self.0, true);
    }

    /// Removes nulls where the schema allows none and has no default.
    pub(crate) fn without_nulls(&self, object: &mut Value) {
        without_nulls(object, &self.0);
    }

    /// Validates an object, or its status.
    pub(crate) fn causes(
        &self,
        scale: Option<&ScalePaths>,
        new: &Value,
        old: Option<&Value>,
        is_status: bool,
    ) -> Vec<Cause> {
        validate::object(&self.0, scale, new, old, is_status)
    }

    /// The places at which an object does not match this schema, each with its path.
    pub(crate) fn untyped(&self, object: &Value, may_repeat: bool) -> Vec<String> {
        let mut out = Vec::new();
        for (name, value) in object.as_object().into_iter().flatten() {
            match self.0["properties"].get(name) {
                _ if ["apiVersion", "kind", "metadata"].contains(&name.as_str()) => {}
                Some(schema) => untyped(value, schema, &format!(".{name}"), may_repeat, &mut out),
                None if keeps_unknown(&self.0) => {}
                None => out.push(format!(".{name}: field not declared in schema")),
            }
        }
        out
    }

    /// Fills in the defaults of the schema.
    pub(crate) fn default(&self, object: &mut Value) {
        default(object, &self.0);
    }
}

/// The schema of unlisted fields, if there is one.
fn others(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|more| more.is_object())
}

fn keeps_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true
}

fn without_nulls(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            let below = |name: &str| schema["properties"].get(name).or(others(schema));
            let may_be = |schema: &Value| schema["nullable"] == true || schema.get("default").is_some();
            map.retain(|name, value| !value.is_null() || below(name).is_none_or(may_be));
            for (name, value) in map {
                if let Some(schema) = below(name) {
                    without_nulls(value, schema);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| without_nulls(item, &schema["items"])),
        _ => {}
    }
}

fn untyped(value: &Value, schema: &Value, at: &str, may_repeat: bool, out: &mut Vec<String>) {
    let wanted = schema["type"].as_str().unwrap_or_default();
    match (value, wanted) {
        (Value::Object(fields), "object") => {
            for (name, value) in fields {
                let embedded = schema["x-kubernetes-embedded-resource"] == true;
                let own = embedded && ["apiVersion", "kind", "metadata"].contains(&name.as_str());
                match schema["properties"].get(name).or(others(schema)) {
                    _ if own => {}
                    Some(schema) => untyped(value, schema, &format!("{at}.{name}"), may_repeat, out),
                    None if keeps_unknown(schema) || schema.get("properties").is_none() => {}
                    None => out.push(format!("{at}.{name}: field not declared in schema")),
                }
            }
        }
        (Value::Array(items), "array") => {
            let shape = shape(schema);
            let is_associative = matches!(shape, Shape::Set | Shape::Keyed { .. });
            let mut seen = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let step = match shape.step(item) {
                    Ok(step) => {
                        let shown = crate::step::display(std::slice::from_ref(&step));
                        if !may_repeat && seen.contains(&step) {
                            out.push(format!("{at}: duplicate entries for key {shown}"));
                        }
                        seen.push(step);
                        shown
                    }
                    Err(error) if is_associative => {
                        out.push(format!("{at}: element {index}: {error}"));
                        return;
                    }
                    Err(_) => format!("[{index}]"),
                };
                untyped(item, &schema["items"], &format!("{at}{step}"), may_repeat, out);
            }
        }
        (Value::Null, _)
        | (Value::Number(_), "integer" | "number")
        | (Value::String(_), "string")
        | (Value::Bool(_), "boolean") => {}
        // The format may be that of another type.
        (Value::Number(_) | Value::Bool(_), "string")
            if schema.get("format").is_some_and(|format| format != "byte") => {}
        (_, "object") => out.push(format!("{at}: expected map, got {value}")),
        (_, "array") => out.push(format!("{at}: expected list, got {value}")),
        (_, "integer" | "number") => out.push(format!("{at}: expected numeric (int or float), got {value}")),
        (_, "string" | "boolean") => out.push(format!("{at}: expected {wanted}, got {value}")),
        _ => {}
    }
}

fn prune(value: &mut Value, schema: &Value, root: bool) {
    match value {
        Value::Object(map) => {
            let embedded = root || schema["x-kubernetes-embedded-resource"] == true;
            let own = |name: &str| embedded && ["apiVersion", "kind", "metadata"].contains(&name);
            let keeps = keeps_unknown(schema) || others(schema).is_some();
            map.retain(|name, _| keeps || own(name) || schema["properties"].get(name).is_some());
            for (name, value) in map.iter_mut().filter(|(name, _)| !own(name)) {
                if let Some(schema) = schema["properties"].get(name).or(others(schema)) {
                    prune(value, schema, false);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(item, &schema["items"], false)),
        _ => {}
    }
}

fn default(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                let Some(preset) = schema.get("default") else { continue };
                let null = map.get(name).is_some_and(Value::is_null) && schema["nullable"] != true;
                if null || !map.contains_key(name) {
                    map.insert(name.clone(), preset.clone());
                }
            }
            for (name, value) in map {
                if let Some(schema) = schema["properties"].get(name).or(others(schema)) {
                    default(value, schema);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| default(item, &schema["items"])),
        _ => {}
    }
}

fn shape(schema: &Value) -> Shape {
    let kind = schema["type"].as_str();
    if kind == Some("object") || schema.get("properties").is_some() {
        if schema["x-kubernetes-map-type"] == "atomic" {
            return Shape::Atomic;
        }
        if let Some(element) = others(schema) {
            return Shape::Map(Arc::new(shape(element)));
        }
        let properties = schema["properties"].as_object().into_iter().flatten();
        let mut fields: BTreeMap<String, Shape> =
            properties.map(|(name, schema)| (name.clone(), shape(schema))).collect();
        if schema["x-kubernetes-embedded-resource"] == true {
            with_type(&mut fields);
        }
        let rest = if schema["x-kubernetes-preserve-unknown-fields"] == true { Rest::Free } else { Rest::Closed };
        return if fields.is_empty() { Shape::Free } else { Shape::custom(fields, rest) };
    }
    if kind == Some("array") {
        let items = &schema["items"];
        return match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Shape::Set,
            Some("map") => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                let keys = keys
                    .filter_map(Value::as_str)
                    .map(|key| (key.to_owned(), items["properties"][key].get("default").cloned()));
                Shape::Keyed { keys: keys.collect(), element: Arc::new(shape(items)) }
            }
            _ => Shape::Atomic,
        };
    }
    Shape::Free
}

fn with_type(fields: &mut BTreeMap<String, Shape>) {
    fields.insert("apiVersion".to_owned(), Shape::Plain);
    fields.insert("kind".to_owned(), Shape::Plain);
    fields.insert("metadata".to_owned(), Shape::metadata());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema(json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "size": {"type": "integer", "default": 1},
                "ports": {"type": "array", "items": {"type": "object", "properties": {
                    "number": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"},
                }}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
        }}))
    }

    #[test]
    fn unknown_fields_are_pruned_and_defaults_set() {
        let mut object = json!({
            "apiVersion": "a/v1", "metadata": {"name": "x"}, "other": 1,
            "spec": {"size": null, "typo": 1, "ports": [{"number": 1, "x": 2}], "free": {"a": 1}, "labels": {"a": "b"}},
        });
        schema().prune(&mut object);
        schema().default(&mut object);
        let expected = json!({
            "apiVersion": "a/v1", "metadata": {"name": "x"},
            "spec": {"size": 1, "ports": [{"number": 1, "protocol": "TCP"}], "free": {"a": 1}, "labels": {"a": "b"}},
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn nested_defaults_are_set() {
        let mut object = json!({});
        schema().default(&mut object);
        assert_eq!(object, json!({"spec": {"size": 1}}));
    }
}

//! Validation of custom resources: values against the schema, unique list items, replicas, rules. Pure.
//!
//! Causes and messages are those of Kubernetes 1.36 (kube-openapi's `validate` and `apiextensions-apiserver`).

use std::{collections::HashMap, sync::LazyLock};

use parking_lot::Mutex;
use regex::Regex;
use serde_json::{Map, Value};

use crate::{
    cause::Cause,
    rules::{self, correlated, list_keys},
    scale_paths::ScalePaths,
};

/// Returns everything that is wrong with an object. For an update, it ignores unchanged values that were wrong before at the same
/// place.
pub(crate) fn object(
    schema: &Value,
    scale: Option<&ScalePaths>,
    new: &Value,
    old: Option<&Value>,
    is_status: bool,
) -> Vec<Cause> {
    let status = |object: &'_ Value| object.get("status").cloned();
    let mut causes = Vec::new();
    if is_status {
        if let Some(value) = status(new) {
            let mut check = Check { prefix: "status", causes: Vec::new() };
            check.value(&value, &schema["properties"]["status"], old.and_then(status).as_ref(), "");
            causes = check.causes;
        }
    } else {
        let mut check = Check { prefix: "", causes };
        check.value(new, schema, old, "");
        causes = check.causes;
    }
    if let Some(scale) = scale {
        causes.extend(scale.causes(new, is_status));
    }
    let unique = |object| {
        let mut causes = Vec::new();
        unique_items(object, schema, "", &mut causes);
        causes
    };
    if old.is_none_or(|old| unique(old).is_empty()) {
        causes.extend(unique(new));
    }
    if rules::any(schema) {
        if causes.iter().any(Cause::blocks_rules) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing \
                       errors to complete validation";
            causes.push(Cause::invalid("", "null", why));
        } else {
            rules::check(new, schema, old, &mut causes);
        }
    }
    causes
}

struct Check<'a> {
    /// The path of the schema's root in the object.
    prefix: &'a str,
    causes: Vec<Cause>,
}

impl Check<'_> {
    fn add(&mut self, reason: &'static str, name: &str, message: String) {
        let name = name.trim_start_matches('.');
        let dot = if self.prefix.is_empty() || name.is_empty() { "" } else { "." };
        self.causes.push(Cause::new(reason, &format!("{}{dot}{name}", self.prefix), message));
    }

    fn invalid(&mut self, name: &str, value: &str, why: &str) {
        self.add("FieldValueInvalid", name, format!("Invalid value: {value}: {name} in body {why}"));
    }

    fn wrong_type(&mut self, name: &str, wanted: &str, found: &str) {
        let message = format!("Invalid value: {found:?}: {name} in body must be of type {wanted}: {found:?}");
        self.add("FieldValueTypeInvalid", name, message);
    }

    fn too_many(&mut self, name: &str, count: usize, most: u64) {
        let items = if most == 1 { "item" } else { "items" };
        self.add("FieldValueTooMany", name, format!("Too many: {count}: must have at most {most} {items}"));
    }

    fn value(&mut self, value: &Value, schema: &Value, old: Option<&Value>, name: &str) {
        let before = self.causes.len();
        self.kind(value, schema, name);
        match value {
            Value::String(text) => self.text(text, schema, name),
            Value::Number(_) => self.number(value, schema, name),
            Value::Array(items) => self.list(items, schema, old, name),
            Value::Object(fields) => self.fields(fields, schema, old, name),
            Value::Bool(_) | Value::Null => {}
        }
        if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let allowed: Vec<String> = allowed.iter().map(|value| format!("{:?}", text(value))).collect();
            let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
            self.add("FieldValueNotSupported", name, message);
        }
        if self.causes.len() > before && old == Some(value) {
            self.causes.truncate(before);
        }
    }

    fn kind(&mut self, value: &Value, schema: &Value, name: &str) {
        let either = schema["x-kubernetes-int-or-string"] == true;
        let wanted = if either { "integer,string" } else { schema["type"].as_str().unwrap_or_default() };
        let format = schema["format"].as_str().unwrap_or_default();
        let (found, found_format) = match value {
            Value::Null if schema["nullable"] == true => return,
            Value::Null => ("null", ""),
            Value::Bool(_) => ("boolean", ""),
            Value::Number(number) if number.is_i64() => ("integer", "int64"),
            Value::Number(_) => ("number", "float64"),
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
        };
        let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
        let fits = wanted.split(',').any(|wanted| {
            wanted.is_empty()
                || wanted == found
                || (wanted == "number" && found == "integer")
                || (wanted == "integer" && whole)
        });
        let numeric = wanted.contains("integer") || wanted == "number";
        // If there is a format, lists count as texts: the real server checks the format first, and only for texts.
        let is_passed_on = matches!(value, Value::Array(_) | Value::String(_)) && !format.is_empty() && !numeric;
        if fits || is_passed_on {
            return;
        }
        if !format.is_empty() && !matches!(value, Value::Array(_) | Value::String(_) | Value::Null) {
            self.wrong_type(name, format, found_format);
        } else {
            self.wrong_type(name, wanted, found);
        }
    }

    fn text(&mut self, text: &str, schema: &Value, name: &str) {
        let length = text.chars().count() as u64;
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            let bytes = if most == 1 { "byte" } else { "bytes" };
            self.add("FieldValueTooLong", name, format!("Too long: may not be more than {most} {bytes}"));
        } else if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
            self.invalid(name, &format!("{text:?}"), &format!("should be at least {least} chars long"));
        } else if let Some(pattern) = schema["pattern"].as_str().filter(|pattern| !matches(pattern, text)) {
            self.invalid(name, &format!("{text:?}"), &format!("should match '{pattern}'"));
        }
        if let Some(format) = schema["format"].as_str().filter(|format| !has_format(format, text)) {
            self.wrong_type(name, format, text);
        }
    }

    fn number(&mut self, value: &Value, schema: &Value, name: &str) {
        let number = value.as_f64().unwrap_or_default();
        let text = value.to_string();
        let format = schema["format"].as_str().unwrap_or_default();
        let fits = match value.as_i64() {
            Some(number) => format != "int32" || i32::try_from(number).is_ok(),
            None => number.fract() == 0.0,
        };
        if schema["type"] == "integer" && !fits {
            let format =
                if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
            let why = format!("Checked value must be of type integer {format} in {name}");
            self.causes.push(Cause::invalid(self.prefix, "\"\"", &why));
        }
        let limit = |name: &str| schema[name].as_f64();
        // Integers are exact: as a floating-point number, the largest one is a power of two.
        let is_multiple = |step: f64| match (value.as_i64(), schema["multipleOf"].as_i64()) {
            (Some(number), Some(step)) => number.checked_rem(step) == Some(0),
            _ => (number / step).fract() == 0.0,
        };
        if let Some(step) = limit("multipleOf").filter(|step| !is_multiple(*step)) {
            self.invalid(name, &text, &format!("should be a multiple of {step}"));
        }
        let (least, most) = (&schema["minimum"], &schema["maximum"]);
        let or_equal = |exclusive: &str| if schema[exclusive] == true { "" } else { " or equal to" };
        let beyond = |exclusive: &str, beyond: bool, at: bool| beyond || (at && schema[exclusive] == true);
        if most.as_f64().is_some_and(|most| beyond("exclusiveMaximum", number > most, number >= most)) {
            self.invalid(name, &text, &format!("should be less than{} {most}", or_equal("exclusiveMaximum")));
        }
        if least.as_f64().is_some_and(|least| beyond("exclusiveMinimum", number < least, number <= least)) {
            self.invalid(name, &text, &format!("should be greater than{} {least}", or_equal("exclusiveMinimum")));
        }
    }

    fn list(&mut self, items: &[Value], schema: &Value, old: Option<&Value>, name: &str) {
        for (index, item) in items.iter().enumerate() {
            if let Some(below) = schema.get("items") {
                self.value(item, below, correlated(item, schema, old), &format!("{name}[{index}]"));
            }
        }
        let count = items.len() as u64;
        if let Some(least) = schema["minItems"].as_u64().filter(|least| count < *least) {
            self.invalid(name, &count.to_string(), &format!("should have at least {least} items"));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
            self.too_many(name, items.len(), most);
        }
    }

    fn fields(&mut self, fields: &Map<String, Value>, schema: &Value, old: Option<&Value>, name: &str) {
        let count = fields.len() as u64;
        if let Some(least) = schema["minProperties"].as_u64().filter(|least| count < *least) {
            self.invalid(name, &count.to_string(), &format!("should have at least {least} properties"));
        }
        if let Some(most) = schema["maxProperties"].as_u64().filter(|most| count > *most) {
            self.too_many(name, fields.len(), most);
        }
        for (field, value) in fields {
            let dot = if name.is_empty() { "" } else { "." };
            let more = schema.get("additionalProperties").filter(|more| more.is_object());
            if let Some(schema) = schema["properties"].get(field).or(more) {
                self.value(value, schema, old.and_then(|old| old.get(field)), &format!("{name}{dot}{field}"));
            }
        }
        for field in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(field) {
                self.add("FieldValueRequired", &format!("{name}.{field}"), "Required value".to_owned());
            }
        }
    }
}

/// Checks that sets and keyed lists have no duplicate items.
fn unique_items(value: &Value, schema: &Value, at: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if at.is_empty() { "" } else { "." };
                if let Some(schema) = schema["properties"].get(name) {
                    unique_items(value, schema, &format!("{at}{dot}{name}"), causes);
                } else if schema["additionalProperties"].is_object() {
                    unique_items(value, &schema["additionalProperties"], &format!("{at}[{name}]"), causes);
                }
            }
        }
        Value::Array(items) => {
            let key = |item: &Value| {
                let found = list_keys(schema).filter_map(|key| Some((key.to_owned(), item.get(key)?.clone())));
                Value::Object(found.collect())
            };
            let keys: Vec<Value> = match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => items.clone(),
                Some("map") => {
                    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
                        let why = "must be an object for an array of list-type map";
                        causes.push(Cause::invalid(&format!("{at}[{index}]"), &items[index].to_string(), why));
                        Vec::new()
                    } else {
                        items.iter().map(key).collect()
                    }
                }
                _ => Vec::new(),
            };
            for (index, key) in keys.iter().enumerate() {
                if keys[..index].iter().filter(|it| *it == key).count() == 1 {
                    let message = format!("Duplicate value: {key}");
                    causes.push(Cause::new("FieldValueDuplicate", &format!("{at}[{index}]"), message));
                }
            }
            for (index, item) in items.iter().enumerate() {
                unique_items(item, &schema["items"], &format!("{at}[{index}]"), causes);
            }
        }
        _ => {}
    }
}

/// Whether a text matches. An invalid pattern matches nothing.
fn matches(pattern: &str, text: &str) -> bool {
    static KNOWN: LazyLock<Mutex<HashMap<String, Option<Regex>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock();
    let regex = known.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// Whether a text has a format. Formats that the model does not know are not checked.
fn has_format(format: &str, text: &str) -> bool {
    let is_date = |text: &str| text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok();
    match format {
        "date" => is_date(text),
        "date-time" => {
            let lower = text.to_ascii_lowercase();
            let time = r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$";
            lower.split_once('t').is_some_and(|(date, rest)| is_date(date) && matches(time, rest))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "spec": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]+$", "x-kubernetes-validations": [
                    {"rule": "self == oldSelf", "message": "name stays"},
                ]},
                "count": {"type": "integer", "format": "int32", "minimum": 1},
                "mode": {"type": "string", "enum": ["A", "B"]},
                "step": {"type": "integer", "format": "int64", "multipleOf": 512},
                "items": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["key"], "items": {"type": "object", "properties": {
                        "key": {"type": "string"}, "level": {"type": "integer", "maximum": 5},
                    }}},
            }},
            "status": {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}},
        }})
    }

    /// The causes of a refused write, as `field: message`, without the note that rules were skipped.
    fn causes(new: &Value, old: Option<&Value>, is_status: bool) -> Vec<String> {
        let all = object(&schema(), None, new, old, is_status);
        all.into_iter().filter(|it| it.field != "<nil>").map(|it| format!("{}: {}", it.field, it.message)).collect()
    }

    #[test]
    fn each_schema_keyword_reports_its_error() {
        for (spec, expected) in [
            (json!({"name": "a", "count": 1, "mode": "A", "items": []}), None),
            (json!({}), Some("spec.name: Required value")),
            (json!({"name": "long"}), Some("spec.name: Too long: may not be more than 3 bytes")),
            (json!({"name": "A"}), Some("spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'")),
            (
                json!({"name": "a", "count": 0}),
                Some("spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1"),
            ),
            (
                json!({"name": "a", "count": "1"}),
                Some("spec.count: Invalid value: \"string\": spec.count in body must be of type integer: \"string\""),
            ),
            (
                json!({"name": "a", "mode": "C"}),
                Some("spec.mode: Unsupported value: \"C\": supported values: \"A\", \"B\""),
            ),
            (json!({"name": "a", "step": -1024}), None),
            (
                json!({"name": "a", "step": i64::MAX}),
                Some("spec.step: Invalid value: 9223372036854775807: spec.step in body should be a multiple of 512"),
            ),
            (json!({"name": "a", "items": [{}, {}, {}]}), Some("spec.items: Too many: 3: must have at most 2 items")),
            (
                json!({"name": "a", "items": [{"key": "x"}, {"key": "x"}]}),
                Some("spec.items[1]: Duplicate value: {\"key\":\"x\"}"),
            ),
        ] {
            let found = causes(&json!({"spec": spec}), None, false);
            assert_eq!(found.first().map(String::as_str), expected, "{spec}");
        }
    }

    #[test]
    fn unchanged_invalid_values_are_accepted() {
        let old = json!({"spec": {"name": "a", "count": 0, "items": [{"key": "x", "level": 9}, {"key": "y"}]}});
        let new =
            json!({"spec": {"name": "a", "count": 0, "items": [{"key": "y", "level": 8}, {"key": "x", "level": 9}]}});
        let why = "Invalid value: 8: spec.items[0].level in body should be less than or equal to 5";
        assert_eq!(causes(&new, Some(&old), false), [format!("spec.items[0].level: {why}")]);
    }

    #[test]
    fn rules_see_the_old_value_and_skip_wrongly_typed_objects() {
        let (old, new) = (json!({"spec": {"name": "a"}}), json!({"spec": {"name": "b"}}));
        assert_eq!(causes(&new, Some(&old), false), ["spec.name: Invalid value: \"b\": name stays"]);
        assert_eq!(causes(&new, None, false), [""; 0]);
        let all = object(&schema(), None, &json!({"spec": {"name": 1}}), Some(&old), false);
        assert_eq!(all.last().expect("a cause").field, "<nil>");
    }

    #[test]
    fn status_write_validates_only_the_status() {
        let why = "Invalid value: \"noon\": at in body must be of type date-time: \"noon\"";
        let new = json!({"spec": {"name": "LONG"}, "status": {"at": "noon"}});
        assert_eq!(causes(&new, Some(&json!({"spec": {"name": "LONG"}})), true), [format!("status.at: {why}")]);
    }
}

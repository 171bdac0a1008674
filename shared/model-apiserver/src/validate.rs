//! What a custom resource may be: its schema's values, unique list items, replicas, rules. Pure.
//!
//! Causes and their words are those of Kubernetes 1.36 (kube-openapi's `validate` and `apiextensions-apiserver`).

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use regex::Regex;
use serde_json::{Map, Value};

use crate::{kind::Scale, rules};

/// One reason to refuse an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    pub(crate) fn new(reason: &'static str, field: &str, message: String) -> Self {
        // Go prints a path of nothing like this.
        let field = if field.is_empty() { "<nil>" } else { field };
        Self { reason, message, field: field.to_owned() }
    }

    pub(crate) fn invalid(field: &str, value: &str, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
    }

    /// Whether rules are left out: they may count on values having their types, sizes and required fields.
    fn blocks_rules(&self) -> bool {
        [
            "FieldValueNotSupported",
            "FieldValueRequired",
            "FieldValueTooLong",
            "FieldValueTooMany",
            "FieldValueTypeInvalid",
        ]
        .contains(&self.reason)
    }
}

/// Everything that is wrong with an object. Of an update, what was wrong before in the same place and has not changed is
/// left alone.
pub(crate) fn object(
    schema: &Value,
    scale: Option<&Scale>,
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
        let spec = (!is_status).then_some(&scale.spec);
        causes.extend(spec.into_iter().chain([&scale.status]).filter_map(|pointer| replicas(new, pointer)));
        causes.extend(scale.selector.as_ref().and_then(|pointer| nested(new, pointer, "string").err()));
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
    /// Where the schema's root is in the object.
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
        // With a format, lists pass for texts: the format is looked at first, and only that of texts.
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
        if let Some(step) = limit("multipleOf").filter(|step| (number / step).fract() != 0.0) {
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

/// The item of the old list that a new one stands for: only lists with keys have one.
pub(crate) fn correlated<'a>(item: &Value, schema: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    if schema["x-kubernetes-list-type"] != "map" {
        return None;
    }
    let keys: Vec<&str> = list_keys(schema).collect();
    old?.as_array()?.iter().find(|it| keys.iter().all(|key| it.get(key) == item.get(key)))
}

fn list_keys(schema: &Value) -> impl Iterator<Item = &str> {
    schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Sets and lists with keys have no item twice.
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

/// What is wrong with a number of replicas.
fn replicas(object: &Value, pointer: &str) -> Option<Cause> {
    let path = pointer.replace('/', ".");
    match nested(object, pointer, "int64") {
        Err(cause) => Some(cause),
        Ok(value) => {
            let count = value.and_then(Value::as_i64).unwrap_or_default();
            let most = i64::from(i32::MAX);
            let why = match count {
                ..0 => "should be a non-negative integer".to_owned(),
                _ if count > most => format!("should be less than or equal to {most}"),
                _ => return None,
            };
            Some(Cause::invalid(&path, &count.to_string(), &why))
        }
    }
}

/// The value at a pointer, unless it has another type or the way there is none.
fn nested<'a>(object: &'a Value, pointer: &str, wanted: &str) -> Result<Option<&'a Value>, Cause> {
    let path = pointer.replace('/', ".");
    let empty = if wanted == "string" { "\"\"" } else { "0" };
    let refused = |value: &Value, wanted: &str| {
        let why = format!("{path} accessor error: {} is of the type {}, expected {wanted}", go(value), go_type(value));
        Cause::invalid(&path, empty, &why)
    };
    let mut value = object;
    for name in pointer.trim_start_matches('/').split('/') {
        match value {
            Value::Object(fields) => match fields.get(name) {
                Some(below) => value = below,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => return Err(refused(other, "map[string]interface{}")),
        }
    }
    let fits = if wanted == "string" { value.is_string() } else { value.is_i64() };
    if fits { Ok(Some(value)) } else { Err(refused(value, wanted)) }
}

/// A value as Go's `%v` prints it.
fn go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}:{}", go(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Whether a text matches; a pattern that is none matches nothing.
fn matches(pattern: &str, text: &str) -> bool {
    static KNOWN: LazyLock<Mutex<HashMap<String, Option<Regex>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let regex = known.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// Whether a text has a format; one that is not known here is not looked at.
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

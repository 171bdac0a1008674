//! CEL rules of a schema: `x-kubernetes-validations`. Pure.
//!
//! The evaluator is the `cel` crate with the functions that Kubernetes adds. It does not know the types of the schema: dates are
//! texts, and a type error in a rule shows only when the rule is evaluated. It counts no costs, and does not support
//! `messageExpression` and `optionalOldSelf`.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, Program,
        objects::{Key, Map, Value as Cel},
    },
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::cause::Cause;

/// Whether a schema has any rule.
pub(crate) fn any(schema: &Value) -> bool {
    !own(schema).is_empty() || children(schema).any(any)
}

/// The first rule that does not parse, with the reason.
pub(crate) fn read_all(schema: &Value) -> Result<(), String> {
    for rule in own(schema) {
        program(rule["rule"].as_str().unwrap_or_default())?;
    }
    children(schema).try_for_each(read_all)
}

fn own(schema: &Value) -> &[Value] {
    schema["x-kubernetes-validations"].as_array().map_or(&[], Vec::as_slice)
}

fn children(schema: &Value) -> impl Iterator<Item = &Value> {
    let named = schema["properties"].as_object().into_iter().flat_map(serde_json::Map::values);
    named.chain(["items", "additionalProperties"].map(|name| &schema[name]).into_iter().filter(|it| it.is_object()))
}

/// Evaluates all rules on an object, and adds the causes of violations.
pub(crate) fn check(new: &Value, schema: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let mut root = new.clone();
    // Rules can read only the names in the metadata.
    if let Some(metadata) = root["metadata"].as_object_mut() {
        metadata.retain(|name, _| name == "name" || name == "generateName");
    }
    below(&Place { at: "", is_same: old == Some(new) }, &root, schema, old, causes);
}

struct Place<'a> {
    at: &'a str,
    /// Whether the nearest enclosing value that existed before is unchanged.
    is_same: bool,
}

fn below(place: &Place<'_>, value: &Value, schema: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if value.is_null() {
        return;
    }
    for rule in own(schema) {
        causes.extend(broken(rule, place, value, schema, old));
    }
    let mut go = |at: String, value: &Value, schema: &Value, old: Option<&Value>| {
        let place = Place { at: &at, is_same: old.map_or(place.is_same, |old| old == value) };
        below(&place, value, schema, old, causes);
    };
    let at = place.at;
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                go(format!("{at}[{index}]"), item, &schema["items"], correlated(item, schema, old));
            }
        }
        Value::Object(fields) => {
            let dot = if at.is_empty() { "" } else { "." };
            for (name, value) in fields {
                let old = old.and_then(|old| old.get(name));
                if let Some(schema) = schema["properties"].get(name) {
                    go(format!("{at}{dot}{name}"), value, schema, old);
                } else if schema["additionalProperties"].is_object() {
                    go(format!("{at}[{name}]"), value, &schema["additionalProperties"], old);
                }
            }
        }
        _ => {}
    }
}

/// The cause if a value violates a rule.
fn broken(rule: &Value, place: &Place<'_>, value: &Value, schema: &Value, old: Option<&Value>) -> Option<Cause> {
    let text = rule["rule"].as_str().unwrap_or_default();
    let program = match program(text) {
        Ok(program) => program,
        Err(error) => return Some(Cause::invalid(place.at, "\"\"", &format!("rule compile error: {error}"))),
    };
    let compares = program.references().has_variable("oldSelf");
    if compares && old.is_none() || !compares && place.is_same {
        return None;
    }
    let kind = schema["type"].as_str().unwrap_or_default();
    let message = rule["message"].as_str();
    match evaluate(&program, value, old) {
        Ok(Cel::Bool(true)) => None,
        Ok(_) => {
            let why = message.map_or_else(|| format!("failed rule: {text}"), |message| message.trim().to_owned());
            let reason = match rule["reason"].as_str() {
                Some("FieldValueForbidden") => "FieldValueForbidden",
                Some("FieldValueRequired") => "FieldValueRequired",
                Some("FieldValueDuplicate") => "FieldValueDuplicate",
                _ => "FieldValueInvalid",
            };
            let message = match reason {
                "FieldValueForbidden" => format!("Forbidden: {why}"),
                "FieldValueRequired" => format!("Required value: {why}"),
                "FieldValueDuplicate" => format!("Duplicate value: {value}"),
                _ if ["object", "array"].contains(&kind) => format!("Invalid value: {why}"),
                _ => format!("Invalid value: {value}: {why}"),
            };
            Some(Cause::new(reason, place.at, message))
        }
        Err(error) => {
            let why = match error {
                ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
                other => other.to_string(),
            };
            let why = format!("{why} evaluating rule: {}", message.unwrap_or(text));
            Some(Cause::invalid(place.at, &format!("{kind:?}"), &why))
        }
    }
}

fn evaluate(program: &Program, value: &Value, old: Option<&Value>) -> Result<Cel, ExecutionError> {
    thread_local! {
        // Share one context: registering all functions takes longer than evaluating a rule.
        static FUNCTIONS: Context<'static> = Context::default().with_all();
    }
    FUNCTIONS.with(|functions| {
        let mut context = functions.new_inner_scope();
        context.add_variable_from_value("self", cel(value));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", cel(old));
        }
        program.execute(&context)
    })
}

/// Makes all integers signed, as in Kubernetes.
fn cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| Cel::Float(number.as_f64().unwrap_or_default()), Cel::Int)
        }
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(cel).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (Key::String(Arc::new(name.clone())), cel(value)));
            Cel::Map(Map { map: Arc::new(fields.collect()) })
        }
    }
}

/// Compiles a rule. Caches the result, because tests install the same definitions again and again.
fn program(rule: &str) -> Result<Arc<Program>, String> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Program>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock();
    if let Some(program) = known.get(rule) {
        return Ok(program.clone());
    }
    let program = Program::compile(rule).map_err(|error| format!("the rule {rule:?} does not compile: {error}"))?;
    let program = Arc::new(program);
    known.insert(rule.to_owned(), program.clone());
    Ok(program)
}

/// The item of the old list that corresponds to a new item. Only keyed lists have one.
pub(crate) fn correlated<'a>(item: &Value, schema: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    if schema["x-kubernetes-list-type"] != "map" {
        return None;
    }
    let keys: Vec<&str> = list_keys(schema).collect();
    old?.as_array()?.iter().find(|it| keys.iter().all(|key| it.get(key) == item.get(key)))
}

/// The keys of a keyed list.
pub(crate) fn list_keys(schema: &Value) -> impl Iterator<Item = &str> {
    schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

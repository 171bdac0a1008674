//! Steps of field paths.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

/// One step of a path, in the notation of `fieldsV1`: `f:name`, `k:{"name":"app"}`, `v:"x"` or `i:0`.
pub(crate) type Step = Arc<str>;

/// The step to the item of a keyed list.
pub(crate) fn keyed(keys: Map<String, Value>) -> Step {
    format!("k:{}", escaped(&sorted(keys))).into()
}

/// The step to the item of a set.
pub(crate) fn valued(value: &Value) -> Step {
    format!("v:{}", escaped(value)).into()
}

/// Sorts the keys by name, because the order of the map may differ.
fn sorted(keys: Map<String, Value>) -> Value {
    let sorted: BTreeMap<String, Value> = keys.into_iter().collect();
    Value::Object(sorted.into_iter().collect())
}

/// JSON as Go writes it: with HTML characters escaped.
fn escaped(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// A path in the notation of error messages: `.spec.containers[name="app"].image`.
pub(crate) fn display(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step.split_once(':') {
            Some(("f", name)) => {
                out.push('.');
                out.push_str(name);
            }
            Some(("k", keys)) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let pairs: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={}", shown(value))).collect();
                out = format!("{out}[{}]", pairs.join(","));
            }
            Some(("v", value)) => out = format!("{out}[={value}]"),
            Some((_, index)) => out = format!("{out}[{index}]"),
            None => {}
        }
    }
    out
}

/// A value in the notation of paths.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect::<Vec<_>>().concat()
        }
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

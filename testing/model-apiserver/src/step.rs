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

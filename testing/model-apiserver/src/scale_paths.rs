//! The fields of an object that its `scale` subresource represents.

use serde_json::Value;

use crate::cause::Cause;

/// The fields that the `scale` subresource reads and writes, as JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

impl ScalePaths {
    /// Validates the fields of an object that its scale represents.
    pub(crate) fn causes(&self, object: &Value, is_status: bool) -> Vec<Cause> {
        let spec = (!is_status).then_some(&self.spec);
        let counts = spec.into_iter().chain([&self.status]).filter_map(|pointer| replicas(object, pointer));
        let selector = self.selector.as_ref().and_then(|pointer| nested(object, pointer, "string").err());
        counts.chain(selector).collect()
    }
}

/// Validates a number of replicas.
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

/// The value at a pointer, if it has the wanted type and the path to it exists.
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

/// Formats a value as Go's `%v` does.
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

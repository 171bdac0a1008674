//! The `scale` subresource: a small object that represents the replicas of a larger one.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kind::{Kind, Scale},
    managed,
    refusal::Refusal,
    request::{RequestInfo, Verb},
    shape::Shape,
    state::State,
    validate::Cause,
    write::{Answer, Target, pointers},
};

impl State {
    /// Handles GET, PUT and PATCH of a scale.
    pub(crate) fn scale(&mut self, target: &Target, scale: &Scale, request: &RequestInfo) -> Result<Answer, Refusal> {
        let kind = &target.kind;
        let found = self.get(&kind.resource(), &target.key());
        let old = found.ok_or_else(|| Refusal::not_found(kind.named(), &target.name))?;
        let before = view(kind, scale, &old);
        let is_set = old.pointer(&scale.spec).is_some_and(|replicas| !replicas.is_null());
        let path = scale.spec.replace('/', ".");
        let mut view = before.clone();
        match request.verb {
            Verb::Get if is_set => return Ok(Answer::ok(view)),
            Verb::Get => {
                let message = format!("the spec replicas field {path:?} does not exist");
                let causes = json!([{"message": message}]);
                let refusal = Refusal::new(500, "InternalError", format!("Internal error occurred: {message}"));
                return Err(refusal.with("causes", causes));
            }
            Verb::Update => {
                view = serde_json::from_slice(&request.body)
                    .map_err(|error| Refusal::bad_request(format!("error decoding the scale: {error}")))?;
            }
            Verb::Patch => {
                crate::patch::change(&mut view, request, false, &Shape::Plain)?;
                if !is_set && view["spec"].get("replicas").is_none() {
                    return Err(Refusal::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
                }
            }
            _ => return Err(Refusal::method_not_allowed()),
        }
        let mut new = (*old).clone();
        let replicas = view["spec"]["replicas"].as_i64().unwrap_or_default();
        let (parent, field) = scale.spec.rsplit_once('/').unwrap_or(("", &scale.spec));
        if let Some(parent) = new.pointer_mut(parent) {
            parent[field] = replicas.into();
        }
        for field in ["resourceVersion", "uid"] {
            if let Some(sent) = view["metadata"].get(field).filter(|sent| **sent != "") {
                new["metadata"][field] = sent.clone();
            }
        }
        if replicas == 0 {
            view["spec"].as_object_mut().map(|spec| spec.remove("replicas"));
        }
        let of = pointers(&[&scale.spec]);
        let now = self.time();
        target.booked(&now, |writing| managed::scale(&mut new, &of, &before, &mut view.clone(), writing));
        let stored = self.update(target, &old, new)?;
        Ok(Answer::ok(self::view(kind, scale, &Arc::new(stored))))
    }
}

fn view(kind: &Kind, scale: &Scale, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut view = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {},
        "status": {"replicas": object.pointer(&scale.status).and_then(Value::as_i64).unwrap_or_default()},
    });
    if let Some(replicas) = object.pointer(&scale.spec).filter(|replicas| **replicas != 0 && !replicas.is_null()) {
        view["spec"]["replicas"] = replicas.clone();
    }
    let selector = match &scale.selector {
        Some(pointer) => object.pointer(pointer).and_then(Value::as_str).map(str::to_owned),
        None if kind.custom => None,
        None => {
            let labels = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
            let pairs = labels.into_iter().flatten();
            let pairs: Vec<String> =
                pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
            Some(pairs.join(","))
        }
    };
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        view["status"]["selector"] = selector.into();
    }
    view
}

impl Scale {
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

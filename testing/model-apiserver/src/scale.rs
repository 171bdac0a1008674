//! The `scale` subresource: a small object that represents the replicas of a larger one.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kind::Kind,
    managed,
    refusal::Refusal,
    request::{RequestInfo, Verb},
    scale_paths::ScalePaths,
    shape::Shape,
    state::State,
    write::{Answer, Target, pointers},
};

impl State {
    /// Handles GET, PUT and PATCH of a scale.
    pub(crate) fn scale(
        &mut self,
        target: &Target,
        scale: &ScalePaths,
        request: &RequestInfo,
    ) -> Result<Answer, Refusal> {
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

fn view(kind: &Kind, scale: &ScalePaths, object: &Value) -> Value {
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

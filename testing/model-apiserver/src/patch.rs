//! PATCH requests: JSON patch, merge patch, a part of strategic merge patch, and server-side apply.

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::Value;

use crate::{
    managed,
    refusal::Refusal,
    request::RequestInfo,
    shape::{Class, Shape},
    state::State,
    write::{Answer, Target, check_url, in_namespace},
};

/// The content type of server-side apply. The model parses the body as JSON, which is valid YAML and which kube sends.
const APPLY: &str = "application/apply-patch+yaml";

impl State {
    /// Handles a PATCH.
    pub(crate) fn patch(&mut self, target: &Target, request: &RequestInfo) -> Result<Answer, Refusal> {
        match &*request.content_type {
            "application/json-patch+json"
            | "application/merge-patch+json"
            | "application/strategic-merge-patch+json" => self.patch_present(target, request),
            APPLY => self.apply(target, request),
            other => Err(Refusal::new(
                415,
                "UnsupportedMediaType",
                format!(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, {APPLY} (got {other:?})"
                ),
            )),
        }
    }

    fn patch_present(&mut self, target: &Target, request: &RequestInfo) -> Result<Answer, Refusal> {
        let kind = &target.kind;
        if request.flag("force") {
            let cause =
                ("FieldValueForbidden", "Forbidden: may not be specified for non-apply patch".to_owned(), "force");
            return Err(Refusal::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        let Some(old) = self.get(&kind.resource(), &target.key()) else {
            return Err(Refusal::not_found(kind.named(), &target.name));
        };
        let mut new = (*old).clone();
        change(&mut new, request, kind.custom, &kind.shape)?;
        kind.decode(&mut new);
        check_url(&new, target)?;
        in_namespace(&mut new, &target.namespace)?;
        target.booked(&self.time(), |writing| managed::update(&old, &mut new, writing));
        self.update(target, &old, new).map(Answer::ok)
    }

    fn apply(&mut self, target: &Target, request: &RequestInfo) -> Result<Answer, Refusal> {
        let kind = &target.kind;
        if request.text("fieldManager").is_empty() {
            let message = "Required value: is required for apply patch".to_owned();
            let cause = ("FieldValueRequired", message, "fieldManager");
            return Err(Refusal::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        let config: Value = serde_json::from_slice(&request.body)
            .map_err(|error| Refusal::bad_request(format!("error decoding YAML: {error}")))?;
        let version = config["apiVersion"].as_str().unwrap_or_default();
        if version != kind.api_version() {
            return Err(Refusal::bad_request(format!(
                "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
                kind.api_version()
            )));
        }
        if config["metadata"].get("managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(Refusal::bad_request("metadata.managedFields must be nil"));
        }
        let (old, force) = (self.get(&kind.resource(), &target.key()), request.flag("force"));
        if old.is_none() && !target.subresource.is_empty() {
            return Err(Refusal::not_found(kind.named(), &target.name));
        }
        let mut empty = (kind.zero)();
        empty["apiVersion"] = kind.api_version().into();
        empty["kind"] = kind.kind.as_str().into();
        let live = old.as_deref().unwrap_or(&empty);
        let mut new = target.booked(&self.time(), |writing| {
            managed::apply(live, &config, &kind.untyped(&config, false), force, writing)
        })?;
        kind.decode_applied(&mut new);
        new["apiVersion"] = kind.api_version().into();
        new["kind"] = kind.kind.as_str().into();
        if old.is_none()
            && let Some(uid) = new["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty())
        {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Refusal::conflict(kind.named(), &target.name, &why));
        }
        check_url(&new, target)?;
        in_namespace(&mut new, &target.namespace)?;
        match old {
            Some(old) => self.update(target, &old, new).map(Answer::ok),
            None => self.create(target, new).map(Answer::created),
        }
    }
}

/// Applies the patch in the request to an object.
pub(crate) fn change(object: &mut Value, request: &RequestInfo, custom: bool, shape: &Shape) -> Result<(), Refusal> {
    let broken = |error: serde_json::Error| Refusal::bad_request(format!("error decoding patch: {error}"));
    let refused = || {
        let message = "the server rejected our request due to an error in our request";
        Refusal::new(422, "Invalid", message).with_empty_details()
    };
    match &*request.content_type {
        "application/json-patch+json" => {
            let patch: json_patch::Patch = serde_json::from_slice(&request.body).map_err(broken)?;
            patch.0.into_iter().try_for_each(|operation| {
                let operation = [replacing(operation, object)];
                json_patch::patch(object, &operation).map_err(|_| refused())
            })
        }
        "application/merge-patch+json" => {
            let patch: Value = serde_json::from_slice(&request.body).map_err(broken)?;
            json_patch::merge(object, &patch);
            Ok(())
        }
        _ if custom => Err(Refusal::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, {APPLY}"
            ),
        )),
        _ => {
            let patch: Value = serde_json::from_slice(&request.body).map_err(broken)?;
            strategic(object, &patch, shape);
            Ok(())
        }
    }
}

/// Relaxes `replace`, as the real server does: a field of an object need not exist.
fn replacing(operation: PatchOperation, object: &Value) -> PatchOperation {
    match operation {
        PatchOperation::Replace(ReplaceOperation { path, value })
            if path.parent().and_then(|parent| parent.resolve(object).ok()).is_some_and(Value::is_object) =>
        {
            PatchOperation::Add(AddOperation { path, value })
        }
        other => other,
    }
}

/// Applies a strategic merge patch without directives: merges keyed lists by their keys, adds to sets, replaces other lists.
fn strategic(object: &mut Value, patch: &Value, shape: &Shape) {
    match (&mut *object, patch) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in new {
                let below = shape.field(name).0;
                if value.is_null() {
                    old.remove(name);
                } else if let Some(before) = old.get_mut(name) {
                    strategic(before, value, below);
                } else {
                    old.insert(name.clone(), value.clone());
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if shape.class(patch) == Class::List => {
            for item in new {
                let step = shape.step(item).ok();
                match old.iter_mut().find(|it| step.is_some() && shape.step(it).ok() == step) {
                    Some(before) => strategic(before, item, shape.element()),
                    None => old.push(item.clone()),
                }
            }
        }
        _ => *object = patch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_strategic_patch_merges_lists_by_their_keys() {
        let mut object =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}}}});
        let patch =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}}}});
        strategic(&mut object, &patch, &Shape::builtin("Deployment"));
        let containers = json!([{"name": "a", "image": "2"}, {"name": "b"}, {"name": "c"}]);
        assert_eq!(object["spec"]["template"]["spec"]["containers"], containers);
    }
}

//! GET and LIST requests.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kind::Kind,
    refusal::Refusal,
    request::RequestInfo,
    selector::Selector,
    state::State,
    write::{Answer, Target},
};

impl State {
    /// Handles a GET of one object. Whatever version it requests, the answer has the newest one.
    pub(crate) fn read(&self, target: &Target) -> Result<Answer, Refusal> {
        let kind = &target.kind;
        let found = self.get(&kind.resource(), &target.key());
        let object = found.ok_or_else(|| Refusal::not_found(kind.named(), &target.name))?;
        Ok(Answer::ok(served(kind, Arc::unwrap_or_clone(object))))
    }

    /// Handles a LIST.
    pub(crate) fn list(&self, kind: &Kind, request: &RequestInfo) -> Result<Answer, Refusal> {
        let (labels, fields) = (request.text("labelSelector"), request.text("fieldSelector"));
        let selector = Selector::read(kind, &request.namespace, labels, fields)?;
        let asked = request.text("resourceVersion");
        let (token, any) = (request.text("continue"), asked == "0");
        self.check_version(asked)?;
        // The real server answers a list at any version from its watch cache, which has no pages.
        let limit = request.text("limit").parse().ok().filter(|limit| *limit > 0 && !any).unwrap_or(usize::MAX);
        let (version, start) = if token.is_empty() { (self.version, "") } else { read_token(token)? };
        let exact = token.is_empty() && request.text("resourceVersionMatch") == "Exact";
        let version = if exact { asked.parse().unwrap_or(version) } else { version };
        let objects = self.all_at(&kind.resource(), version).ok_or_else(|| {
            Refusal::expired(if exact {
                format!("The resourceVersion for the provided list is too old: {version} ({})", self.compacted)
            } else {
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - \
                 objects that were created, modified, or deleted between the time the first chunk was returned and now \
                 may show up in the list."
                    .to_owned()
            })
        })?;
        let mut matching = objects.iter().filter(|(key, object)| key.as_str() >= start && selector.matches(object));
        let items: Vec<Value> = matching.by_ref().take(limit).map(|(_, object)| (**object).clone()).collect();
        let mut list = self.listed(kind, items);
        list["metadata"]["resourceVersion"] = version.to_string().into();
        if let Some((next, _)) = matching.next() {
            list["metadata"]["continue"] = write_token(version, next).into();
            if !selector.is_picky() {
                list["metadata"]["remainingItemCount"] = (matching.count() + 1).into();
            }
        }
        Ok(Answer::ok(list))
    }

    /// Refuses a version that the server has not reached yet.
    pub(crate) fn check_version(&self, asked: &str) -> Result<(), Refusal> {
        if asked.is_empty() {
            return Ok(());
        }
        let version: u64 = asked.parse().map_err(|_| {
            let cause = (
                "FieldValueInvalid",
                format!("Invalid value: {asked:?}: strconv.ParseUint: parsing {asked:?}: invalid syntax"),
                "resourceVersion",
            );
            Refusal::invalid("meta.k8s.io", "ListOptions", "", &[cause])
        })?;
        if version <= self.version {
            return Ok(());
        }
        let message = format!("Too large resource version: {version}, current: {}", self.version);
        Err(Refusal::new(504, "Timeout", format!("Timeout: {message}"))
            .with("causes", json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]))
            .with("retryAfterSeconds", 1))
    }

    /// The body of a list of objects of this kind.
    pub(crate) fn listed(&self, kind: &Kind, items: Vec<Value>) -> Value {
        let items: Vec<Value> = items
            .into_iter()
            .map(|object| {
                let mut object = served(kind, object);
                if !kind.custom
                    && let Some(object) = object.as_object_mut()
                {
                    object.remove("apiVersion");
                    object.remove("kind");
                }
                object
            })
            .collect();
        let mut list = json!({
            "kind": format!("{}List", kind.kind),
            "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": self.version.to_string()},
            "items": items,
        });
        if kind.custom {
            list["metadata"]["continue"] = "".into(); // the real server prints it, too
        }
        list
    }
}

/// The object in the API version of the request.
pub(crate) fn served(kind: &Kind, mut object: Value) -> Value {
    if object["apiVersion"] != kind.api_version() {
        object["apiVersion"] = kind.api_version().into();
    }
    object
}

fn write_token(version: u64, next: &str) -> String {
    format!("v{version}.{next}")
}

fn read_token(token: &str) -> Result<(u64, &str), Refusal> {
    let read = || {
        let (version, next) = token.strip_prefix('v')?.split_once('.')?;
        Some((version.parse().ok()?, next))
    };
    read().ok_or_else(|| Refusal::bad_request(format!("continue key is not valid: {token}")))
}

//! The log of requests.

use serde_json::Value;

use crate::request::{RequestInfo, Verb};

/// One request and its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The name of the client.
    pub client: String,
    /// The verb of the request.
    pub verb: Verb,
    /// The resource with its group: `deployments.apps`.
    pub resource: String,
    /// The subresource: `status`, `scale`, or empty.
    pub subresource: String,
    /// The namespace. Empty for all namespaces and for cluster-scoped kinds.
    pub namespace: String,
    /// The name of the object; for a create, that in the body.
    pub name: String,
    /// The field manager.
    pub manager: String,
    /// The user agent.
    pub user_agent: String,
    /// The content type of the body.
    pub content_type: String,
    /// The body, if it is JSON.
    pub body: Option<Value>,
    /// The status code of the answer, also of a lost one. `None` if the request never arrived.
    pub code: Option<u16>,
    /// Whether the client received this answer.
    pub delivered: bool,
    /// Whether the request changed the state.
    pub changed: bool,
    /// Whether it was a dry run.
    pub dry_run: bool,
}

impl Entry {
    pub(crate) fn of(request: &RequestInfo) -> Self {
        let body: Option<Value> = serde_json::from_slice(&request.body).ok();
        let named = body.as_ref().and_then(|body| body.pointer("/metadata/name")).and_then(Value::as_str);
        let name = if request.verb == Verb::Create { named.unwrap_or_default() } else { &request.name };
        Self {
            client: request.client.clone(),
            verb: request.verb,
            resource: request.resource(),
            subresource: request.subresource.clone(),
            namespace: request.namespace.clone(),
            name: name.to_owned(),
            manager: request.manager().to_owned(),
            user_agent: request.user_agent.clone(),
            content_type: request.content_type.clone(),
            body,
            code: None,
            delivered: false,
            changed: false,
            dry_run: request.query.get("dryRun").is_some_and(|value| value == "All"),
        }
    }
}

/// The signature of the request for fault plans.
impl From<&Entry> for fault_plan::Request {
    fn from(entry: &Entry) -> Self {
        let (resource, group) = entry.resource.split_once('.').unwrap_or((&entry.resource, ""));
        Self {
            verb: entry.verb.as_str().to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: entry.subresource.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            dry_run: entry.dry_run,
            identity: entry.client.clone(),
            ..Self::default()
        }
    }
}

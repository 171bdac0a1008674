//! What was asked of the server.

use serde_json::Value;

use crate::request::{RequestInfo, Verb};

/// A request that the server has seen, and how it went.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The name of the client that sent it.
    pub client: String,
    /// What it asked for.
    pub verb: Verb,
    /// `deployments.apps`.
    pub resource: String,
    /// `status`, `scale`, or empty.
    pub subresource: String,
    /// Empty for all namespaces and for kinds that have none.
    pub namespace: String,
    /// The object; for a create, the name in the body.
    pub name: String,
    /// The field manager.
    pub manager: String,
    /// What the client calls itself.
    pub user_agent: String,
    /// What kind of body it is.
    pub content_type: String,
    /// The body, if it is JSON.
    pub body: Option<Value>,
    /// What the server answered, or would have; `None` if the request never arrived.
    pub code: Option<u16>,
    /// Whether the client got that answer.
    pub delivered: bool,
    /// Whether anything is different afterwards.
    pub changed: bool,
    /// Whether nothing was to be stored.
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

/// As plans of faults speak of it.
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

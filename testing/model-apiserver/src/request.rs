//! Parses HTTP requests. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, header, request::Parts};

/// The verb of a request, as in RBAC and the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of many objects.
    List,
    /// GET of a stream of changes.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of many objects.
    DeleteCollection,
}

impl Verb {
    /// Whether the verb may change something.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// The name of the verb in RBAC.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// A parsed request.
#[derive(Debug, Clone)]
pub struct RequestInfo {
    /// The name of the [client](crate::Model::client_named) that sent it.
    pub client: String,
    /// The verb of the request.
    pub verb: Verb,
    /// The HTTP method.
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version in the path.
    pub version: String,
    /// The plural of the resource; empty for other paths.
    pub plural: String,
    /// The subresource: `status`, `scale`, or empty.
    pub subresource: String,
    /// The namespace. Empty for all namespaces and for cluster-scoped kinds.
    pub namespace: String,
    /// The name of the object. Empty for lists, watches and creates.
    pub name: String,
    /// The decoded query.
    pub query: BTreeMap<String, String>,
    /// The content type of the body, which also selects the kind of patch.
    pub content_type: String,
    /// The user agent.
    pub user_agent: String,
    /// The raw body.
    pub body: Bytes,
}

impl RequestInfo {
    pub(crate) fn read(client: &str, parts: &Parts, body: Bytes) -> Self {
        let header =
            |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let query = query(parts.uri.query().unwrap_or_default());
        let path = parts.uri.path().to_owned();
        let place = Place::read(&path).unwrap_or_default();
        let watches = query.get("watch").is_some_and(|watch| watch == "true" || watch == "1");
        let verb = match parts.method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if place.name.is_empty() => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ if watches => Verb::Watch,
            _ if place.name.is_empty() => Verb::List,
            _ => Verb::Get,
        };
        Self {
            client: client.to_owned(),
            verb,
            method: parts.method.clone(),
            group: place.group,
            version: place.version,
            plural: place.plural,
            subresource: place.subresource,
            namespace: place.namespace,
            name: place.name,
            query,
            content_type: header(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_owned(),
            user_agent: header(header::USER_AGENT),
            path,
            body,
        }
    }

    /// The resource with its group: `deployments.apps`, or `pods` for the core group.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The field manager: the query parameter, else the first part of the user agent.
    pub fn manager(&self) -> &str {
        match self.query.get("fieldManager") {
            Some(manager) if !manager.is_empty() => manager,
            _ => self.user_agent.split('/').next().unwrap_or_default(),
        }
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.query.get(name).is_some_and(|value| value == "true" || value == "1")
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Place {
    group: String,
    version: String,
    namespace: String,
    plural: String,
    name: String,
    subresource: String,
}

impl Place {
    fn read(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match &*parts {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // The namespace itself, not objects in it.
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] if group.is_empty() => ("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return None,
        };
        let owned = str::to_owned;
        Some(Self {
            group: owned(group),
            version: owned(version),
            namespace: owned(namespace),
            plural: owned(plural),
            name: decoded(name),
            subresource: owned(subresource),
        })
    }
}

fn query(text: &str) -> BTreeMap<String, String> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(&value.replace('+', " ")))
        })
        .collect()
}

/// Decodes `%XX`.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => {
                let digits: String = [char::from(*high), char::from(*low)].iter().collect();
                u8::from_str_radix(&digits, 16).ok()
            }
            _ => None,
        };
        out.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> [String; 6] {
        let Place { group, version, namespace, plural, name, subresource } = Place::read(path).unwrap_or_default();
        [group, version, namespace, plural, name, subresource]
    }

    #[test]
    fn places() {
        assert_eq!(place("/api/v1/pods"), ["", "v1", "", "pods", "", ""]);
        assert_eq!(place("/api/v1/namespaces"), ["", "v1", "", "namespaces", "", ""]);
        assert_eq!(place("/api/v1/namespaces/a"), ["", "v1", "", "namespaces", "a", ""]);
        assert_eq!(place("/api/v1/namespaces/a/status"), ["", "v1", "", "namespaces", "a", "status"]);
        assert_eq!(place("/api/v1/namespaces/a/pods"), ["", "v1", "a", "pods", "", ""]);
        let deployment = "/apis/apps/v1/namespaces/a/deployments/b/status";
        assert_eq!(place(deployment), ["apps", "v1", "a", "deployments", "b", "status"]);
        assert_eq!(place("/healthz"), ["", "", "", "", "", ""]);
    }

    #[test]
    fn queries() {
        let read = query("labelSelector=a%3Db%2Cc+in+%28x%29&watch=true&force");
        assert_eq!(read["labelSelector"], "a=b,c in (x)");
        assert_eq!(read["force"], "");
    }
}

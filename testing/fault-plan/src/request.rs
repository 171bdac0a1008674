//! The signatures of requests and of watch events, without the bodies.

use std::fmt;

/// The signature of a request: everything by which a plan can distinguish requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// The Kubernetes verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`. For
    /// requests that are not for a resource, the method in capitals.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The resource's plural; empty when the request is not for a resource.
    pub resource: String,
    /// `status`, `scale`, …; mostly empty.
    pub subresource: String,
    /// The namespace. Empty for cluster-scoped resources, and for requests over all namespaces.
    pub namespace: String,
    /// The object's name. Empty for requests for a collection. [`Request::named`] sets it for a `create` once the body has been
    /// read.
    pub name: String,
    /// The path as sent, without the query.
    pub path: String,
    /// Whether the request is a dry run.
    pub dry_run: bool,
    /// The client, as far as the server knows it.
    pub identity: String,
}

/// The signature of one event of a watch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub type_: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Whether the event is the echo of a write of the watching client.
    pub own: bool,
}

impl Request {
    /// Parses a request line: method, path, and the query after the question mark.
    ///
    /// For a path outside the Kubernetes API, the verb is the method. So plans work for any HTTP service.
    pub fn parse(method: &str, path: &str, query: &str) -> Self {
        let segments: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let request = Self { verb: method.to_ascii_uppercase(), path: path.to_owned(), ..Self::default() };
        let (group, version, rest): (&str, &str, &[String]) = match segments.as_slice() {
            [api, version, rest @ ..] if api == "api" => ("", version, rest),
            [apis, group, version, rest @ ..] if apis == "apis" => (group, version, rest),
            _ => return request,
        };
        let (namespace, rest) = match rest {
            [] => return request,
            // A namespace itself and its two subresources, not an object in it.
            [word, namespace] if word == "namespaces" => (namespace.as_str(), rest),
            [word, namespace, sub] if word == "namespaces" && matches!(sub.as_str(), "status" | "finalize") => {
                (namespace.as_str(), rest)
            }
            [word, namespace, rest @ ..] if word == "namespaces" && !rest.is_empty() => (namespace.as_str(), rest),
            rest => ("", rest),
        };
        let part = |index: usize| rest.get(index).cloned().unwrap_or_default();
        let options = Options::read(query);
        let (resource, name) = (part(0), part(1));
        let verb = resource_verb(&request.verb, !name.is_empty(), options.watch);
        Self {
            verb,
            group: group.to_owned(),
            version: version.to_owned(),
            resource,
            subresource: rest.get(2..).unwrap_or_default().join("/"),
            namespace: namespace.to_owned(),
            name: if name.is_empty() { options.name } else { name },
            dry_run: options.dry_run,
            ..request
        }
    }

    /// Sets the client that sends the request.
    #[must_use]
    pub fn by(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    /// Sets the name, which a create has only in its body. A known name stays.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        if self.name.is_empty() {
            name.clone_into(&mut self.name);
        }
        self
    }

    /// Whether the answer is a stream of events.
    pub fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    /// Whether the request changes something; a dry run does not.
    pub fn is_write(&self) -> bool {
        !self.dry_run
            && matches!(
                self.verb.as_str(),
                "create" | "update" | "patch" | "delete" | "deletecollection" | "POST" | "PUT" | "PATCH" | "DELETE"
            )
    }
}

fn resource_verb(method: &str, named: bool, watch: bool) -> String {
    let verb = match (method, named) {
        ("GET" | "HEAD", _) if watch => "watch",
        ("GET" | "HEAD", false) => "list",
        ("GET" | "HEAD", true) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", false) => "deletecollection",
        ("DELETE", true) => "delete",
        (other, _) => other,
    };
    verb.to_owned()
}

impl fmt::Display for Request {
    /// Writes the request as a pattern: `patch memcacheds.cache.example.com/status shop/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.resource.is_empty() {
            return write!(f, "{} {}", self.verb, self.path);
        }
        let group = if self.group.is_empty() { "core" } else { &self.group };
        write!(f, "{} {}.{group}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !(self.namespace.is_empty() && self.name.is_empty()) {
            let name = if self.name.is_empty() { "*" } else { &self.name };
            write!(f, " {}/{name}", self.namespace)?;
        }
        f.write_str(if self.dry_run { " dry-run" } else { "" })
    }
}

/// The parameters of a query that a signature needs.
#[derive(Default)]
struct Options {
    watch: bool,
    dry_run: bool,
    name: String,
}

impl Options {
    fn read(query: &str) -> Self {
        let mut options = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decode(value);
            match name {
                "watch" => options.watch = matches!(value.as_str(), "true" | "1"),
                "dryRun" => options.dry_run = value == "All",
                // The API server treats this as a list or watch of one object.
                "fieldSelector" => {
                    let one = value.split(',').find_map(|term| term.strip_prefix("metadata.name="));
                    one.unwrap_or_default().trim_start_matches('=').clone_into(&mut options.name);
                }
                _ => {}
            }
        }
        options
    }
}

/// Decodes percent encoding. Invalid encodings stay as they are.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        rest = match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                bytes.push(hex(high).unwrap_or_default() << 4 | hex(low).unwrap_or_default());
                after
            }
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_request_is_parsed_to_verb_and_resource() {
        for (method, url, told) in [
            ("GET", "/api/v1/namespaces/shop/pods", "list pods.core shop/*"),
            ("GET", "/api/v1/pods", "list pods.core"),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=5", "watch pods.core"),
            ("GET", "/api/v1/pods?watch=true&fieldSelector=metadata.name%3Dweb-1", "watch pods.core /web-1"),
            ("GET", "/apis/apps/v1/namespaces/shop/deployments/web", "get deployments.apps shop/web"),
            ("POST", "/apis/apps/v1/namespaces/shop/deployments?fieldManager=x", "create deployments.apps shop/*"),
            ("PUT", "/apis/apps/v1/namespaces/shop/deployments/web", "update deployments.apps shop/web"),
            ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/status", "patch deployments.apps/status shop/web"),
            ("DELETE", "/apis/apps/v1/namespaces/shop/deployments/web", "delete deployments.apps shop/web"),
            ("DELETE", "/apis/apps/v1/namespaces/shop/deployments", "deletecollection deployments.apps shop/*"),
            ("PATCH", "/api/v1/nodes/n1?dryRun=All", "patch nodes.core /n1 dry-run"),
            ("GET", "/api/v1/namespaces", "list namespaces.core"),
            ("DELETE", "/api/v1/namespaces/shop", "delete namespaces.core shop/shop"),
            ("PUT", "/api/v1/namespaces/shop/finalize", "update namespaces.core/finalize shop/shop"),
            ("GET", "/apis/apps/v1", "GET /apis/apps/v1"),
            ("GET", "/version", "GET /version"),
            ("POST", "/v1/bookings/7/cancel", "POST /v1/bookings/7/cancel"),
            ("GET", "/api/v1/namespaces/a%2Fb%zz/pods/%C3%A9", "get pods.core a/b%zz/é"),
        ] {
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            assert_eq!(Request::parse(method, path, query).to_string(), told, "{method} {url}");
        }
    }

    #[test]
    fn dry_run_is_not_a_write() {
        assert!(Request::parse("PATCH", "/api/v1/nodes/n1", "").is_write());
        assert!(!Request::parse("PATCH", "/api/v1/nodes/n1", "dryRun=All").is_write());
        assert!(!Request::parse("GET", "/api/v1/nodes/n1", "").is_write());
        assert!(Request::parse("POST", "/v1/bookings", "").is_write());
    }

    #[test]
    fn create_takes_its_name_from_the_body() {
        let create = Request::parse("POST", "/api/v1/namespaces/shop/pods", "").named("web");
        assert_eq!(create.to_string(), "create pods.core shop/web");
        assert_eq!(Request::parse("GET", "/api/v1/nodes/n1", "").named("n2").name, "n1");
    }
}

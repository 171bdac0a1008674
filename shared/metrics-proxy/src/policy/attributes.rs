//! What must be allowed for a request, as Kubernetes describes it: a verb on a path or a resource.

use std::collections::BTreeSet;

use http::{HeaderName, request::Parts};
use serde::Serialize;

use super::template::Template;

/// An access that must be allowed: a verb and its target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Attributes {
    /// Always `get`: the proxy forwards nothing else.
    pub verb: &'static str,
    /// The path or the resource.
    pub target: Target,
}

/// The target of an access.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Target {
    /// A non-resource path.
    Path(String),
    /// A resource of the API server.
    Resource {
        /// Empty means all namespaces.
        namespace: String,
        /// Empty is the core group.
        group: String,
        /// Such as `v1`.
        version: String,
        /// Such as `pods`.
        resource: String,
        /// Such as `log`.
        subresource: String,
        /// Empty means all names.
        name: String,
    },
}

impl Attributes {
    /// The resource and its subresource; both empty for a path.
    pub fn resource(&self) -> (&str, &str) {
        match &self.target {
            Target::Path(_) => ("", ""),
            Target::Resource { resource, subresource, .. } => (resource, subresource),
        }
    }
}

/// Where the value of a request comes from; all values of the parameter and of the header count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rewrites {
    pub(crate) query_parameter: Option<String>,
    pub(crate) header: Option<HeaderName>,
}

/// A resource whose parts may depend on a value of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the names of Kubernetes")]
pub(crate) struct Resource {
    pub(crate) namespace: Template,
    pub(crate) group: Template,
    pub(crate) version: Template,
    pub(crate) resource: Template,
    pub(crate) subresource: Template,
    pub(crate) name: Template,
}

impl Resource {
    pub(crate) fn parts(&self) -> [&Template; 6] {
        let Self { namespace, group, version, resource, subresource, name } = self;
        [namespace, group, version, resource, subresource, name]
    }

    fn fill(&self, value: &str) -> Target {
        Target::Resource {
            namespace: self.namespace.fill(value),
            group: self.group.fill(value),
            version: self.version.fill(value),
            resource: self.resource.fill(value),
            subresource: self.subresource.fill(value),
            name: self.name.fill(value),
        }
    }
}

/// Most values of one request: each costs a review by the API server.
const MOST_VALUES: usize = 32;

/// Every access that must be allowed for the request. Empty if the request lacks the configured value, has too many values, or
/// has one in a form that the upstream might read differently; callers must refuse such a request.
pub(crate) fn attributes(
    resource: Option<&Resource>,
    rewrites: Option<&Rewrites>,
    request: &Parts,
) -> BTreeSet<Attributes> {
    let targets = match (resource, rewrites) {
        (None, _) => vec![Target::Path(request.uri.path().to_owned())],
        (Some(resource), None) => vec![resource.fill("")],
        (Some(resource), Some(rewrites)) => {
            let values = values(rewrites, request).filter(|values| values.len() <= MOST_VALUES).unwrap_or_default();
            values.iter().map(|value| resource.fill(value)).collect()
        }
    };
    targets.into_iter().map(|target| Attributes { verb: "get", target }).collect()
}

/// Every value of the request, in the parameter and in the header; `None` if one is malformed.
fn values(rewrites: &Rewrites, request: &Parts) -> Option<Vec<String>> {
    let mut values = Vec::new();
    if let Some(name) = &rewrites.query_parameter {
        for pair in request.uri.query().unwrap_or_default().split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decode(key)?, decode(value)?);
            if key == *name {
                values.push(value);
            }
        }
    }
    if let Some(name) = &rewrites.header {
        for value in request.headers.get_all(name) {
            values.push(value.to_str().ok()?.to_owned());
        }
    }
    Some(values)
}

/// Decodes a part of a query; `None` if it is malformed, or has a semicolon, which only some servers read as a separator.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        bytes.push(match first {
            b'+' => b' ',
            b';' => return None,
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
                digit(digits[0])? * 16 + digit(digits[1])?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn namespaces(uri: &str, headers: &[&str]) -> Vec<String> {
        let template = |text: &str| Template::parse(text).unwrap();
        let resource = Resource {
            namespace: template("{{ .Value }}"),
            group: template(""),
            version: template("v1"),
            resource: template("services"),
            subresource: template("metrics"),
            name: template(""),
        };
        let rewrites =
            Rewrites { query_parameter: Some("ns".to_owned()), header: Some(http::HeaderName::from_static("x-ns")) };
        let mut request = Request::get(uri);
        for value in headers {
            request = request.header("x-ns", *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let namespace = |it: Attributes| match it.target {
            Target::Resource { namespace, .. } => namespace,
            Target::Path(path) => panic!("{path}"),
        };
        attributes(Some(&resource), Some(&rewrites), &parts).into_iter().map(namespace).collect()
    }

    #[test]
    fn each_distinct_value_yields_attributes() {
        for (uri, headers, expected) in [
            ("/?ns=a", &[][..], &["a"][..]),
            ("/?ns=a&ns=b&other=c", &[], &["a", "b"]),
            ("/?ns=b&ns=a&ns=b", &[], &["a", "b"]),
            ("/?%6es=%61+%2b", &[], &["a +"]),
            ("/?ns=", &[], &[""]),
            ("/?ns", &[], &[""]),
            ("/", &["a", "b"], &["a", "b"]),
            ("/?ns=a", &["b"], &["a", "b"]),
            ("/?NS=a", &[], &[]),
            ("/", &[], &[]),
        ] {
            assert_eq!(namespaces(uri, headers), expected, "{uri} {headers:?}");
        }
    }

    #[test]
    fn ambiguous_or_excessive_values_yield_no_attributes() {
        for uri in ["/?ns=a&ns=%zz", "/?ns=a;ns=b", "/?ns=a&x=%", "/?ns=%ff", "/?ns=a&%+1=b"] {
            assert_eq!(namespaces(uri, &[]), <[&str; 0]>::default(), "{uri}");
        }
        assert_eq!(namespaces("/?ns=a", &["\u{e4}"]), <[&str; 0]>::default());
        let many: Vec<_> = (0..33).map(|n| format!("ns={n}")).collect();
        assert_eq!(namespaces(&format!("/?{}", many.join("&")), &[]), <[&str; 0]>::default());
        assert_eq!(namespaces(&format!("/?{}", many[..32].join("&")), &[]).len(), 32);
    }

    #[test]
    fn path_is_reviewed_when_no_resource_is_configured() {
        let (parts, ()) = Request::head("/metrics?ns=a").body(()).unwrap().into_parts();
        let expected = Attributes { verb: "get", target: Target::Path("/metrics".to_owned()) };
        assert_eq!(attributes(None, None, &parts), BTreeSet::from([expected]));
    }
}

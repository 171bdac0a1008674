//! Patterns: they select the requests, or the events of watches, to which a rule applies.

use std::fmt;

use crate::{
    invalid::InvalidPlan,
    lexer::Tokens,
    request::{Frame, Request},
};

/// A word with at most one `*`, which matches any text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Glob(String);

impl Glob {
    /// Matches everything.
    pub fn any() -> Self {
        Self("*".to_owned())
    }

    /// Matches this word. One `*` in it matches any text.
    pub fn new(word: impl Into<String>) -> Self {
        Self(word.into())
    }

    /// Whether the word matches the whole text.
    pub fn matches(&self, text: &str) -> bool {
        match self.0.split_once('*') {
            None => self.0 == text,
            Some((head, tail)) => {
                text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
            }
        }
    }

    fn is_any(&self) -> bool {
        self.0 == "*"
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Selects requests. In a rule for frames, it selects the events of watches.
///
/// As text: `VERB RESOURCE.GROUP[/SUBRESOURCE] [NAMESPACE/NAME] [as IDENTITY] [own]`, for instance `patch
/// memcacheds.cache.example.com/status */web`. The group of core resources is written `core`. For other HTTP services: `POST
/// /v1/bookings/*`. `*` matches any text, and the verb `write` matches every verb that changes something. An omitted part matches
/// everything. The exception is the subresource: without one, only the resource itself matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The verb, or the type of the frame.
    pub verb: Glob,
    /// `deployments.apps`, or a path that begins with a slash.
    pub resource: Glob,
    /// The subresource; empty for the resource itself.
    pub subresource: Glob,
    /// The object's namespace.
    pub namespace: Glob,
    /// The object's name.
    pub name: Glob,
    /// The client that sends the request.
    pub identity: Glob,
    /// Only frames that echo a write of the watching client.
    pub own: bool,
}

impl Pattern {
    /// Selects all requests with this verb for this resource: `Pattern::new("create", "deployments.apps")`.
    pub fn new(verb: &str, resource: &str) -> Self {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) if !resource.is_empty() => (resource, subresource),
            _ if resource == "*" => ("*", "*"),
            _ => (resource, ""),
        };
        Self {
            verb: Glob::new(verb),
            resource: Glob::new(resource),
            subresource: Glob::new(subresource),
            namespace: Glob::any(),
            name: Glob::any(),
            identity: Glob::any(),
            own: false,
        }
    }

    /// Selects exactly the requests that look like this one, in any namespace: plans outlive the namespaces of tests.
    pub fn like(request: &Request) -> Self {
        if request.resource.is_empty() {
            return Self::new(&request.verb, &request.path);
        }
        let name = if request.name.is_empty() { Glob::any() } else { Glob::new(&request.name) };
        let subresource = Glob::new(&request.subresource);
        Self { subresource, name, ..Self::new(&request.verb, &qualified(request)) }
    }

    /// Restricts the pattern to objects with this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Glob::new(name);
        self
    }

    /// Whether the pattern selects this request.
    pub fn matches(&self, request: &Request) -> bool {
        let verb = self.verb.matches(&request.verb) || self.verb.0 == "write" && request.is_write();
        verb && self.is_for(request) && self.namespace.matches(&request.namespace) && self.name.matches(&request.name)
    }

    /// Whether the pattern selects this event of that watch.
    pub fn matches_frame(&self, watch: &Request, frame: &Frame) -> bool {
        self.verb.matches(&frame.type_)
            && self.is_for(watch)
            && self.namespace.matches(&frame.namespace)
            && self.name.matches(&frame.name)
            && (frame.own || !self.own)
    }

    fn is_for(&self, request: &Request) -> bool {
        let target = if request.resource.is_empty() {
            self.resource.matches(&request.path)
        } else {
            self.resource.matches(&qualified(request)) && self.subresource.matches(&request.subresource)
        };
        target && self.identity.matches(&request.identity)
    }

    pub(crate) fn parse(tokens: &mut Tokens) -> Result<Self, InvalidPlan> {
        let verb = tokens.word("a verb")?;
        let resource = tokens.word("a resource such as deployments.apps, or a path")?;
        let mut pattern = Self::new(&verb, &resource);
        if let Some(object) = tokens.word_if(|word| word.contains('/'))
            && let Some((namespace, name)) = object.split_once('/')
        {
            (pattern.namespace, pattern.name) = (Glob::new(namespace), Glob::new(name));
        }
        if tokens.keyword("as") {
            pattern.identity = Glob::new(tokens.word("the client's name")?);
        }
        pattern.own = tokens.keyword("own");
        Ok(pattern)
    }
}

/// The resource with its group: `deployments.apps`.
fn qualified(request: &Request) -> String {
    let group = if request.group.is_empty() { "core" } else { &request.group };
    format!("{}.{group}", request.resource)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        // The resource `*` includes all subresources, so the text omits them.
        let implied = self.resource.is_any() && self.subresource.is_any();
        if !implied && !self.subresource.0.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !(self.namespace.is_any() && self.name.is_any()) {
            write!(f, " {}/{}", self.namespace, self.name)?;
        }
        if !self.identity.is_any() {
            write!(f, " as {}", self.identity)?;
        }
        f.write_str(if self.own { " own" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, method: &str, path: &str) -> bool {
        let pattern = Pattern::parse(&mut Tokens::of(pattern).expect("tokens")).expect("a pattern");
        pattern.matches(&Request::parse(method, path, "").by("operator:a"))
    }

    #[test]
    fn pattern_matches_verb_resource_name_and_identity() {
        let web = "/apis/apps/v1/namespaces/shop/deployments/web";
        for (pattern, method, path, expected) in [
            ("patch deployments.apps", "PATCH", web, true),
            ("patch deployments.apps shop/web", "PATCH", web, true),
            ("patch deployments.apps */we*", "PATCH", web, true),
            ("write deployments.*", "PATCH", web, true),
            ("write *", "PATCH", web, true),
            ("* * as operator:*", "PATCH", web, true),
            ("* * as another-user", "PATCH", web, false),
            ("write deployments.apps", "GET", web, false),
            ("patch deployments.apps */other", "PATCH", web, false),
            ("patch deployments.core", "PATCH", web, false),
            ("patch deployments.apps", "PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/status", false),
            ("patch deployments.apps/status", "PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/status", true),
            ("patch deployments.apps/*", "PATCH", web, true),
            ("* *", "PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/status", true),
            ("list pods.core", "GET", "/api/v1/pods", true),
            ("POST /v1/bookings", "POST", "/v1/bookings", true),
            ("POST /v1/bookings/*", "POST", "/v1/bookings/7", true),
            ("POST /v1/bookings/*", "POST", "/v1/bookings", false),
            ("write /v1/*", "DELETE", "/v1/bookings/7", true),
        ] {
            assert_eq!(matches(pattern, method, path), expected, "{pattern}: {method} {path}");
        }
    }

    #[test]
    fn pattern_made_from_a_request_matches_it() {
        for (method, path) in [
            ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/status"),
            ("GET", "/api/v1/pods"),
            ("DELETE", "/v1/bookings/7"),
        ] {
            let request = Request::parse(method, path, "");
            assert!(Pattern::like(&request).matches(&request), "{path}");
        }
    }
}

//! Disturbances that wait for a request of the operator.

use model_apiserver::{RequestInfo, Verb};
use serde_json::Value;

use super::name;
use crate::disturbance::Phase;

/// A disturbance that waits for a request.
#[derive(Debug)]
pub(crate) struct Armed {
    /// Its number.
    pub(super) number: usize,
    pub(super) phase: Phase,
    /// `None` if it acts at the next request.
    awaited: Option<Awaited>,
    /// Whether that may be any request of the operator, and not only one of a reconcile.
    at_any_request: bool,
}

impl Armed {
    pub(crate) fn new(number: usize, phase: Phase, awaited: Option<Awaited>, at_any_request: bool) -> Self {
        Self { number, phase, awaited, at_any_request }
    }

    /// Whether it acts at this request. `is_work` tells whether a reconcile sends the request.
    pub(super) fn acts_at(&self, request: &RequestInfo, is_work: bool) -> bool {
        // The answer to a watch is never complete.
        let has_moment = request.verb != Verb::Watch || self.phase != Phase::BeforeDelivery;
        (is_work || (self.at_any_request && has_moment))
            && self.awaited.as_ref().is_none_or(|awaited| awaited.is(request))
    }
}

/// The request that a disturbance waits for: a write of a child.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    /// The name of the primary that owns the child.
    pub(crate) owner: String,
}

impl Awaited {
    fn is(&self, request: &RequestInfo) -> bool {
        request.verb.writes()
            && request.resource() == self.resource
            && request.namespace == self.namespace
            && self.owns(&name(request), &request.body)
    }

    /// Whether the child of this name is the primary's: a part of the name is that of the primary, or the body of the request
    /// names the primary as an owner. Patches have no owner, and the names of some children have nothing of the primary's.
    fn owns(&self, child: &str, body: &[u8]) -> bool {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let owners = body["metadata"]["ownerReferences"].as_array();
        child.split('-').any(|part| part == self.owner)
            || owners.is_some_and(|owners| owners.iter().any(|owner| owner["name"] == *self.owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_recognised_by_their_names_and_by_their_owners() {
        let awaited = Awaited { resource: String::new(), namespace: String::new(), owner: "a".to_owned() };
        let owned_by = |owner: &str| format!(r#"{{"metadata": {{"ownerReferences": [{{"name": "{owner}"}}]}}}}"#);
        for child in ["a", "a-1767225600", "web-a"] {
            assert!(awaited.owns(child, b"[]"), "{child}");
        }
        assert!(awaited.owns("other", owned_by("a").as_bytes()));
        assert!(!awaited.owns("web-b", owned_by("b").as_bytes()) && !awaited.owns("aa", b""));
    }
}

//! What is asked of both servers.

use std::fmt;

use serde_json::{Value, json};

/// Stand for what each server calls the versions and the uid of the object that a step is about.
pub(crate) const RV_LATEST: &str = "$LATEST";
pub(crate) const RV_FIRST: &str = "$FIRST";
pub(crate) const UID: &str = "$UID";
/// The name of the object that ends a watch.
pub(crate) const LAST: &str = "zzz-last";

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Option<Value>,
    /// Which object it is about.
    pub(crate) object: String,
}

impl Step {
    pub(crate) fn new(method: &'static str, path: &str) -> Self {
        let (query, object) = (String::new(), path.to_owned());
        Self { method, path: path.to_owned(), query, content_type: "application/json", body: None, object }
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn query(mut self, query: impl Into<String>) -> Self {
        self.query = query.into();
        self
    }

    pub(crate) fn content(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    pub(crate) fn about(mut self, object: &str) -> Self {
        object.clone_into(&mut self.object);
        self
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}?{} ({})", self.method, self.path, self.query, self.content_type)?;
        match &self.body {
            Some(body) => write!(f, " {body}"),
            None => Ok(()),
        }
    }
}

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A random sequence of requests in a namespace.
pub(crate) trait Requests: Send {
    fn step(&mut self) -> Step;
    /// The watches of all that has happened, and of some of it, and the object that ends them.
    fn watches(&mut self) -> Vec<Step>;
}

/// The object from whose version on everything is watched.
pub(crate) fn first(namespace: &str) -> Step {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "start"}});
    Step::new("POST", &format!("/api/v1/namespaces/{namespace}/configmaps"))
        .body(body)
        .about(&format!("first {namespace}"))
}

/// Watches of a collection that end with the object `last`, which has the label `tier: a`.
pub(crate) fn watches(path: &str, namespace: &str, last: Value) -> Vec<Step> {
    let watch = |query: &str| Step::new("GET", path).query(format!("watch=true&timeoutSeconds=20&{query}")).about(LAST);
    vec![
        Step::new("POST", path).body(last).about(LAST),
        watch(&format!("resourceVersion={RV_FIRST}")).about(&format!("first {namespace}")),
        watch(""),
        watch("labelSelector=tier%3Da"),
    ]
}

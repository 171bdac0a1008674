//! Steps: the requests that both servers get.

use std::fmt;

use serde_json::{Value, json};

/// Placeholders for the versions and the uid of a step's object, which differ between the servers.
pub(crate) const RV_LATEST: &str = "$LATEST";
pub(crate) const RV_FIRST: &str = "$FIRST";
pub(crate) const UID: &str = "$UID";
/// The name of the object whose event ends a watch.
pub(crate) const LAST: &str = "zzz-last";

/// One request to both servers.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Option<Value>,
    /// The path of the object that the request targets.
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

/// A random sequence of requests in one namespace.
pub(crate) trait Requests: Send {
    fn step(&mut self) -> Step;
    /// Watches of all changes and of a selection of them, and the create of the object that ends them.
    fn watches(&mut self) -> Vec<Step>;
}

/// The object at whose version the watches start.
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

//! Refusals of the API server: the `Status` bodies of failed requests.

use serde_json::{Map, Value, json};

use crate::{
    cause::Cause,
    kind::{Kind, Named},
};

/// The answer to a failed request: status code, reason, message and details.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    empty_details: bool,
    /// Whether the body is a line of text instead of a `Status`, as for unknown paths.
    plain: bool,
}

impl Refusal {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Map::new(), empty_details: false, plain: false }
    }

    /// Adds to `details`.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Adds empty `details`.
    pub(crate) fn with_empty_details(mut self) -> Self {
        self.empty_details = true;
        self
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                self.details.insert(key.to_owned(), value.into());
            }
        }
        self
    }

    /// The answer for a path that the server does not serve.
    pub(crate) fn no_such_path() -> Self {
        Self { plain: true, ..Self::new(404, "NotFound", "404 page not found\n") }
    }

    /// The answer for an unknown path within a group and version of built-in kinds.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_empty_details()
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(crate) fn not_found(of: Named<'_>, name: &str) -> Self {
        let message = format!("{} {name:?} not found", of.qualified(of.plural));
        Self::new(404, "NotFound", message).about(of.group, of.plural, name)
    }

    pub(crate) fn already_exists(of: Named<'_>, name: &str, dying: bool) -> Self {
        let dying = if dying { "object is being deleted: " } else { "" };
        let message = format!("{dying}{} {name:?} already exists", of.qualified(of.plural));
        Self::new(409, "AlreadyExists", message).about(of.group, of.plural, name)
    }

    pub(crate) fn conflict(of: Named<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", of.qualified(of.plural));
        Self::new(409, "Conflict", message).about(of.group, of.plural, name)
    }

    pub(crate) fn changed_meanwhile(of: Named<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(of, name, why)
    }

    pub(crate) fn forbidden(of: Named<'_>, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", of.qualified(of.plural));
        Self::new(403, "Forbidden", message).about(of.group, of.plural, name)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message) // internal errors without a reason have an empty one
    }

    /// `causes` are (reason, message, field).
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: &[(&str, String, &str)]) -> Self {
        let mut texts = Vec::<String>::new();
        for text in causes.iter().map(|(_, message, field)| format!("{field}: {message}")) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = match &*texts {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> = causes
            .iter()
            .map(|(reason, message, field)| json!({"reason": reason, "message": message, "field": field}))
            .collect();
        Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {text}"))
            .about(group, kind, name)
            .with("causes", causes)
    }

    /// A refusal with the causes that the validation of a kind found.
    pub(crate) fn of_causes(kind: &Kind, name: &str, causes: Vec<Cause>) -> Self {
        let causes: Vec<_> = causes.into_iter().map(|cause| (cause.reason, cause.message, cause.field)).collect();
        let causes: Vec<_> =
            causes.iter().map(|(reason, message, field)| (*reason, message.clone(), &**field)).collect();
        Self::invalid(kind.refused_group(), &kind.kind, name, &causes)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The response body: a `Status`, or the line of text.
    pub(crate) fn body(&self) -> Body {
        if self.plain { Body::Text(self.message.clone()) } else { Body::Json(self.status()) }
    }

    /// The `Status`.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if self.empty_details || !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }
}

/// The body of a response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    Json(Value),
    Text(String),
}

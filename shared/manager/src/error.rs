//! The errors of a reconcile, and how the queue retries them.

use std::{any::Any, error::Error as StdError, fmt, time::Duration};

use http::{HeaderMap, header::RETRY_AFTER};
use kube::core::{Status, response::StatusCause};

/// The time after which the client has read its token again, and uses a new one.
const TOKEN_IS_READ: Duration = Duration::from_mins(1);
/// The longest `Retry-After` that is honoured, in seconds.
const LONGEST_WAIT: u32 = 300;

/// Why a reconcile could not finish. [`retry`](Error::retry) says how the queue retries it. A refused write that a user has to
/// fix (a rejected child, a name conflict) is recorded on the [`Context`](crate::Context) instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed.
    #[error("could not {request}")]
    Api {
        /// The request that failed.
        request: Request,
        /// The answer, or why there was none.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("could not {request}: no answer within {}s", after.as_secs())]
    Deadline {
        /// The request without an answer.
        request: Request,
        /// The deadline of the request.
        after: Duration,
    },
    /// An object could not be encoded as JSON, or an answer could not be decoded.
    #[error("could not {request}: the object does not decode")]
    Decode {
        /// The request that the object belongs to.
        request: Request,
        /// The place in the JSON, and what is wrong there.
        #[source]
        source: serde_json::Error,
    },
    /// This process is not the leader any more, so it did not send the request.
    #[error("did not {request}: this process is not the leader")]
    NotLeading {
        /// The request that was not sent.
        request: Request,
    },
    /// The operator's own validation refuses the object. There is no retry until the object changes.
    #[error("{field}: {why}")]
    Invalid {
        /// The path of the field, as the user writes it.
        field: String,
        /// What is wrong, and what is allowed.
        why: String,
    },
    /// An operator's own failure, which is retried with back-off.
    #[error(transparent)]
    Other(Box<dyn StdError + Send + Sync>),
}

/// How the queue retries a failed key. An enum, so that two answers can never contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// With the key's exponential back-off.
    Backoff,
    /// After the time that the API server requested (`Retry-After`).
    After(Duration),
    /// Not before the object changes (controller-runtime's terminal error).
    WhenChanged,
}

/// A request to the API server as it appears in errors: `create Deployment "cache" in namespace "default"`.
#[derive(Debug, Clone)]
pub struct Request {
    /// `get`, `create`, `apply`, `patch`, `delete`.
    pub verb: &'static str,
    /// The kind, in `CamelCase`.
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// The class of an error from the API server, which decides its treatment: section "Errors and requeue" of the operators'
/// rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Network, 401, 408, 429, 5xx: retried with back-off, without an event at first.
    Transient,
    /// The object is not there.
    NotFound,
    /// An object of that name is there already.
    AlreadyExists,
    /// Another client changed the object, or replaced it, since we read it.
    Conflict,
    /// Admission, Pod Security or validation refuses the object: a user has to fix something.
    Rejected,
    /// A quota is used up.
    Quota,
    /// RBAC forbids the request.
    Forbidden,
    /// The namespace is being deleted: nothing can be created in it, and nothing should be.
    NamespaceTerminating,
}

impl Error {
    /// Returns how the queue retries.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Invalid { .. } => Retry::WhenChanged,
            Self::Api { source, .. } => match classify(source) {
                Class::NamespaceTerminating => Retry::WhenChanged,
                _ => retry_after(source).map_or(Retry::Backoff, Retry::After),
            },
            Self::Deadline { .. } | Self::Decode { .. } | Self::NotLeading { .. } | Self::Other(_) => Retry::Backoff,
        }
    }

    /// Returns the time until the next try at the latest, however long the back-off has grown. Only for an error that has
    /// nothing to do with the object and ends by itself within this time: an expired token.
    pub(crate) fn no_later_than(&self) -> Option<Duration> {
        match self {
            Self::Api { source, .. } if is_unauthorized(source) => Some(TOKEN_IS_READ),
            _ => None,
        }
    }

    /// Returns a `CamelCase` word for events, conditions and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "InvalidSpec",
            Self::Api { source, .. } if classify(source) == Class::Forbidden => "Forbidden",
            _ => "ReconcileError",
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => classify(source),
            _ => Class::Transient,
        }
    }

    /// Whether the API server may have carried out a write although it failed in this way.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self, Self::NotLeading { .. }) && self.class() == Class::Transient
    }

    /// Returns the error with its causes on one line, as it goes into logs and events.
    pub fn chain(&self) -> String {
        chain(self)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} \"{}\"", self.verb, self.kind, self.name)?;
        if !self.namespace.is_empty() {
            write!(f, " in namespace \"{}\"", self.namespace)?;
        }
        Ok(())
    }
}

/// Returns an error and its causes, joined by `: `. Line breaks become spaces, so that a message cannot forge a log line.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = message(error);
    let mut source = cause(error);
    while let Some(error) = source {
        let next = message(error);
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = cause(error);
    }
    text.replace(['\n', '\r'], " ")
}

fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    if answer(error).is_some() { None } else { error.source() }
}

fn message(error: &(dyn StdError + 'static)) -> String {
    match answer(error) {
        Some(status) => format!("{} (code {})", sentence(status), status.code),
        None => error.to_string(),
    }
}

/// Returns the API server's answer, if the error holds one. kube would print it twice, the second time as Rust code.
fn answer<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Status> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
    match error.downcast_ref().or_else(boxed) {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// The reason that kube sets for an answer that is not a `Status`, but a page of a proxy or a load balancer.
pub(crate) const NO_STATUS: &str = "Failed to parse error data";
/// How many characters of such a page go into the message.
const TOLD: usize = 200;

/// Returns the server's message or, for a page, its first line without the markup.
pub(crate) fn sentence(status: &Status) -> String {
    if status.reason != NO_STATUS {
        return status.message.clone();
    }
    let mut inside = false;
    let text: String = status
        .message
        .chars()
        .filter_map(|character| match character {
            '<' => {
                inside = true;
                Some('\n')
            }
            '>' if inside => {
                inside = false;
                None
            }
            _ => (!inside).then_some(character),
        })
        .collect();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("an empty answer");
    let told: String = line.chars().take(TOLD).collect();
    if told.len() < line.len() { told + "…" } else { told }
}

/// The API server's message about a JSON patch that cannot be carried out: `patchResource` in its `handlers/patch.go`.
const PATCH_DOES_NOT_APPLY: &str = "the server rejected our request due to an error in our request";

pub(crate) fn classify(error: &kube::Error) -> Class {
    let kube::Error::Api(status) = error else { return Class::Transient };
    match status.code {
        404 => Class::NotFound,
        409 if status.reason == "AlreadyExists" => Class::AlreadyExists,
        409 => Class::Conflict,
        // A uid that does not match: the object was replaced since we read it.
        422 if causes(status).any(|cause| cause.field == "metadata.uid") => Class::Conflict,
        // A test of a JSON patch that does not hold, or a path that is not there any more.
        422 if status.message == PATCH_DOES_NOT_APPLY => Class::Conflict,
        422 | 400 => Class::Rejected,
        403 => forbidden(status),
        _ => Class::Transient,
    }
}

/// Whether the API server does not accept our token: it has expired, or the keys of the API server have changed.
fn is_unauthorized(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 401)
}

/// RBAC, quota, admission and a dying namespace all answer 403; only cause and message tell them apart.
fn forbidden(status: &Status) -> Class {
    if causes(status).any(|cause| cause.reason == "NamespaceTerminating") {
        return Class::NamespaceTerminating;
    }
    let message = &status.message;
    if message.contains("exceeded quota") {
        Class::Quota
    } else if message.contains(" cannot ") && message.contains("in API group") {
        Class::Forbidden
    } else {
        Class::Rejected
    }
}

fn causes(status: &Status) -> impl Iterator<Item = &StatusCause> {
    status.details.iter().flat_map(|details| &details.causes)
}

fn retry_after(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}

/// Returns the seconds of a `Retry-After`, at most [`LONGEST_WAIT`]. Ignores a date: API servers do not send one, and the
/// clocks may differ.
pub(crate) fn retry_after_seconds(headers: &HeaderMap) -> Option<u32> {
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(seconds.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn retry_after_is_parsed_as_seconds_and_capped() {
        let wait = |value: &'static str| {
            retry_after_seconds(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]))
        };
        assert_eq!(retry_after_seconds(&HeaderMap::new()), None);
        for (value, seconds) in [
            ("1", Some(1)),
            ("86400", Some(LONGEST_WAIT)),
            ("soon", None),
            ("-1", None),
            ("Wed, 21 Oct 2099 07:28:00 GMT", None),
        ] {
            assert_eq!(wait(value), seconds, "{value}");
        }
    }

    fn api(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, reason: reason.into(), message: message.into(), ..Status::default() }))
    }

    #[test]
    fn every_api_error_is_classified() {
        let rbac = "services is forbidden: User \"u\" cannot create resource \"services\" in API group \"\" in the namespace \"n\"";
        let quota = "pods \"a\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
        let pod_security = "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"";
        for (error, class) in [
            (kube::Error::Service("connection reset".into()), Class::Transient),
            (api(401, "Unauthorized", "x"), Class::Transient),
            (api(404, "NotFound", "x"), Class::NotFound),
            (api(409, "AlreadyExists", "x"), Class::AlreadyExists),
            (api(409, "Conflict", "x"), Class::Conflict),
            (api(422, "Invalid", "x"), Class::Rejected),
            (api(422, "Invalid", PATCH_DOES_NOT_APPLY), Class::Conflict),
            (api(403, "Forbidden", rbac), Class::Forbidden),
            (api(403, "Forbidden", quota), Class::Quota),
            (api(403, "Forbidden", pod_security), Class::Rejected),
            (api(429, "TooManyRequests", "x"), Class::Transient),
            (api(500, "InternalError", "x"), Class::Transient),
        ] {
            assert_eq!(classify(&error), class, "{error}");
        }
    }

    #[test]
    fn a7_load_balancer_page_is_shortened_to_one_line() {
        let long = "x".repeat(5_000);
        let cut = format!("{}…", "x".repeat(TOLD));
        for (page, told) in [
            (
                "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>Sorry</h1></body></html>",
                "502 Bad Gateway",
            ),
            ("404 page not found", "404 page not found"),
            ("", "an empty answer"),
            ("<html", "an empty answer"),
            ("a > b\nc", "a > b"),
            (&long, &cut),
        ] {
            assert_eq!(chain(&api(502, NO_STATUS, page)), format!("{told} (code 502)"), "{page}");
        }
        assert_eq!(chain(&api(422, "Invalid", "spec.a: must be < 3")), "spec.a: must be < 3 (code 422)");
    }

    #[test]
    fn a_message_cannot_forge_a_log_line() {
        let error = Error::Other("first\n{\"level\":\"info\"}".into());
        assert_eq!(error.chain(), "first {\"level\":\"info\"}");
    }
}

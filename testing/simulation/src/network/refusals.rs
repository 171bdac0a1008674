//! Answers that refuse a request, and when the operator tries again after them.

use std::time::Duration;

use fault_plan::{Answer, Body};
use model_apiserver::RequestInfo;
use serde_json::json;

use super::{State, name};

/// What RBAC forbids, the operator tries again after this time.
pub(super) const POLL: Duration = Duration::from_mins(1);
/// What admission refuses, the operator tries again after a back-off of at most this time.
pub(super) const BACK_OFF: Duration = Duration::from_mins(6);

impl State {
    /// Draws an answer that is not the API server's, and for how long it tells the client to wait.
    pub(super) fn refusal_on_the_way(&mut self) -> (Answer, Duration) {
        let code = [429, 502, 503, 504][self.rng.usize(..4)];
        let body = if self.rng.bool() { Body::Html } else { Body::Empty };
        let answer = Answer { body, ..Answer::code(code) };
        if matches!(code, 429 | 503) && self.rng.bool() {
            let seconds = self.rng.u64(1..8);
            return (answer.header("retry-after", &seconds.to_string()), Duration::from_secs(seconds));
        }
        (answer, Duration::ZERO)
    }
}

pub(super) fn conflict(request: &RequestInfo) -> Answer {
    let text = format!(
        "Operation cannot be fulfilled on {} \"{}\": the object has been modified; please apply your changes to the latest \
         version and try again",
        request.resource(),
        name(request),
    );
    status(409, "Conflict", &text)
}

pub(super) fn forbidden(request: &RequestInfo) -> Answer {
    let (resource, verb) = (request.resource(), request.verb.as_str());
    let RequestInfo { plural, group, .. } = request;
    let text = format!(
        "{resource} is forbidden: User \"system:serviceaccount:operators:operators\" cannot {verb} resource \"{plural}\" in \
         API group \"{group}\" at the cluster scope"
    );
    status(403, "Forbidden", &text)
}

/// The answer with which something refuses a write, and when the operator tries again at the latest. `seed` draws what it is.
pub(super) fn denied(request: &RequestInfo, seed: u64) -> (Answer, Duration) {
    let what = format!("{} \"{}\" is forbidden", request.resource(), name(request));
    match seed % 4 {
        0 => (forbidden(request), POLL),
        1 => {
            let text = "admission webhook \"deny.example.com\" denied the request: not on Fridays";
            (status(403, "Forbidden", text), BACK_OFF)
        }
        2 => {
            let text = format!(
                "{what}: ValidatingAdmissionPolicy 'fridays' with binding 'fridays' denied request: not on Fridays"
            );
            (status(422, "Invalid", &text), BACK_OFF)
        }
        _ => (status(403, "Forbidden", &format!("{what}: violates PodSecurity \"restricted:latest\"")), BACK_OFF),
    }
}

/// The answer with which a quota refuses an object.
pub(super) fn over_quota(request: &RequestInfo) -> Answer {
    let text = format!(
        "{} \"{}\" is forbidden: exceeded quota: objects, requested: count=1, used: count=9, limited: count=9",
        request.resource(),
        name(request),
    );
    status(403, "Forbidden", &text)
}

/// The answer with which the API server refuses a request.
fn status(code: u16, reason: &str, message: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    Answer { code, headers: Vec::new(), body: Body::Text(body.to_string()) }
}

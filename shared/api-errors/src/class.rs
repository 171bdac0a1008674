//! The classes of errors.

use kube::core::{Status, response::StatusCause};

/// What an error of a request to the API server means for its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Network, 401, 408, 429, 5xx: retried with back-off, without an event at first.
    Transient,
    /// The object is not there.
    NotFound,
    /// An object of that name is there already.
    AlreadyExists,
    /// Another client changed the object, or replaced it, since we read it.
    Conflict,
    /// Admission, Pod Security or validation refuses the object, or it cannot be merged: a user has to fix something.
    Rejected,
    /// A quota is used up.
    Quota,
    /// RBAC forbids the request.
    Forbidden,
    /// The namespace is being deleted: nothing can be created in it, and nothing should be.
    NamespaceTerminating,
}

/// The API server's message about a JSON patch that cannot be carried out: `patchResource` in its `handlers/patch.go`.
const PATCH_DOES_NOT_APPLY: &str = "the server rejected our request due to an error in our request";

/// The begin of the API server's message about an apply whose object it cannot merge, for example because two elements of a list
/// have the same key: `structuredmerge.go` in apimachinery. Its code is 500, but the same object is always refused.
const CANNOT_BE_MERGED: &str = "failed to create typed patch object";

/// Returns the class of an error.
pub fn classify(error: &kube::Error) -> Class {
    let kube::Error::Api(status) = error else { return Class::Transient };
    match status.code {
        // The code is the webhook's or the policy's, and says nothing about the object: many webhooks pass on the 404 of a lookup.
        // For 403, see `forbidden`.
        code if code != 403 && is_denied(status) => Class::Rejected,
        404 => Class::NotFound,
        409 if status.reason == "AlreadyExists" => Class::AlreadyExists,
        409 => Class::Conflict,
        // A uid that does not match: the object was replaced since we read it.
        422 if causes(status).any(|cause| cause.field == "metadata.uid") => Class::Conflict,
        // A test of a JSON patch that does not hold, or a path that is not there any more.
        422 if status.message == PATCH_DOES_NOT_APPLY => Class::Conflict,
        422 | 400 => Class::Rejected,
        500 if status.message.starts_with(CANNOT_BE_MERGED) => Class::Rejected,
        403 => forbidden(status),
        _ => Class::Transient,
    }
}

/// Whether the API server does not accept our token: it has expired, or the keys of the API server have changed.
pub fn is_unauthorized(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 401 && !is_denied(status))
}

/// Whether admission has denied the request: `ToStatusErr` in the API server's `webhook/errors`, and `dispatcher.go` of its
/// `policy/validating`.
fn is_denied(status: &Status) -> bool {
    let message = status.message.as_str();
    (message.starts_with("admission webhook \"") && message.contains("\" denied the request"))
        || (message.contains("ValidatingAdmissionPolicy '") && message.contains("' denied request"))
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

#[cfg(test)]
mod tests {
    use super::*;

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
            (
                api(404, "NotFound", "admission webhook \"a.b.c\" denied the request: secret \"s\" not found"),
                Class::Rejected,
            ),
            (api(409, "Conflict", "admission webhook \"a.b.c\" denied the request: no"), Class::Rejected),
            (api(500, "", "admission webhook \"a.b.c\" denied the request without explanation"), Class::Rejected),
            (
                api(
                    401,
                    "Unauthorized",
                    "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: x",
                ),
                Class::Rejected,
            ),
            (api(429, "TooManyRequests", "x"), Class::Transient),
            (api(500, "InternalError", "x"), Class::Transient),
            (api(500, "", "failed to create typed patch object (n/a; apps/v1, Kind=Deployment): x"), Class::Rejected),
        ] {
            assert_eq!(classify(&error), class, "{error}");
        }
    }
}

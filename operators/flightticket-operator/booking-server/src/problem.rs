//! Refusals and failures of the API: `application/problem+json` with a stable code for programs.

use http::StatusCode;
use serde_json::{Value, json};

/// Declares every code once: its name on the wire, its status and its title.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $name:literal, $status:ident, $title:literal;)*) => {
        /// Why the server did not execute a request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $code,)* }

        impl Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            /// The code as the API writes it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$code => $name,)* }
            }

            /// The status of an answer with this code.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$code => StatusCode::$status,)* }
            }

            fn title(self) -> &'static str {
                match self { $(Self::$code => $title,)* }
            }
        }
    };
}

codes! {
    /// A booking without a key could not be repeated safely.
    IdempotencyKeyMissing = "IDEMPOTENCY_KEY_MISSING", BAD_REQUEST, "The Idempotency-Key header is missing";
    /// The body, a header or a parameter cannot be parsed.
    Malformed = "MALFORMED", BAD_REQUEST, "The request cannot be read";
    /// No valid token.
    Unauthenticated = "UNAUTHENTICATED", UNAUTHORIZED, "A valid bearer token is needed";
    /// The token is valid but does not allow the request.
    Forbidden = "FORBIDDEN", FORBIDDEN, "This token may not do that";
    /// No such path.
    NotFound = "NOT_FOUND", NOT_FOUND, "There is nothing at this address";
    /// The server does not offer the route.
    RouteNotFound = "ROUTE_NOT_FOUND", NOT_FOUND, "No such route";
    /// No booking has this id.
    BookingNotFound = "BOOKING_NOT_FOUND", NOT_FOUND, "No such booking";
    /// The reference is unknown: it has no booking and is not closed.
    ReferenceNotFound = "REFERENCE_NOT_FOUND", NOT_FOUND, "No such reference";
    /// The path does not support the method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", METHOD_NOT_ALLOWED, "This address does not support the method";
    /// The body took too long.
    RequestTimeout = "REQUEST_TIMEOUT", REQUEST_TIMEOUT, "The request took too long to arrive";
    /// Another request with the same key is in progress.
    InProgress = "IN_PROGRESS", CONFLICT, "The same request is in progress";
    /// Fewer seats are free than the request needs.
    InsufficientSeats = "INSUFFICIENT_SEATS", CONFLICT, "Not enough seats";
    /// The booking is cancelled, rejected, or has flown.
    NotModifiable = "NOT_MODIFIABLE", CONFLICT, "The booking cannot be changed";
    /// The flight has left.
    NotCancellable = "NOT_CANCELLABLE", CONFLICT, "The booking cannot be cancelled";
    /// The new reference is closed or has a booking.
    ReferenceTaken = "REFERENCE_TAKEN", CONFLICT, "The reference is taken";
    /// The reference is closed for ever.
    ReferenceCancelled = "REFERENCE_CANCELLED", GONE, "The reference was cancelled";
    /// The booking differs from what the client expects.
    VersionMismatch = "VERSION_MISMATCH", PRECONDITION_FAILED, "The booking has changed";
    /// The body exceeds the limit.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", PAYLOAD_TOO_LARGE, "The body is too large";
    /// The body is not JSON.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", UNSUPPORTED_MEDIA_TYPE, "Send application/json";
    /// The request is well-formed but invalid.
    Invalid = "INVALID", UNPROCESSABLE_ENTITY, "The request breaks a rule";
    /// The same key came with another trip.
    ReferenceReused = "REFERENCE_REUSED", UNPROCESSABLE_ENTITY, "The reference belongs to another request";
    /// Header and body name different references.
    ReferenceMismatch = "REFERENCE_MISMATCH", UNPROCESSABLE_ENTITY, "Header and body name different references";
    /// Without a version, a change could overwrite another one.
    IfMatchRequired = "IF_MATCH_REQUIRED", PRECONDITION_REQUIRED, "The If-Match header is missing";
    /// The client sends too many requests.
    TooManyRequests = "TOO_MANY_REQUESTS", TOO_MANY_REQUESTS, "Too many requests";
    /// A defect of this server.
    Internal = "INTERNAL", INTERNAL_SERVER_ERROR, "The server failed";
    /// The server cannot write just now.
    Unavailable = "UNAVAILABLE", SERVICE_UNAVAILABLE, "Not available just now";
}

/// One refusal or failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// For programs.
    pub code: Code,
    /// An explanation for humans.
    pub detail: String,
    /// The field, header or parameter at fault.
    pub field: Option<&'static str>,
    /// When to try again, in seconds.
    pub retry_after: Option<u64>,
}

impl Problem {
    /// A problem with an explanation.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, retry_after: None }
    }

    /// A field that is invalid.
    pub fn invalid(field: &'static str, detail: impl Into<String>) -> Self {
        Self { field: Some(field), ..Self::new(Code::Invalid, detail) }
    }

    /// The server cannot answer now; the client may retry after a second.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(Code::Unavailable, detail) }
    }

    /// The body of the answer.
    pub fn to_json(&self) -> Value {
        let mut document = json!({
            "type": "about:blank",
            "title": self.code.title(),
            "status": self.code.status().as_u16(),
            "code": self.code.name(),
            "detail": self.detail,
        });
        if let Some(field) = self.field {
            document["field"] = json!(field);
        }
        document
    }
}

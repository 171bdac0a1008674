//! Refusals and failures as the API tells them: `application/problem+json` with a code that programs can rely on.

use http::StatusCode;
use serde_json::{Value, json};

/// Declares every code once: its name on the wire, its status and its title.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $name:literal, $status:ident, $title:literal;)*) => {
        /// Why a request was not done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $code,)* }

        impl Code {
            /// Every code that there is.
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            /// The code as the API writes it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$code => $name,)* }
            }

            /// The status that goes with it.
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
    /// Not JSON, not a key, not a parameter.
    Malformed = "MALFORMED", BAD_REQUEST, "The request cannot be read";
    /// No valid token.
    Unauthenticated = "UNAUTHENTICATED", UNAUTHORIZED, "A valid bearer token is needed";
    /// A valid token without this right.
    Forbidden = "FORBIDDEN", FORBIDDEN, "This token may not do that";
    /// No such path.
    NotFound = "NOT_FOUND", NOT_FOUND, "There is nothing at this address";
    /// Nobody flies there.
    RouteNotFound = "ROUTE_NOT_FOUND", NOT_FOUND, "No such route";
    /// No booking has this id.
    BookingNotFound = "BOOKING_NOT_FOUND", NOT_FOUND, "No such booking";
    /// Nothing was ever asked under this reference.
    ReferenceNotFound = "REFERENCE_NOT_FOUND", NOT_FOUND, "No such reference";
    /// The path exists, the method does not.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", METHOD_NOT_ALLOWED, "This address does not know the method";
    /// The body took too long.
    RequestTimeout = "REQUEST_TIMEOUT", REQUEST_TIMEOUT, "The request took too long to arrive";
    /// The same key is being worked on.
    InProgress = "IN_PROGRESS", CONFLICT, "The same request is in progress";
    /// Fewer seats are free than were asked for.
    InsufficientSeats = "INSUFFICIENT_SEATS", CONFLICT, "Not enough seats";
    /// The booking is cancelled, rejected, or has flown.
    NotModifiable = "NOT_MODIFIABLE", CONFLICT, "The booking cannot be changed";
    /// The flight has left.
    NotCancellable = "NOT_CANCELLABLE", CONFLICT, "The booking cannot be cancelled";
    /// Another booking has, or had, this reference.
    ReferenceTaken = "REFERENCE_TAKEN", CONFLICT, "The reference is taken";
    /// Cancelled once is cancelled for ever.
    ReferenceCancelled = "REFERENCE_CANCELLED", GONE, "The reference was cancelled";
    /// The booking is not as the caller expects.
    VersionMismatch = "VERSION_MISMATCH", PRECONDITION_FAILED, "The booking has changed";
    /// More than the limit.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", PAYLOAD_TOO_LARGE, "The body is too large";
    /// Something else than JSON.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", UNSUPPORTED_MEDIA_TYPE, "Send application/json";
    /// Readable, and against the rules.
    Invalid = "INVALID", UNPROCESSABLE_ENTITY, "The request breaks a rule";
    /// The same key with another trip.
    ReferenceReused = "REFERENCE_REUSED", UNPROCESSABLE_ENTITY, "The reference belongs to another request";
    /// Header and body disagree.
    ReferenceMismatch = "REFERENCE_MISMATCH", UNPROCESSABLE_ENTITY, "Header and body name different references";
    /// A change without a version could undo another one.
    IfMatchRequired = "IF_MATCH_REQUIRED", PRECONDITION_REQUIRED, "The If-Match header is missing";
    /// Slow down.
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
    /// For people.
    pub detail: String,
    /// The field, header or parameter at fault.
    pub field: Option<&'static str>,
    /// When it is worth trying again, in seconds.
    pub retry_after: Option<u64>,
}

impl Problem {
    /// A problem with a sentence about it.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, retry_after: None }
    }

    /// A rule that a field breaks.
    pub fn invalid(field: &'static str, detail: impl Into<String>) -> Self {
        Self { field: Some(field), ..Self::new(Code::Invalid, detail) }
    }

    /// The server cannot answer now, and may in a second.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(Code::Unavailable, detail) }
    }

    /// The document that is sent.
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

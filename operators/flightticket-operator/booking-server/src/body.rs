//! Reads request bodies: complete JSON of at most 64 KiB.

use std::error::Error;

use axum::{body::to_bytes, extract::Request};
use http::{HeaderMap, header};
use http_body_util::LengthLimitError;
use serde_json::Value;

use crate::problem::{Code, Problem};

/// Largest accepted body, in bytes.
pub(crate) const LIMIT: usize = 64 << 10;

/// Reads the body as JSON.
pub(crate) async fn json(request: Request) -> Result<Value, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::new(Code::UnsupportedMediaType, "send JSON, with Content-Type: application/json"));
    }
    let bytes = to_bytes(request.into_body(), LIMIT).await.map_err(|error| problem_of(&error))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::new(Code::Malformed, format!("the body is not JSON: {error}")))
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(essence.as_str(), "application/json" | "application/merge-patch+json")
}

fn problem_of(error: &axum::Error) -> Problem {
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return Problem::new(Code::PayloadTooLarge, format!("the body has more than {LIMIT} bytes"));
        }
        if error.is::<serving::BodyTimeout>() {
            return Problem::new(Code::RequestTimeout, "the body did not arrive in time");
        }
        cause = error.source();
    }
    Problem::new(Code::Malformed, "the body ended too soon")
}

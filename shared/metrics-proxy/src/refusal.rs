//! Why the proxy refuses a request, and what it answers.

use axum::response::{IntoResponse, Response};
use http::{
    HeaderValue, StatusCode, Version,
    header::{ALLOW, CACHE_CONTROL, CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE},
};

use crate::policy::{Attributes, Shape, User};

/// Why the proxy refuses a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The path is not one of `--allow-paths`.
    NotAllowedPath,
    /// The proxy never forwards such a request.
    Shape(Shape),
    /// The client is not authenticated.
    Unauthorized,
    /// The access cannot be determined, or the user's name fits in no header.
    Malformed,
    /// The user lacks the permission.
    Forbidden(Box<(User, Attributes)>),
    /// The review failed: the API server is not reachable, or gave no answer.
    Unavailable,
    /// Too many clients with unknown tokens wait for a review.
    Crowded,
}

impl Refusal {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotAllowedPath => StatusCode::NOT_FOUND,
            Self::Shape(shape) => shape.status(),
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Unavailable | Self::Crowded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::NotAllowedPath => "404 page not found".to_owned(),
            Self::Shape(shape) => shape.text().to_owned(),
            Self::Unauthorized => "Unauthorized".to_owned(),
            Self::Malformed => "Bad Request. The request or configuration is malformed.".to_owned(),
            Self::Forbidden(who) => {
                let (User { name, .. }, attributes) = &**who;
                let (resource, subresource) = attributes.resource();
                let verb = attributes.verb;
                format!("Forbidden (user={name}, verb={verb}, resource={resource}, subresource={subresource})")
            }
            Self::Unavailable => "The API server could not review this request.".to_owned(),
            Self::Crowded => "Too many requests wait for a review. Try again later.".to_owned(),
        }
    }
}

impl Refusal {
    /// The answer to the client. After a request of a wrong shape, it ends an HTTP/1 connection: the rest of the input is unsafe.
    pub(crate) fn answer(self, version: Version) -> Response {
        let ends = matches!(self, Self::Shape(_)) && version <= Version::HTTP_11;
        let mut response = self.into_response();
        if ends {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status(), self.text() + "\n").into_response();
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self {
            Self::Unauthorized => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::Crowded => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
            Self::Shape(Shape::Method) => drop(headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"))),
            _ => {}
        }
        response
    }
}

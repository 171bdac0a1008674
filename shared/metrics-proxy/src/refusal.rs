//! Why somebody is not let in, and what they are told.

use axum::response::{IntoResponse, Response};
use http::{
    HeaderValue, StatusCode, Version,
    header::{ALLOW, CACHE_CONTROL, CONNECTION, WWW_AUTHENTICATE},
};

use crate::policy::{Attributes, Shape, User};

/// Why somebody is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The path is not one of `--allow-paths`.
    NotAllowedPath,
    /// The request is one that nobody may send.
    Shape(Shape),
    /// Nobody knows who it is.
    Unauthorized,
    /// What is to be authorised cannot be said.
    Malformed,
    /// Somebody who may not.
    Forbidden(Box<(User, Attributes)>),
    /// The API server could not be asked.
    Unavailable,
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
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
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
            Self::Unavailable => "The API server cannot be asked who may do this.".to_owned(),
        }
    }
}

impl Refusal {
    /// What the client is told. After a request that nobody may send, what follows on the connection is not read.
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
            Self::Shape(Shape::Method) => drop(headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"))),
            _ => {}
        }
        response
    }
}

//! The shape that every request must have: a read, without a body, of a path that all servers read in the same way.

use http::{Method, StatusCode, header, request::Parts};

/// Why a request is refused, independent of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A method other than GET and HEAD.
    Method,
    /// A path that the upstream might read differently.
    Path,
    /// A body, or a header that announces one.
    Body,
    /// A request to upgrade the connection.
    Upgrade,
    /// An expectation, which the proxy never meets.
    Expectation,
}

impl Shape {
    /// The status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Path | Self::Upgrade => StatusCode::BAD_REQUEST,
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
        }
    }

    /// The text of the answer.
    pub fn text(self) -> &'static str {
        match self {
            Self::Method => "Only GET and HEAD are allowed.",
            Self::Path => "The path must be plain: no escapes, no empty, . or .. segments, no authority.",
            Self::Body => "A request must not have a body.",
            Self::Upgrade => "The connection cannot be upgraded.",
            Self::Expectation => "Expectations are not met.",
        }
    }
}

/// Refuses a request that cannot be authorised safely. The proxy forwards the path unchanged, so it must have only one meaning.
pub(crate) fn shape(request: &Parts, has_body: bool) -> Result<(), Shape> {
    let headers = &request.headers;
    if request.method != Method::GET && request.method != Method::HEAD {
        return Err(Shape::Method);
    }
    // HTTP/2 always names scheme and authority.
    let is_absolute = request.version <= http::Version::HTTP_11 && request.uri.authority().is_some();
    if is_absolute || !is_plain(request.uri.path()) {
        return Err(Shape::Path);
    }
    let length = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_body || length || headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(Shape::Body);
    }
    if headers.contains_key(header::UPGRADE) {
        return Err(Shape::Upgrade);
    }
    if headers.contains_key(header::EXPECT) {
        return Err(Shape::Expectation);
    }
    Ok(())
}

fn is_plain(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"%\\;?#".contains(&byte);
    let Some(segments) = path.strip_prefix('/') else { return false };
    let mut segments = segments.split('/').rev();
    // A trailing slash makes an empty last segment. It is allowed, and is a part of the name.
    let last = segments.next().unwrap_or_default();
    path.bytes().all(plain)
        && ![".", ".."].contains(&last)
        && segments.all(|segment| !["", ".", ".."].contains(&segment))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn only_plain_paths_are_admitted() {
        for path in
            ["/", "/metrics", "/metrics/", "/api/v1/label/job/values", "/a.b/..c/~x:y@z,!$&'()*+=", "/.well-known"]
        {
            assert!(is_plain(path), "{path}");
        }
        for path in [
            "",
            "*",
            "metrics",
            "//metrics",
            "/metrics//",
            "/a//b",
            "/.",
            "/..",
            "/a/.",
            "/a/../b",
            "/./a",
            "/%2e%2e/a",
            "/a%2fb",
            "/a%00",
            "/a\\b",
            "/a;b",
            "/a b",
            "/a\u{7f}",
            "/ä",
            "/%6detrics",
        ] {
            assert!(!is_plain(path), "{path}");
        }
    }

    #[test]
    fn only_reads_are_admitted() {
        let refused = |request: http::request::Builder| {
            let (parts, ()) = request.body(()).unwrap().into_parts();
            shape(&parts, false).err()
        };
        let get = || Request::get("/metrics");
        assert_eq!(refused(get()), None);
        assert_eq!(refused(Request::head("/metrics?a=%zz")), None);
        assert_eq!(refused(get().header("content-length", "0")), None);
        assert_eq!(refused(Request::get("https://a/metrics").version(http::Version::HTTP_2)), None);
        assert_eq!(refused(Request::get("http://a/metrics")), Some(Shape::Path));
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "PRI"] {
            assert_eq!(refused(get().method(method)), Some(Shape::Method), "{method}");
        }
        for (name, value, why) in [
            ("content-length", "1", Shape::Body),
            ("content-length", "00", Shape::Body),
            ("transfer-encoding", "identity", Shape::Body),
            ("upgrade", "h2c", Shape::Upgrade),
            ("expect", "100-continue", Shape::Expectation),
        ] {
            assert_eq!(refused(get().header(name, value)), Some(why), "{name}: {value}");
        }
        let (parts, ()) = get().body(()).unwrap().into_parts();
        assert_eq!(shape(&parts, true), Err(Shape::Body));
    }
}

//! Builds the upstream's request from the client's, and cleans the upstream's response of headers that are not for the client.

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, Uri,
    header::{self, CACHE_CONTROL, CONNECTION},
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::{Admitted, policy::User};

/// The headers that carry the user's identity to the upstream.
#[derive(Debug, Clone)]
pub(crate) struct IdentityHeaders {
    /// Whether to send them. In any case, the proxy removes them from client requests.
    pub(crate) enabled: bool,
    pub(crate) user: HeaderName,
    pub(crate) groups: HeaderName,
    pub(crate) separator: String,
}

/// Headers that belong to one connection, not to the request or the answer.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers that are meant for the proxy, or with which a client could impersonate the proxy or another user.
const PROXY_HEADERS: [&str; 10] = [
    "authorization",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "if-range",
    "range",
    "x-real-ip",
    "x-client-cert",
    "x-original-url",
];
const PROXY_HEADERS_BEGIN: [&str; 5] = ["impersonate-", "x-forwarded-", "x-remote-", "x-rewrite-", "ssl-client-"];

/// Builds the request to the upstream. `None` if the names of the user or the groups do not fit in a header.
pub(crate) fn request<B: Default>(
    from: &Parts,
    admitted: &Admitted,
    scheme: &Scheme,
    authority: &Authority,
    identity: &IdentityHeaders,
) -> Option<Request<B>> {
    let path = from.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let uri = Uri::builder().scheme(scheme.clone()).authority(authority.clone()).path_and_query(path).build().ok()?;
    let mut request = Request::new(B::default());
    *request.method_mut() = from.method.clone();
    *request.uri_mut() = uri;
    let named = named_by_connection(&from.headers);
    for (name, value) in &from.headers {
        if !is_of_proxy(name, identity) && !named.contains(name) {
            request.headers_mut().append(name, value.clone());
        }
    }
    if let (true, Admitted::User(user)) = (identity.enabled, admitted) {
        let User { name, groups, .. } = &**user;
        let groups = groups.join(&identity.separator);
        request.headers_mut().insert(&identity.user, HeaderValue::try_from(name).ok()?);
        request.headers_mut().insert(&identity.groups, HeaderValue::try_from(groups).ok()?);
    }
    Some(request)
}

/// Removes the headers of the upstream's connection and software, and its cookies. Forbids caches to store the answer.
pub(crate) fn response<B>(mut from: Response<B>) -> Response<B> {
    let named = named_by_connection(from.headers());
    let headers = from.headers_mut();
    for name in HOP_BY_HOP.into_iter().filter_map(|name| HeaderName::try_from(name).ok()).chain(named) {
        headers.remove(name);
    }
    headers.remove(header::SERVER);
    headers.remove(header::SET_COOKIE);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    from
}

fn is_of_proxy(name: &HeaderName, identity: &IdentityHeaders) -> bool {
    // Some upstreams read `X_Remote_User` as `X-Remote-User`.
    let same = name.as_str().replace('_', "-");
    let is = |other: &HeaderName| same == other.as_str().replace('_', "-");
    HOP_BY_HOP.contains(&&*same)
        || PROXY_HEADERS.contains(&&*same)
        || PROXY_HEADERS_BEGIN.iter().any(|begin| same.starts_with(begin))
        || is(&identity.user)
        || is(&identity.groups)
}

/// The headers that `Connection` names as headers of the connection.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn identity(enabled: bool) -> IdentityHeaders {
        let [user, groups] = ["x-remote-user", "who-groups"].map(HeaderName::from_static);
        IdentityHeaders { enabled, user, groups, separator: "|".to_owned() }
    }

    fn forwarded(headers: &[(&str, &str)], admitted: &Admitted, enabled: bool) -> Option<Vec<String>> {
        let mut builder = Request::get("/metrics?x=%zz");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let (parts, ()) = builder.body(()).unwrap().into_parts();
        let upstream = Authority::from_static("127.0.0.1:8080");
        let request: Request<()> = request(&parts, admitted, &Scheme::HTTP, &upstream, &identity(enabled))?;
        assert_eq!(request.uri(), "http://127.0.0.1:8080/metrics?x=%zz");
        let text = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        Some(request.headers().iter().map(text).collect())
    }

    fn ann(name: &str) -> Admitted {
        let groups = ["a", "b"].map(str::to_owned).to_vec();
        Admitted::User(Arc::new(User { name: name.to_owned(), groups, ..User::default() }))
    }

    #[test]
    fn client_identity_headers_are_not_forwarded() {
        let headers = [
            ("accept", "text/plain"),
            ("authorization", "Bearer secret"),
            ("x-remote-user", "admin"),
            ("X_Remote_User", "admin"),
            ("x-remote-groups", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("who-groups", "system:masters"),
            ("who_groups", "system:masters"),
            ("impersonate-user", "admin"),
            ("x-forwarded-for", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("host", "elsewhere"),
            ("range", "bytes=0-1"),
            ("connection", "close, x-private"),
            ("x-private", "a"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("x-namespace", "a"),
        ];
        for enabled in [false, true] {
            let forwarded = forwarded(&headers, &Admitted::Anonymous, enabled);
            assert_eq!(forwarded.unwrap(), ["accept: text/plain", "x-namespace: a"], "{enabled}");
        }
        let expected = ["accept: text/plain", "x-namespace: a", "x-remote-user: ann", "who-groups: a|b"];
        assert_eq!(forwarded(&headers, &ann("ann"), true).unwrap(), expected);
        assert_eq!(forwarded(&headers, &ann("ann"), false).unwrap(), expected[..2]);
    }

    #[test]
    fn user_name_invalid_in_header_is_rejected() {
        assert_eq!(forwarded(&[], &ann("a\r\nx-admin: yes"), true), None);
        assert!(forwarded(&[], &ann("a\r\nx-admin: yes"), false).is_some());
    }

    #[test]
    fn response_drops_hop_by_hop_and_server_headers() {
        let from = Response::builder()
            .header("content-type", "text/plain")
            .header("server", "nginx")
            .header("cache-control", "public, max-age=60")
            .header("connection", "x-hop")
            .header("x-hop", "a")
            .header("set-cookie", "a=b")
            .body(())
            .unwrap();
        let mut names: Vec<_> =
            response(from).headers().iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        names.sort();
        assert_eq!(names, ["cache-control: \"no-store\"", "content-type: \"text/plain\""]);
    }
}

//! Which requests the proxy admits, and what it forwards to the upstream.

use std::sync::atomic::Ordering;

use crate::kit::{get, soon, status, tell, usual};

#[tokio::test]
async fn invalid_token_gets_401_and_denied_user_gets_403() {
    let (behind, ask, proxy) = usual(&[]).await;
    assert_eq!(proxy.get("/metrics", None).await, (401, "Unauthorized\n".to_owned()));
    assert_eq!(proxy.get("/metrics", Some("unknown")).await, (401, "Unauthorized\n".to_owned()));
    let forbidden = "Forbidden (user=bob, verb=get, resource=, subresource=)\n";
    assert_eq!(proxy.get("/metrics", Some("bob")).await, (403, forbidden.to_owned()));
    assert_eq!(proxy.get("/other", Some("ann")).await.0, 403);
    assert_eq!(behind.seen(), <[&str; 0]>::default(), "no request was admitted yet");
    assert_eq!(proxy.get("/metrics", Some("ann")).await, (200, "hello".to_owned()));
    assert_eq!(behind.seen().len(), 1);

    // The proxy refuses malformed tokens without a review.
    let before = ask.tokens.load(Ordering::Relaxed);
    for header in [
        "authorization:",
        "authorization: Bearer",
        "authorization: Basic YTpi",
        "authorization: Bearer a,b",
        "authorization: Bearer ann\r\nauthorization: Bearer ann",
        "authorization: Bearer \u{e4}",
        &format!("authorization: Bearer {}", "a".repeat(16 * 1024 + 1)),
    ] {
        let text = format!("GET /metrics HTTP/1.1\r\nhost: a\r\n{header}\r\nconnection: close\r\n\r\n");
        assert_eq!(status(&tell(&mut proxy.connect().await, text).await), 401, "{header:.60}");
    }
    assert_eq!(ask.tokens.load(Ordering::Relaxed), before);
    assert_eq!(behind.seen(), <[&str; 0]>::default());
}

#[tokio::test]
async fn disallowed_path_gets_404() {
    let (behind, ask, proxy) = usual(&["--allow-paths=/metrics,/api/v1/label/*/values"]).await;
    for path in ["/", "/api/v1/label/name", "/metrics/", "/Metrics", "//metrics", "/metrics/../metrics", "/%6detrics"] {
        assert_eq!(proxy.get(path, Some("ann")).await.0, 404, "{path}");
    }
    assert_eq!(ask.tokens.load(Ordering::Relaxed), 0, "no review is needed");
    assert_eq!(behind.seen(), <[&str; 0]>::default());
    for path in ["/metrics", "/metrics?x=%zz", "/api/v1/label/job/values"] {
        assert_eq!(proxy.get(path, Some("ann")).await.0, 200, "{path}");
    }
    assert_eq!(proxy.get("/metrics", None).await.0, 401);
}

#[tokio::test]
async fn ignored_path_skips_auth_and_forwards_no_identity() {
    let (behind, ask, proxy) = usual(&["--ignore-paths=/metrics,/api/v1/labels", "--auth-header-fields-enabled"]).await;
    for path in ["/metrics", "/api/v1/labels"] {
        assert_eq!(proxy.get(path, None).await.0, 200, "{path}");
    }
    for path in ["/", "/api/v1/label/job/values"] {
        assert_eq!(proxy.get(path, None).await.0, 401, "{path}");
    }
    behind.seen();
    let claims = "GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\nx-remote-user: admin\r\n\
                  X-Remote-Groups: system:masters\r\nImpersonate-User: admin\r\nconnection: close\r\n\r\n";
    assert_eq!(status(&tell(&mut proxy.connect().await, claims).await), 200);
    let head = behind.seen().concat().to_lowercase();
    assert!(!["ann", "admin", "masters", "remote"].iter().any(|word| head.contains(word)), "{head}");
    assert_eq!(ask.tokens.load(Ordering::Relaxed), 0);
    assert_eq!(proxy.get("//metrics", None).await.0, 400);
    assert_eq!(proxy.get("/x/../metrics", None).await.0, 400);
}

#[tokio::test]
async fn identity_headers_reach_upstream_when_enabled() {
    for (flag, expected) in [("--auth-header-fields-enabled=false", false), ("--auth-header-fields-enabled", true)] {
        let names = "--auth-header-user-field-name=x-user";
        let (behind, _, proxy) = usual(&[flag, names]).await;
        let text = "GET /metrics HTTP/1.1\r\nhost: elsewhere\r\nauthorization: Bearer ann\r\nx-user: admin\r\n\
                    x_user: admin\r\naccept: text/plain\r\nconnection: close, x-private\r\nx-private: a\r\n\r\n";
        assert_eq!(status(&tell(&mut proxy.connect().await, text).await), 200);
        let who = if expected { "x-user: ann\r\nx-remote-groups: a|b\r\n" } else { "" };
        let host = behind.address;
        let head = format!("GET /metrics HTTP/1.1\r\naccept: text/plain\r\n{who}host: {host}\r\n\r\n");
        assert_eq!(behind.seen(), [head], "exactly one request, built by the proxy");
    }
}

#[tokio::test]
async fn response_is_no_store_and_hides_server() {
    let (_behind, _, proxy) = usual(&[]).await;
    for token in [Some("ann"), None, Some("bob")] {
        let answer = tell(&mut proxy.connect().await, get("/metrics", token)).await.to_lowercase();
        assert!(answer.contains("cache-control: no-store\r\n"), "{answer}");
        assert!(!answer.contains("server:"), "{answer}");
    }
}

#[tokio::test]
async fn head_request_gets_headers_without_body() {
    let (behind, _, proxy) = usual(&[]).await;
    let text = get("/metrics", Some("ann")).replace("GET", "HEAD");
    let answer = tell(&mut proxy.connect().await, text).await;
    assert_eq!(status(&answer), 200);
    assert!(answer.ends_with("\r\n\r\n") && answer.contains("content-length: 5\r\n"), "{answer}");
    assert!(behind.seen().concat().starts_with("HEAD /metrics "));
}

#[tokio::test]
async fn only_reads_are_admitted() {
    let (behind, ask, proxy) = usual(&[]).await;
    for (line, header, expected) in [
        ("POST /metrics", "content-length: 0", 405),
        ("OPTIONS /metrics", "x: y", 405),
        ("TRACE /metrics", "x: y", 405),
        ("CONNECT a:443", "x: y", 405),
        ("FOO /metrics", "x: y", 405),
        ("GET /metrics", "content-length: 1\r\nx: y", 413),
        ("GET /metrics", "transfer-encoding: chunked", 413),
        ("GET /metrics", "upgrade: websocket", 400),
        ("GET /metrics", "expect: 100-continue", 417),
        ("GET http://a/metrics", "x: y", 400),
        ("GET //metrics", "x: y", 400),
        ("GET /a/../metrics", "x: y", 400),
        ("GET /%2e%2e/metrics", "x: y", 400),
        ("GET /metrics%00", "x: y", 400),
        ("GET /metrics;a=b", "x: y", 400),
    ] {
        let text = format!(
            "{line} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\n{header}\r\nconnection: close\r\n\r\n0\r\n\r\n"
        );
        assert_eq!(status(&tell(&mut proxy.connect().await, text).await), expected, "{line} {header}");
    }
    assert_eq!(behind.seen(), <[&str; 0]>::default());
    assert_eq!(ask.tokens.load(Ordering::Relaxed), 0);
    let text = get("/metrics", Some("ann")).replace("host:", "range: bytes=0-1\r\nhost:");
    let answer = tell(&mut proxy.connect().await, text).await;
    assert!(answer.ends_with("hello"), "ranges are ignored, as they may be: {answer}");
    assert!(!behind.seen().concat().contains("range"));
}

fn config(text: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    let flag = format!("--config-file={}", file.path().display());
    (file, flag)
}

const REWRITE: &str = "
authorization:
  rewrites: {byQueryParameter: {name: namespace}, byHttpHeader: {name: x-namespace}}
  resourceAttributes: {apiVersion: v1, resource: services, subresource: metrics, namespace: '{{ .Value }}'}
";

#[tokio::test]
async fn every_rewrite_value_must_be_allowed() {
    let (_file, flag) = config(REWRITE);
    let (behind, _, proxy) = usual(&[&flag]).await;
    for (query, header, expected) in [
        ("?namespace=a", "", 200),
        ("?namespace=b", "", 403),
        ("?namespace=a&namespace=b", "", 403),
        ("?namespace=a&namespace=a", "", 200),
        ("", "x-namespace: a\r\n", 200),
        ("", "x-namespace: a\r\nx-namespace: b\r\n", 403),
        ("?namespace=a", "x-namespace: b\r\n", 403),
        ("", "", 400),
        ("?namespace=a;namespace=b", "", 400),
        ("?namespace=%zz", "", 400),
    ] {
        let text = get(&format!("/metrics{query}"), Some("ann")).replace("host:", &format!("{header}host:"));
        let answer = tell(&mut proxy.connect().await, text).await;
        assert_eq!(status(&answer), expected, "{query} {header}: {answer}");
    }
    let heads = behind.seen();
    assert!(heads[0].starts_with("GET /metrics?namespace=a HTTP/1.1\r\n"), "the parameter is forwarded: {heads:?}");
    let forbidden = "Forbidden (user=bob, verb=get, resource=services, subresource=metrics)\n";
    assert_eq!(proxy.get("/metrics?namespace=a", Some("bob")).await, (403, forbidden.to_owned()));
}

#[tokio::test]
async fn static_rules_are_checked_before_reviews() {
    let rules = "
  static:
  - {user: {name: bob}, resourceRequest: true, resource: services, namespace: c, verb: get}
";
    let (_file, flag) = config(&format!("{}{rules}", REWRITE.trim_end()));
    let (_behind, ask, proxy) = usual(&[&flag]).await;
    assert_eq!(proxy.get("/metrics?namespace=c", Some("bob")).await.0, 200);
    assert_eq!(ask.accesses.load(Ordering::Relaxed), 0);
    assert_eq!(proxy.get("/metrics?namespace=a", Some("bob")).await.0, 403);
    assert_eq!(proxy.get("/metrics?namespace=c", Some("ann")).await.0, 403);

    let (_file, flag) = config("authorization: {static: [{user: {name: bob}, path: /metrics, verb: get}]}");
    let (_behind, _, proxy) = usual(&[&flag]).await;
    assert_eq!(proxy.get("/metrics", Some("bob")).await.0, 200);
    assert_eq!(proxy.get("/api/x", Some("bob")).await.0, 403);
    assert_eq!(proxy.get("/metrics", None).await.0, 401, "a rule needs an authenticated user");
}

#[tokio::test]
async fn proxy_ends_on_cancellation() {
    let (_behind, _, proxy) = usual(&[]).await;
    assert_eq!(proxy.get("/metrics", Some("ann")).await.0, 200);
    proxy.stop.cancel();
    soon(proxy.ended()).await;
}

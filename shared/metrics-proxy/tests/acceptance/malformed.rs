//! Malformed HTTP/1.1: for any input, the upstream gets only whole requests that the proxy has built, or nothing.

use std::sync::{Arc, atomic::Ordering};

use fuzz::{Rng, Target};

use crate::kit::{Ask, Behind, HELLO, Running, status, tell, usual};

/// Name, input (with a valid token), and possible statuses, where 0 is a closed connection.
const CORPUS: &[(&str, &[u8], &[u16])] = &[
    ("CL.TE", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nG", &[400, 413]),
    ("TE.CL", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n5c\r\nGET /admin HTTP/1.1\r\n\r\n0\r\n\r\n", &[400, 413]),
    ("TE.TE", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ntransfer-encoding: chunked\r\ntransfer-encoding: x\r\n\r\n0\r\n\r\n", &[400, 413]),
    ("TE with a tab", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ntransfer-encoding:\tchunked\r\n\r\n0\r\n\r\n", &[400, 413]),
    ("TE with a space before the colon", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n", &[400]),
    ("TE in HTTP/1.0", b"GET /metrics HTTP/1.0\r\nauthorization: Bearer ann\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", &[400, 413]),
    ("two lengths", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ncontent-length: 0\r\ncontent-length: 5\r\n\r\nhello", &[400, 413]),
    ("a list of lengths", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ncontent-length: 0, 0\r\n\r\n", &[400, 413]),
    ("length with a sign", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ncontent-length: +5\r\n\r\nhello", &[400]),
    ("negative length", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ncontent-length: -1\r\n\r\n", &[400]),
    ("hexadecimal length", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ncontent-length: 0x5\r\n\r\nhello", &[400]),
    ("length beyond all numbers", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ncontent-length: 99999999999999999999\r\n\r\n", &[400]),
    ("obs-fold", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\nx: a\r\n b\r\n\r\n", &[400]),
    ("fold of the first header", b"GET /metrics HTTP/1.1\r\n x: a\r\nhost: a\r\nauthorization: Bearer ann\r\n\r\n", &[400]),
    ("bare CR in a value", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\nx: a\rb\r\n\r\n", &[400]),
    ("NUL in a value", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\nx: a\0b\r\n\r\n", &[400]),
    ("a name with a space", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\nx y: a\r\n\r\n", &[400]),
    ("no name", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\n: a\r\n\r\n", &[400]),
    ("no colon", b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\nx\r\n\r\n", &[400]),
    ("HTTP/0.9", b"GET /metrics\r\n\r\n", &[400]),
    ("HTTP/1.2", b"GET /metrics HTTP/1.2\r\nhost: a\r\n\r\n", &[400, 0]),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400, 0]),
    ("lower case version", b"GET /metrics http/1.1\r\nhost: a\r\n\r\n", &[400]),
    ("two spaces", b"GET  /metrics HTTP/1.1\r\nhost: a\r\n\r\n", &[400]),
    ("a path with a space", b"GET /metrics x HTTP/1.1\r\nhost: a\r\n\r\n", &[400]),
    ("a path with a tab", b"GET /metrics\tx HTTP/1.1\r\nhost: a\r\n\r\n", &[400]),
    ("a path with a NUL", b"GET /metrics\0 HTTP/1.1\r\nhost: a\r\n\r\n", &[400]),
    ("no path", b"GET HTTP/1.1\r\nhost: a\r\n\r\n", &[400]),
    ("asterisk", b"GET * HTTP/1.1\r\nhost: a\r\n\r\n", &[400]),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", &[400]),
    ("nonsense", b"\xff\xfe\x00\x01\r\n\r\n", &[400]),
    ("an empty method", b" /metrics HTTP/1.1\r\nhost: a\r\n\r\n", &[400]),
];

#[tokio::test]
async fn malformed_requests_are_refused_and_end_the_connection() {
    let (behind, ask, proxy) = usual(&[]).await;
    for (what, text, expected) in CORPUS {
        // A valid request follows. It would get an answer if the connection stayed open.
        let smuggled = b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\n\r\n";
        let text = [text, &smuggled[..]].concat();
        let answer = tell(&mut proxy.connect().await, &text).await;
        assert!(expected.contains(&status(&answer)), "{what}: {answer}");
        assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{what}: {answer}");
        assert!(!answer.contains("200 OK"), "{what}: {answer}");
        assert_eq!(behind.seen(), <[&str; 0]>::default(), "{what}");
    }
    assert_eq!(ask.tokens.load(Ordering::Relaxed), 0);
    assert_eq!(proxy.get("/metrics", Some("ann")).await.0, 200, "the proxy still serves");
}

#[tokio::test]
async fn heads_that_are_too_big_are_refused() {
    let (behind, _, proxy) = usual(&[]).await;
    let head =
        |filler: &str| format!("GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\n{filler}\r\n\r\n");
    let fits = head(&format!("connection: close\r\nx: {}", "y".repeat(8 * 1024)));
    assert_eq!(status(&tell(&mut proxy.connect().await, fits).await), 200);
    behind.seen();
    for (what, text) in [
        ("64 KiB", head(&format!("x: {}", "y".repeat(64 << 10)))),
        ("1 MiB", head(&format!("x: {}", "y".repeat(1 << 20)))),
        ("10,000 headers", head(&vec!["x: y"; 10_000].join("\r\n"))),
        ("65 headers", head(&vec!["x: y"; 65].join("\r\n"))),
        ("a path of 64 KiB", format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(64 << 10))),
    ] {
        let status = status(&tell(&mut proxy.connect().await, text).await);
        // A client that is still sending may see a reset instead.
        assert!([431, 414, 0].contains(&status), "{what}: {status}");
        assert_eq!(behind.seen(), <[&str; 0]>::default(), "{what}");
    }
}

/// Pieces of heads in any order, and sometimes any bytes.
fn head(random: &mut Rng) -> Vec<u8> {
    const PIECES: &[&str] = &[
        "GET ",
        "HEAD ",
        "POST ",
        "/metrics",
        "/api/x",
        "/../",
        "//",
        "%2e",
        "?a=b",
        " HTTP/1.1",
        " HTTP/1.0",
        "\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        "host: a\r\n",
        "authorization: Bearer ann\r\n",
        "content-length: 5\r\n",
        "content-length: 0\r\n",
        "transfer-encoding: chunked\r\n",
        "connection: close\r\n",
        "connection: keep-alive, authorization\r\n",
        "expect: 100-continue\r\n",
        "x-remote-user: admin\r\n",
        "x: ",
        ": ",
        " ",
        "\t",
        "0\r\n\r\n",
        "hello",
        ",",
        ";",
    ];
    const WHOLE: &[&[u8]] = &[
        b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\n\r\n",
        b"GET /api/x?a=b HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\nx-remote-user: admin\r\nconnection: close\r\n\r\n",
        b"HEAD http://a/metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\ncontent-length: 0\r\n\r\n",
    ];
    let mut head = if random.bool() {
        b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\n".to_vec()
    } else {
        Vec::new()
    };
    for _ in 0..random.usize(..16) {
        match random.u8(..9) {
            0 => head.extend((0..random.usize(..8)).map(|_| random.u8(..))),
            _ => head.extend_from_slice(random.choice(PIECES).copied().unwrap_or_default().as_bytes()),
        }
    }
    if random.bool() { fuzz::bytes(random, WHOLE, PIECES) } else { head }
}

#[test]
fn fuzz_request_heads() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (behind, proxy) = runtime.block_on(async {
        let (behind, ask) = (Behind::new(HELLO).await, Arc::new(Ask::default()));
        let proxy = Running::new(&behind, &ask, &["--auth-header-fields-enabled"]).await;
        (behind, proxy)
    });
    let host = format!("host: {}", behind.address);
    // The upstream gets only rebuilt requests.
    Target::new("request-heads", env!("CARGO_MANIFEST_DIR")).run(head, |head| {
        // At the end of the input, the proxy would take the client for gone, unless something follows the request. Half of them stay.
        let more: &[u8] = if head.len().is_multiple_of(2) { b"\r\n" } else { b"" };
        let sent = [head, more].concat();
        runtime.block_on(async {
            let mut stream = proxy.connect().await;
            drop(tokio::io::AsyncWriteExt::write_all(&mut stream, &sent).await);
            drop(tokio::io::AsyncWriteExt::shutdown(&mut stream).await);
            crate::kit::rest(&mut stream).await;
        });
        let forwarded = behind.seen();
        for head in &forwarded {
            let mut lines = head.split("\r\n");
            let line = lines.next().unwrap_or_default();
            let path = line.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
            assert!(line.starts_with("GET /") || line.starts_with("HEAD /"), "{head}");
            assert!(path == "/metrics" || path.starts_with("/api/"), "{head}");
            assert!(!path.contains("..") && !path.contains("//") && !path.contains('%'), "{head}");
            let names: Vec<_> = lines.filter_map(|line| Some(line.split_once(':')?.0.to_lowercase())).collect();
            assert!(!names.iter().any(|it| it == "authorization" || it == "content-length"), "{head}");
            assert!(head.contains(&host) && head.contains("x-remote-user: ann\r\n"), "{head}");
            assert!(names.iter().filter(|it| *it == "x-remote-user").count() == 1, "{head}");
        }
        !forwarded.is_empty()
    });
}

#[test]
fn fuzz_config_files() {
    const FILES: &[&[u8]] = &[
        b"authorization:\n  resourceAttributes:\n    apiVersion: v1\n    resource: namespaces\n    subresource: metrics\n    namespace: default\n",
        b"authorization:\n  rewrites:\n    byQueryParameter: {name: namespace}\n    byHttpHeader: {name: x-namespace}\n  resourceAttributes:\n    resource: pods\n    namespace: '{{ .Value }}'\n",
        b"authorization:\n  static:\n  - user: {name: ann, groups: [a]}\n    verb: get\n    path: /metrics\n    resourceRequest: false\n",
    ];
    const WORDS: &[&str] = &[
        "authorization:",
        "\n",
        "  ",
        "static:",
        "- ",
        "path: /a",
        "rewrites:",
        "byQueryParameter:",
        "{name: x}",
        "'{{ .Value }}'",
        "resourceAttributes:",
        "namespace: ",
        "resource: pods",
        "{",
        "}",
        "[",
        "&a ",
        "*a",
        ": ",
        "!!x",
        "{{",
        "|",
        "<<: *a",
        "resourceRequest: true",
        "/*",
        "/**",
    ];
    // A file is refused or understood as a whole: a key that means nothing never passes.
    Target::new("config-files", env!("CARGO_MANIFEST_DIR")).run(
        |random| fuzz::bytes(random, FILES, WORDS),
        |bytes| {
            let text = String::from_utf8_lossy(bytes);
            drop(metrics_proxy::policy::Patterns::parse(&[&text]));
            let is_understood = metrics_proxy::policy::Authorization::parse(&text).is_ok() && !text.trim().is_empty();
            if is_understood {
                let more = format!("{}\nunknown: 1\n", text.trim_end());
                assert!(metrics_proxy::policy::Authorization::parse(&more).is_err(), "{more}");
            }
            is_understood
        },
    );
}

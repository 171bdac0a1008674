//! Malformed HTTP/1.1: for any input, the upstream gets only whole requests that the proxy has built, or nothing.

use std::sync::{Arc, atomic::Ordering};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

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

/// Runs the same cases each time. `METRICS_PROXY_CASES` sets another number, and makes the cases random.
fn runner(usual: u32) -> TestRunner {
    let cases = std::env::var("METRICS_PROXY_CASES").ok().and_then(|text| text.parse().ok());
    let config = Config { failure_persistence: None, ..Config::with_cases(cases.unwrap_or(usual)) };
    match cases {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    }
}

/// Pieces of heads in any order, and sometimes any bytes.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            "GET ", "HEAD ", "POST ", "/metrics", "/api/x", "/../", "//", "%2e", "?a=b", " HTTP/1.1", " HTTP/1.0", "\r\n", "\r\n",
            "\r\n\r\n", "\n", "\r", "host: a\r\n", "authorization: Bearer ann\r\n", "content-length: 5\r\n", "content-length: 0\r\n",
            "transfer-encoding: chunked\r\n", "connection: close\r\n", "connection: keep-alive, authorization\r\n",
            "expect: 100-continue\r\n", "x-remote-user: admin\r\n", "x: ", ": ", " ", "\t", "0\r\n\r\n", "hello", ",", ";",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    let start = prop_oneof![
        Just(Vec::new()),
        Just(b"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ann\r\n".to_vec()),
    ];
    (start, prop::collection::vec(piece, 0..16)).prop_map(|(start, pieces)| [start, pieces.concat()].concat())
}

#[test]
fn upstream_gets_only_rebuilt_requests() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (behind, proxy) = runtime.block_on(async {
        let (behind, ask) = (Behind::new(HELLO).await, Arc::new(Ask::default()));
        let proxy = Running::new(&behind, &ask, &["--auth-header-fields-enabled"]).await;
        (behind, proxy)
    });
    let host = format!("host: {}", behind.address);
    let outcome = runner(300).run(&heads(), |head| {
        runtime.block_on(async {
            let mut stream = proxy.connect().await;
            drop(tokio::io::AsyncWriteExt::write_all(&mut stream, &head).await);
            drop(tokio::io::AsyncWriteExt::shutdown(&mut stream).await);
            crate::kit::rest(&mut stream).await;
        });
        for head in behind.seen() {
            let mut lines = head.split("\r\n");
            let line = lines.next().unwrap_or_default();
            let path = line.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
            prop_assert!(line.starts_with("GET /") || line.starts_with("HEAD /"), "{head}");
            prop_assert!(path == "/metrics" || path.starts_with("/api/"), "{head}");
            prop_assert!(!path.contains("..") && !path.contains("//") && !path.contains('%'), "{head}");
            let names: Vec<_> = lines.filter_map(|line| Some(line.split_once(':')?.0.to_lowercase())).collect();
            prop_assert!(!names.iter().any(|it| it == "authorization" || it == "content-length"), "{head}");
            prop_assert!(head.contains(&host) && head.contains("x-remote-user: ann\r\n"), "{head}");
            prop_assert!(names.iter().filter(|it| *it == "x-remote-user").count() == 1, "{head}");
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn config_parser_never_panics() {
    let text = prop_oneof![
        ".{0,200}",
        prop::collection::vec(
            prop::sample::select(vec![
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
                "&a",
                "*a",
                ": ",
                "!!x",
                "{{",
            ]),
            0..24
        )
        .prop_map(|pieces| pieces.concat()),
    ];
    let outcome = runner(2_000).run(&text, |text| {
        drop(metrics_proxy::policy::Authorization::parse(&text));
        drop(metrics_proxy::policy::Patterns::parse(&[&text]));
        Ok(())
    });
    outcome.unwrap();
}

//! Upstreams that fail or misbehave.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::kit::{Ask, Behind, Running, get, soon, status, tell};

async fn answer(behind: &Behind, more: &[&str]) -> String {
    let proxy = Running::new(behind, &Arc::new(Ask::default()), more).await;
    tell(&mut proxy.connect().await, get("/metrics", Some("ann"))).await
}

#[tokio::test]
async fn unreachable_upstream_gives_502() {
    let behind = Behind::new("").await;
    behind.end();
    tokio::task::yield_now().await;
    assert_eq!(status(&answer(&behind, &[]).await), 502);
}

#[tokio::test]
async fn silent_upstream_gives_504() {
    assert_eq!(status(&answer(&Behind::new("").await, &["--upstream-timeout=100ms"]).await), 504);
}

#[tokio::test]
async fn truncated_upstream_response_is_not_sent_as_complete() {
    for half in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n",
    ] {
        let answer = answer(&Behind::new(half).await, &["--upstream-timeout=200ms"]).await;
        let whole =
            answer.ends_with("\r\n0\r\n\r\n") || (answer.contains("content-length: 5\r\n") && status(&answer) == 200);
        assert!(!whole, "{half:?}: {answer}");
    }
}

#[tokio::test]
async fn malformed_upstream_response_gives_502() {
    for nonsense in [
        "hello\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nx y: z\r\n\r\n",
    ] {
        assert_eq!(status(&answer(&Behind::new(nonsense).await, &[]).await), 502, "{nonsense:?}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let behind = Behind::new("HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(status(&answer(&behind, &[]).await), 302);
    assert_eq!(behind.seen().len(), 1);
}

/// The answer is far larger than any buffer: the proxy must not fetch what the client does not read.
#[tokio::test]
async fn large_upstream_response_is_not_buffered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let endless = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut sent = 0_usize;
        let chunk = vec![b'x'; 64 << 10];
        while let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&chunk)).await {
            sent += chunk.len();
            assert!(sent < 1 << 30, "the proxy reads everything");
        }
        sent
    });
    let program = metrics_proxy::Program::with_reviewer(&crate::kit::flags(address, &[]), Arc::new(Ask::default()))
        .await
        .unwrap();
    let proxy = Running::run(program);
    let mut stream = proxy.connect().await;
    stream.write_all(get("/metrics", Some("ann")).as_bytes()).await.unwrap();
    let sent = soon(endless).await.unwrap();
    assert!(sent < 64 << 20, "{sent} bytes are buffered");
}

#[tokio::test]
async fn force_h2c_uses_http2_without_tls() {
    // The preface of HTTP/2 ends like a head, so the recorder sees it.
    let behind = Behind::new("").await;
    let proxy =
        Running::new(&behind, &Arc::new(Ask::default()), &["--upstream-force-h2c", "--upstream-timeout=200ms"]).await;
    proxy.get("/metrics", Some("ann")).await;
    let seen = behind.seen();
    assert!(seen.first().is_some_and(|head| head == "PRI * HTTP/2.0\r\n\r\n"), "{seen:?}");
}

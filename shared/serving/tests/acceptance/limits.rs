//! Clients that exceed a limit.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Bytes, extract::Request, routing::post};
use http_body_util::BodyExt;
use serving::{BodyTimeout, Dropped, Limits};
use tokio::{io::AsyncWriteExt, sync::Notify};

use crate::kit::{Authority, Server, Told, ask, hello, rest, soon, tell, tls};

const SHORT: Duration = Duration::from_millis(150);

async fn dropped(server: &mut Server, why: Dropped) {
    assert_eq!(soon(server.told.recv()).await, Some(Told::Dropped(why)));
}

#[tokio::test]
async fn unfinished_head_times_out() {
    let mut server = Server::plain(Limits { header_read: SHORT, ..Limits::default() }, hello()).await;
    // Silence from the beginning, a part of a head, and a part of a head after a whole request.
    let mut silent = server.connect().await;
    assert_eq!(rest(&mut silent).await, "");
    dropped(&mut server, Dropped::Waited).await;
    let mut slow = server.connect().await;
    assert_eq!(tell(&mut slow, "GET / HTTP/1.1\r\nhost: a\r\nx: ").await, "");
    dropped(&mut server, Dropped::Waited).await;
    let mut second = server.connect().await;
    ask(&mut second).await;
    assert_eq!(tell(&mut second, "GET / HT").await, "");
    dropped(&mut server, Dropped::Waited).await;
}

#[tokio::test]
async fn trickled_head_does_not_extend_timeout() {
    let mut server = Server::plain(Limits { header_read: SHORT, ..Limits::default() }, hello()).await;
    let stream = server.connect().await;
    let (mut read, mut write) = stream.into_split();
    let trickle = tokio::spawn(async move {
        write.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut ticks = tokio::time::interval(SHORT / 10);
        while write.write_all(b"x: y\r\n").await.is_ok() {
            ticks.tick().await;
        }
    });
    assert_eq!(rest(&mut read).await, "");
    dropped(&mut server, Dropped::Waited).await;
    soon(trickle).await.unwrap();
}

#[tokio::test]
async fn idle_connection_has_its_own_timeout() {
    let limits = Limits { header_read: SHORT, idle: 4 * SHORT, ..Limits::default() };
    let mut server = Server::plain(limits, hello()).await;
    let mut stream = server.connect().await;
    ask(&mut stream).await;
    let since = std::time::Instant::now();
    assert_eq!(rest(&mut stream).await, "");
    assert!(since.elapsed() > 3 * SHORT, "the limit for heads does not apply");
    dropped(&mut server, Dropped::Waited).await;
}

#[tokio::test]
async fn unfinished_handshake_times_out() {
    let limits = Limits { handshake: SHORT, ..Limits::default() };
    let mut server = Server::tls(tls(&Authority::new().pair(2100)), limits, hello()).await;
    let mut stream = server.connect().await;
    assert_eq!(rest(&mut stream).await, "");
    dropped(&mut server, Dropped::Handshake).await;
}

#[tokio::test]
async fn oversized_head_gets_431() {
    let server = Server::plain(Limits { headers: 10, ..Limits::default() }, hello()).await;
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(11));
    for head in [long, many] {
        let answer = tell(&mut server.connect().await, &head).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    let few = format!("GET / HTTP/1.1\r\nconnection: close\r\n{}\r\n", "x: y\r\n".repeat(9));
    assert!(tell(&mut server.connect().await, &few).await.starts_with("HTTP/1.1 200 "));
}

fn reads() -> Router {
    Router::new().route("/", post(async |body: Bytes| format!("{} bytes", body.len()))).route(
        "/slow",
        post(async |request: Request| {
            let error = request.into_body().collect().await.unwrap_err();
            let mut source: Option<&dyn std::error::Error> = Some(&error);
            while let Some(error) = source {
                if error.is::<BodyTimeout>() {
                    return "too slow";
                }
                source = error.source();
            }
            "something else"
        }),
    )
}

#[tokio::test]
async fn oversized_body_gets_413() {
    let server = Server::plain(Limits { body_size: 10, ..Limits::default() }, reads()).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n";
    for (request, expected) in [
        ("content-length: 10\r\n\r\n0123456789", "HTTP/1.1 200 "),
        ("content-length: 11\r\n\r\n0123456789a", "HTTP/1.1 413 "),
        ("content-length: 99999999999999\r\n\r\n", "HTTP/1.1 413 "),
        ("transfer-encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n", "HTTP/1.1 200 "),
        ("transfer-encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n", "HTTP/1.1 413 "),
    ] {
        let answer = tell(&mut server.connect().await, &format!("{head}{request}")).await;
        assert!(answer.starts_with(expected), "{request:?}: {answer}");
    }
}

#[tokio::test]
async fn slow_body_times_out() {
    let server = Server::plain(Limits { body_read: SHORT, ..Limits::default() }, reads()).await;
    let answer = tell(&mut server.connect().await, "POST /slow HTTP/1.1\r\ncontent-length: 10\r\n\r\n01").await;
    assert!(answer.ends_with("too slow"), "{answer}");
}

#[tokio::test]
async fn unread_response_times_out() {
    let long = Router::new().fallback(async || vec![b'x'; 64 << 20]);
    let mut server = Server::plain(Limits { write: SHORT, ..Limits::default() }, long).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    dropped(&mut server, Dropped::Unread).await;
    assert!(rest(&mut stream).await.len() < 64 << 20);
}

#[tokio::test]
async fn excess_connection_evicts_longest_idle_one() {
    let mut server = Server::plain(Limits { connections: 3, ..Limits::default() }, hello()).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect().await;
        ask(&mut stream).await;
        streams.push(stream);
    }
    ask(&mut streams[0]).await; // Now the second one has waited longest.
    let mut late = server.connect().await;
    ask(&mut late).await;
    dropped(&mut server, Dropped::Full).await;
    assert_eq!(rest(&mut streams[1]).await, "");
    for stream in [0, 2] {
        ask(&mut streams[stream]).await;
    }
}

#[tokio::test]
async fn excess_connection_does_not_evict_active_one() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let routes = {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        Router::new().fallback(async move || {
            begun.notify_one();
            go_on.notified().await;
            "hello"
        })
    };
    let mut server = Server::plain(Limits { connections: 1, ..Limits::default() }, routes).await;
    let mut busy = server.connect().await;
    busy.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
    soon(begun.notified()).await;
    assert_eq!(rest(&mut server.connect().await).await, "", "no free place");
    dropped(&mut server, Dropped::Full).await;
    go_on.notify_one();
    assert!(rest(&mut busy).await.ends_with("hello"));
}

//! The budget of memory that all requests share.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Bytes, routing::post};
use serving::{Dropped, Limits};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

use crate::kit::{Server, Told, rest, soon, tell};

const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n";

fn limits(memory: usize) -> Limits {
    Limits { memory, body_size: 1 << 20, share_wait: Duration::from_millis(150), ..Limits::default() }
}

/// Waits until `go_on` before it answers.
fn slow(begun: &Arc<Notify>, go_on: &Arc<Notify>) -> Router {
    let (begun, go_on) = (begun.clone(), go_on.clone());
    let handler = async move |body: Bytes| {
        begun.notify_one();
        go_on.notified().await;
        format!("{} bytes", body.len())
    };
    Router::new().route("/", post(handler))
}

fn whole(length: usize) -> String {
    format!("{POST}content-length: {length}\r\n\r\n{}", "x".repeat(length))
}

#[tokio::test]
async fn request_beyond_the_budget_gets_503_and_later_an_answer() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let server = Server::plain(limits(100_000), slow(&begun, &go_on)).await;
    let mut first = server.connect().await;
    first.write_all(whole(80_000).as_bytes()).await.unwrap();
    soon(begun.notified()).await;
    // The handler works with the first body, so its share stays taken.
    let answer = tell(&mut server.connect().await, &whole(80_000)).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("retry-after: 1\r\n"), "{answer}");
    go_on.notify_one();
    assert!(rest(&mut first).await.ends_with("80000 bytes"));
    go_on.notify_one();
    assert!(
        tell(&mut server.connect().await, &whole(80_000)).await.ends_with("80000 bytes"),
        "the share is free again"
    );
}

#[tokio::test]
async fn request_keeps_its_share_until_the_client_has_read_the_answer() {
    // More than the buffers of two sockets hold.
    let long = Router::new().route("/", post(async |_: Bytes| vec![b'x'; 64 << 20]));
    let server = Server::plain(limits(100_000), long).await;
    let mut first = server.connect().await;
    first.write_all(whole(80_000).as_bytes()).await.unwrap();
    let mut beginning = [0; 12];
    soon(first.read_exact(&mut beginning)).await.unwrap();
    assert_eq!(&beginning, b"HTTP/1.1 200");
    let answer = tell(&mut server.connect().await, &whole(80_000)).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{}", &answer[..answer.len().min(100)]);
    drop(first);
}

#[tokio::test]
async fn waiting_request_gets_its_share_when_another_ends() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let limits = Limits { share_wait: Duration::from_mins(1), ..limits(100_000) };
    let server = Server::plain(limits, slow(&begun, &go_on)).await;
    let mut first = server.connect().await;
    first.write_all(whole(80_000).as_bytes()).await.unwrap();
    soon(begun.notified()).await;
    let mut second = server.connect().await;
    second.write_all(whole(80_000).as_bytes()).await.unwrap();
    go_on.notify_one();
    assert!(rest(&mut first).await.ends_with("80000 bytes"));
    go_on.notify_one();
    assert!(rest(&mut second).await.ends_with("80000 bytes"));
}

#[tokio::test]
async fn stalled_bodies_give_way_to_others() {
    let limits = Limits { share_wait: Duration::from_mins(1), ..limits(100_000) };
    let routes = Router::new().route("/", post(async |body: Bytes| format!("{} bytes", body.len())));
    let mut server = Server::plain(limits, routes).await;
    let mut stalled = server.connect().await;
    let part = "x".repeat(80_000);
    stalled.write_all(format!("{POST}content-length: 90000\r\n\r\n{part}").as_bytes()).await.unwrap();
    // The stalled body may arrive after the first of these requests.
    while server.told.is_empty() {
        assert!(tell(&mut server.connect().await, &whole(50_000)).await.ends_with("50000 bytes"));
    }
    assert_eq!(server.told.recv().await, Some(Told::Dropped(Dropped::Memory)));
    rest(&mut stalled).await;
}

#[tokio::test]
async fn body_in_tiny_chunks_counts_as_what_it_costs() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    go_on.notify_one();
    let server = Server::plain(limits(100_000), slow(&begun, &go_on)).await;
    let chunks = "1\r\nx\r\n".repeat(10_000);
    let answer =
        tell(&mut server.connect().await, &format!("{POST}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

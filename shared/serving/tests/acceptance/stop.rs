//! The drain: running requests finish, no new ones begin, and there is a deadline.

use std::{sync::Arc, time::Duration};

use axum::Router;
use serving::{Drained, Dropped, Limits};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::{Notify, Semaphore},
};

use crate::kit::{Server, Told, ask, hello, rest, soon};

/// Answers after a permit, and notifies when a request begins.
fn waits(begun: &Arc<Notify>, permits: &Arc<Semaphore>) -> Router {
    let (begun, permits) = (begun.clone(), permits.clone());
    Router::new().fallback(async move || {
        begun.notify_one();
        permits.acquire().await.unwrap().forget();
        "hello"
    })
}

#[tokio::test]
async fn running_requests_are_finished_and_idle_connections_closed() {
    let (begun, permits) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(1)));
    let server = Server::plain(Limits::default(), waits(&begun, &permits)).await;
    let (mut idle, mut running) = (server.connect().await, server.connect().await);
    ask(&mut idle).await;
    soon(begun.notified()).await;
    running.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    soon(begun.notified()).await;

    server.stop.cancel();
    assert_eq!(rest(&mut idle).await, "");
    let address = server.address;
    soon(async { while TcpStream::connect(address).await.is_ok() {} }).await;
    permits.add_permits(1);
    let answer = rest(&mut running).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(server.ended().await, Drained { cut: 0 });
}

#[tokio::test]
async fn drain_deadline_cuts_running_requests() {
    let begun = Arc::new(Notify::new());
    let limits = Limits { drain: Duration::from_millis(100), ..Limits::default() };
    let mut server = Server::plain(limits, waits(&begun, &Arc::new(Semaphore::new(0)))).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    soon(begun.notified()).await;
    server.stop.cancel();
    assert_eq!(rest(&mut stream).await, "");
    assert_eq!(soon(server.told.recv()).await, Some(Told::Dropped(Dropped::Drain)));
    assert_eq!(server.ended().await, Drained { cut: 1 });
}

#[tokio::test]
async fn drain_answers_first_request_of_open_connection() {
    let server = Server::plain(Limits::default(), hello()).await;
    let mut stream = server.connect().await;
    server.stop.cancel();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.ends_with("hello") && answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(server.ended().await, Drained { cut: 0 });
}

#[tokio::test]
async fn silent_connection_does_not_delay_drain() {
    let limits = Limits { header_read: Duration::from_hours(1), drain: Duration::from_hours(1), ..Limits::default() };
    let server = Server::plain(limits, hello()).await;
    let _silent = server.connect().await;
    assert_eq!(server.stopped().await, Drained { cut: 0 });
}

//! HTTP/2 clients that exceed a limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::Router;
use serving::{Dropped, Http2, Limits};
use tokio::{io::AsyncWriteExt, sync::Notify};

use crate::{
    frames::{self, DATA, INITIAL_WINDOW_SIZE},
    kit::{Authority, Server, Told, hello, listener, rest, soon, tls},
};

const SHORT: Duration = Duration::from_millis(150);

async fn server(authority: &Authority, limits: Limits, routes: Router) -> Server {
    let listener = listener().await.tls_with_http2(tls(&authority.pair(2100)), Http2::default()).unwrap();
    Server::start(listener, limits, routes)
}

#[tokio::test]
async fn answer_without_flow_control_window_times_out() {
    let authority = Authority::new();
    // With a window of one byte, the library takes over the whole answer, and keeps the rest.
    for window in [0, 1] {
        let mut server = server(&authority, Limits { write: SHORT, ..Limits::default() }, hello()).await;
        let mut client = frames::connect(&server, &authority, &[(INITIAL_WINDOW_SIZE, window)]).await;
        client.write_all(&frames::get(1)).await.unwrap();
        assert_eq!(soon(server.told.recv()).await, Some(Told::Dropped(Dropped::Unread)), "window {window}");
        rest(&mut client).await;
    }
}

#[tokio::test]
async fn answers_without_window_do_not_lock_out_others() {
    let authority = Authority::new();
    let server = server(&authority, Limits { connections: 2, ..Limits::default() }, hello()).await;
    let mut stuck = Vec::new();
    for _ in 0..2 {
        let mut client = frames::connect(&server, &authority, &[(INITIAL_WINDOW_SIZE, 0)]).await;
        client.write_all(&frames::get(1)).await.unwrap();
        assert!(frames::next(&mut client, frames::HEADERS, 1).await.is_some());
        stuck.push(client);
    }
    let honest_client = async {
        loop {
            let mut config = authority.trusted(None);
            config.alpn_protocols = vec![b"h2".to_vec()];
            // A refused connection ends in the handshake or later.
            let Ok(stream) = server.connect_tls(config).await else { continue };
            let mut honest = frames::begun(stream, &[]).await;
            if honest.write_all(&frames::get(1)).await.is_ok() && frames::next(&mut honest, DATA, 1).await.is_some() {
                return;
            }
        }
    };
    soon(honest_client).await;
}

#[tokio::test]
async fn client_that_gives_up_all_requests_is_dropped() {
    let (authority, begun) = (Authority::new(), Arc::new(AtomicUsize::new(0)));
    let routes = {
        let begun = begun.clone();
        Router::new().fallback(async move || {
            begun.fetch_add(1, Ordering::Relaxed);
            Notify::new().notified().await; // never
        })
    };
    let mut server = server(&authority, Limits::default(), routes).await;
    let mut client = frames::connect(&server, &authority, &[]).await;
    for n in 0.. {
        // One after the other, so that each request reaches its handler.
        let stream = 2 * n + 1;
        if client.write_all(&frames::get(stream)).await.is_err() {
            break;
        }
        let started = async {
            while begun.load(Ordering::Relaxed) <= n as usize && server.told.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        soon(started).await;
        if !server.told.is_empty() || client.write_all(&frames::reset(stream)).await.is_err() {
            break;
        }
    }
    assert_eq!(soon(server.told.recv()).await, Some(Told::Dropped(Dropped::GaveUp)));
    rest(&mut client).await;
}

//! The certificate of a client that keeps its connection.

use std::time::{Duration, SystemTime};

use axum::{Extension, Router, routing::get};
use serving::{ClientAuthorities, Limits, Peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::kit::{Authority, Pair, Server, soon, tls};

fn routes() -> Router {
    Router::new().route("/", get(async |Extension(peer): Extension<Peer>| peer.certificate.is_some().to_string()))
}

/// Sends a request, and returns the status of the answer and the rest of it.
async fn ask(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) -> (String, String) {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    loop {
        assert!(soon(stream.read_buf(&mut answer)).await.unwrap() > 0, "no whole answer");
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            return (head[9..12].to_owned(), text.clone());
        }
    }
}

async fn connected(
    clients: &Authority,
    pair: &Pair,
) -> (Server, ClientAuthorities, tokio_rustls::client::TlsStream<tokio::net::TcpStream>) {
    let authority = Authority::new();
    let authorities = ClientAuthorities::from_pem(clients.pem().as_bytes()).unwrap();
    let tls = tls(&authority.pair(2100)).client_authorities(authorities.clone());
    let server = Server::tls(tls, Limits::default(), routes()).await;
    let stream = server.connect_tls(authority.trusted(Some(pair))).await.unwrap();
    (server, authorities, stream)
}

#[tokio::test]
async fn certificate_of_removed_authority_is_refused_on_open_connection() {
    let (clients, others) = (Authority::new(), Authority::new());
    let (_server, authorities, mut stream) = connected(&clients, &clients.pair(2100)).await;
    let (status, answer) = ask(&mut stream).await;
    assert!(status == "200" && answer.ends_with("true"), "{answer}");
    authorities.replace([clients.pem(), others.pem()].concat().as_bytes()).unwrap();
    assert_eq!(ask(&mut stream).await.0, "200", "the authority is still in the bundle");
    authorities.replace(others.pem().as_bytes()).unwrap();
    let (status, answer) = ask(&mut stream).await;
    assert!(status == "401" && answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn certificate_that_expires_is_refused_on_open_connection() {
    let clients = Authority::new();
    let soon_expired = clients.pair_until(SystemTime::now() + Duration::from_secs(3));
    let (_server, _, mut stream) = connected(&clients, &soon_expired).await;
    let mut last = ask(&mut stream).await.0;
    assert_eq!(last, "200");
    let expires = async {
        while last == "200" {
            last = ask(&mut stream).await.0;
        }
    };
    soon(expires).await;
    assert_eq!(last, "401");
}

//! The protocols, TLS versions and certificates of clients.

use axum::{Extension, Router, routing::get};
use rustls::version;
use serving::{ClientAuthorities, Http2, Limits, MinVersion, Peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::kit::{Authority, Pair, Server, ask, hello, listener, rest, soon, tell, tls};

const H2_PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[tokio::test]
async fn http2_is_served_only_when_enabled() {
    let authority = Authority::new();
    let pair = authority.pair(2100);
    let offering = |protocols: &[&str]| {
        let mut config = authority.trusted(None);
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        config
    };
    let off = Server::tls(tls(&pair), Limits::default(), hello()).await;
    let mut stream = off.connect_tls(offering(&["h2", "http/1.1"])).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    ask(&mut stream).await;
    assert!(off.connect_tls(offering(&["h2"])).await.is_err(), "no protocol in common");
    let mut stream = off.connect_tls(offering(&[])).await.unwrap();
    let answer = tell(&mut stream, H2_PREFACE).await;
    assert!(!answer.contains("200 OK"), "{answer}");

    let listener = listener().await.tls_with_http2(tls(&pair), Http2::default()).unwrap();
    let on = Server::start(listener, Limits::default(), hello());
    let mut stream = on.connect_tls(offering(&["h2", "http/1.1"])).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    stream.write_all(H2_PREFACE.as_bytes()).await.unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap(); // an empty SETTINGS frame
    let mut frame = [0; 9];
    soon(stream.read_exact(&mut frame)).await.unwrap();
    assert_eq!(frame[3], 4, "the answer begins with SETTINGS");
    let mut stream = on.connect_tls(offering(&["http/1.1"])).await.unwrap();
    ask(&mut stream).await;
}

#[tokio::test]
async fn plain_listeners_do_not_speak_http2() {
    let server = Server::plain(Limits::default(), hello()).await;
    let answer = tell(&mut server.connect().await, H2_PREFACE).await;
    assert!(!answer.contains("200 OK"), "{answer}");
}

#[tokio::test]
async fn tls_versions_below_minimum_are_refused() {
    let authority = Authority::new();
    let pair = authority.pair(2100);
    for (min, works) in [(MinVersion::Tls12, true), (MinVersion::Tls13, false)] {
        let server = Server::tls(tls(&pair).min_version(min), Limits::default(), hello()).await;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(rustls::pki_types::pem::PemObject::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let old = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        assert_eq!(server.connect_tls(old).await.is_ok(), works, "{min:?}");
        assert!(server.connect_tls(authority.trusted(None)).await.is_ok(), "{min:?}");
    }
}

fn peer_router() -> Router {
    let who = async |Extension(peer): Extension<Peer>| {
        assert!(peer.address.ip().is_loopback());
        peer.certificate.map_or_else(|| "none".to_owned(), |it| format!("{} bytes", it.len()))
    };
    Router::new().route("/", get(who))
}

/// The answer to a client with this certificate; `None` if the server refuses the client.
async fn answer(server: &Server, authority: &Authority, own: Option<&Pair>) -> Option<String> {
    // In TLS 1.3, a client notices a refusal only when it reads.
    let mut stream = server.connect_tls(authority.trusted(own)).await.ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await.ok()?;
    let answer = rest(&mut stream).await;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

#[tokio::test]
async fn client_certificates_are_verified_and_passed_to_handler() {
    let (authority, ours, theirs) = (Authority::new(), Authority::new(), Authority::new());
    let authorities = ClientAuthorities::from_pem(ours.pem().as_bytes()).unwrap();
    let tls = tls(&authority.pair(2100)).client_authorities(authorities.clone());
    let server = Server::tls(tls, Limits::default(), peer_router()).await;
    let (friend, unknown) = (ours.pair(2100), theirs.pair(2100));
    let shown = |text: Option<String>| text.is_some_and(|text| text.ends_with(" bytes"));
    assert_eq!(answer(&server, &authority, None).await.as_deref(), Some("none"));
    assert!(shown(answer(&server, &authority, Some(&friend)).await));
    assert_eq!(answer(&server, &authority, Some(&unknown)).await, None);
    assert_eq!(answer(&server, &authority, Some(&ours.pair(2001))).await, None, "expired");

    assert!(authorities.replace(b"").is_err());
    assert!(shown(answer(&server, &authority, Some(&friend)).await), "the old bundle stays");
    authorities.replace(theirs.pem().as_bytes()).unwrap();
    assert!(shown(answer(&server, &authority, Some(&unknown)).await));
    assert_eq!(answer(&server, &authority, Some(&friend)).await, None);
}

#[tokio::test]
async fn missing_required_client_certificate_is_refused() {
    let (authority, ours, folder) = (Authority::new(), Authority::new(), tempfile::tempdir().unwrap());
    let bundle = folder.path().join("ca.crt");
    std::fs::write(&bundle, ours.pem()).unwrap();
    let tls = tls(&authority.pair(2100)).client_authorities(ClientAuthorities::required(bundle).unwrap());
    let server = Server::tls(tls, Limits::default(), peer_router()).await;
    assert_eq!(answer(&server, &authority, None).await, None);
    assert!(answer(&server, &authority, Some(&ours.pair(2100))).await.is_some());
}

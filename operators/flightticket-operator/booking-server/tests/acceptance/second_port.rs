//! The second port: probes, metrics, audit, journal and the status page; and TLS on the first.

use std::sync::Arc;

use booking_server::Options;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{
    client::{Ask, until},
    served::Served,
};

#[tokio::test]
async fn probes_answer_ok() {
    let served = Served::start().await;
    for probe in ["/healthz", "/readyz"] {
        let answer = served.admin.raw(Ask::new("GET", probe)).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]), "{probe}");
    }
}

#[tokio::test]
async fn readiness_waits_for_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let access = booking_server::Access::Tokens(file.clone());
    let served = Served::with(|options| options.access = access).await;
    let early = served.api.must(Ask::book("r", "Paris", 1)).await;
    assert_eq!((early.status, early.header("retry-after")), (503, Some("1")));
    assert_eq!(served.admin.raw(Ask::new("GET", "/readyz")).await.unwrap().status, 500);
    std::fs::write(file, "t").unwrap();
    until(&served.admin, Ask::new("GET", "/readyz"), |answer| answer.status == 200).await;
    assert_eq!(served.api.with_token("t").must(Ask::book("r", "Paris", 1)).await.status, 201);
}

#[tokio::test]
async fn metrics_count_requests_and_bookings() {
    let served = Served::start().await;
    for _ in 0..3 {
        served.api.must(Ask::book("r", "Paris", 2)).await;
    }
    served.api.get("/v1/bookings/x").await;
    let text = String::from_utf8(served.admin.raw(Ask::new("GET", "/metrics")).await.unwrap().body.to_vec()).unwrap();
    for line in [
        r#"booking_server_requests_total{code="201",op="create"} 1"#,
        r#"booking_server_requests_total{code="200",op="create"} 2"#,
        r#"booking_server_requests_total{code="404",op="get"} 1"#,
        r#"booking_server_request_seconds_count{op="create"} 3"#,
        "booking_server_replays_total 2",
        r#"booking_server_bookings{state="CONFIRMED"} 1"#,
        r#"booking_server_seats_taken{route="london - paris"} 2"#,
        "booking_server_db_busy_total 0",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn journal_lists_events_in_order() {
    let served = Served::start().await;
    let id = served.api.must(Ask::book("r", "Paris", 1)).await.text("id");
    served.api.must(Ask::patch(&id, 2, Some("*"))).await;
    served.api.must(Ask::book("other", "Paris", 1)).await;
    served.api.must(Ask::close("r")).await;
    let journal = served.admin.raw(Ask::new("GET", "/admin/journal?reference=r")).await.unwrap().json();
    let told: Vec<_> =
        journal["items"].as_array().unwrap().iter().map(|item| item["event"].as_str().unwrap()).collect();
    assert_eq!(told, ["BOOKED 1A", "MODIFIED 1A,1B", "CANCELLED", "CLOSED"]);
    let audit = served.admin.raw(Ask::new("GET", "/admin/audit")).await.unwrap().json();
    let expected =
        json!({"bookings": {"CANCELLED": 1, "CONFIRMED": 1}, "seatsTaken": 1, "journal": 5, "violations": []});
    assert_eq!(audit, expected);
}

#[tokio::test]
async fn status_page_escapes_client_input() {
    let served = Served::start().await;
    let poison = "<script>alert(1)</script>\"'&";
    let order = json!({"reference": "r", "from": poison, "to": "Paris", "number": 2,
        "contact": {"namespace": "<b>", "name": "<img src=x onerror=alert(1)>"}});
    assert_eq!(served.api.must(Ask::order("r", &order)).await.status, 201);
    for path in ["/", "/?from=%3Cscript%3E&reference=%22%3E%3Cscript%3E"] {
        let page = served.admin.raw(Ask::new("GET", path)).await.unwrap();
        let html = String::from_utf8(page.body.to_vec()).unwrap();
        assert!(!html.contains("<script") && !html.contains("<img") && !html.contains("<b>"), "{path}: {html}");
        assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'; style-src 'self'"));
    }
    let html = String::from_utf8(served.admin.raw(Ask::new("GET", "/")).await.unwrap().body.to_vec()).unwrap();
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;"), "{html}");
}

#[tokio::test]
async fn openapi_document_is_served_unchanged() {
    let served = Served::start().await;
    let document = served.api.get("/booking-api.yaml").await;
    assert_eq!(document.body, booking_server::DOCUMENT.as_bytes());
    assert_eq!(served.admin.raw(Ask::new("GET", "/booking-api.yaml")).await.unwrap().body, document.body);
}

#[tokio::test]
async fn the_api_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["booking-server".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Some((certificate, key));
    let served = Served::with(|options: &mut Options| options.tls = tls).await;
    assert!(served.url.starts_with("https://"));
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let stream = TcpStream::connect(served.api.address).await.unwrap();
    let mut stream = connector.connect(ServerName::try_from("booking-server").unwrap(), stream).await.unwrap();
    let request = b"GET /v1/bookings HTTP/1.1\r\nhost: booking-server\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with(r#"{"items":[],"nextCursor":null}"#), "{answer}");
    served.api.ask(Ask::new("GET", "/v1/bookings")).await.unwrap_err();
}

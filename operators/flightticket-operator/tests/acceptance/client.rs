//! Tests of the client alone, against the real booking server and with hostile answers.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use booking_server::Access;
use flightticket_operator::booking::{
    Booking, Client, Contact, Https, Order, Outcome, Request, Settings, Standing, State, Token, Trust, Unknown, Why,
};
use manager::MetricRegistry;
use serde_json::json;

use crate::provider::Provider;

fn client(provider: &Provider) -> Client {
    patient(provider, Duration::from_secs(10))
}

fn patient(provider: &Provider, limit: Duration) -> Client {
    with(&provider.url, None, Https::new(Trust::System, limit))
}

fn with(url: &str, token_file: Option<PathBuf>, transport: Https) -> Client {
    let token = token_file.map_or(Token::None, Token::File);
    let settings = Settings { url: url.parse().expect("an address"), token, places: 16 };
    Client::new(settings, transport, &MetricRegistry::default())
}

fn book(reference: &str) -> Request {
    Request::Book(Order {
        reference: reference.to_owned(),
        from: "Orléans".to_owned(),
        to: "東京".to_owned(),
        number: 2,
        departure_date: Some(jiff::civil::date(2037, 5, 4)),
        cabin: "Business".to_owned(),
        contact: contact(),
    })
}

fn contact() -> Contact {
    Contact { namespace: "shop".to_owned(), name: "mine".to_owned() }
}

async fn ask(client: &Client, request: &Request) -> Outcome {
    client.enter("shop").unwrap_or_else(|wait| panic!("no place for {wait:?}")).ask(request, jiff::Timestamp::now).await
}

async fn booked(client: &Client, request: &Request) -> Booking {
    match ask(client, request).await {
        Outcome::Booking(booking) => booking,
        other => panic!("{request:?}: {other:?}"),
    }
}

async fn refused(client: &Client, request: &Request) -> Why {
    match ask(client, request).await {
        Outcome::Refused(refusal) => refusal.why,
        other => panic!("{request:?}: {other:?}"),
    }
}

async fn unknown(client: &Client, request: &Request) -> Unknown {
    match ask(client, request).await {
        Outcome::Unknown(unknown) => unknown,
        other => panic!("{request:?}: {other:?}"),
    }
}

async fn stands(client: &Client, request: Request) -> Standing {
    match ask(client, &request).await {
        Outcome::Standing(standing) => standing,
        other => panic!("{request:?}: {other:?}"),
    }
}

#[tokio::test]
async fn client_and_server_agree_on_every_request() {
    let provider = Provider::start().await;
    let client = client(&provider);
    let first = booked(&client, &book("a")).await;
    assert_eq!((first.number, &first.state, first.version), (2, &State::Confirmed, 1));
    assert_eq!(first.departure_date.as_deref(), Some("2037-05-04"));
    assert_eq!(booked(&client, &book("a")).await, first, "a repeated request");
    let id = || first.id.clone();
    assert_eq!(booked(&client, &Request::Get { id: id() }).await, first);

    let more = booked(&client, &Request::Modify { id: id(), version: 1, number: 4 }).await;
    assert_eq!((more.number, more.version), (4, 2));
    assert_eq!(refused(&client, &Request::Modify { id: id(), version: 1, number: 5 }).await, Why::Stale);
    provider.seats("Orléans", "東京", 4).await;

    let adopt = |expect: &str| Request::Adopt {
        id: id(),
        expect: expect.to_owned(),
        reference: "b".to_owned(),
        contact: contact(),
    };
    assert_eq!(refused(&client, &adopt("c")).await, Why::Stale);
    assert_eq!(booked(&client, &adopt("a")).await.reference, "b");
    assert_eq!(refused(&client, &book("a")).await, Why::Closed);

    let named = |name: &str| name.to_owned();
    let standing = stands(&client, Request::Lookup { reference: named("b") }).await;
    assert_eq!(standing, Standing { state: State::Confirmed, booking_id: Some(id()) });
    assert_eq!(refused(&client, &Request::Lookup { reference: named("c") }).await, Why::Missing);
    for _ in 0..2 {
        let closed = stands(&client, Request::Close { reference: named("b") }).await;
        assert_eq!(closed, Standing { state: State::Cancelled, booking_id: Some(id()) });
    }
    let never = stands(&client, Request::Close { reference: named("d") }).await;
    assert_eq!(never, Standing { state: State::Cancelled, booking_id: None });
    assert_eq!(refused(&client, &book("d")).await, Why::Closed, "a late request");
    assert_eq!(refused(&client, &Request::Get { id: named("BK-0000000000") }).await, Why::Missing);
    assert_eq!(provider.audit().seats_taken, 0);
}

#[tokio::test]
async fn repeated_unanswered_request_takes_effect_once() {
    let provider = Provider::start().await;
    let client = client(&provider);
    for mode in ["before-commit-drop", "after-commit-drop"] {
        provider.fault(json!({"op": "create", "mode": mode})).await;
        assert!(!unknown(&client, &book("a")).await.answered);
    }
    provider.fault(json!({"op": "create", "mode": "status", "status": 503, "commit": true, "retryAfter": 7})).await;
    let busy = unknown(&client, &book("a")).await;
    assert_eq!((busy.retry_after, busy.answered), (Some(Duration::from_secs(7)), false));
    booked(&client, &book("a")).await;
    assert_eq!((provider.count("CONFIRMED"), provider.audit().seats_taken), (1, 2));
}

#[tokio::test]
async fn hostile_answers_are_harmless() {
    let provider = Provider::start().await;
    let client = client(&provider);
    let id = booked(&client, &book("a")).await.id;
    let get = Request::Get { id };
    for body in ["redirect", "huge", "gzip-bomb", "control-characters", "wrong-types", "malformed", "truncated"] {
        provider.fault(json!({"op": "get", "mode": "hostile", "body": body})).await;
        let message = unknown(&client, &get).await.message(true);
        let is_plain = message.chars().all(|c| !c.is_control()) && message.chars().count() <= 300;
        assert!(is_plain, "{body}: {message:?}");
        booked(&client, &get).await;
    }
    // A valid body with hostile texts cannot forge anything either.
    provider.fault(json!({"op": "create", "mode": "hostile", "body": "control-characters", "status": 422})).await;
    assert_eq!(refused(&client, &book("b")).await, Why::Invalid);
}

#[tokio::test]
async fn each_request_phase_has_a_deadline() {
    let provider = Provider::start().await;
    let client = patient(&provider, Duration::from_millis(500));
    let id = booked(&client, &book("a")).await.id;
    for fault in [
        json!({"op": "get", "mode": "hang"}),
        json!({"op": "get", "mode": "hostile", "body": "headers-only"}),
        json!({"op": "get", "mode": "hostile", "body": "trickle"}),
    ] {
        provider.fault(fault.clone()).await;
        let begun = Instant::now();
        let unknown = unknown(&client, &Request::Get { id: id.clone() }).await;
        assert!(unknown.why.starts_with("no answer within") || unknown.why.starts_with("no end of"), "{}", unknown.why);
        assert!(begun.elapsed() < Duration::from_secs(5), "{fault}");
    }
    // A port that accepts connections, but sends nothing instead of the TLS handshake.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}", silent.local_addr().expect("an address"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let ca = provider.path("ca.pem");
    std::fs::write(&ca, made.cert.pem()).expect("written");
    let tls = with(&url, None, Https::new(Trust::File(ca), Duration::from_millis(500)));
    assert!(unknown(&tls, &book("b")).await.why.contains("no connection within"));
}

#[tokio::test]
async fn client_talks_only_to_a_trusted_provider() {
    let made = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let (right, wrong) = (made("127.0.0.1"), made("127.0.0.1"));
    let provider = Provider::with(|options, folder| {
        let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
        std::fs::write(&certificate, right.cert.pem()).expect("written");
        std::fs::write(&key, right.signing_key.serialize_pem()).expect("written");
        options.tls = Some((certificate, key));
    })
    .await;
    let ca = provider.path("ca.pem");
    let client = with(&provider.url, None, Https::new(Trust::File(ca.clone()), Duration::from_secs(10)));
    assert!(unknown(&client, &book("a")).await.why.contains("--booking-ca-file"), "the file does not exist yet");
    std::fs::write(&ca, wrong.cert.pem()).expect("written");
    assert!(unknown(&client, &book("a")).await.why.contains("certificate"));
    assert_eq!(provider.audit().journal, 0);
    replace(&ca, &right.cert.pem());
    booked(&client, &book("a")).await;
}

/// Replaces a file, and makes sure that its modification time differs.
fn replace(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    let file = std::fs::File::options().write(true).open(path).expect("a file");
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(5)).expect("a time");
}

#[tokio::test]
async fn refused_token_is_not_resent_until_it_changes() {
    let provider = Provider::with(|options, folder| {
        let file = folder.join("tokens");
        std::fs::write(&file, "right\n").expect("written");
        options.access = Access::Tokens(file);
    })
    .await
    .known_to("right");
    let token = provider.path("token");
    let transport = Https::new(Trust::System, Duration::from_secs(10));
    let client = with(&provider.url, Some(token.clone()), transport);
    assert!(unknown(&client, &book("a")).await.why.contains("--booking-token-file"), "the file does not exist yet");
    std::fs::write(&token, "wrong\n").expect("written");
    for _ in 0..20 {
        assert_eq!(refused(&client, &book("a")).await, Why::Credentials);
    }
    assert_eq!(provider.requests("create").await, 1);
    std::fs::write(&token, "\nright \n").expect("written");
    booked(&client, &book("a")).await;
}

#[tokio::test]
async fn open_circuit_stops_requests_to_a_failing_provider() {
    let provider = Provider::start().await;
    let client = client(&provider);
    provider.fault(json!({"op": "create", "mode": "status", "status": 500, "times": 0})).await;
    for _ in 0..100 {
        unknown(&client, &book("a")).await;
    }
    assert_eq!(provider.hits().await, [10]);
    let open = unknown(&client, &book("a")).await;
    assert!(open.retry_after.is_some_and(|wait| wait > Duration::from_secs(20)), "{open:?}");
    assert!(open.why.contains("500"), "{open:?}");
}

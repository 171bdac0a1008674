use serde_json::Value;

use super::*;

fn book() -> Request {
    Request::Book(Order {
        reference: "uid.1".to_owned(),
        from: "Paris".to_owned(),
        to: "東京".to_owned(),
        number: 2,
        departure_date: Some(jiff::civil::date(2030, 5, 4)),
        cabin: "First".to_owned(),
        contact: contact(),
    })
}

fn contact() -> Contact {
    Contact { namespace: "shop".to_owned(), name: "mine".to_owned() }
}

fn id() -> String {
    "BK-1".to_owned()
}

fn all() -> [Request; 6] {
    let reference = || "uid".to_owned();
    [
        book(),
        Request::Get { id: id() },
        Request::Modify { id: id(), version: 7, number: 4 },
        Request::Adopt { id: id(), expect: "other".to_owned(), reference: reference(), contact: contact() },
        Request::Close { reference: reference() },
        Request::Lookup { reference: reference() },
    ]
}

fn heard(request: &Request, status: u16, body: &str) -> Outcome {
    let answer = http::Response::builder().status(status).body(Bytes::from(body.to_owned())).expect("an answer");
    outcome(request, &answer, Timestamp::UNIX_EPOCH)
}

fn said(request: &Request, status: u16, code: &str) -> Option<Why> {
    match heard(request, status, &json!({"code": code, "detail": "words"}).to_string()) {
        Outcome::Refused(refusal) => Some(refusal.why),
        Outcome::Unknown(_) => None,
        other => panic!("{other:?}"),
    }
}

fn booking() -> Value {
    json!({
        "id": "BK-1", "reference": "uid", "from": "Paris", "to": "Rome", "number": 2, "cabin": "Economy",
        "state": "CONFIRMED", "confirmationCode": "ABC123", "seats": ["1A"], "version": 3,
    })
}

#[test]
fn each_request_matches_the_api_contract() {
    let base: Uri = "https://provider.example:8443/api/".parse().expect("an address");
    let lines: Vec<String> = all()
        .iter()
        .map(|it| {
            let request = request(&base, it).expect("a request");
            let body = String::from_utf8_lossy(request.body()).into_owned();
            format!("{} {} {body}", request.method(), request.uri().path())
        })
        .collect();
    let order = r#"{"cabin":"First","contact":{"name":"mine","namespace":"shop"},"departureDate":"2030-05-04","from":"Paris","number":2,"reference":"uid.1","to":"東京"}"#;
    assert_eq!(lines[0], format!("POST /api/v1/bookings {order}"));
    assert_eq!(lines[1], "GET /api/v1/bookings/BK-1 ");
    assert_eq!(lines[2], r#"PATCH /api/v1/bookings/BK-1 {"number":4}"#);
    assert_eq!(
        lines[3],
        r#"PUT /api/v1/bookings/BK-1/reference {"contact":{"name":"mine","namespace":"shop"},"expect":"other","reference":"uid"}"#
    );
    assert_eq!(lines[4], "DELETE /api/v1/references/uid ");
    assert_eq!(lines[5], "GET /api/v1/references/uid ");
    let headers = |it: &Request, name: &str| {
        let request = request(&base, it).expect("a request");
        request.headers().get(name).map(|value| value.to_str().expect("text").to_owned())
    };
    assert_eq!(headers(&all()[0], "idempotency-key").as_deref(), Some("uid.1"));
    assert_eq!(headers(&all()[2], "if-match").as_deref(), Some("\"7\""));
}

/// Only the answers that the API defines as refusals are refusals. The outcome of all others is unknown.
#[test]
fn only_documented_refusals_are_refusals() {
    let [book, get, modify, adopt, close, lookup] = all();
    for (request, status, code, why) in [
        (&book, 400, "MALFORMED", Some(Why::Invalid)),
        (&book, 404, "ROUTE_NOT_FOUND", Some(Why::Invalid)),
        (&book, 404, "NOT_FOUND", None),
        (&book, 404, "", None),
        (&book, 409, "INSUFFICIENT_SEATS", Some(Why::NoSeats)),
        (&book, 409, "IN_PROGRESS", None),
        (&book, 409, "SOMETHING_NEW", None),
        (&book, 410, "REFERENCE_CANCELLED", Some(Why::Closed)),
        (&book, 422, "REFERENCE_REUSED", Some(Why::Taken)),
        (&book, 422, "INVALID", Some(Why::Invalid)),
        (&book, 402, "PAY_FIRST", None),
        (&get, 404, "BOOKING_NOT_FOUND", Some(Why::Missing)),
        (&get, 404, "NOT_FOUND", None),
        (&get, 410, "", None),
        (&modify, 409, "INSUFFICIENT_SEATS", Some(Why::NoSeats)),
        (&modify, 409, "NOT_MODIFIABLE", Some(Why::Fixed)),
        (&modify, 412, "VERSION_MISMATCH", Some(Why::Stale)),
        (&modify, 404, "BOOKING_NOT_FOUND", Some(Why::Missing)),
        (&adopt, 409, "REFERENCE_TAKEN", Some(Why::Taken)),
        (&adopt, 412, "VERSION_MISMATCH", Some(Why::Stale)),
        (&close, 409, "NOT_CANCELLABLE", Some(Why::Fixed)),
        (&close, 404, "REFERENCE_NOT_FOUND", None), // a late request could still book under it
        (&close, 404, "", None),
        (&lookup, 404, "REFERENCE_NOT_FOUND", Some(Why::Missing)),
    ] {
        assert_eq!(said(request, status, code), why, "{} {status} {code}", request.op());
    }
    for request in all() {
        assert_eq!(said(&request, 401, ""), Some(Why::Credentials), "{}", request.op());
        assert_eq!(said(&request, 403, ""), Some(Why::Forbidden), "{}: other requests may be allowed", request.op());
        for status in [301, 307, 408, 413, 415, 418, 425, 429, 500, 502, 503, 504, 599] {
            assert_eq!(said(&request, status, "INSUFFICIENT_SEATS"), None, "{} {status}", request.op());
        }
    }
}

#[test]
fn unknown_fields_are_ignored_and_unknown_states_are_kept() {
    let mut more = booking();
    more["loyalty"] = json!({"points": 7});
    more["state"] = json!("ON_HOLD\u{1b}[0m");
    let Outcome::Booking(read) = heard(&all()[1], 200, &more.to_string()) else { panic!("a booking") };
    assert_eq!(read.state, State::Other("ON_HOLD [0m".to_owned()));
    assert_eq!((read.number, read.version), (2, 3));
}

#[test]
fn unparsable_answer_has_an_unknown_outcome() {
    let with = |field: &str, value: Value| {
        let mut body = booking();
        body[field] = value;
        body.to_string()
    };
    for body in [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "<html>".to_owned(),
        with("id", json!(7)),
        with("id", json!("../admin")),
        with("id", json!("BK-2")),
        with("number", json!("2")),
        with("number", json!(2.5)),
        with("version", json!(-1)),
        with("reference", json!("a b")),
        with("state", Value::Null),
    ] {
        assert!(matches!(heard(&all()[1], 200, &body), Outcome::Unknown(_)), "{body}");
    }
    assert!(matches!(heard(&all()[4], 204, ""), Outcome::Standing(_)), "closed, with an empty answer");
    assert!(matches!(heard(&all()[1], 204, ""), Outcome::Unknown(_)));
}

#[test]
fn retry_after_accepts_seconds_or_a_date() {
    let now: Timestamp = "1994-11-06T08:49:30Z".parse().expect("a time");
    let read = |value: &str| {
        let headers = HeaderMap::from_iter([(header::RETRY_AFTER, value.parse().expect("a value"))]);
        retry_after(&headers, now).map(|wait| wait.as_secs())
    };
    assert_eq!(read("7"), Some(7));
    assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(7));
    assert_eq!(read("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0));
    assert_eq!(read("99999999999"), Some(3600));
    assert_eq!(read("soon"), None);
}

fn problems() -> Vec<Value> {
    ["INSUFFICIENT_SEATS", "BOOKING_NOT_FOUND", "NOT_CANCELLABLE"]
        .map(|code| json!({"code": code, "detail": "words", "title": "a title"}))
        .to_vec()
}

/// Whether users and logs may see this text of the provider.
fn is_plain(text: &str) -> bool {
    text.chars().count() <= 600 && !text.chars().any(|c| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c))
}

/// A booking with an unusual text in one field.
fn odd_text(random: &mut fuzz::Rng) -> Vec<u8> {
    let mut body = booking();
    let field = random.choice(["id", "reference", "state", "from", "confirmationCode", "message"]).unwrap_or_default();
    let text = body[field].as_str().unwrap_or_default().as_bytes().to_vec();
    let text = fuzz::bytes(random, &[&text], &["/", "..", "%2f", "?", "#", "\u{1b}[31m", "\u{202e}"]);
    body[field] = json!(String::from_utf8_lossy(&text));
    body.to_string().into_bytes()
}

#[test]
fn fuzz_provider_answers() {
    let standing = json!({"state": "CANCELLED", "bookingId": "BK-1"});
    let examples: Vec<Value> = [booking(), standing].into_iter().chain(problems()).collect();
    let statuses = [200, 201, 204, 301, 400, 401, 403, 404, 409, 410, 412, 422, 429, 500, 503];
    let seconds: &[&[u8]] = &[b"7", b"Sun, 06 Nov 1994 08:49:37 GMT", b"99999999999999999999", b"-1"];
    let (requests, base) = (all(), "https://provider.example".parse::<Uri>().expect("an address"));
    // The first line has the status and `Retry-After`, the rest is the body.
    fuzz::Target::new("provider-answers", env!("CARGO_MANIFEST_DIR")).run(
        |random| {
            let status = if random.bool() { 200 } else { random.choice(statuses).unwrap_or_default() };
            let pause =
                String::from_utf8_lossy(&fuzz::bytes(random, seconds, &["GMT"])).replace(['\n', '\r', '\0'], " ");
            let body = if random.bool() { odd_text(random) } else { fuzz::json(random, &examples) };
            [format!("{status} {pause}\n").into_bytes(), body].concat()
        },
        |input| {
            let (head, body) = input.split_at(input.iter().position(|it| *it == b'\n').unwrap_or(input.len()));
            let head = String::from_utf8_lossy(head);
            let (status, pause) = head.split_once(' ').unwrap_or((&head, ""));
            let mut builder = http::Response::builder().status(status);
            if let Ok(pause) = http::HeaderValue::from_str(pause) {
                builder = builder.header(header::RETRY_AFTER, pause);
            }
            let Ok(answer) = builder.body(Bytes::copy_from_slice(body)) else { return false };
            let mut is_understood = false;
            for request in &requests {
                match outcome(request, &answer, Timestamp::UNIX_EPOCH) {
                    Outcome::Booking(read) => {
                        is_understood = true;
                        assert!(is_word(&read.id, LONGEST_WORD) && is_word(&read.reference, 128), "{read:?}");
                        if let Request::Get { id } | Request::Modify { id, .. } | Request::Adopt { id, .. } = request {
                            assert_eq!(*id, read.id);
                        }
                        let texts = [&read.departure_date, &read.cabin, &read.confirmation_code, &read.message];
                        let texts = texts.into_iter().flatten().chain([&read.from, &read.to]);
                        assert!(texts.into_iter().all(|it| is_plain(it)), "{read:?}");
                        // The next request to this booking stays at this provider, below this path.
                        let next = super::request(&base, &Request::Get { id: read.id.clone() }).expect("a request");
                        assert_eq!(next.uri().path(), format!("/v1/bookings/{}", read.id));
                        assert_eq!(next.uri().host(), Some("provider.example"));
                    }
                    Outcome::Standing(Standing { booking_id, .. }) => {
                        assert!(booking_id.is_none_or(|id| is_word(&id, LONGEST_WORD)));
                    }
                    Outcome::Refused(Refusal { code, detail, status, .. }) => {
                        assert!(is_plain(&code) && is_plain(&detail));
                        assert!((400..500).contains(&status), "a refusal with status {status}");
                    }
                    Outcome::Unknown(Unknown { why, words, retry_after, .. }) => {
                        assert!(is_plain(&why) && is_plain(&words), "{why:?} {words:?}");
                        assert!(retry_after.is_none_or(|wait| wait <= LONGEST_PAUSE), "{retry_after:?}");
                    }
                }
            }
            is_understood
        },
    );
}

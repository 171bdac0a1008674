//! What the server promises, one test per promise. Numbers 8 and 12 are in `durability`.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::{
    client::{Ask, Client, until},
    contract,
    process::Process,
    served::{Served, sound},
};

#[tokio::test(flavor = "multi_thread")]
async fn t01_the_same_request_a_thousand_times_books_once() {
    let served = Served::start().await;
    let tasks = (0..32).map(|task| {
        let api = served.api.clone();
        tokio::spawn(async move {
            let mut connection = api.connect().await.unwrap();
            let mut answers = Vec::new();
            for _ in (task..1000).step_by(32) {
                let answer = connection.ask(Ask::book("same", "Paris", 3)).await.unwrap();
                answers.push((answer.status, answer.is_replay(), answer.text("id")));
            }
            answers
        })
    });
    let answers: Vec<_> = futures::future::join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|(status, replay, _)| (*status, *replay) == (201, false)).count(), 1);
    assert_eq!(answers.iter().filter(|(status, replay, _)| (*status, *replay) == (200, true)).count(), 999);
    assert_eq!(answers.iter().map(|(_, _, id)| id).collect::<BTreeSet<_>>().len(), 1);
    assert_eq!(served.api.list("reference=same").await.len(), 1);
    assert_eq!(served.audit().seats_taken, 3);
}

#[tokio::test]
async fn t02_reference_is_bound_to_trip_not_to_seat_count() {
    let served = Served::start().await;
    let first = served.api.must(Ask::book("r", "Paris", 2)).await;
    assert_eq!(first.status, 201);
    let other_city = served.api.must(Ask::book("r", "Rome", 2)).await;
    assert_eq!((other_city.status, other_city.code().as_str()), (422, "REFERENCE_REUSED"));
    for (field, value) in [("departureDate", json!("2999-01-01")), ("cabin", json!("First"))] {
        let mut order = json!({"reference": "r", "from": "London", "to": "Paris", "number": 2});
        order[field] = value;
        assert_eq!(served.api.must(Ask::order("r", &order)).await.code(), "REFERENCE_REUSED", "{field}");
    }
    let other_number = served.api.must(Ask::book("r", "Paris", 5)).await;
    assert_eq!((other_number.status, other_number.json()), (200, first.json()));
    // Another spelling of the same cities is the same trip; the server keeps the first spelling.
    let order = json!({"reference": "r", "from": "LONDON", "to": "paris", "number": 2});
    assert_eq!(served.api.must(Ask::order("r", &order)).await.text("to"), "Paris");
    served.audit();
}

#[tokio::test]
async fn t03_key_header_must_match_body_reference() {
    let served = Served::start().await;
    let order = json!({"reference": "r", "from": "London", "to": "Paris", "number": 1});
    let without = served.api.must(Ask::new("POST", "/v1/bookings").json(&order)).await;
    assert_eq!((without.status, without.code().as_str()), (400, "IDEMPOTENCY_KEY_MISSING"));
    let twice = Ask::order("r", &order).header("idempotency-key", "r");
    assert_eq!(served.api.must(twice).await.code(), "MALFORMED");
    let other = served.api.must(Ask::order("other", &order)).await;
    assert_eq!((other.status, other.code().as_str()), (422, "REFERENCE_MISMATCH"));
    assert_eq!(served.audit().bookings.len(), 0);
}

#[tokio::test]
async fn t04_refusal_is_not_replayed() {
    let served = Served::start().await;
    assert_eq!(served.seats("Paris", 3).await.status, 200);
    let first = served.api.must(Ask::book("first", "Paris", 2)).await;
    let refused = served.api.must(Ask::book("second", "Paris", 2)).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "INSUFFICIENT_SEATS"));
    assert_eq!(refused.text("detail"), "2 seats are needed and 1 are free");
    served.api.must(Ask::new("DELETE", format!("/v1/bookings/{}", first.text("id")))).await;
    assert_eq!(served.api.must(Ask::book("second", "Paris", 2)).await.status, 201);
    assert_eq!(served.audit().seats_taken, 2);
}

#[tokio::test]
async fn t05_a_closed_reference_cannot_be_booked() {
    let served = Served::start().await;
    let closed = served.api.must(Ask::close("never")).await;
    assert_eq!((closed.status, closed.json()["bookingId"].clone()), (200, Value::Null));
    let late = served.api.must(Ask::book("never", "Paris", 1)).await;
    assert_eq!((late.status, late.code().as_str()), (410, "REFERENCE_CANCELLED"));
    assert_eq!(served.api.get("/v1/references/never").await.text("state"), "CANCELLED");
    assert_eq!(served.api.get("/v1/references/unknown").await.code(), "REFERENCE_NOT_FOUND");
    assert_eq!(served.audit().bookings.len(), 0);
}

#[tokio::test]
async fn t06_cancelling_twice_frees_seats_once() {
    let served = Served::start().await;
    served.seats("Paris", 4).await;
    let kept = served.api.must(Ask::book("kept", "Paris", 2)).await;
    let gone = served.api.must(Ask::book("gone", "Paris", 2)).await;
    for _ in 0..2 {
        let closed = served.api.must(Ask::close("gone")).await;
        assert_eq!((closed.status, closed.text("bookingId")), (200, gone.text("id")));
        let cancelled = served.api.must(Ask::new("DELETE", format!("/v1/bookings/{}", gone.text("id")))).await;
        assert_eq!((cancelled.text("state").as_str(), cancelled.json()["version"].clone()), ("CANCELLED", json!(2)));
        assert_eq!(served.audit().seats_taken, 2);
    }
    assert_eq!(served.api.must(Ask::book("gone", "Paris", 2)).await.status, 410);
    // The freed seats are sold again, and no others.
    let next = served.api.must(Ask::book("next", "Paris", 2)).await;
    assert_eq!(
        (kept.json()["seats"].clone(), next.json()["seats"].clone()),
        (json!(["1A", "1B"]), json!(["1C", "1D"]))
    );
    assert_eq!(served.api.must(Ask::book("more", "Paris", 1)).await.code(), "INSUFFICIENT_SEATS");
}

#[tokio::test]
async fn t07_modify_needs_current_version() {
    let served = Served::start().await;
    served.seats("Paris", 5).await;
    let booking = served.api.must(Ask::book("r", "Paris", 2)).await;
    let (id, tag) = (booking.text("id"), booking.header("etag").unwrap().to_owned());
    assert_eq!(served.api.must(Ask::patch(&id, 4, None)).await.code(), "IF_MATCH_REQUIRED");
    assert_eq!(served.api.must(Ask::patch("BK-0000000000", 4, Some("*"))).await.code(), "BOOKING_NOT_FOUND");
    let changed = served.api.must(Ask::patch(&id, 4, Some(&tag))).await;
    assert_eq!((changed.status, changed.json()["seats"].clone()), (200, json!(["1A", "1B", "1C", "1D"])));
    assert_eq!(served.api.must(Ask::patch(&id, 1, Some(&tag))).await.code(), "VERSION_MISMATCH");
    assert_eq!(served.api.must(Ask::patch(&id, 6, Some("*"))).await.code(), "INSUFFICIENT_SEATS");
    assert_eq!(served.api.must(Ask::patch(&id, 11, Some("*"))).await.code(), "INVALID");
    let same = served.api.must(Ask::patch(&id, 4, Some("*"))).await;
    assert_eq!(same.header("etag"), Some("\"2\""), "nothing changed");
    let fewer = served.api.must(Ask::patch(&id, 1, Some("\"2\""))).await;
    assert_eq!((fewer.json()["seats"].clone(), fewer.json()["version"].clone()), (json!(["1A"]), json!(3)));
    let unchanged =
        served.api.must(Ask::new("GET", format!("/v1/bookings/{id}")).header("if-none-match", "\"3\"")).await;
    assert_eq!(unchanged.status, 304);
    served.api.must(Ask::close("r")).await;
    assert_eq!(served.api.must(Ask::patch(&id, 2, Some("*"))).await.code(), "NOT_MODIFIABLE");
    assert_eq!(served.audit().seats_taken, 0);
}

#[tokio::test]
async fn t09_pending_booking_is_confirmed_after_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path(), &["--confirm-delay", "2s"]);
    let pending = process.api.must(Ask::book("r", "Paris", 2)).await;
    assert_eq!((pending.status, pending.text("state").as_str()), (202, "PENDING"));
    assert_eq!(pending.json()["confirmationCode"], Value::Null);
    let replay = process.api.must(Ask::book("r", "Paris", 2)).await;
    assert!(replay.is_replay() && [200, 202].contains(&replay.status));
    assert_eq!(sound(folder.path()).seats_taken, 2, "a pending booking holds its seats");
    process.kill();
    let process = Process::start(folder.path(), &["--confirm-delay", "2s"]);
    let read = Ask::new("GET", format!("/v1/bookings/{}", pending.text("id")));
    let confirmed = until(&process.api, read, |answer| answer.text("state") == "CONFIRMED").await;
    assert_eq!(confirmed.text("confirmationCode").len(), 6);
    let time = |field: &str| confirmed.text(field).parse::<jiff::Timestamp>().unwrap();
    assert!(time("updatedAt").duration_since(time("createdAt")) >= jiff::SignedDuration::from_secs(2), "{confirmed:?}");
    assert_eq!(process.api.must(Ask::book("r", "Paris", 2)).await.status, 200);
    sound(folder.path());
}

#[tokio::test]
async fn t10_pages_are_complete_while_bookings_are_made() {
    let served = Served::with(|options| options.default_seats = Some(1000)).await;
    let book = |n: usize| Ask::book(&format!("r{n}"), if n.is_multiple_of(3) { "Paris" } else { "Rome" }, 1);
    for n in 0..25 {
        served.api.must(book(n)).await;
    }
    let (mut seen, mut path, mut made) = (Vec::new(), "/v1/bookings?limit=4".to_owned(), 25);
    loop {
        let page = served.api.get(&path).await.json();
        seen.extend(
            page["items"].as_array().unwrap().iter().map(|item| item["reference"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/bookings?limit=4&cursor={cursor}");
        if made < 40 {
            served.api.must(book(made)).await;
            made += 1;
        }
    }
    let expected: Vec<String> = (0..made).map(|n| format!("r{n}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(served.api.list("to=PARIS&limit=2").await.len(), made.div_ceil(3));
    assert_eq!(served.api.list("from=london&to=Rome").await.len(), made - made.div_ceil(3));
    assert_eq!(served.api.list("state=CANCELLED").await.len(), 0);
    assert_eq!(served.api.list("reference=r7").await.len(), 1);
    assert_eq!(served.api.get("/v1/bookings?limit=0").await.code(), "INVALID");
}

#[tokio::test]
async fn t11_valid_token_is_required_and_never_logged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "right-7f3a\n").unwrap();
    let flags = ["--token-file", file.to_str().unwrap(), "--log-level", "trace", "--fault-injection"];
    let mut process = Process::start(folder.path(), &flags);
    let book = || Ask::book("r", "Paris", 1);
    let wrong = ["", "right", "right-7f3b", "right-7f3a-", "RIGHT-7F3A"];
    for token in wrong {
        let refused = process.api.with_token(token).must(book()).await;
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{token:?}");
    }
    assert_eq!(process.api.must(book()).await.status, 401, "no token");
    assert_eq!(process.api.must(book().header("authorization", "Basic cmlnaHQ6cmlnaHQtN2YzYQ==")).await.status, 401);
    // A client without a valid token learns nothing, not even which paths exist.
    assert_eq!(process.api.raw(Ask::new("GET", "/v1/nothing")).await.unwrap().status, 401);
    assert_eq!(process.api.with_token("right-7f3a").must(book()).await.status, 201);
    for path in ["/admin/audit", "/admin/journal", "/admin/faults", "/"] {
        let admin = |client: Client| async move { client.raw(Ask::new("GET", path)).await.unwrap().status };
        assert_eq!(admin(process.admin.clone()).await, 401, "{path}");
        assert_eq!(admin(process.admin.with_token("right-7f3a")).await, 200, "{path}");
    }
    // Another token, without a restart.
    std::fs::write(&file, "second-91bc\n").unwrap();
    let rotated = process.api.with_token("second-91bc");
    until(&rotated, book(), |answer| answer.status == 200).await;
    assert_eq!(process.api.with_token("right-7f3a").must(book()).await.status, 401);
    process.signal(rustix::process::Signal::TERM);
    assert!(process.wait().success());
    let log = process.log();
    assert!(log.contains("Answered"), "{log}");
    for secret in ["right-7f3", "RIGHT", "second-91bc", "cmlnaHQ6"] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_one_of_many_gets_the_last_seat() {
    let served = Served::start().await;
    served.seats("Paris", 1).await;
    let tasks = (0..32).map(|n| {
        let api = served.api.clone();
        tokio::spawn(async move { api.must(Ask::book(&format!("r{n}"), "Paris", 1)).await.status })
    });
    let mut statuses: Vec<u16> = futures::future::join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[201].as_slice(), &[409; 31]].concat());
    assert_eq!(served.audit().seats_taken, 1);
}

#[tokio::test]
async fn t14_large_or_non_json_body_is_rejected() {
    let served = Served::start().await;
    let post = |media: &str, body: Vec<u8>| {
        let ask = Ask::new("POST", "/v1/bookings").header("idempotency-key", "r").header("content-type", media);
        Ask { body: body.into(), ..ask }
    };
    let order = json!({"reference": "r", "from": "London", "to": "Paris", "number": 1}).to_string();
    let padded = |length: usize| [order.as_bytes(), &vec![b' '; length - order.len()]].concat();
    let ask = |media: &'static str, body| served.api.must(post(media, body));
    assert_eq!(ask("application/json", padded((64 << 10) + 1)).await.code(), "PAYLOAD_TOO_LARGE");
    assert_eq!(ask("text/plain", order.clone().into()).await.code(), "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(ask("application/json", b"{\"reference\":".to_vec()).await.code(), "MALFORMED");
    assert_eq!(ask("application/json", b"\xff\xfe".to_vec()).await.code(), "MALFORMED");
    assert_eq!(ask("application/json", "[".repeat(60_000).into()).await.code(), "MALFORMED");
    assert_eq!(ask("application/json", b"[]".to_vec()).await.code(), "INVALID");
    assert_eq!(ask("application/json; charset=utf-8", padded(64 << 10)).await.status, 201);
}

/// `Connection::ask` checks every answer of all tests. This test makes the server give every answer in the contract.
#[tokio::test]
async fn t15_server_gives_every_documented_response() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "t").unwrap();
    let served = Served::with(|options| {
        options.access = booking_server::Access::Tokens(token.clone());
        options.default_seats = None;
    })
    .await;
    let (api, admin) = (served.api.with_token("t"), served.admin.with_token("t"));
    let mut seen = BTreeSet::new();
    let seats = json!({"from": "London", "to": "Paris", "seats": 3});
    assert_eq!(admin.raw(Ask::new("POST", "/admin/seats").json(&seats)).await.unwrap().status, 200);
    let booked = api.must(Ask::book("r", "Paris", 1)).await;
    let id = booked.text("id");
    let (one, reference) = (format!("/v1/bookings/{id}"), format!("/v1/bookings/{id}/reference"));
    let adopt = |new: &str, old: &str| Ask::new("PUT", &reference).json(&json!({"reference": new, "expect": old}));
    let asks = [
        Ask::book("r", "Paris", 1),
        Ask::new("POST", "/v1/bookings"),
        Ask::book("r2", "Rome", 1),
        Ask::book("r2", "Paris", 9),
        Ask::book("r", "Rome", 1),
        Ask::new("POST", "/v1/bookings").header("idempotency-key", "r"),
        Ask::new("GET", "/booking-api.yaml"),
        Ask::new("GET", "/v1/bookings"),
        Ask::new("GET", "/v1/bookings?limit=0"),
        Ask::new("GET", "/v1/bookings?reference=a%20b"),
        Ask::new("GET", &one),
        Ask::new("GET", &one).header("if-none-match", "W/\"1\""),
        Ask::new("GET", "/v1/bookings/x"),
        Ask::patch(&id, 2, None),
        Ask::patch(&id, 2, Some("\"9\"")),
        Ask::patch(&id, 9, Some("*")),
        Ask::patch(&id, 0, Some("*")),
        Ask::patch(&id, 2, Some("*")),
        Ask::patch("x", 2, Some("*")),
        Ask::new("PATCH", &one).header("if-match", "*"),
        Ask::new("PATCH", &one).header("if-match", "*").header("content-type", "application/json"),
        adopt("new", "wrong"),
        adopt("new", "r"),
        adopt("r", "new"),
        adopt("a b", "new"),
        Ask::new("PUT", "/v1/bookings/x/reference").json(&json!({"reference": "a", "expect": "b"})),
        Ask::new("PUT", &reference),
        Ask::new("PUT", &reference).header("content-type", "application/json"),
        Ask::new("GET", "/v1/references/new"),
        Ask::new("GET", "/v1/references/x"),
        Ask::new("GET", "/v1/references/a%20b"),
        Ask::close("a%20b"),
        Ask::new("DELETE", "/v1/bookings/x"),
        Ask::close("new"),
        Ask::new("DELETE", &one),
        Ask::book("new", "Paris", 1),
    ];
    seen.insert(booked.name);
    for ask in asks {
        seen.insert(api.must(ask).await.name);
    }
    let flown = api.must(Ask::book("flown", "Paris", 1)).await.text("id");
    admin.raw(Ask::new("POST", format!("/admin/bookings/{flown}/depart"))).await.unwrap();
    seen.insert(api.must(Ask::new("DELETE", format!("/v1/bookings/{flown}"))).await.name);
    seen.insert(api.must(Ask::close("flown")).await.name);
    let large = [b"{}".as_slice(), &vec![b' '; 70_000]].concat();
    for (method, path) in [("POST", "/v1/bookings"), ("PATCH", one.as_str()), ("PUT", reference.as_str())] {
        let ask = Ask::new(method, path).header("content-type", "application/json");
        let ask = ask.header("idempotency-key", "k").header("if-match", "*");
        seen.insert(api.must(Ask { body: large.clone().into(), ..ask }).await.name);
    }
    // Faults produce the answers that a healthy server hardly ever gives, in the same format.
    for rare in contract::documented().difference(&seen.clone()).filter(|name| !name.contains("yaml")) {
        let [method, path, status] = rare.split(' ').collect::<Vec<_>>()[..] else { unreachable!() };
        let path = path.replace("{id}", "x").replace("{reference}", "x");
        let method: Method = method.to_uppercase().parse().unwrap();
        let method = ["GET", "POST", "PATCH", "PUT", "DELETE"].into_iter().find(|name| method == *name).unwrap();
        if status == "401" {
            seen.insert(served.api.must(Ask::new(method, path)).await.name);
            continue;
        }
        assert!(["202", "403", "408", "429", "500", "503"].contains(&status), "{rare} was not given");
        if status != "202" {
            let retry = ["429", "503"].contains(&status).then_some(7);
            let fault =
                json!({"op": "any", "mode": "status", "status": status.parse::<u16>().unwrap(), "retryAfter": retry});
            assert_eq!(admin.raw(Ask::new("POST", "/admin/faults").json(&fault)).await.unwrap().status, 201);
            seen.insert(api.must(Ask::new(method, path)).await.name);
        }
    }
    let missing: Vec<String> = contract::documented().difference(&seen).cloned().collect();
    assert_eq!(missing, ["post /v1/bookings 202"], "and t09 gives that one");
}

//! Injected faults: each does what it promises, and the database stays consistent.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    client::{Ask, until},
    served::Served,
};

#[tokio::test]
async fn drop_before_commit_leaves_no_booking() {
    let served = Served::start().await;
    served.fault(json!({"op": "create", "mode": "before-commit-drop"})).await;
    served.api.ask(Ask::book("r", "Paris", 2)).await.unwrap_err();
    assert_eq!(served.audit().bookings.len(), 0);
    assert_eq!(served.api.must(Ask::book("r", "Paris", 2)).await.status, 201);
}

#[tokio::test]
async fn drop_after_commit_is_recovered_by_retry() {
    let served = Served::start().await;
    served.fault(json!({"op": "create", "mode": "after-commit-drop", "times": 3})).await;
    for _ in 0..3 {
        served.api.ask(Ask::book("r", "Paris", 2)).await.unwrap_err();
    }
    let replay = served.api.must(Ask::book("r", "Paris", 2)).await;
    assert!(replay.is_replay());
    let id = replay.text("id");
    served.fault(json!({"op": "modify", "mode": "after-commit-drop"})).await;
    served.api.ask(Ask::patch(&id, 4, Some("\"1\""))).await.unwrap_err();
    assert_eq!(served.api.get(&format!("/v1/bookings/{id}")).await.json()["number"], 4);
    served.fault(json!({"op": "cancel", "mode": "after-commit-drop"})).await;
    served.api.ask(Ask::close("r")).await.unwrap_err();
    assert_eq!(served.api.must(Ask::close("r")).await.text("bookingId"), id);
    let audit = served.audit();
    assert_eq!((audit.bookings["CANCELLED"], audit.seats_taken), (1, 0));
}

#[tokio::test]
async fn hanging_request_blocks_no_other_and_ends_with_caller() {
    let served = Served::start().await;
    served.fault(json!({"op": "create", "mode": "hang", "subject": "stuck"})).await;
    let api = served.api.clone();
    let stuck = tokio::spawn(async move { api.ask(Ask::book("stuck", "Paris", 1)).await });
    until(&served.admin, Ask::new("GET", "/admin/faults"), |answer| answer.json()["items"][0]["fired"] == 1).await;
    assert_eq!(served.api.must(Ask::book("other", "Paris", 1)).await.status, 201);
    assert!(!stuck.is_finished());
    stuck.abort();
    assert_eq!(served.api.must(Ask::book("stuck", "Paris", 1)).await.status, 201);
    assert_eq!(served.audit().seats_taken, 2);
}

#[tokio::test]
async fn delayed_request_completes_after_caller_disconnects() {
    let served = Served::start().await;
    served.fault(json!({"op": "create", "mode": "delay", "delayMs": 300, "subject": "late"})).await;
    served.fault(json!({"op": "create", "mode": "delay", "delayMs": 600, "subject": "later"})).await;
    for (index, reference) in ["late", "later"].into_iter().enumerate() {
        let api = served.api.clone();
        let caller = tokio::spawn(async move { api.ask(Ask::book(reference, "Paris", 1)).await });
        let faults = Ask::new("GET", "/admin/faults");
        until(&served.admin, faults, |answer| answer.json()["items"][index]["fired"] == 1).await;
        caller.abort();
    }
    // Closed while the request is delayed: the request finds the tombstone.
    served.api.must(Ask::close("later")).await;
    until(&served.api, Ask::new("GET", "/v1/bookings?reference=late"), |answer| {
        answer.json()["items"].as_array().unwrap().len() == 1
    })
    .await;
    assert_eq!(served.api.must(Ask::book("later", "Paris", 1)).await.status, 410);
    assert_eq!(served.audit().seats_taken, 1);
}

#[tokio::test]
async fn status_faults_fire_in_configured_order() {
    let served = Served::start().await;
    served
        .fault(json!({"op": "create", "mode": "status", "status": 429, "retryAfter": 7, "skip": 1, "times": 2}))
        .await;
    served
        .fault(json!({"op": "create", "mode": "status", "status": 409, "code": "INSUFFICIENT_SEATS", "skip": 3}))
        .await;
    let mut told = Vec::new();
    for n in 0..5 {
        let answer = served.api.must(Ask::book(&format!("r{n}"), "Paris", 1)).await;
        told.push((answer.status, answer.code(), answer.header("retry-after").map(str::to_owned)));
    }
    let busy = (429, "TOO_MANY_REQUESTS".to_owned(), Some("7".to_owned()));
    let full = (409, "INSUFFICIENT_SEATS".to_owned(), None);
    let good = (201, String::new(), None);
    assert_eq!(told, [good.clone(), busy.clone(), busy, full, good]);
    // The fault changes only the answer: the request was executed.
    served.fault(json!({"op": "create", "mode": "status", "commit": true})).await;
    let lost = served.api.must(Ask::book("done", "Paris", 1)).await;
    assert_eq!((lost.status, lost.code().as_str()), (503, "UNAVAILABLE"));
    assert!(served.api.must(Ask::book("done", "Paris", 1)).await.is_replay());
}

#[tokio::test]
async fn hostile_modes_produce_hostile_responses() {
    let served = Served::start().await;
    let hostile = async |body: &str| {
        served.fault(json!({"op": "get", "mode": "hostile", "body": body})).await;
        served.api.raw(Ask::new("GET", "/v1/bookings/BK-0000000000")).await
    };
    let answer = hostile("redirect").await.unwrap();
    assert_eq!((answer.status, answer.header("location")), (307, Some("http://127.0.0.1:9/v1/bookings")));
    assert!(hostile("huge").await.unwrap().body.len() > 100_000_000);
    let bomb = hostile("gzip-bomb").await.unwrap();
    assert_eq!((bomb.header("content-encoding"), bomb.body.len() < 200_000), (Some("gzip"), true));
    let poisoned = hostile("control-characters").await.unwrap();
    assert!(poisoned.text("from").contains("\u{1b}[31m") && poisoned.text("from").contains("\r\n"));
    assert!(hostile("wrong-types").await.unwrap().json()["id"].is_number());
    assert!(serde_json::from_slice::<serde_json::Value>(&hostile("malformed").await.unwrap().body).is_err());
    hostile("truncated").await.unwrap_err();
    for endless in ["trickle", "headers-only"] {
        let begun = Instant::now();
        tokio::time::timeout(Duration::from_millis(300), hostile(endless)).await.expect_err(endless);
        assert!(begun.elapsed() >= Duration::from_millis(300));
    }
}

#[tokio::test]
async fn faults_are_listed_and_removed() {
    let served = Served::start().await;
    served.fault(json!({"op": "any", "mode": "status", "times": 0})).await;
    assert_eq!(served.api.get("/v1/bookings").await.status, 503);
    let listed = served.admin.raw(Ask::new("GET", "/admin/faults")).await.unwrap().json();
    assert_eq!((&listed["items"][0]["mode"], &listed["items"][0]["fired"]), (&json!("status"), &json!(1)));
    assert_eq!(served.admin.raw(Ask::new("DELETE", "/admin/faults")).await.unwrap().status, 204);
    assert_eq!(served.api.get("/v1/bookings").await.status, 200);
    let nonsense = served.admin.raw(Ask::new("POST", "/admin/faults").json(&json!({"op": "any"}))).await.unwrap();
    assert_eq!((nonsense.status, nonsense.code().as_str()), (422, "INVALID"));
}

#[tokio::test]
async fn fault_endpoints_are_404_without_flag() {
    let served = Served::with(|options| options.fault_injection = false).await;
    let booking = served.api.must(Ask::book("r", "Paris", 1)).await;
    assert_eq!(served.airline("cancel", &booking.text("id")).await.status, 404);
    assert_eq!(served.seats("Paris", 1).await.status, 404);
    for method in ["GET", "POST", "DELETE"] {
        assert_eq!(served.admin.raw(Ask::new(method, "/admin/faults")).await.unwrap().status, 404, "{method}");
    }
}

#[tokio::test]
async fn the_airline_confirms_rejects_cancels_and_departs() {
    let served = Served::with(|options| options.confirm_delay = Duration::from_hours(1)).await;
    let book = async |reference: &str| served.api.must(Ask::book(reference, "Paris", 1)).await.text("id");
    let (one, two, three) = (book("one").await, book("two").await, book("three").await);
    assert_eq!(served.airline("confirm", &one).await.text("state"), "CONFIRMED");
    assert_eq!(served.airline("confirm", &one).await.code(), "NOT_MODIFIABLE");
    assert_eq!(served.airline("reject", &one).await.code(), "NOT_MODIFIABLE", "confirmed is not pending");
    assert_eq!(served.airline("reject", &two).await.text("state"), "REJECTED");
    assert_eq!(served.api.get("/v1/references/two").await.text("state"), "REJECTED");
    let again = served.api.must(Ask::book("two", "Rome", 1)).await;
    assert_eq!(again.status, 202, "a rejected booking frees its reference, also for another trip");
    assert_ne!(again.text("id"), two);
    let cancelled = served.airline("cancel", &one).await;
    assert_eq!(
        (cancelled.text("state").as_str(), cancelled.text("message").as_str()),
        ("CANCELLED", "cancelled by the airline")
    );
    assert_eq!(served.api.must(Ask::book("one", "Paris", 1)).await.status, 410);
    served.airline("depart", &three).await;
    assert_eq!(served.api.must(Ask::close("three")).await.code(), "NOT_CANCELLABLE");
    assert_eq!(served.api.must(Ask::patch(&three, 2, Some("*"))).await.code(), "NOT_MODIFIABLE");
    assert_eq!(served.airline("explode", &three).await.status, 404);
    assert_eq!(served.airline("cancel", "BK-0").await.code(), "BOOKING_NOT_FOUND");
    let audit = served.audit();
    assert_eq!((audit.seats_taken, audit.bookings["PENDING"]), (2, 2));
}

#[tokio::test]
async fn a_moved_booking_leaves_its_old_reference_closed() {
    let served = Served::start().await;
    let id = served.api.must(Ask::book("old", "Paris", 2)).await.text("id");
    served.api.must(Ask::book("taken", "Paris", 1)).await;
    let adopt = |new: &str, old: &str| {
        let body = json!({"reference": new, "expect": old});
        served.api.must(Ask::new("PUT", format!("/v1/bookings/{id}/reference")).json(&body))
    };
    assert_eq!(adopt("taken", "old").await.code(), "REFERENCE_TAKEN");
    assert_eq!(adopt("new", "other").await.code(), "VERSION_MISMATCH");
    for _ in 0..2 {
        let moved = adopt("new", "old").await;
        assert_eq!((moved.text("reference").as_str(), moved.json()["version"].clone()), ("new", json!(2)));
    }
    assert_eq!(served.api.must(Ask::book("old", "Paris", 2)).await.status, 410, "no second purchase");
    assert_eq!(served.api.must(Ask::close("old")).await.json()["bookingId"], json!(null), "and it takes nothing away");
    assert_eq!(adopt("old", "new").await.code(), "REFERENCE_TAKEN");
    assert!(served.api.must(Ask::book("new", "Paris", 2)).await.is_replay());
    assert_eq!(served.audit().seats_taken, 3);
}

#[tokio::test]
async fn a_moved_booking_has_the_contact_of_its_new_reference() {
    let served = Served::start().await;
    let contact = |name: &str| json!({"namespace": "travel", "name": name});
    let order = json!({"reference": "old", "from": "London", "to": "Paris", "number": 1, "contact": contact("first")});
    let booked = served.api.must(Ask::new("POST", "/v1/bookings").header("idempotency-key", "old").json(&order)).await;
    assert_eq!(booked.json()["contact"], contact("first"));
    let path = format!("/v1/bookings/{}", booked.text("id"));
    for (old, new, named, expected) in
        [("old", "new", Some(contact("second")), contact("second")), ("new", "newer", None, contact("second"))]
    {
        let mut body = json!({"reference": new, "expect": old});
        if let Some(contact) = named {
            body["contact"] = contact;
        }
        let moved = served.api.must(Ask::new("PUT", format!("{path}/reference")).json(&body)).await;
        assert_eq!(moved.json()["contact"], expected);
        assert_eq!(served.api.must(Ask::new("GET", &path)).await.json()["contact"], expected, "stored");
    }
    let unknown = served.api.must(Ask::book("unnamed", "Paris", 1)).await;
    assert_eq!(unknown.json()["contact"], json!(null), "a booking without a contact");
}

/// An adopted booking may be older than the rejected one whose reference it has got.
#[tokio::test]
async fn reference_of_a_rejected_booking_shows_an_older_one_that_was_adopted() {
    let served = Served::with(|options| options.confirm_delay = Duration::from_hours(1)).await;
    let old = served.api.must(Ask::book("old", "Paris", 1)).await.text("id");
    let standing = async || {
        let standing = served.api.get("/v1/references/r").await;
        (standing.text("state"), standing.text("bookingId"))
    };
    let mut rejected = String::new();
    for _ in 0..2 {
        rejected = served.api.must(Ask::book("r", "Rome", 1)).await.text("id");
        served.airline("reject", &rejected).await;
    }
    assert_eq!(standing().await, ("REJECTED".to_owned(), rejected), "the latest one");
    let adopt = json!({"reference": "r", "expect": "old"});
    served.api.must(Ask::new("PUT", format!("/v1/bookings/{old}/reference")).json(&adopt)).await;
    assert_eq!(standing().await, ("PENDING".to_owned(), old));
    served.audit();
}

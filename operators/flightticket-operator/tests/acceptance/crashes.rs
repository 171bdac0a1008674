//! Each test is one row of the specification's table of crashes: wherever the operator dies, there is one booking, and none after
//! the deletion.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fault_proxy::{FaultProxy, Upstream};
use flightticket_operator::FlightTicket;
use manager_testing::Proxied;
use serde_json::json;

use crate::desk::{Desk, NAME, SAMPLE};

/// Books and deletes a ticket while a proxy in front of the API server carries out this plan.
async fn live_with_api_server_faults(plan: &str) {
    let Some(desk) = Desk::closed().await else { return };
    let plan = plan.parse().unwrap_or_else(|error| panic!("{error}"));
    let flags = ["--booking-url", &desk.provider.url];
    let operator = Proxied::start(&desk.world, &plan, &flags).await;
    desk.booked().await;
    is_one(&desk);
    desk.delete(NAME).await;
    is_none(&desk);
    assert_eq!(operator.proxy().unused(), Vec::<String>::new(), "{}", operator.proxy().trace());
}

/// Books, changes and deletes a ticket while a proxy in front of the provider carries out this plan.
async fn live_with_provider_proxy_faults(plan: &str) {
    let Some(desk) = Desk::closed().await else { return };
    let plan = plan.parse().unwrap_or_else(|error| panic!("{error}"));
    let upstream = Upstream::service(&desk.provider.url).expect("an address");
    let proxy = FaultProxy::start(upstream, &plan).await.expect("a proxy");
    let (desk, operator) = (Arc::new(desk), Arc::new(Mutex::new(None)));
    let start = {
        let (desk, operator, url) = (desk.clone(), operator.clone(), proxy.url());
        move || {
            let mut operator = operator.lock().expect("the lock is not poisoned");
            drop(operator.take()); // SIGKILL
            *operator = Some(desk.world.replica("", &["--booking-url", &url]));
        }
    };
    start();
    proxy.on_signal(move |_| {
        start();
        std::future::ready(())
    });
    desk.booked().await;
    is_one(&desk);
    desk.apply(NAME, &json!({"number": 5})).await;
    desk.until_synced(NAME, 5).await;
    desk.delete(NAME).await;
    is_none(&desk);
    assert_eq!(proxy.unused(), Vec::<String>::new(), "{}", proxy.trace());
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_crash_around_the_order_books_once() {
    for when in ["before", "after"] {
        live_with_provider_proxy_faults(&format!("{when} POST /v1/bookings #1 -> signal kill + drop")).await;
    }
    live_with_provider_proxy_faults("delivered POST /v1/bookings #1 -> signal kill").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_crash_around_change_or_cancellation_is_recovered() {
    for what in ["PATCH /v1/bookings/*", "DELETE /v1/references/*"] {
        for when in ["before", "after"] {
            live_with_provider_proxy_faults(&format!("{when} {what} #1 -> signal kill + drop")).await;
        }
    }
}

/// Books, changes and deletes a ticket while the provider itself has this fault.
async fn live_with_provider_fault(fault: serde_json::Value) {
    let Some(desk) = Desk::open().await else { return };
    desk.provider.fault(fault).await;
    desk.booked().await;
    is_one(&desk);
    desk.apply(NAME, &json!({"number": 5})).await;
    desk.until_synced(NAME, 5).await;
    assert_eq!(desk.provider.audit().seats_taken, 5);
    desk.delete(NAME).await;
    is_none(&desk);
    assert_eq!(desk.provider.hits().await, [1]);
}

fn is_one(desk: &Desk) {
    let audit = desk.provider.audit();
    assert_eq!(
        (audit.bookings.get("CONFIRMED"), audit.bookings.len(), audit.seats_taken),
        (Some(&1), 1, 2),
        "{audit:?}"
    );
}

fn is_none(desk: &Desk) {
    let audit = desk.provider.audit();
    assert_eq!((audit.bookings.get("CONFIRMED"), audit.seats_taken), (None, 0), "{audit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_crash_before_the_finalizer_is_stored() {
    live_with_api_server_faults("before patch flighttickets.flights.com #1 -> signal kill + drop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_crash_after_the_finalizer_before_the_booking() {
    live_with_api_server_faults("after patch flighttickets.flights.com #1 -> signal kill + drop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_lost_order_is_repeated() {
    live_with_provider_fault(json!({"op": "create", "mode": "before-commit-drop"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_lost_answer_to_the_order_books_once() {
    live_with_provider_fault(json!({"op": "create", "mode": "after-commit-drop"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_crash_before_the_booking_annotation() {
    live_with_api_server_faults("before patch flighttickets.flights.com #2 -> signal kill + drop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_crash_after_the_annotation_before_the_status() {
    live_with_api_server_faults("before patch flighttickets.flights.com/status #1 -> signal kill + drop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_lost_answer_to_the_change_is_recovered() {
    live_with_provider_fault(json!({"op": "modify", "mode": "after-commit-drop"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_deletion_during_an_order_leaves_no_booking() {
    let Some(mut desk) = Desk::open().await else { return };
    // The provider carries out the order after two seconds, even if no client waits for the answer.
    desk.provider.fault(json!({"op": "create", "mode": "delay", "delayMs": 2_000})).await;
    desk.world.apply(SAMPLE).await;
    desk.world.until("the order is under way", async || (desk.provider.hits().await == [1]).then_some(())).await;
    desk.world.operator = None;
    desk.world.delete::<FlightTicket>(NAME).await;
    desk.run("1s");
    desk.until_gone(NAME).await;
    let is_answered = async || (desk.provider.requests("create").await >= 1).then_some(());
    desk.world.within(Duration::from_secs(10), "the late order is answered", is_answered).await;
    is_none(&desk);
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_lost_answer_to_the_cancellation_is_recovered() {
    live_with_provider_fault(json!({"op": "cancel", "mode": "after-commit-drop"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_crash_before_the_finalizer_is_removed() {
    live_with_api_server_faults("before patch flighttickets.flights.com #3 -> signal kill + drop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_concurrent_managers_book_once() {
    let Some(desk) = Desk::closed().await else { return };
    let flags = ["--booking-url", &desk.provider.url];
    let _managers = ["-first", "-second", "-third"].map(|name| desk.world.replica(name, &flags));
    for number in 0..10 {
        desk.apply(&format!("ticket-{number}"), &json!({"number": 1})).await;
    }
    for number in 0..10 {
        desk.until_booked(&format!("ticket-{number}")).await;
    }
    let audit = desk.provider.audit();
    assert_eq!((audit.bookings.get("CONFIRMED"), audit.bookings.len(), audit.seats_taken), (Some(&10), 1, 10));
    for number in 0..10 {
        desk.delete(&format!("ticket-{number}")).await;
    }
    is_none(&desk);
}

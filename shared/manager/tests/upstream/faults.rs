//! Faults between the operator and the API server: rows A and C of `RELIABILITY.md`.

use std::time::Duration;

use model_apiserver::NoFaults;
use tokio::time::{Instant, sleep};

use crate::kit::{
    Calls, MOMENT, TOYS, change, keep_ports, keep_unless_zero, keeper, model, plan, port, put, reconcile_errors, run,
    settles, until, value,
};

/// Each case is a way in which a request may fail, and how long the recovery may take.
#[tokio::test(start_paused = true)]
async fn a5_a7_a8_a9_a10_a14_a16_a17_failed_write_takes_effect_once() {
    let cases = [
        ("before create services.core #1..5 -> answer 409", MOMENT),
        ("before create services.core #1..5 -> answer 401", MOMENT),
        ("before create services.core #1..5 -> answer 500", MOMENT),
        ("before create services.core #1..5 -> answer 502 html", MOMENT),
        ("before create services.core #1..5 -> answer 503 empty", MOMENT),
        ("before create services.core #1..5 -> answer 504 content-type=\"text/plain\" body=\"later\"", MOMENT),
        ("before create services.core #1..5 -> drop", MOMENT),
        ("after create services.core #1 -> answer 500", MOMENT),
        ("after create services.core #1 -> answer 504 html", MOMENT),
        ("after create services.core #1 -> drop", MOMENT),
        ("after create services.core #1 -> drop; frame * services.core -> delay 60s", MOMENT),
        ("after create services.core #1 -> truncate 60", MOMENT),
        ("after create services.core #1 -> truncate 60; frame * services.core -> delay 60s", MOMENT),
        ("after create services.core #1 -> trickle 1 1s", 25 * MOMENT),
        ("before create services.core #1 -> stall", 25 * MOMENT),
        ("after create services.core #1 -> stall", 25 * MOMENT),
        ("before patch toys.tests.example.com/status #1..5 -> answer 409", 2 * MOMENT),
        ("after patch toys.tests.example.com/status #1 -> drop", 2 * MOMENT),
        ("after list services.core #1 -> truncate 60", 2 * MOMENT),
        ("after list toys.tests.example.com #1 -> truncate 200", 2 * MOMENT),
        // The runtime retries a forbidden request once a minute.
        (
            r#"before create services.core #1..2 -> answer 403 body="{\"reason\":\"Forbidden\",\"message\":\"u cannot create it in API group c\",\"code\":403}""#,
            122 * MOMENT,
        ),
    ];
    for (faults, limit) in cases {
        let model = model();
        put(&model, &["a"]);
        let planned = plan(&model, faults);
        let calls = Calls::default();
        let harness = run(&model, &[], keeper(&calls));
        let took = settles(&model, faults).await;
        assert!(took < limit, "{faults}: {took:?}");
        assert!(planned.unused().is_empty(), "{faults}");
        assert_eq!(
            value(&harness.scrape(), r#"controller_runtime_reconcile_panics_total{controller="toy"}"#),
            Some(0.0)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a7_event_shortens_load_balancer_page_to_one_line() {
    let model = model();
    put(&model, &["a"]);
    plan(&model, "before create services.core -> answer 503 html");
    let _harness = run(&model, &[], keeper(&Calls::default()));
    sleep(30 * MOMENT).await;
    let events = model.objects("events.events.k8s.io");
    let note = "could not create Service \"a\" in namespace \"default\": 503 from a load balancer (code 503)";
    assert!(events.iter().any(|event| event["type"] == "Warning" && event["note"] == note), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn a6_events_do_not_shorten_retry_after() {
    for faults in ["answer 429 Retry-After=\"30\"", "answer 503 Retry-After=\"30\""] {
        let model = model();
        put(&model, &["a", "b"]);
        plan(&model, &format!("before create services.core */a #1 -> {faults}"));
        let _harness = run(&model, &[], keeper(&Calls::default()));
        let asked = || {
            model
                .requests()
                .iter()
                .filter(|it| it.verb.as_str() == "create" && it.name == "a" && it.resource == "services")
                .count()
        };
        sleep(MOMENT).await;
        assert_eq!((asked(), port(&model, "b")), (1, Some(1)), "other objects are still reconciled");
        for size in 2..7 {
            change(&model, "a", size).await; // without the guard, this event would cause a reconcile at once
            sleep(4 * MOMENT).await;
            assert_eq!(asked(), 1, "{faults}");
        }
        let took = until("the Service", || port(&model, "a") == Some(6)).await;
        assert!(took < 10 * MOMENT, "{took:?}");
        assert_eq!(asked(), 2, "{faults}");
    }
}

/// The API server goes down for two minutes, in each round at another request of the operator.
#[tokio::test(start_paused = true)]
async fn a11_operator_recovers_from_an_outage_at_any_request() {
    // Covers two lists, two watches, child, event and status, and the requests after the watches end.
    for at in 1..16 {
        let model = model();
        put(&model, &["a"]);
        let planned = plan(&model, &format!("before * * as toys #{at}.. -> drop; frame * * as toys -> cut"));
        let _harness = run(&model, &[], keeper(&Calls::default()));
        sleep(120 * MOMENT).await; // long enough for the back-off to grow
        assert!(planned.unused().len() < 2, "at {at}");
        model.set_faults(NoFaults);
        let took = settles(&model, &format!("at {at}")).await;
        assert!(took < 10 * MOMENT, "at {at}: {took:?} after it came back");
        change(&model, "a", 2).await;
        until("the Service has the new port", || port(&model, "a") == Some(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a5_conflicting_apply_is_retried_without_an_error() {
    let model = model();
    put(&model, &["a"]);
    let harness = run(&model, &[], keep_ports);
    until("the Service", || port(&model, "a") == Some(1)).await;
    let planned = plan(&model, "before patch services.core #1..3 -> answer 409");
    change(&model, "a", 3).await;
    let ports = || model.object("services", "default", "a")?["spec"]["ports"].as_array().map(Vec::len);
    until("three ports", || ports() == Some(3)).await;
    assert!(planned.unused().is_empty());
    assert_eq!(reconcile_errors(&harness), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn a5_conflicting_deletion_is_retried_without_an_error() {
    let model = model();
    put(&model, &["a"]);
    let harness = run(&model, &[], keep_unless_zero);
    until("the Service", || port(&model, "a") == Some(80)).await;
    let planned = plan(&model, "before delete services.core #1..3 -> answer 409");
    change(&model, "a", 0).await;
    until("the Service is gone", || model.object("services", "default", "a").is_none()).await;
    assert!(planned.unused().is_empty());
    assert_eq!(reconcile_errors(&harness), Some(0.0));
}

/// One name is created and deleted a thousand times. Nothing is left of the deleted objects, and the operator does not confuse
/// them.
#[tokio::test(start_paused = true)]
async fn c10_repeated_create_and_delete_of_one_name_leaks_nothing() {
    let model = model();
    model.set_collecting(model_apiserver::Collecting::AtOnce);
    let harness = run(&model, &[], keeper(&Calls::default()));
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (mut lines, mut alive) = (0, 0);
    for round in 0..1_000_u32 {
        put(&model, &["a"]);
        if round % 2 == 0 {
            sleep(Duration::from_millis(3)).await;
            model.collect(); // only after another object has the name
        }
        let pause = Instant::now();
        if round % 3 == 0 {
            until("the Service of this one", || port(&model, "a") == Some(1)).await;
        } else {
            sleep(Duration::from_millis(u64::from(round % 7))).await;
        }
        assert!(pause.elapsed() < 10 * MOMENT, "{round}");
        model.take(TOYS, "default", "a");
        if round % 2 == 1 {
            model.collect();
        }
        model.clear_requests();
        for event in model.objects("events.events.k8s.io") {
            model.take("events.events.k8s.io", "default", event["metadata"]["name"].as_str().expect("a name"));
        }
        if round == 10 {
            sleep(60 * MOMENT).await;
            (lines, alive) = (harness.scrape().lines().count(), tasks());
        }
    }
    sleep(60 * MOMENT).await;
    assert_eq!(
        model.objects("services"),
        Vec::<serde_json::Value>::new(),
        "all Services are collected, and none was created without an owner"
    );
    assert_eq!((harness.scrape().lines().count(), tasks()), (lines, alive));
    put(&model, &["a"]);
    settles(&model, "the last one").await;
}

//! Faults of watches: rows W of `RELIABILITY.md`. `src/informer/tests.rs` tests a single informer.

use kube::CustomResourceExt;
use manager::normalize;
use model_apiserver::{Collecting, Model};
use serde_json::json;
use tokio::time::sleep;

use crate::kit::{
    Calls, MOMENT, TOYS, Toy, change, is_ready, keeper, model, plan, port, put, run, until, value, writes,
};

/// Verb, resource and status code.
type Write = (&'static str, String, Option<u16>);

/// Runs an object through its life under these faults, and returns the writes.
async fn live(faults: &str) -> (Model, Vec<Write>) {
    let model = model();
    put(&model, &["a"]);
    let planned = plan(&model, faults);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    until(faults, || port(&model, "a") == Some(1) && is_ready(&model, "a")).await;
    for size in [2, 3] {
        change(&model, "a", size).await;
        sleep(MOMENT).await;
    }
    model.take("services", "default", "a"); // as another client does
    let seen = until(faults, || port(&model, "a") == Some(3) && is_ready(&model, "a")).await;
    assert!(seen < 300 * MOMENT, "{faults}: {seen:?}");
    sleep(600 * MOMENT).await;
    assert_eq!(port(&model, "a"), Some(3), "{faults}");
    assert!(faults.is_empty() || planned.unused().is_empty(), "{faults}");
    let writes = writes(&model);
    (model, writes)
}

#[tokio::test(start_paused = true)]
async fn w2_w3_w4_w5_w8_faults_keep_end_state_and_repeat_no_write() {
    let (_, usual) = live("").await;
    assert_eq!(usual.iter().filter(|(verb, ..)| *verb == "create").count(), 2, "created, and created again: {usual:?}");
    let mut cases: Vec<String> = [
        // An event is held back until a newer one replaces it.
        "frame MODIFIED toys.tests.example.com #1 -> hold",
        "frame * services.core #1..2 -> hold",
        // The watch has expired: as a response, and inside the stream.
        "before watch toys.tests.example.com #1 -> answer 410",
        "before watch services.core #1 -> answer 410",
        "frame MODIFIED toys.tests.example.com #1 -> gone",
        "frame DELETED services.core #1 -> gone",
        // Each event arrives twice.
        "frame * * -> duplicate",
        // The watch delivers our own writes late.
        "frame * services.core own -> delay 20s",
        "frame * toys.tests.example.com own -> delay 20s",
        // Frames that no real server sends.
        "frame MODIFIED toys.tests.example.com #1 -> truncate 50",
        "frame MODIFIED toys.tests.example.com #1 -> join",
        "frame * services.core #1 -> replace \"{\\\"type\\\": 3}\"",
        // Single bytes, so that multi-byte characters arrive in pieces.
        "frame * toys.tests.example.com -> trickle 1 1ms",
        // A relist is truncated: the objects that it lacks still exist.
        "frame MODIFIED services.core #1 -> gone; after list services.core #2 -> truncate 60",
    ]
    .map(str::to_owned)
    .into();
    // The stream ends after a number of events.
    for resource in [TOYS, "services.core"] {
        cases.extend((1..4).map(|frames| format!("after watch {resource} #1..8 -> cut {frames}")));
    }
    for faults in cases {
        let (model, writes) = live(&faults).await;
        let services = |verb: &str, of: &[Write]| of.iter().filter(|it| (it.0, &*it.1) == (verb, "services")).count();
        assert_eq!(services("create", &writes), 2, "{faults}: {writes:?}");
        assert!(services("patch", &writes) <= services("patch", &usual), "{faults}: {writes:?}");
        assert!(writes.len() <= usual.len() + 1, "{faults}: {writes:?}, without faults {usual:?}");
        assert_eq!(model.objects("services").len(), 1, "{faults}");
    }
}

/// No watch delivers the deletion. The next list has another object with the same name.
#[tokio::test(start_paused = true)]
async fn w7_object_replaced_during_a_lost_watch_is_a_new_one() {
    let model = model();
    model.set_collecting(Collecting::AtOnce);
    put(&model, &["a"]);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    until("the Service", || port(&model, "a") == Some(1) && is_ready(&model, "a")).await;
    plan(&model, "frame DELETED toys.tests.example.com #1 -> gone; before list toys.tests.example.com #1 -> delay 5s");
    model.take(TOYS, "default", "a");
    sleep(MOMENT).await;
    put(&model, &["a"]);
    assert_eq!(port(&model, "a"), None, "no watch has delivered the new object yet");
    until("a Service of its own", || port(&model, "a") == Some(1) && is_ready(&model, "a")).await;
}

#[tokio::test(start_paused = true)]
async fn w10_undecodable_object_stops_no_other() {
    let model = model();
    let names: Vec<String> = (0..99).map(|number| format!("good-{number}")).collect();
    put(&model, &names.iter().map(String::as_str).collect::<Vec<_>>());
    model.put(json!({
        "apiVersion": "tests.example.com/v1", "kind": "Toy",
        "metadata": {"name": "bad", "namespace": "default", "generation": 1}, "spec": {"size": "large"},
    }));
    let harness = run(&model, &[], keeper(&Calls::default()));
    until("all others", || names.iter().all(|name| is_ready(&model, name))).await;
    assert_eq!(model.objects("services").len(), 99);
    assert_eq!(value(&harness.scrape(), r#"operator_undecodable_objects{kind="Toy"}"#), Some(1.0));
    sleep(10 * MOMENT).await;
    let told = model.objects("events.events.k8s.io").into_iter().find(|event| event["reason"] == "Undecodable");
    assert_eq!(told.expect("an event")["regarding"]["name"], "bad");
    change(&model, "bad", 4).await;
    until("its child, after the repair", || port(&model, "bad") == Some(4)).await;
    assert_eq!(value(&harness.scrape(), r#"operator_undecodable_objects{kind="Toy"}"#), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn w11_reinstalled_crd_is_watched_again() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    until("the Service", || port(&model, "a") == Some(1)).await;
    for round in 0..3 {
        model.uninstall(TOYS);
        model.collect();
        sleep(300 * MOMENT).await;
        assert!(model.objects("services").is_empty(), "{round}");
        model.install(&normalize(&Toy::crd()));
        put(&model, &["a", "b"]);
        let took = until("both Services", || ["a", "b"].iter().all(|name| port(&model, name) == Some(1))).await;
        assert!(took < 10 * MOMENT, "{round}: {took:?}");
    }
}

/// The watch loses the deletion of the object, which goes with the definition of its kind. The cache still holds the object.
#[tokio::test(start_paused = true)]
async fn object_whose_kind_is_missing_gets_no_child_until_the_kind_is_back() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    until("the Service", || port(&model, "a") == Some(1) && is_ready(&model, "a")).await;
    sleep(10 * MOMENT).await; // a child that is missing sooner after its creation has probably lost its owner
    let toy = model.object(TOYS, "default", "a").expect("the object");
    let planned = plan(&model, "frame DELETED toys.tests.example.com #1 -> gone");
    model.uninstall(TOYS);
    sleep(10 * MOMENT).await;
    assert!(planned.unused().is_empty());
    let before = writes(&model);
    model.collect();
    sleep(60 * MOMENT).await;
    assert!(model.objects("services").is_empty());
    assert_eq!(writes(&model), before);

    // The object has not changed, so its own event wakes no reconcile.
    model.install(&normalize(&Toy::crd()));
    model.put(toy);
    until("the Service again", || port(&model, "a") == Some(1)).await;
}

//! Faults between the operator and the API server: rows A, C and O of `RELIABILITY.md`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use fault_plan::{Plan, Request, enumerate};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use manager::{Action, Context, Error};
use model_apiserver::{Model, NoFaults, Planned};
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::kit::{
    Calls, MOMENT, TOYS, Toy, change, is_ready, keep, keep_unless_zero, keeper, labels, model, plan, port, put,
    reconcile_errors, report_size, run, until, value, writes,
};

/// Waits for the final state, and checks that the operator then writes nothing for ten minutes. Returns how long the wait took.
async fn settles(model: &Model, what: &str) -> Duration {
    let took = until(what, || port(model, "a") == Some(1) && is_ready(model, "a")).await;
    assert_eq!(model.objects("services").len(), 1, "{what}");
    sleep(MOMENT).await;
    let before = writes(model);
    sleep(600 * MOMENT).await;
    assert_eq!(writes(model), before, "{what}: the operator still writes");
    took
}

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

/// All possible crashes at the writes of an object's life: before each write, after it, and after its answer.
async fn crashes() -> Vec<Plan> {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    settles(&model, "without a fault").await;
    let asked = model.requests().into_iter().filter(|it| it.client == "toys" && it.verb.writes());
    let asked = asked.filter(|it| !it.resource.starts_with("events")); // names of events differ in each run
    let record: Vec<_> = asked.map(|it| Request::from(&it)).collect();
    enumerate::crashes(&record)
}

/// Runs an object's life with these crashes, one after the other. The second crash may find no request to happen at.
async fn crashed(plans: &[&Plan]) {
    let what = plans.iter().map(ToString::to_string).collect::<Vec<_>>().join(", then ");
    let model = model();
    put(&model, &["a"]);
    for (number, crash) in plans.iter().enumerate() {
        let killed = Arc::new(Notify::new());
        let told = killed.clone();
        let planned = Planned::with_signals(crash, move |_| {
            told.notify_one();
            Box::pin(std::future::pending())
        });
        model.set_faults(planned);
        let running = run(&model, &[], keeper(&Calls::default()));
        tokio::select! {
            () = killed.notified() => {}
            () = sleep(600 * MOMENT), if number > 0 => {}
        }
        running.crash().await;
    }
    model.set_faults(NoFaults);
    let _last = run(&model, &[], keeper(&Calls::default()));
    settles(&model, &what).await;
    let made = |it: &&(&str, String, Option<u16>)| it.0 == "create" && it.1 == "services" && it.2 == Some(201);
    assert_eq!(writes(&model).iter().filter(made).count(), 1, "{what}");
}

#[tokio::test(start_paused = true)]
async fn a1_a2_a3_a_crash_at_any_write_leaves_no_second_child() {
    let plans = crashes().await;
    assert!(plans.len() >= 6, "{plans:?}");
    for plan in &plans {
        crashed(&[plan]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a4_two_crashes_at_any_two_writes_leave_no_second_child() {
    let plans = crashes().await;
    for first in &plans {
        for second in &plans {
            crashed(&[first, second]).await;
        }
    }
}

/// Keeps a Service with as many ports as the object's size: a change of a list, which the runtime sends as an apply.
async fn keep_ports(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let ports: Vec<_> = (1..=toy.spec.size).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    let service = json!({"metadata": {"name": toy.name_any()}, "spec": {"ports": ports}});
    context.apply::<Service>(serde_json::from_value(service).expect("a Service")).await?;
    Ok(Action::Done)
}

#[tokio::test(start_paused = true)]
async fn unwanted_child_without_our_label_is_deleted() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keep_unless_zero);
    until("the Service", || port(&model, "a") == Some(80)).await;
    // The operator cannot repair the label, because its reads fail.
    let planned = plan(&model, "before get services.core #1..3 -> answer 500");
    let label = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "another-manager"}}}));
    let services: Api<Service> = Api::namespaced(model.client(), "default");
    services.patch("a", &PatchParams::default(), &label).await.expect("the API server accepts the patch");
    until("three failed reads", || planned.unused().is_empty()).await;
    change(&model, "a", 0).await;
    until("the Service is gone", || model.object("services", "default", "a").is_none()).await;

    // The operator looks for the child once, and never again.
    model.clear_requests();
    change(&model, "a", -1).await;
    tokio::time::sleep(MOMENT).await;
    let asked = model.requests().into_iter().filter(|it| it.resource == "services").count();
    assert_eq!(asked, 0);
}

/// Keeps the Services "a" and "b" unless the object's size is zero.
async fn keep_two_unless_zero(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    if toy.spec.size == 0 {
        context.apply_or_delete::<Service>(None).await?;
        return Ok(Action::Done);
    }
    let service = |name: &str| -> Service {
        let port = json!([{"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80}]);
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"ports": port}})).expect("a Service")
    };
    context.all((context.apply(service("a")), context.apply(service("b")))).await?;
    Ok(Action::Done)
}

/// Both Services lose the label, or one of them does, and the operator then writes the other one.
#[tokio::test(start_paused = true)]
async fn each_unwanted_child_without_our_label_is_deleted() {
    for lost in [&["a", "b"][..], &["a"]] {
        let model = model();
        put(&model, &["a"]);
        let _harness = run(&model, &[], keep_two_unless_zero);
        until("both Services", || model.objects("services").len() == 2).await;
        sleep(MOMENT).await;
        // The operator cannot repair the labels, because its reads fail.
        plan(&model, "before get services.core -> answer 500");
        let services: Api<Service> = Api::namespaced(model.client_named("other"), "default");
        let patch = async |name: &str, patch: serde_json::Value| {
            let parameters = PatchParams { field_manager: Some("other".to_owned()), ..PatchParams::default() };
            services.patch(name, &parameters, &Patch::Merge(patch)).await.expect("the API server accepts the patch");
            sleep(MOMENT).await;
        };
        for &name in lost {
            patch(name, json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "another-manager"}}})).await;
        }
        if lost.len() == 1 {
            let port = json!([{"name": "a", "port": 80, "protocol": "TCP", "targetPort": 99}]);
            patch("b", json!({"spec": {"ports": port}})).await;
            let service = model.object("services", "default", "b").expect("a Service");
            assert_eq!(service["spec"]["ports"][0]["targetPort"], 80, "the operator has written the other one");
        }
        change(&model, "a", 0).await;
        sleep(MOMENT).await;
        model.set_faults(NoFaults);
        until("the Services are gone", || model.objects("services").is_empty()).await;
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

/// Right before the request that deletes a child, another client changes it: its owner, or something else.
#[tokio::test(start_paused = true)]
async fn child_is_deleted_only_while_it_is_ours() {
    let cases = [
        (json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "another", "controller": true}]), true),
        (json!(null), false),
    ];
    for (owners, is_kept) in cases {
        let model = model();
        put(&model, &["a"]);
        let harness = run(&model, &[], keep_unless_zero);
        until("the Service", || port(&model, "a") == Some(80)).await;
        let stage = model.clone();
        let plan = "before delete services.core #1 -> signal interfere".parse().expect("a plan");
        let planned = Arc::new(Planned::with_signals(&plan, move |_| {
            let mut service = stage.object("services", "default", "a").expect("the Service");
            service["metadata"]["annotations"] = json!({"note": "theirs"});
            if !owners.is_null() {
                service["metadata"]["ownerReferences"] = owners.clone();
            }
            stage.put(service);
            Box::pin(std::future::ready(()))
        }));
        model.set_shared_faults(planned.clone());
        change(&model, "a", 0).await;
        sleep(10 * MOMENT).await;
        assert!(planned.unused().is_empty());
        assert_eq!(model.object("services", "default", "a").is_some(), is_kept);
        assert_eq!(reconcile_errors(&harness), Some(0.0));
    }
}

/// Between our read of a child and our write, another client replaces it by its own object.
#[tokio::test(start_paused = true)]
async fn unowned_replacement_of_a_child_is_left_alone() {
    // The first patch turns the `managedFields` entry of the create into an apply entry; the second is the apply itself.
    for nth in [1, 2] {
        let model = model();
        put(&model, &["a"]);
        let harness = run(&model, &[], keep_ports);
        until("the Service", || port(&model, "a") == Some(1)).await;
        let (stage, theirs) = (
            model.clone(),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "default", "labels": {"whose": "mine"}},
                "spec": {"ports": [{"name": "theirs", "port": 7, "protocol": "TCP", "targetPort": 7}]},
            }),
        );
        let placed = theirs.clone();
        let faults = format!("before patch services.core #{nth} -> signal interfere");
        model.set_shared_faults(Arc::new(Planned::with_signals(&faults.parse().expect("a plan"), move |_| {
            stage.take("services", "default", "a");
            stage.put(placed.clone());
            Box::pin(std::future::ready(()))
        })));
        change(&model, "a", 3).await;
        sleep(90 * MOMENT).await;
        let found = model.object("services", "default", "a").expect("it is there");
        assert_eq!(
            (&found["spec"]["ports"], &found["metadata"]["labels"]),
            (&theirs["spec"]["ports"], &theirs["metadata"]["labels"]),
            "{nth}"
        );
        for ours in ["ownerReferences", "managedFields"] {
            assert!(found["metadata"][ours].is_null(), "{nth}: {found:#}");
        }
        drop(harness);
    }
}

/// While the operator writes a status, the object is deleted, and another one with the same name is created.
#[tokio::test(start_paused = true)]
async fn status_is_never_written_to_a_recreated_object() {
    // The first write adds a status, the second changes it.
    for nth in [1, 2] {
        let model = model();
        let stage = model.clone();
        let replace = move |_: &str| {
            stage.take(TOYS, "default", "a");
            stage.put(json!({
                "apiVersion": "tests.example.com/v1", "kind": "Toy",
                "metadata": {"name": "a", "namespace": "default", "uid": "second", "generation": 1},
                "spec": {"size": 7},
            }));
            Box::pin(std::future::ready(())) as _
        };
        let faults = format!("before patch {TOYS}/status #{nth} -> signal replace");
        let planned = Arc::new(Planned::with_signals(&faults.parse().expect("a plan"), replace));
        model.set_shared_faults(planned.clone());
        put(&model, &["a"]);
        let _harness = run(&model, &[], report_size);
        if nth == 2 {
            until("the first status", || is_ready(&model, "a")).await;
            change(&model, "a", 3).await;
        }
        let settled = || model.object(TOYS, "default", "a").is_some_and(|toy| toy["spec"]["size"] == 7);
        until("its successor", || settled() && is_ready(&model, "a")).await;
        assert!(planned.unused().is_empty());
        let versions = model.changes_after(0).into_iter().filter(|change| &*change.resource == TOYS);
        for toy in versions.filter_map(|change| change.after).filter(|toy| toy["metadata"]["uid"] == "second") {
            for condition in toy["status"]["conditions"].as_array().into_iter().flatten() {
                assert_eq!(condition["observedGeneration"], 1, "{nth}: {toy:#}");
                assert!(condition["type"] != "Ready" || condition["message"] == "size 7", "{nth}: {toy:#}");
            }
        }
    }
}

/// An existing Service was created by a user, by another controller, or by an earlier object with our name: none of them is ours.
#[tokio::test(start_paused = true)]
async fn unowned_object_is_left_alone() {
    let owner = |name: &str| json!([{"apiVersion": "tests.example.com/v1", "kind": "Toy", "name": name, "uid": "another", "controller": true}]);
    let metadata = [
        json!({"name": "a", "namespace": "default"}),
        json!({"name": "a", "namespace": "default", "ownerReferences": owner("b")}),
        json!({"name": "a", "namespace": "default", "ownerReferences": owner("a")}),
        json!({"name": "a", "namespace": "default", "ownerReferences": owner("a"), "labels": labels("a")}),
        json!({"name": "a", "namespace": "default", "labels": labels("b")}),
    ];
    for metadata in metadata {
        let model = model();
        let theirs = model.put(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 7}]}}),
        );
        put(&model, &["a"]);
        let calls = Calls::default();
        let _harness = run(&model, &[], keeper(&calls));
        sleep(150 * MOMENT).await;
        assert_eq!(model.object("services", "default", "a").as_ref(), Some(&theirs));
        assert!(calls.count() >= 3, "polled once a minute: {} calls", calls.count());
        model.take("services", "default", "a");
        let took = until("ours", || port(&model, "a") == Some(1)).await;
        assert!(took <= 61 * MOMENT, "{took:?}");
    }
}

/// `apply_or_keep` without a desired child must not take another object's child for its own.
#[tokio::test(start_paused = true)]
async fn unowned_object_is_not_a_kept_child() {
    let model = model();
    let owner = json!([{"apiVersion": "tests.example.com/v1", "kind": "Toy", "name": "b", "uid": "another", "controller": true}]);
    model.put(json!({
        "apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 7}]},
        "metadata": {"name": "a", "namespace": "default", "ownerReferences": owner, "labels": labels("a")},
    }));
    put(&model, &["a", "c"]);
    let kept = Arc::new(Mutex::new(BTreeMap::new()));
    let found = kept.clone();
    let _harness = run(&model, &[], move |toy: Arc<Toy>, context: Context<Toy>| {
        let found = found.clone();
        async move {
            if toy.spec.size == 1 && toy.name_any() == "c" {
                return keep(toy, context).await;
            }
            let child = context.apply_or_keep::<Service>(&toy.name_any(), None).await?;
            found.lock().expect("no panic").insert(toy.name_any(), child.is_some());
            Ok(Action::Done)
        }
    });
    until("the own child is there", || port(&model, "c") == Some(1)).await;
    change(&model, "c", 2).await;
    sleep(MOMENT).await;
    let expected = BTreeMap::from([("a".to_owned(), false), ("c".to_owned(), true)]);
    assert_eq!(*kept.lock().expect("no panic"), expected);
    assert_eq!(port(&model, "c"), Some(1), "it is kept as it was");
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

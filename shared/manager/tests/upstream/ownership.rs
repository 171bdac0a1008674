//! Whose an object is: the operator leaves alone what is not its own, although it has the name of a child, and finds a child that
//! has lost our label. Row O of `RELIABILITY.md`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use manager::{Action, Context, Error};
use model_apiserver::{Model, NoFaults, Planned};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::kit::{
    Calls, MOMENT, TOYS, Toy, change, condition, is_ready, keep, keep_ports, keep_unless_zero, keeper, labels, model,
    plan, port, put, reconcile_errors, report_size, run, until,
};

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

/// Changes this Service as another client does.
async fn patch(model: &Model, name: &str, patch: Value) {
    let services: Api<Service> = Api::namespaced(model.client_named("other"), "default");
    let parameters = PatchParams { field_manager: Some("other".to_owned()), ..PatchParams::default() };
    services.patch(name, &parameters, &Patch::Merge(patch)).await.expect("the API server accepts the patch");
}

fn without_our_label() -> Value {
    json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "another-manager"}}})
}

#[tokio::test(start_paused = true)]
async fn unwanted_child_without_our_label_is_deleted() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keep_unless_zero);
    until("the Service", || port(&model, "a") == Some(80)).await;
    // The operator cannot repair the label, because its reads fail.
    let planned = plan(&model, "before get services.core #1..3 -> answer 500");
    patch(&model, "a", without_our_label()).await;
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
        for &name in lost {
            patch(&model, name, without_our_label()).await;
            sleep(MOMENT).await;
        }
        if lost.len() == 1 {
            let port = json!([{"name": "a", "port": 80, "protocol": "TCP", "targetPort": 99}]);
            patch(&model, "b", json!({"spec": {"ports": port}})).await;
            sleep(MOMENT).await;
            let service = model.object("services", "default", "b").expect("a Service");
            assert_eq!(service["spec"]["ports"][0]["targetPort"], 80, "the operator has written the other one");
        }
        change(&model, "a", 0).await;
        sleep(MOMENT).await;
        model.set_faults(NoFaults);
        until("the Services are gone", || model.objects("services").is_empty()).await;
    }
}

/// For each reconcile, whether its child was in sync; `None` if it got no child.
type Children = Arc<Mutex<Vec<Option<bool>>>>;

/// Keeps a Service, and notes what it gets.
async fn keep_and_note(toy: Arc<Toy>, context: Context<Toy>, children: Children) -> Result<Action, Error> {
    let port = json!([{"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80}]);
    let service = json!({"metadata": {"name": toy.name_any()}, "spec": {"ports": port}});
    let child = context.apply::<Service>(serde_json::from_value(service).expect("a Service")).await?;
    children.lock().expect("no panic").push(child.map(|child| context.is_in_sync::<Service>(&child)));
    Ok(Action::Done)
}

/// A policy refuses the requests by which the operator would repair the label.
#[tokio::test(start_paused = true)]
async fn child_without_our_label_is_still_the_child_if_its_write_is_refused() {
    for refused in ["create", "patch"] {
        let model = model();
        put(&model, &["a"]);
        let children = Children::default();
        let noted = children.clone();
        let _harness = run(&model, &[], move |toy, context| keep_and_note(toy, context, noted.clone()));
        let last = || children.lock().expect("no panic").last().copied().flatten();
        until("the Service", || port(&model, "a") == Some(80)).await;
        sleep(MOMENT).await;
        let planned = plan(&model, &format!("before {refused} services.core as toys -> answer 422"));
        model.clear_requests();
        patch(&model, "a", without_our_label()).await;
        sleep(600 * MOMENT).await;
        assert!(planned.unused().is_empty(), "{refused}: the API server has refused no request");
        assert_eq!(last(), Some(false), "{refused}");
        let requests = model.requests();
        let asked =
            |verb: &str| requests.iter().filter(|it| it.resource == "services" && it.verb.as_str() == verb).count();
        let (reads, attempts) = (asked("get"), asked("create"));
        assert!(reads <= 2 * attempts, "{refused}: {reads} reads in {attempts} attempts");

        model.set_faults(NoFaults);
        until("the label", || last() == Some(true)).await;
        let service = model.object("services", "default", "a").expect("the Service");
        assert_eq!(service["metadata"]["labels"]["app.kubernetes.io/managed-by"], "toy-operator", "{refused}");
    }
}

/// The API server refuses the child, and then cannot say whether there is one.
#[tokio::test(start_paused = true)]
async fn refusal_is_reported_although_the_child_cannot_be_read() {
    let model = model();
    plan(&model, "before create services.core -> answer 422; before get services.core -> answer 500");
    put(&model, &["a"]);
    let harness = run(&model, &[], keep);
    let degraded = || condition(&model.object(TOYS, "default", "a").unwrap_or_default(), "Degraded");
    until("the problem", || degraded()["status"] == "True").await;
    assert_eq!(degraded()["reason"], "ChildRejected");
    assert_eq!(reconcile_errors(&harness), Some(0.0));
}

/// Another client deletes the child until its creation waits, and then removes the label of the one that there is.
#[tokio::test(start_paused = true)]
async fn child_without_our_label_is_still_the_child_while_its_creation_waits() {
    let model = model();
    put(&model, &["a"]);
    let children = Children::default();
    let noted = children.clone();
    let _harness = run(&model, &[], move |toy, context| keep_and_note(toy, context, noted.clone()));
    let services: Api<Service> = Api::namespaced(model.client_named("other"), "default");
    for _ in 0..6 {
        until("the Service", || port(&model, "a") == Some(80)).await;
        services.delete("a", &DeleteParams::default()).await.expect("it is deleted");
    }
    until("the Service", || port(&model, "a") == Some(80)).await;
    sleep(MOMENT).await;
    children.lock().expect("no panic").clear();
    model.clear_requests();
    patch(&model, "a", without_our_label()).await;
    sleep(3 * MOMENT).await;
    let asked = model.requests().into_iter().filter(|it| it.resource == "services" && it.client == "toys");
    assert!(asked.map(|it| it.verb.as_str()).all(|verb| verb == "get"), "the next creation waits");
    let children = children.lock().expect("no panic");
    assert!(!children.is_empty() && children.iter().all(|it| *it == Some(false)), "{children:?}");
}

/// Another client removes the label again and again, so its repairs become rare.
#[tokio::test(start_paused = true)]
async fn child_without_our_label_is_still_the_child_while_its_repair_waits() {
    let model = model();
    put(&model, &["a"]);
    let children = Children::default();
    let noted = children.clone();
    let _harness = run(&model, &[], move |toy, context| keep_and_note(toy, context, noted.clone()));
    until("the Service", || port(&model, "a") == Some(80)).await;
    for _ in 0..60 {
        patch(&model, "a", without_our_label()).await;
        sleep(MOMENT).await;
    }
    let children = children.lock().expect("no panic");
    assert!(children.contains(&Some(false)), "a repair has waited: {children:?}");
    assert!(!children.contains(&None), "{children:?}");
}

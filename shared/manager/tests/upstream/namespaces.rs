//! Namespaces that join and leave at run time, by their labels, and namespaces that cannot be listed.

use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use manager::{Action, Controller, Deletion, Manager, harness::Harness};
use model_apiserver::{Model, NoFaults};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::kit::{Calls, MOMENT, NO_RESYNC, TOYS, Toy, Toys, keep, model, plan, run, value, writes};

const SELECTOR: &str = "--watch-namespace-selector=team=x";

/// Two namespaces with one object each. Only the first one is selected.
fn two_namespaces() -> (Model, Harness) {
    let model = filled();
    let harness = run(&model, &[SELECTOR], keep);
    (model, harness)
}

/// A model with these namespaces.
pub(crate) fn filled() -> Model {
    let model = model();
    for (namespace, labels) in [("one", json!({"team": "x"})), ("two", json!({"team": "y"}))] {
        model.put(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels},
        }));
        model.put(json!({
            "apiVersion": "tests.example.com/v1", "kind": "Toy",
            "metadata": {"name": "a", "namespace": namespace, "generation": 1}, "spec": {"size": 1},
        }));
    }
    model
}

async fn label(model: &Model, namespace: &str, team: &str) {
    let api: Api<Namespace> = Api::all(model.client());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"team": team}}}));
    api.patch(namespace, &PatchParams::default(), &patch).await.expect("the API server accepts the label");
    sleep(MOMENT).await;
}

pub(crate) async fn resize(model: &Model, namespace: &str, size: i32) {
    let resource = kube::api::ApiResource::erase::<Toy>(&());
    let api: Api<kube::api::DynamicObject> = Api::namespaced_with(model.client(), namespace, &resource);
    let patch = Patch::Merge(json!({"spec": {"size": size}}));
    api.patch("a", &PatchParams::default(), &patch).await.expect("the API server accepts the size");
    sleep(MOMENT).await;
}

/// The port of the child in this namespace, if it exists.
pub(crate) fn port(model: &Model, namespace: &str) -> Option<i64> {
    model.object("services", namespace, "a")?["spec"]["ports"][0]["port"].as_i64()
}

#[tokio::test(start_paused = true)]
async fn objects_of_selected_namespaces_are_reconciled() {
    let (model, harness) = two_namespaces();
    sleep(MOMENT).await;
    assert_eq!((port(&model, "one"), port(&model, "two")), (Some(1), None));
    assert_eq!(value(&harness.scrape(), "operator_informer_objects{kind=\"Toy\"}"), Some(1.0), "no other is cached");
    resize(&model, "two", 2).await;
    assert_eq!(port(&model, "two"), None, "an event of another namespace wakes nothing");
}

#[tokio::test(start_paused = true)]
async fn namespace_that_gets_the_label_joins() {
    let (model, _harness) = two_namespaces();
    sleep(MOMENT).await;
    label(&model, "two", "x").await;
    assert_eq!(port(&model, "two"), Some(1));
    resize(&model, "two", 2).await;
    resize(&model, "one", 3).await;
    assert_eq!((port(&model, "one"), port(&model, "two")), (Some(3), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_in_a_namespace_that_lost_the_label() {
    let (model, harness) = two_namespaces();
    sleep(MOMENT).await;
    label(&model, "one", "y").await;
    let before = writes(&model);
    resize(&model, "one", 9).await;
    let api: Api<Service> = Api::namespaced(model.client(), "one");
    api.delete("a", &DeleteParams::default()).await.expect("it exists");
    sleep(10 * MOMENT).await;
    assert_eq!(port(&model, "one"), None, "another client deleted it, and it is not ours to restore");
    assert_eq!(writes(&model), before);
    assert_eq!(value(&harness.scrape(), "operator_informer_objects{kind=\"Toy\"}"), Some(0.0));

    label(&model, "one", "x").await;
    assert_eq!(port(&model, "one"), Some(9), "it joins again");
}

/// A namespace that joins fills several caches one after another. No reconcile may take a child that is not listed yet for a missing
/// one.
#[tokio::test(start_paused = true)]
async fn joining_causes_no_write_if_nothing_has_changed() {
    let (model, _harness) = two_namespaces();
    sleep(MOMENT).await;
    label(&model, "one", "y").await;
    plan(&model, "before list services.core #1 -> delay 5s");
    let before = model.requests().len();
    label(&model, "one", "x").await;
    sleep(10 * MOMENT).await;
    let requests = model.requests().split_off(before);
    let ours = requests.iter().filter(|it| it.client.starts_with("toys"));
    let others: Vec<_> = ours.filter(|it| !matches!(it.verb.as_str(), "list" | "watch")).collect();
    assert_eq!(others.len(), 0, "{others:?}");
    resize(&model, "one", 2).await;
    assert_eq!(port(&model, "one"), Some(2));
}

/// A namespace that leaves empties several caches one after another. No reconcile may take a child that has left for a missing
/// one.
#[tokio::test(start_paused = true)]
async fn leaving_causes_no_request() {
    let (model, _harness) = two_namespaces();
    sleep(MOMENT).await;
    let count = || model.requests().into_iter().filter(|it| it.client.starts_with("toys")).collect::<Vec<_>>();
    let before = count().len();
    label(&model, "one", "y").await;
    let after = count().split_off(before);
    let other = |it: &&model_apiserver::Entry| !matches!(it.verb.as_str(), "list" | "watch");
    assert_eq!(after.iter().filter(other).count(), 0, "{after:?}");
    let stored: Option<Value> = model.object(TOYS, "one", "a");
    assert!(stored.is_some(), "the object itself stays");
}

/// The object is due while its namespace is away. When the namespace is back, a list shows no change of the object.
#[tokio::test(start_paused = true)]
async fn w26_namespace_that_is_away_for_a_moment_loses_no_scheduled_reconcile() {
    let (model, calls) = (filled(), Calls::default());
    let noted = calls.clone();
    let _harness = run(&model, &[SELECTOR], move |toy, _| {
        noted.note(&toy);
        async { Ok(Action::After(10 * MOMENT)) }
    });
    sleep(9 * MOMENT).await;
    assert_eq!(calls.count(), 1);
    plan(&model, &format!("before list {TOYS} #1 -> delay 5s"));
    label(&model, "one", "y").await;
    sleep(2 * MOMENT).await;
    assert_eq!(calls.count(), 1, "nothing is reconciled in a namespace that is away");
    label(&model, "one", "x").await;
    sleep(10 * MOMENT).await;
    assert_eq!(calls.count(), 2);
}

/// The Role of one namespace is missing, or the API server fails only its lists.
#[tokio::test(start_paused = true)]
async fn w22_namespace_that_cannot_be_listed_does_not_hold_up_the_others() {
    for resource in [TOYS, "services.core"] {
        for answer in ["403", "503"] {
            let model = filled();
            plan(&model, &format!("before list {resource} two/* -> answer {answer}"));
            let harness = run(&model, &["--watch-namespaces=one,two"], keep);
            sleep(10 * MOMENT).await;
            assert_eq!((port(&model, "one"), port(&model, "two")), (Some(1), None), "{resource} {answer}");
            resize(&model, "one", 2).await;
            assert_eq!(port(&model, "one"), Some(2), "{resource} {answer}");
            sleep(10 * MOMENT).await;
            let requeues = || {
                value(
                    &harness.scrape(),
                    r#"controller_runtime_reconcile_total{controller="toy",result="requeue_after"}"#,
                )
            };
            let before = requeues();
            sleep(600 * MOMENT).await;
            assert_eq!(requeues(), before, "an object that waits is not reconciled: {resource} {answer}");
            assert_eq!(port(&model, "two"), None, "its children may exist: {resource} {answer}");
            model.set_faults(NoFaults);
            sleep(15 * MOMENT).await;
            assert_eq!(port(&model, "two"), Some(1), "{resource} {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn object_is_cleaned_up_although_its_children_cannot_be_listed() {
    for answer in ["403", "503"] {
        let model = filled();
        model.put(json!({
            "apiVersion": "tests.example.com/v1", "kind": "Toy",
            "metadata": {
                "name": "leaving", "namespace": "two", "generation": 1, "finalizers": ["tests.example.com/farewell"],
            },
            "spec": {"size": 1},
        }));
        let api: Api<Toy> = Api::namespaced(model.client(), "two");
        api.delete("leaving", &DeleteParams::default()).await.expect("the API server accepts the deletion");
        assert!(model.object(TOYS, "two", "leaving").is_some(), "its finalizer holds it");
        plan(&model, &format!("before list services.core two/* -> answer {answer}"));
        let clock = model.clone();
        let setup = |manager: &mut Manager| {
            let controller = Controller::of::<Toy>()
                .owns::<Service>()
                .on_delete("tests.example.com/farewell", |_, _| async { Ok(Deletion::Finished) });
            manager.add(controller.reconcile(keep));
        };
        let flags = ["--watch-namespaces=one,two", NO_RESYNC];
        let _harness = Harness::start(&Toys(setup), &flags, model.client_named("toys"), move || clock.now());
        sleep(10 * MOMENT).await;
        assert_eq!(model.object(TOYS, "two", "leaving"), None, "{answer}");
        assert_eq!(port(&model, "two"), None, "the other object still waits: {answer}");
    }
}

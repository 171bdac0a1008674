//! Which changes of an object wake a controller that filters them.

use std::{hash::Hash, sync::Arc, time::Duration};

use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use manager::{Action, Controller, Manager, harness::Harness};
use model_apiserver::Model;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::kit::{Calls, MOMENT, NO_RESYNC, Toy, Toys, change, model, put};

const ASKED: &str = "tests.example.com/asked";

/// Starts a controller whose reconciles last ten seconds, and that only changes of `part` wake.
fn run<P: Hash>(model: &Model, calls: &Calls, part: impl Fn(&Toy) -> P + Clone + Send + Sync + 'static) -> Harness {
    let (clock, calls) = (model.clone(), calls.clone());
    let setup = move |manager: &mut Manager| {
        let calls = calls.clone();
        let reconcile = move |toy: Arc<Toy>, _| {
            calls.note(&toy);
            async {
                sleep(10 * MOMENT).await;
                Ok(Action::Done)
            }
        };
        manager.add(Controller::of::<Toy>().wakes_on(part.clone()).reconcile(reconcile));
    };
    Harness::start(&Toys(setup), &[NO_RESYNC], model.client_named("toys"), move || clock.now())
}

fn asked(toy: &Toy) -> Option<String> {
    toy.annotations().get(ASKED).cloned()
}

/// Patches the object as another client does, and waits for half a reconcile.
async fn patch(model: &Model, patch: Value) {
    let api: Api<Toy> = Api::namespaced(model.client(), "default");
    api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.expect("the API server accepts the patch");
    sleep(5 * MOMENT).await;
}

async fn annotate(model: &Model, name: &str, value: &str) {
    patch(model, json!({"metadata": {"annotations": {name: value}}})).await;
}

/// Starts a controller without a filter, which writes a status.
fn run_without_a_filter(model: &Model, calls: &Calls) -> Harness {
    let calls = calls.clone();
    crate::kit::run(model, &[], move |toy, context| {
        calls.note(&toy);
        crate::kit::report_size(toy, context)
    })
}

#[tokio::test(start_paused = true)]
async fn foreign_write_that_changes_only_managed_fields_wakes_no_object() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a"]);
    let _harness = run_without_a_filter(&model, &calls);
    sleep(20 * MOMENT).await;
    let toy = || model.object(crate::kit::TOYS, "default", "a").expect("it exists");
    let before = calls.count();
    let api: Api<Toy> = Api::namespaced(model.client(), "default");
    let mine =
        json!({"apiVersion": "tests.example.com/v1", "kind": "Toy", "metadata": {"name": "a"}, "spec": {"size": 1}});
    let version = toy()["metadata"]["resourceVersion"].clone();
    api.patch("a", &PatchParams::apply("other").force(), &Patch::Apply(&mine)).await.expect("the patch is accepted");
    sleep(5 * MOMENT).await;
    assert_ne!(toy()["metadata"]["resourceVersion"], version, "it was written");
    assert_eq!(calls.count(), before);

    let version = toy()["metadata"]["resourceVersion"].clone();
    let mine = json!({
        "apiVersion": "tests.example.com/v1", "kind": "Toy", "metadata": {"name": "a"},
        "status": {"observedGeneration": toy()["status"]["observedGeneration"]},
    });
    api.patch_status("a", &PatchParams::apply("other").force(), &Patch::Apply(&mine)).await.expect("it is accepted");
    sleep(5 * MOMENT).await;
    assert_ne!(toy()["metadata"]["resourceVersion"], version, "its status was written");
    assert_eq!(calls.count(), before);

    let patch = Patch::Merge(json!({"status": {"conditions": [], "lastHandledReconcileAt": "theirs"}}));
    api.patch_status("a", &PatchParams::default(), &patch).await.expect("the API server accepts the patch");
    sleep(5 * MOMENT).await;
    assert_eq!(calls.count(), before + 1);
    let status = toy()["status"].clone();
    assert_eq!(status["conditions"].as_array().map(Vec::len), Some(2), "they are put back");
    assert_eq!(status["lastHandledReconcileAt"], Value::Null);
}

/// A field that the type of the operator's status lacks is not ours.
#[tokio::test(start_paused = true)]
async fn status_field_of_another_controller_wakes_no_object_and_stays() {
    let (model, calls) = (Model::new(), Calls::default());
    let mut definition = serde_json::to_value(manager::normalize(&Toy::crd())).expect("JSON");
    let status = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    status["properties"]["theirs"] = json!({"type": "integer"});
    model.install(&definition);
    put(&model, &["a"]);
    let _harness = run_without_a_filter(&model, &calls);
    sleep(20 * MOMENT).await;
    let toy = || model.object(crate::kit::TOYS, "default", "a").expect("it exists");
    let (before, ours) = (calls.count(), toy()["status"]["conditions"].clone());
    assert!(before > 0);
    let api: Api<Toy> = Api::namespaced(model.client(), "default");
    let parameters = PatchParams { field_manager: Some("other".to_owned()), ..PatchParams::default() };
    for theirs in 1..=3 {
        let patch = Patch::Merge(json!({"status": {"theirs": theirs}}));
        api.patch_status("a", &parameters, &patch).await.expect("the API server accepts the patch");
        sleep(5 * MOMENT).await;
        assert_eq!((&toy()["status"]["theirs"], calls.count()), (&json!(theirs), before));
    }
    // A status of ours leaves the field alone.
    change(&model, "a", 2).await;
    sleep(5 * MOMENT).await;
    assert_ne!(toy()["status"]["conditions"], ours);
    assert_eq!((&toy()["status"]["theirs"], calls.count()), (&json!(3), before + 1));
}

/// The operator owns all conditions, so any change of them by another client is a change of a field of ours.
#[tokio::test(start_paused = true)]
async fn condition_of_another_client_wakes_the_object_once_and_is_removed() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a"]);
    let _harness = run_without_a_filter(&model, &calls);
    sleep(20 * MOMENT).await;
    let conditions =
        || model.object(crate::kit::TOYS, "default", "a").expect("it exists")["status"]["conditions"].clone();
    let (ours, before) = (conditions(), calls.count());
    let mut all = ours.as_array().expect("conditions").clone();
    let time = "2026-01-01T00:00:00Z";
    all.push(json!({"type": "Theirs", "status": "True", "reason": "R", "message": "", "lastTransitionTime": time}));
    let api: Api<Toy> = Api::namespaced(model.client(), "default");
    let patch = Patch::Merge(json!({"status": {"conditions": all}}));
    api.patch_status("a", &PatchParams::default(), &patch).await.expect("the API server accepts the patch");
    sleep(5 * MOMENT).await;
    assert_eq!(calls.count(), before + 1);
    assert_eq!(conditions(), ours);
}

#[tokio::test(start_paused = true)]
async fn only_changes_of_the_part_wake_the_object() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a"]);
    let _harness = run(&model, &calls, asked);
    sleep(20 * MOMENT).await;
    assert_eq!(calls.count(), 1);
    annotate(&model, "note", "another").await;
    sleep(20 * MOMENT).await;
    assert_eq!(calls.count(), 1, "another annotation");
    annotate(&model, ASKED, "1").await;
    sleep(20 * MOMENT).await;
    assert_eq!(calls.count(), 2, "the annotation of the part");
    change(&model, "a", 2).await;
    sleep(20 * MOMENT).await;
    assert_eq!(calls.count(), 3, "the generation");
    annotate(&model, "tests.example.com/reconcile-requested-at", "1").await;
    sleep(20 * MOMENT).await;
    assert_eq!(calls.count(), 4, "a user requests a reconcile");
    annotate(&model, "tests.example.com/paused", "true").await;
    annotate(&model, "tests.example.com/paused", "false").await;
    sleep(20 * MOMENT).await;
    assert_eq!(calls.count(), 5, "the end of the pause");
    let api: Api<Toy> = Api::namespaced(model.client(), "default");
    api.delete("a", &DeleteParams::default()).await.expect("the API server deletes it");
    put(&model, &["a"]);
    sleep(20 * MOMENT).await;
    assert_eq!(calls.count(), 6, "another object of the same name");
}

#[tokio::test(start_paused = true)]
async fn change_during_a_reconcile_is_acted_on_after_it() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a"]);
    let _harness = run(&model, &calls, asked);
    sleep(MOMENT).await;
    annotate(&model, ASKED, "1").await;
    assert_eq!(calls.count(), 1);
    sleep(10 * MOMENT).await;
    assert_eq!(calls.count(), 2);
    sleep(10 * MOMENT).await;
    change(&model, "a", 2).await;
    sleep(MOMENT).await;
    assert_eq!(calls.count(), 3);
    annotate(&model, ASKED, "2").await;
    annotate(&model, ASKED, "1").await;
    sleep(20 * MOMENT).await;
    assert_eq!(calls.count(), 3, "the object is again what the reconcile acted on");
}

#[tokio::test(start_paused = true)]
async fn every_change_wakes_if_the_part_panics() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a"]);
    let _harness = run(&model, &calls, |_: &Toy| -> u8 { panic!("a defect of the operator") });
    for value in 0..3 {
        sleep(20 * MOMENT).await;
        annotate(&model, "note", &value.to_string()).await;
    }
    sleep(20 * MOMENT).await;
    assert_eq!(calls.count(), 4);
}

/// An object that polls more often than the resync needs no resync.
#[tokio::test(start_paused = true)]
async fn resync_leaves_out_objects_that_are_requeued_sooner() {
    for (requeue, expected) in [(Duration::from_mins(5), 13), (Duration::from_hours(5), 7)] {
        let (model, calls) = (model(), Calls::default());
        put(&model, &["a"]);
        let (clock, counted) = (model.clone(), calls.clone());
        let setup = move |manager: &mut Manager| {
            let calls = counted.clone();
            let reconcile = move |toy: Arc<Toy>, _| {
                calls.note(&toy);
                async move { Ok(Action::After(requeue)) }
            };
            manager.add(Controller::of::<Toy>().reconcile(reconcile));
        };
        let _harness = Harness::start(&Toys(setup), &[], model.client_named("toys"), move || clock.now());
        sleep(Duration::from_mins(61)).await;
        assert!(
            calls.count().abs_diff(expected) <= usize::from(requeue > Duration::from_hours(1)),
            "{}",
            calls.count()
        );
    }
}

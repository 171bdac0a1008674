//! Annotations that a reconcile writes to its own object.

use std::sync::{Arc, Mutex};

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use manager::{Action, Context, Controller, Manager, harness::Harness};
use model_apiserver::Model;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::kit::{MOMENT, NO_RESYNC, TOYS, Toy, Toys, model, put, reconcile_errors};

/// The annotation that each object has from the beginning.
const NOTE: &str = "note";
const ADDED: &str = "added";

/// The values of [`NOTE`] at the beginning of each reconcile.
type Read = Arc<Mutex<Vec<Option<String>>>>;

/// Starts a controller whose first reconciles last ten seconds and then write this annotation. They leave the value of a user as
/// it is.
fn run(model: &Model, read: &Read, name: &'static str, value: Option<&'static str>) -> Harness {
    let (clock, read) = (model.clone(), read.clone());
    let setup = move |manager: &mut Manager| {
        let read = read.clone();
        let reconcile = move |toy: Arc<Toy>, context: Context<Toy>| {
            let note = toy.annotations().get(NOTE).cloned();
            read.lock().expect("no panic").push(note.clone());
            async move {
                if note.as_deref() != Some("theirs") {
                    sleep(10 * MOMENT).await;
                    drop(context.annotate(&[(name, value)]).await?);
                }
                Ok(Action::Done)
            }
        };
        manager.add(Controller::of::<Toy>().annotates().reconcile(reconcile));
    };
    Harness::start(&Toys(setup), &[NO_RESYNC], model.client_named("toys"), move || clock.now())
}

/// Runs a reconcile that writes this annotation while a user changes [`NOTE`]. Returns what reconciles have read, the annotations
/// at the end, and the number of failed reconciles.
async fn changed_meanwhile(
    name: &'static str,
    value: Option<&'static str>,
) -> (Vec<Option<String>>, Value, Option<f64>) {
    let (model, read) = (model(), Read::default());
    put(&model, &["a"]);
    let harness = run(&model, &read, name, value);
    sleep(5 * MOMENT).await;
    let api: Api<Toy> = Api::namespaced(model.client(), "default");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {NOTE: "theirs"}}}));
    api.patch("a", &PatchParams::default(), &patch).await.expect("the API server accepts the patch");
    sleep(60 * MOMENT).await;
    let read = read.lock().expect("no panic").clone();
    let toy = model.object(TOYS, "default", "a").expect("it exists");
    (read, toy["metadata"]["annotations"].clone(), reconcile_errors(&harness))
}

#[tokio::test(start_paused = true)]
async fn annotation_that_a_user_changes_meanwhile_is_neither_removed_nor_replaced() {
    for value in [None, Some("ours")] {
        let (read, annotations, errors) = changed_meanwhile(NOTE, value).await;
        assert_eq!(read.last().cloned().flatten().as_deref(), Some("theirs"), "{value:?}");
        assert_eq!((annotations, errors), (json!({NOTE: "theirs"}), Some(1.0)), "{value:?}");
    }
}

/// Such a write destroys nothing, so it needs no other try.
#[tokio::test(start_paused = true)]
async fn new_annotation_is_written_though_a_user_changes_another_one_meanwhile() {
    let (read, annotations, errors) = changed_meanwhile(ADDED, Some("ours")).await;
    assert_eq!(read.last().cloned().flatten().as_deref(), Some("theirs"));
    assert_eq!((annotations, errors), (json!({NOTE: "theirs", ADDED: "ours"}), Some(0.0)));
}

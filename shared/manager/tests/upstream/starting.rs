//! The time before the first reconcile.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Service;
use manager::{Action, Context, harness::Harness};
use model_apiserver::{Model, Planned};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::kit::{Calls, MOMENT, Toy, labels, model, put, run};

/// A model with a primary and its child, in which the list of children hangs.
fn hanging() -> Model {
    let model = model();
    put(&model, &["a"]);
    model.put(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "a", "namespace": "default", "labels": labels("a")},
        "spec": {"clusterIP": "None"},
    }));
    model.set_faults(Planned::new(&"before list services.core #1 -> stall".parse().expect("a plan")));
    model
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_all_caches_are_filled() {
    let model = hanging();
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let noted = seen.clone();
    let _harness = run(&model, &[], move |_: Arc<Toy>, context: Context<Toy>| {
        noted.lock().expect("no panic").push(context.labelled::<Service>().len());
        async { Ok(Action::Done) }
    });
    sleep(60 * MOMENT).await;
    assert!(seen.lock().expect("no panic").is_empty(), "no reconcile before all caches are filled");

    model.release();
    sleep(MOMENT).await;
    let seen = seen.lock().expect("no panic");
    assert!(!seen.is_empty() && seen.iter().all(|children| *children == 1), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn stop_during_cache_sync_takes_effect_at_once() {
    let model = hanging();
    let calls = Calls::default();
    let noted = calls.clone();
    let mut harness: Harness = run(&model, &[], move |toy, _| {
        noted.note(&toy);
        async { Ok(Action::Done) }
    });
    sleep(MOMENT).await;
    timeout(MOMENT, harness.stop()).await.expect("the stop takes effect at once");
    assert_eq!(calls.count(), 0);
}

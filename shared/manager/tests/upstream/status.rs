//! Status writes while other processes write the same status.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager::{Action, Context, Error, Health, Verdict, harness::Harness};
use model_apiserver::{Model, NoFaults, Planned};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::kit::{
    MOMENT, TOYS, Toy, is_ready, keep, model, plan, port, put, ready, reconcile_errors, report_size, run, until,
};

/// Keeps one Service, and writes the number of earlier reconciles into the message of `Ready`.
async fn count(toy: Arc<Toy>, context: Context<Toy>, looks: Arc<AtomicUsize>) -> Result<Action, Error> {
    keep(toy, context.clone()).await?;
    let look = looks.fetch_add(1, Ordering::Relaxed);
    let health = Health::of(Verdict::yes("Ready", format!("look {look}")));
    context.apply_status_at_once(health.into()).await?;
    Ok(Action::Done)
}

fn counting(model: &Model) -> Harness {
    let looks: Arc<AtomicUsize> = Arc::default();
    run(model, &[], move |toy, context| count(toy, context, looks.clone()))
}

/// Writes the condition `Ready` as another process does. The watch of this process delivers it an hour late.
async fn write_unseen(model: &Model, condition: &Value) {
    plan(model, "frame * toys.tests.example.com -> delay 3600s");
    let api: Api<Toy> = Api::namespaced(model.client_named("before"), "default");
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    api.patch_status("a", &PatchParams::default(), &patch).await.expect("the API server accepts the status");
}

/// Deletes the Service as another client does, which causes a reconcile.
async fn trigger_reconcile(model: &Model) {
    model.take("services", "default", "a");
    until("the Service is created again", || port(model, "a") == Some(1)).await;
}

/// The watch of a new leader lags behind, so it knows an older status than the one that the former leader wrote.
#[tokio::test(start_paused = true)]
async fn transition_time_never_goes_back_with_a_stale_status() {
    let model = model();
    put(&model, &["a"]);
    let _harness = counting(&model);
    until("it is ready", || ready(&model, "a")["status"] == "True").await;
    sleep(60 * MOMENT).await;
    let time = "2026-01-01T00:01:00Z";
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "Missing", "message": "", "observedGeneration": 1,
        "lastTransitionTime": time,
    });
    write_unseen(&model, &condition).await;
    trigger_reconcile(&model).await;
    let took = until("it is ready again", || ready(&model, "a")["status"] == "True").await;
    assert!(took < MOMENT, "{took:?}, although the event is an hour late");
    assert!(ready(&model, "a")["lastTransitionTime"].as_str() >= Some(time), "{}", ready(&model, "a"));
}

/// A time has several notations. In another notation, the stored status never equals the one that we would write.
#[tokio::test(start_paused = true)]
async fn status_in_another_time_notation_is_rewritten() {
    let model = model();
    put(&model, &["a"]);
    let _harness = counting(&model);
    until("it is ready", || ready(&model, "a")["status"] == "True").await;
    let mut condition = ready(&model, "a");
    condition["lastTransitionTime"] = json!("2026-01-01T02:00:00.000+02:00");
    write_unseen(&model, &condition).await;
    model.set_faults(NoFaults);
    sleep(MOMENT).await;
    trigger_reconcile(&model).await;
    let is_rewritten = || ready(&model, "a")["lastTransitionTime"] == "2026-01-01T00:00:00Z";
    until("it is written", is_rewritten).await;
}

/// Changes the object like this right before the operator's first write of its status.
fn interfere(model: &Model, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Arc<Planned> {
    let (stage, faults) = (model.clone(), format!("before patch {TOYS}/status #1 -> signal interfere"));
    let planned = Arc::new(Planned::with_signals(&faults.parse().expect("a plan"), move |_| {
        let mut toy = stage.object(TOYS, "default", "a").expect("the object");
        change(&mut toy);
        stage.put(toy);
        Box::pin(std::future::ready(()))
    }));
    model.set_shared_faults(planned.clone());
    planned
}

#[tokio::test(start_paused = true)]
async fn first_status_does_not_replace_that_of_another_process() {
    let model = model();
    put(&model, &["a"]);
    let time = "2026-01-01T00:01:00Z";
    let planned = interfere(&model, move |toy| {
        toy["status"]["conditions"] = json!([{
            "type": "Ready", "status": "False", "reason": "Missing", "message": "", "observedGeneration": 1,
            "lastTransitionTime": time,
        }]);
    });
    let _harness = run(&model, &[], report_size);
    until("it is ready", || is_ready(&model, "a")).await;
    assert!(planned.unused().is_empty());
    assert!(ready(&model, "a")["lastTransitionTime"].as_str() >= Some(time), "{}", ready(&model, "a"));
}

#[tokio::test(start_paused = true)]
async fn first_status_is_written_although_a_user_changes_the_object() {
    let model = model();
    put(&model, &["a"]);
    let planned = interfere(&model, |toy| toy["metadata"]["annotations"]["note"] = json!("another"));
    let harness = run(&model, &[], report_size);
    let took = until("it is ready", || is_ready(&model, "a")).await;
    assert!(took < MOMENT, "{took:?}");
    assert!(planned.unused().is_empty());
    assert_eq!(reconcile_errors(&harness), Some(0.0));
}

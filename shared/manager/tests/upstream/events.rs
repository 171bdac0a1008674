//! Events reach the API server, also if it refused the first of a series.

use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::DeleteParams};
use manager::{Action, Context, Error, EventType};
use model_apiserver::Model;
use serde_json::json;
use tokio::time::sleep;

use crate::kit::{MOMENT, Toy, change, model, plan, put, run};

/// Reports the same trouble in each reconcile.
async fn complain(_: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    context.event(EventType::Warning, "Trouble", "always the same".to_owned());
    Ok(Action::Done)
}

/// The names of the events about the trouble.
fn complaints(model: &Model) -> Vec<String> {
    let events = model.objects("events.events.k8s.io").into_iter().filter(|event| event["reason"] == "Trouble");
    events.filter_map(|event| event["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn series_whose_first_request_failed_or_whose_event_was_deleted_appears_with_its_next_event() {
    let model = model();
    plan(&model, "before create events.events.k8s.io #1 -> answer 503");
    put(&model, &["a"]);
    let _harness = run(&model, &[], complain);
    sleep(MOMENT).await;
    assert_eq!(complaints(&model), [""; 0]);
    change(&model, "a", 2).await;
    sleep(MOMENT).await;
    let [name] = complaints(&model).try_into().expect("one event");

    let events: Api<Event> = Api::namespaced(model.client(), "default");
    events.delete(&name, &DeleteParams::default()).await.expect("it is deleted");
    for size in [3, 4] {
        change(&model, "a", size).await;
        sleep(MOMENT).await;
        assert_eq!(complaints(&model), std::slice::from_ref(&name), "size {size}");
    }
}

/// A webhook may deny a request with any code. The event of the series still exists.
#[tokio::test(start_paused = true)]
async fn denied_repeat_of_an_event_does_not_create_the_event_again() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], complain);
    sleep(MOMENT).await;
    let denial = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "admission webhook \"a.b.c\" denied the request: secret \"s\" not found",
    });
    let quoted = denial.to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let planned = plan(&model, &format!("before patch events.events.k8s.io #1 -> answer 404 body=\"{quoted}\""));
    model.clear_requests();
    change(&model, "a", 2).await;
    sleep(MOMENT).await;
    assert!(planned.unused().is_empty());
    let sent = model.requests().into_iter().filter(|it| it.resource.starts_with("events")).map(|it| it.verb.as_str());
    assert_eq!(sent.collect::<Vec<_>>(), ["patch"]);
}

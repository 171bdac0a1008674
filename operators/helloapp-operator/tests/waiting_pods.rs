//! Pods that find no node, or that do not start: the user gets an event about them. In paused time.

use std::time::Duration;

use helloapp_operator::{HelloApp, HelloAppOperator};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager_testing::InMemory;
use serde_json::{Value, json};

const NAME: &str = "web";
/// A pod may wait this long before its wait is a problem.
const PATIENCE: Duration = Duration::from_secs(30);

/// The warnings about the object so far: reason and message.
fn warnings(memory: &InMemory) -> Vec<(String, String)> {
    let events = memory.model.objects("events.events.k8s.io").into_iter().filter(|event| event["type"] == "Warning");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events.map(|event| (text(&event["reason"]), text(&event["note"]))).collect()
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_for_too_long_are_reported_by_an_event() {
    let mut memory = InMemory::new(&HelloAppOperator, &[]);
    let api: Api<HelloApp> = Api::namespaced(memory.model.client(), "default");
    let object = json!({
        "apiVersion": "apps.anupam.com/v1", "kind": "HelloApp", "metadata": {"name": NAME},
        "spec": {"image": "docker.io/library/nginx:1", "size": 1},
    });
    api.patch(NAME, &PatchParams::apply("kubectl").force(), &Patch::Apply(&object)).await.expect("applied");
    memory.start();
    memory.until_quiet().await;

    let no_room = "0/1 nodes are available: 1 Insufficient memory.";
    memory.replace_pod(NAME, "web-a", &[("PodScheduled", "False", no_room)]);
    memory.pass(PATIENCE.saturating_sub(Duration::from_secs(1))).await;
    assert!(warnings(&memory).is_empty(), "it has not waited for too long yet");
    memory.pass(PATIENCE * 2).await;
    let unschedulable = ("Unschedulable".to_owned(), format!("Pod web-a: {no_room}"));
    assert_eq!(warnings(&memory), std::slice::from_ref(&unschedulable));

    memory.replace_pod(NAME, "web-b", &[("PodScheduled", "True", ""), ("PodReadyToStartContainers", "False", "")]);
    memory.pass(PATIENCE * 2).await;
    let mut told = warnings(&memory);
    told.retain(|it| *it != unschedulable);
    let [(reason, note)]: [(String, String); 1] = told.try_into().expect("one more event");
    assert_eq!(reason, "PodsNotStarting");
    assert!(note.starts_with("Pod web-b: its volumes or its network are not ready"), "{note}");
}

//! A foreign object has the name of a child.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use manager::{Action, Context, Creation};
use model_apiserver::Model;
use serde_json::{Value, json};

use crate::kit::{Calls, MOMENT, TOYS, Toy, change, keeper, labels, model, port, put, ready, run, until};

const EVENT: &str = "Resource \"a\" already exists and is not managed by Toy";

fn degraded(toy: &Value) -> Option<&str> {
    let conditions = toy["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == "Degraded" && it["status"] == "True")?["message"].as_str()
}

/// The event has the text of sample-controller, and the condition also says what to do.
#[tokio::test(start_paused = true)]
async fn conflict_says_which_object_it_is_and_what_to_do() {
    let owner = |version: &str, kind: &str, name: &str| json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true}]);
    let cases = [
        (json!([]), "delete this Service if it is not needed, or use another name"),
        (
            owner("tests.example.com/v1", "Toy", "other"),
            "the Service belongs to the object \"other\", so use another name",
        ),
        (owner("other.example.com/v1", "Toy", "a"), "the Service belongs to the object \"a\", so use another name"),
        (owner("tests.example.com/v1", "Doll", "a"), "the Service belongs to the object \"a\", so use another name"),
    ];
    for (owners, cure) in cases {
        let model = model();
        put(&model, &["a"]);
        model.put(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "default", "ownerReferences": owners},
            "spec": {"ports": [{"port": 80}]},
        }));
        let _harness = run(&model, &[], keeper(&Calls::default()));
        let toy = || model.object(TOYS, "default", "a").expect("the object");
        until("the conflict", || degraded(&toy()).is_some()).await;
        assert_eq!(degraded(&toy()), Some(&*format!("{EVENT}; {cure}")));
        tokio::time::sleep(MOMENT).await;
        let events = model.objects("events.events.k8s.io");
        let told = events.iter().find(|event| event["reason"] == "ErrResourceExists").expect("an event");
        assert_eq!(told["note"], EVENT);
    }
}

/// A model with an object that was created again, and the child of the former one, which still exists.
fn with_a_leftover() -> Model {
    let model = model();
    put(&model, &["a"]);
    model.put(json!({
        "apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]},
        "metadata": {
            "name": "a", "namespace": "default",
            "labels": labels("a"),
            "ownerReferences": [{
                "apiVersion": "tests.example.com/v1", "kind": "Toy", "name": "a", "uid": "former", "controller": true,
            }],
        },
    }));
    model
}

#[tokio::test(start_paused = true)]
async fn child_of_an_earlier_object_waits_for_the_garbage_collector() {
    let model = with_a_leftover();
    let _harness = run(&model, &[], keeper(&Calls::default()));
    let toy = || model.object(TOYS, "default", "a").expect("the object");
    let reason = || ready(&model, "a")["reason"].clone();
    until("a status", || !reason().is_null()).await;
    assert_eq!(reason(), "WaitingForGarbageCollection");
    assert_eq!(degraded(&toy()), None, "there is nothing to do for a user");
    model.collect();
    let took = until("a Service of its own", || port(&model, "a") == Some(1)).await;
    assert!(took < MOMENT, "the deletion wakes the object: {took:?}");
    tokio::time::sleep(MOMENT).await;
    assert_eq!(degraded(&toy()), None);
    assert!(model.objects("events.events.k8s.io").iter().all(|event| event["reason"] != "ErrResourceExists"));
}

/// The garbage collector leaves a child alone if the `apiVersion` of its owner is no longer served.
#[tokio::test(start_paused = true)]
async fn child_of_an_earlier_object_that_is_never_collected_becomes_a_conflict() {
    let model = with_a_leftover();
    let _harness = run(&model, &[], keeper(&Calls::default()));
    let toy = || model.object(TOYS, "default", "a").expect("the object");
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(degraded(&toy()), None, "the garbage collector is slow");
    let took = until("the conflict", || degraded(&toy()).is_some()).await;
    assert!(took < Duration::from_mins(3), "{took:?}");
    let cure = "the garbage collector does not delete this Service of an earlier Toy of this name, so delete it, or remove its \
                owner reference";
    assert_eq!(degraded(&toy()), Some(&*format!("{EVENT}; {cure}")));
    model.take("services", "default", "a");
    let took = until("a Service of its own", || port(&model, "a") == Some(1)).await;
    assert!(took < MOMENT, "the deletion wakes the object: {took:?}");
    tokio::time::sleep(MOMENT).await;
    assert_eq!(degraded(&toy()), None);
}

/// Later the name counts as taken, so that a caller that waits for the garbage collector does not wait for ever.
#[tokio::test(start_paused = true)]
async fn create_finds_the_child_of_an_earlier_object_dying() {
    let model = with_a_leftover();
    let found: Arc<Mutex<Vec<&str>>> = Arc::default();
    let noted = found.clone();
    let _harness = run(&model, &[], move |toy: Arc<Toy>, context: Context<Toy>| {
        let noted = noted.clone();
        async move {
            let service = json!({"metadata": {"name": toy.name_any()}, "spec": {"ports": [{"port": 80}]}});
            let creation = context.create::<Service>(serde_json::from_value(service).expect("a Service")).await?;
            let found = match creation {
                Creation::Dying => "dying",
                Creation::Taken => "taken",
                _ => "another",
            };
            noted.lock().expect("no panic").push(found);
            Ok(Action::Done)
        }
    });
    tokio::time::sleep(MOMENT).await;
    assert_eq!(*found.lock().expect("no panic"), ["dying"]);
    tokio::time::sleep(Duration::from_mins(5)).await;
    change(&model, "a", 2).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(found.lock().expect("no panic").last(), Some(&"taken"));
}

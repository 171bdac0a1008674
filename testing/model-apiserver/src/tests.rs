//! Tests of features that the comparison with a real server does not cover: faults, compaction, garbage collection, time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fault_plan::Plan;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::{ApiResource, GroupVersionKind},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};

use crate::{Collecting, Kind, Model, Planned, RequestInfo, Verb};

fn maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).expect("a ConfigMap")
}

fn plan(text: &str) -> Plan {
    text.parse().expect(text)
}

fn merge(patch: Value) -> Patch<Value> {
    Patch::Merge(patch)
}

async fn label(api: &Api<ConfigMap>, name: &str, value: &str) -> kube::Result<ConfigMap> {
    let patch = merge(json!({"metadata": {"labels": {"x": value}}}));
    api.patch(name, &PatchParams::default(), &patch).await
}

fn described(event: WatchEvent<ConfigMap>) -> String {
    let of = |type_: &str, map: ConfigMap| {
        let label = map.metadata.labels.and_then(|labels| labels.get("x").cloned()).unwrap_or_default();
        format!("{type_} {} {label}", map.metadata.name.unwrap_or_default()).trim_end().to_owned()
    };
    match event {
        WatchEvent::Added(map) => of("added", map),
        WatchEvent::Modified(map) => of("modified", map),
        WatchEvent::Deleted(map) => of("deleted", map),
        WatchEvent::Bookmark(bookmark) => format!("bookmark {}", bookmark.metadata.resource_version),
        WatchEvent::Error(status) => format!("error {} {}", status.code, status.reason),
    }
}

/// Reads a watch until it ends or has been silent for a second.
async fn seen(api: &Api<ConfigMap>, parameters: &WatchParams, from: &str) -> Vec<String> {
    let events = api.watch(parameters, from).await.expect("a watch");
    let mut events = std::pin::pin!(events);
    let mut out = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(1), events.next()).await {
        let Ok(event) = event else {
            out.push("broken".to_owned());
            break;
        };
        out.push(described(event));
    }
    out
}

#[tokio::test(start_paused = true)]
async fn lost_request_has_no_effect_but_lost_answer_has() {
    let model = Model::new();
    model.set_faults(Planned::new(&plan(
        "before create configmaps.core */a #1 -> drop; after create configmaps.core */b #1 -> drop",
    )));
    let api = maps(model.client_named("one"));
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &map(name)).await.expect_err("the connection breaks");
    }
    let names: Vec<Value> = model.objects("configmaps").iter().map(|it| it["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["b"]);
    let log = model.requests();
    let told: Vec<_> = log.iter().map(|it| (&*it.name, it.code, it.delivered, it.changed, &*it.client)).collect();
    assert_eq!(told, [("a", None, false, false, "one"), ("b", Some(201), false, true, "one")]);
    let again = api.create(&PostParams::default(), &map("b")).await.expect_err("the object exists");
    assert!(matches!(again, kube::Error::Api(status) if status.is_already_exists()));
}

#[tokio::test(start_paused = true)]
async fn answers_can_be_replaced_delayed_repeated_and_cut_short() {
    let model = Model::new();
    let api = maps(model.client());
    let now = tokio::time::Instant::now();
    let code = |error: kube::Error| if let kube::Error::Api(status) = error { status.code } else { 0 };
    for (text, expected, there) in [
        ("before create * -> answer 503", Err(503), false),
        ("after create * -> answer 500", Err(500), true),
        ("before create * -> delay 3s", Ok(()), true),
        ("before create * -> duplicate", Err(409), true),
        ("after create * -> truncate 10", Err(0), true),
    ] {
        model.set_faults(Planned::new(&plan(text)));
        let answer = api.create(&PostParams::default(), &map("a")).await;
        assert_eq!(answer.map(drop).map_err(code), expected, "{text}");
        assert_eq!(model.take("configmaps", "default", "a").is_some(), there, "{text}");
    }
    assert_eq!(now.elapsed().as_secs(), 3, "paused time advances automatically");
}

#[tokio::test(start_paused = true)]
async fn delivered_signal_precedes_the_next_request() {
    let model = Model::new();
    let count = Arc::new(AtomicU32::new(0));
    let faults = {
        let (count, model) = (count.clone(), model.clone());
        let kill = move |_: &str| -> crate::Signalled {
            let (count, writes) = (count.clone(), u32::try_from(model.requests().len()).unwrap_or_default());
            Box::pin(async move { count.store(writes, Ordering::Relaxed) })
        };
        Arc::new(Planned::with_signals(&plan("delivered create configmaps.core #1 -> signal kill"), kill))
    };
    model.set_shared_faults(faults.clone());
    let api = maps(model.client());
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &map(name)).await.expect("created");
    }
    assert_eq!(count.load(Ordering::Relaxed), 1, "the signal came after the first request");
    assert!(faults.unused().is_empty());
}

#[tokio::test(start_paused = true)]
async fn killed_process_gets_no_answer_to_a_request_that_was_handled() {
    let (model, alive) = (Model::new(), Arc::new(AtomicBool::new(true)));
    let killed = alive.clone();
    let kill = move |_: &str| -> crate::Signalled {
        killed.store(false, Ordering::Relaxed);
        Box::pin(async {})
    };
    model.set_faults(Planned::with_signals(&plan("after create configmaps.core #1 -> signal kill"), kill));
    let api = maps(model.client_while(alive, "killed"));
    let (parameters, created) = (PostParams::default(), map("a"));
    let answer = tokio::time::timeout(Duration::from_hours(1), api.create(&parameters, &created)).await;
    assert!(answer.is_err(), "{answer:?}");
    assert!(model.object("configmaps", "default", "a").is_some(), "the API server has handled the request");
}

#[tokio::test]
async fn late_request_takes_effect_without_faults_and_is_not_logged() {
    let model = Model::new();
    maps(model.client()).create(&PostParams::default(), &map("a")).await.expect("created");
    model.set_faults(Planned::new(&plan("before delete configmaps.core -> drop")));
    let logged = model.requests().len();
    let request = http::Request::delete("/api/v1/namespaces/default/configmaps/a").body(()).expect("a request");
    model.arrive_late(&RequestInfo::read("late", &request.into_parts().0, Bytes::new()));
    assert!(model.object("configmaps", "default", "a").is_none());
    assert_eq!(model.requests().len(), logged);
}

#[tokio::test(start_paused = true)]
async fn watch_faults_change_the_delivered_events() {
    for (text, expected) in [
        ("", vec!["modified a 1", "modified b 2", "modified a 3"]),
        (
            "frame * configmaps.core */a #1 -> duplicate",
            vec!["modified a 1", "modified a 1", "modified b 2", "modified a 3"],
        ),
        ("frame * configmaps.core */b -> cut", vec!["modified a 1", "modified b 2"]),
        ("frame * configmaps.core */b -> gone", vec!["modified a 1", "error 410 Expired"]),
        ("frame * configmaps.core */a #1 -> hold", vec!["modified b 2", "modified a 3"]),
        ("frame * configmaps.core */b -> hold", vec!["modified a 1", "modified a 3"]),
        ("frame * configmaps.core */b -> stall", vec!["modified a 1"]),
        ("frame * configmaps.core */b -> drop", vec!["modified a 1", "modified a 3"]),
        ("frame * configmaps.core */b -> truncate 20", vec!["modified a 1", "broken"]),
        ("after watch configmaps.core -> cut 2", vec!["modified a 1", "modified b 2"]),
    ] {
        let model = Model::new();
        let api = maps(model.client());
        for name in ["a", "b"] {
            api.create(&PostParams::default(), &map(name)).await.expect("created");
        }
        let from = model.version().to_string();
        for (name, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
            label(&api, name, value).await.expect("labelled");
        }
        if !text.is_empty() {
            model.set_faults(Planned::new(&plan(text)));
        }
        assert_eq!(seen(&api, &WatchParams::default(), &from).await, expected, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn held_events_are_delivered_on_release() {
    let model = Model::new();
    let api = maps(model.client());
    let from = model.version().to_string();
    model.set_faults(Planned::new(&plan("frame * configmaps.core */a -> hold")));
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &map(name)).await.expect("created");
    }
    let events = api.watch(&WatchParams::default(), &from).await.expect("a watch");
    let mut events = std::pin::pin!(events.map_ok(described));
    assert_eq!(events.next().await.expect("one").expect("whole"), "added b");
    model.release();
    assert_eq!(events.next().await.expect("one").expect("whole"), "added a");
}

#[tokio::test(start_paused = true)]
async fn compaction_expires_old_versions_but_not_open_watches() {
    let model = Model::new();
    let api = maps(model.client());
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &map(name)).await.expect("created");
    }
    let first = api.list(&ListParams::default().limit(1)).await.expect("a page");
    let (from, token) = (model.version().to_string(), first.metadata.continue_.expect("more"));
    let events = api.watch(&WatchParams::default(), &from).await.expect("a watch");
    let mut events = std::pin::pin!(events.map_ok(described));
    label(&api, "a", "1").await.expect("labelled");
    let second = api.list(&ListParams::default().limit(1).continue_token(&token)).await.expect("a page");
    assert_eq!(second.items[0].metadata.name.as_deref(), Some("b"));

    label(&api, "b", "2").await.expect("labelled");
    model.compact();
    assert_eq!(seen(&api, &WatchParams::default(), &from).await, ["error 410 Expired"]);
    let gone = api.list(&ListParams::default().continue_token(&token)).await.expect_err("too old");
    assert!(matches!(gone, kube::Error::Api(status) if status.code == 410));
    for expected in ["modified a 1", "modified b 2"] {
        assert_eq!(events.next().await.expect("one").expect("whole"), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn all_pages_show_the_version_of_the_first_page() {
    let model = Model::new();
    let api = maps(model.client());
    for name in ["a", "c"] {
        api.create(&PostParams::default(), &map(name)).await.expect("created");
    }
    let first = api.list(&ListParams::default().limit(1)).await.expect("a page");
    assert_eq!(first.metadata.remaining_item_count, Some(1));
    api.create(&PostParams::default(), &map("b")).await.expect("created");
    api.delete("c", &DeleteParams::default()).await.expect("deleted");
    let token = first.metadata.continue_.expect("more");
    let second = api.list(&ListParams::default().limit(5).continue_token(&token)).await.expect("a page");
    let names: Vec<_> = second.items.into_iter().filter_map(|it| it.metadata.name).collect();
    assert_eq!(names, ["c"]);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_at_its_timeout_with_a_bookmark() {
    let model = Model::new();
    let api = maps(model.client());
    let begin = tokio::time::Instant::now();
    let parameters = WatchParams { timeout: Some(90), ..WatchParams::default() };
    let events = api.watch(&parameters, &model.version().to_string()).await.expect("a watch");
    let events: Vec<String> = events.map_ok(described).try_collect().await.expect("whole");
    let version = format!("bookmark {}", model.version());
    assert_eq!(events, [version.clone(), version], "one bookmark each minute, and one before the end");
    assert_eq!(begin.elapsed().as_secs(), 90);
}

#[tokio::test(start_paused = true)]
async fn kube_watcher_works_with_paged_and_streaming_lists() {
    for config in [watcher::Config::default().page_size(1), watcher::Config::default().streaming_lists()] {
        let model = Model::new();
        let api = maps(model.client());
        for name in ["a", "b"] {
            api.create(&PostParams::default(), &map(name)).await.expect("created");
        }
        let stream = watcher(api.clone(), config).applied_objects();
        let mut names = std::pin::pin!(stream.map_ok(|map| map.metadata.name.unwrap_or_default()));
        for expected in ["a", "b"] {
            assert_eq!(names.try_next().await.expect("whole").expect("one"), expected);
        }
        api.create(&PostParams::default(), &map("c")).await.expect("created");
        assert_eq!(names.try_next().await.expect("whole").expect("one"), "c");
    }
}

fn child(name: &str, owner: &Value, blocks: bool) -> ConfigMap {
    let owner = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": blocks,
    });
    serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": [owner]}})).expect("a ConfigMap")
}

/// An owner `o` with a dependent `d`, which has a dependent `e`.
async fn family(model: &Model) -> Api<ConfigMap> {
    let api = maps(model.client());
    let mut owner = map("o");
    for name in ["o", "d", "e"] {
        owner.metadata.name = Some(name.to_owned());
        api.create(&PostParams::default(), &owner).await.expect("created");
        let stored = model.object("configmaps", "default", name).expect("there");
        owner = child("next", &stored, true);
    }
    api
}

fn names(model: &Model) -> Vec<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    model.objects("configmaps").iter().map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_the_deletion_propagation_policy() {
    let model = Model::new();
    let api = family(&model).await;
    assert_eq!(model.collect(), 0, "nothing to collect");
    api.delete("o", &DeleteParams::background()).await.expect("deleted");
    assert_eq!(names(&model), ["d", "e"]);
    assert_eq!(model.collect(), 2);
    assert!(names(&model).is_empty());

    let api = family(&model).await;
    api.delete("o", &DeleteParams::foreground()).await.expect("begun");
    assert_eq!(names(&model), ["d", "e", "o"]);
    let gone = model.version();
    model.collect();
    assert!(names(&model).is_empty());
    let deleted = seen(&api, &WatchParams::default(), &gone.to_string()).await;
    let deleted: Vec<&String> = deleted.iter().filter(|it| it.starts_with("deleted")).collect();
    assert_eq!(deleted, ["deleted e", "deleted d", "deleted o"]);

    let api = family(&model).await;
    api.delete("o", &DeleteParams::orphan()).await.expect("begun");
    model.collect();
    assert_eq!(names(&model), ["d", "e"]);
    let orphan = model.object("configmaps", "default", "d").expect("there");
    assert_eq!(orphan["metadata"].get("ownerReferences"), None);
}

#[tokio::test(start_paused = true)]
async fn a_new_object_of_the_same_name_is_not_the_owner() {
    let model = Model::new();
    let api = family(&model).await;
    api.delete("o", &DeleteParams::background()).await.expect("deleted");
    api.create(&PostParams::default(), &map("o")).await.expect("created");
    model.collect();
    assert_eq!(names(&model), ["o"]);
}

#[tokio::test(start_paused = true)]
async fn collecting_at_once_deletes_dependents_immediately() {
    let model = Model::new();
    model.set_collecting(Collecting::AtOnce);
    let api = family(&model).await;
    api.delete("o", &DeleteParams::background()).await.expect("deleted");
    assert!(names(&model).is_empty());
}

#[tokio::test(start_paused = true)]
async fn namespace_deletion_removes_its_objects() {
    let model = Model::new();
    model.add_namespace("other");
    let client = model.client();
    let (namespaces, api): (Api<Namespace>, Api<ConfigMap>) =
        (Api::all(client.clone()), Api::namespaced(client, "other"));
    let mut held = map("held");
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    for object in [held, map("free")] {
        api.create(&PostParams::default(), &object).await.expect("created");
    }
    namespaces.delete("other", &DeleteParams::default()).await.expect("begun");
    let refused = api.create(&PostParams::default(), &map("late")).await.expect_err("too late");
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, &*status.details.expect("details").causes[0].reason), (403, "NamespaceTerminating"));
    model.collect();
    assert_eq!(names(&model), ["held"]);
    api.patch("held", &PatchParams::default(), &merge(json!({"metadata": {"finalizers": null}}))).await.expect("freed");
    model.collect();
    assert!(model.object("namespaces", "", "other").is_none());
}

#[tokio::test(start_paused = true)]
async fn invalid_object_put_by_the_test_is_served_unchanged() {
    let model = Model::new();
    model.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bad", "namespace": "default"},
        "spec": {"replicas": "many"},
    }));
    let api: Api<Deployment> = Api::namespaced(model.client(), "default");
    assert!(matches!(api.get("bad").await, Err(kube::Error::SerdeError(_))));
}

#[tokio::test(start_paused = true)]
async fn model_time_is_set_by_the_test() {
    let model = Model::new();
    model.set_time("2030-05-06T07:08:09Z".parse().expect("a time"));
    tokio::time::advance(Duration::from_mins(1)).await;
    let created = maps(model.client()).create(&PostParams::default(), &map("a")).await.expect("created");
    assert_eq!(created.metadata.creation_timestamp.expect("set").0.to_string(), "2030-05-06T07:09:09Z");
}

#[tokio::test(start_paused = true)]
async fn kind_can_be_registered_and_uninstalled() {
    let model = Model::new();
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Thing"), "things");
    let api: Api<DynamicObject> = Api::namespaced_with(model.client(), "default", &resource);
    let missing = |answer: kube::Result<_>| matches!(answer, Err(kube::Error::Api(status)) if status.code == 404);
    assert!(missing(api.list(&ListParams::default()).await.map(drop)));
    let thing = DynamicObject::new("t", &resource);
    model.register(Kind::custom("example.com", "v1", "things", "Thing").with_status());
    api.create(&PostParams::default(), &thing).await.expect("created");
    model.uninstall("things.example.com");
    assert!(missing(api.list(&ListParams::default()).await.map(drop)));
    assert!(model.objects("things.example.com").is_empty());
    let verbs: Vec<Verb> = model.requests().iter().map(|it| it.verb).collect();
    assert_eq!(verbs, [Verb::List, Verb::Create, Verb::List]);
}

/// Otherwise, the client of the last request would seem to have deleted the objects.
#[tokio::test(start_paused = true)]
async fn administrator_uninstalls_a_kind() {
    let model = Model::new();
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Thing"), "things");
    model.register(Kind::custom("example.com", "v1", "things", "Thing").with_status());
    let api: Api<DynamicObject> = Api::namespaced_with(model.client_named("operator"), "default", &resource);
    api.create(&PostParams::default(), &DynamicObject::new("t", &resource)).await.expect("created");
    let version = model.version();
    model.uninstall("things.example.com");
    let writers: Vec<_> = model.changes_after(version).into_iter().map(|change| change.writer).collect();
    assert!(matches!(&writers[..], [writer] if writer.is_empty()), "{writers:?}");
}

#[tokio::test(start_paused = true)]
async fn installed_definition_is_established_unless_it_has_conditions() {
    let model = Model::new();
    let condition = |status: &Value| {
        model.install(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
            "status": status,
        }));
        let stored = model.object("customresourcedefinitions.apiextensions.k8s.io", "", "things.example.com");
        let conditions = stored.expect("the definition")["status"]["conditions"].clone();
        let found = conditions.as_array().into_iter().flatten().find(|it| it["type"] == "Established");
        found.map(|it| it["status"].clone())
    };
    assert_eq!(condition(&json!(null)), Some(json!("True")));
    assert_eq!(condition(&json!({"storedVersions": ["v1"], "conditions": null})), Some(json!("True")));
    let begun = json!({"conditions": [{"type": "Established", "status": "False"}]});
    assert_eq!(condition(&begun), Some(json!("False")));
}

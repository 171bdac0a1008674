//! Random frames of watches, and random texts in the packed store. After a list, the store has what the list has.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use fuzz::Target;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::service_fn;

use super::*;
use crate::decode::Projected;

fn pod(name: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "labels": {"app.kubernetes.io/name": "a", "app.kubernetes.io/instance": "b"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "b", "uid": "uid-b", "controller": true}],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:phase": {}}}, "subresource": "status"}],
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "restartCount": 1, "image": "i", "imageID": "", "state": {"running": {}}}]},
    })
}

/// A status that ends a watch.
fn expired() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"})
}

/// An event as the API server writes it: first its type.
fn frame(random: &mut fuzz::Rng) -> Vec<u8> {
    const TYPES: &[&str] = &["ADDED", "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER"];
    let bookmark = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": "14"}});
    let kind = random.choice(TYPES).copied().unwrap_or_default();
    let objects = match kind {
        "BOOKMARK" => vec![bookmark],
        "ERROR" => vec![expired()],
        _ => vec![pod("c", 11), pod("d", 12), pod("a", 13), pod("b", 14)],
    };
    let object = if random.bool() {
        random.choice(objects).map(|it| it.to_string().into_bytes())
    } else {
        Some(fuzz::json(random, &objects))
    };
    let frame = [format!("{{\"type\":\"{kind}\",\"object\":").as_bytes(), &object.unwrap_or_default(), b"}\n"].concat();
    if random.u8(..8) == 0 { fuzz::bytes(random, &[&frame], &["\"type\":", "\n{}\n"]) } else { frame }
}

type Answer = UnsyncBoxBody<Bytes, Infallible>;

fn whole(text: Vec<u8>) -> Answer {
    Full::new(Bytes::from(text)).boxed_unsync()
}

/// An API server with two pods, whose first watch sends these frames, whose second has expired, and whose third sends nothing.
fn api_server(frames: Vec<u8>) -> Client {
    let (lists, watches) = (AtomicU64::new(0), AtomicUsize::new(0));
    let service = service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let watch = if is_watch { watches.fetch_add(1, Ordering::Relaxed) } else { usize::MAX };
        let (status, body) = match watch {
            usize::MAX => {
                let version = 10 * (1 + lists.fetch_add(1, Ordering::Relaxed));
                let items = [pod("a", version - 1), pod("b", version - 2)];
                let metadata = json!({"resourceVersion": version.to_string()});
                let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items});
                (200, whole(list.to_string().into_bytes()))
            }
            0 => (200, whole(frames.clone())),
            1 => (410, whole(expired().to_string().into_bytes())),
            _ => (200, StreamBody::new(futures::stream::pending()).boxed_unsync()),
        };
        let answer = Response::builder().status(status).header("content-type", "application/json").body(body);
        async move { answer }
    });
    Client::new(service, "default")
}

#[test]
fn fuzz_watch_frames() {
    Target::new("watch-frames", env!("CARGO_MANIFEST_DIR")).run(
        |random| (0..random.usize(1..8)).flat_map(|_| frame(random)).collect(),
        |frames| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            runtime.expect("a runtime").block_on(async {
                let informer = Arc::new(Informer::<Projected<Pod>>::new(Namespaces::All, Arc::default()));
                let taken_in = Arc::new(AtomicUsize::new(0));
                let counted = taken_in.clone();
                informer.subscribe(Box::new(move |_, origin| {
                    counted.fetch_add(usize::from(origin == Origin::Live), Ordering::Relaxed);
                }));
                let running = informer.clone().run(
                    api_server(frames.to_vec()),
                    Rng::new(),
                    Selection::All,
                    CancellationToken::new(),
                );
                let running = tokio::spawn(running);
                sleep(Duration::from_mins(2)).await;
                assert!(!running.is_finished(), "the informer has ended");
                assert_eq!(informer.health.phase(), Phase::Synced);
                let mut names: Vec<_> = informer.store.keys().iter().map(|it| it.name.to_string()).collect();
                names.sort_unstable();
                assert_eq!(names, ["a", "b"]);
                for name in ["a", "b"] {
                    let key = ObjectKey { namespace: "default".into(), name: name.into() };
                    let item = informer.store.get(&key).expect("it decodes");
                    assert_eq!(item.uid.as_ref(), format!("uid-{name}"));
                }
                running.abort();
                taken_in.load(Ordering::Relaxed) > 0
            })
        },
    );
}

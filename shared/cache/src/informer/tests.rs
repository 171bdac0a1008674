//! Tests of an informer of pods on a model API server with faults, on paused time. Those of watches that deliver nothing are in
//! [`fruitless`], those of restores that one informer notices for all in [`alarms`], those of an informer of several namespaces in
//! [`namespaces`], those of a kind that is not installed in [`optional`].

mod alarms;
mod fruitless;
mod namespaces;
mod optional;

use std::{collections::BTreeSet, time::Duration};

use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use model_apiserver::{Entry, Model, NoFaults, Planned, Verb};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, advance, sleep, timeout},
};
use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::{decode::Projected, namespaces::SelectedNamespaces, object::ObjectKey};

type Pods = Arc<Informer<Projected<Pod>>>;

/// A running informer of pods, on a model API server with the faults of `plan`.
fn at_work(plan: &str) -> (Model, Pods, JoinHandle<()>) {
    let model = faulty(plan);
    let (informer, running) = inform(model.client(), Namespaces::All);
    (model, informer, running)
}

/// A model API server with the faults of `plan`.
fn faulty(plan: &str) -> Model {
    let model = Model::new();
    model.set_faults(Planned::new(&plan.parse().expect("a plan")));
    model
}

/// A running informer of the pods in these namespaces.
fn inform(client: Client, namespaces: Namespaces) -> (Pods, JoinHandle<()>) {
    let informer = Arc::new(Informer::<Projected<Pod>>::new(namespaces, Arc::default()));
    let running = informer.clone().run(client, Rng::new(), Selection::All, CancellationToken::new());
    (informer, tokio::spawn(running))
}

/// Stores a pod with an annotation of this length.
fn put_pod(model: &Model, namespace: &str, name: &str, length: usize) {
    let metadata = json!({"name": name, "namespace": namespace, "annotations": {"a": "a".repeat(length)}});
    model.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
}

fn holds(informer: &Pods, namespace: &str, name: &str) -> bool {
    informer.store.get(&ObjectKey::new(namespace, name)).is_some()
}

/// Selects these namespaces.
fn select(selected: &SelectedNamespaces, names: &[&str]) {
    selected.set(&names.iter().map(|name| Arc::from(*name)).collect::<BTreeSet<Arc<str>>>());
}

fn asked(model: &Model, verb: Verb) -> usize {
    model.requests().iter().filter(|entry: &&Entry| entry.verb == verb).count()
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// Happened on a real node: a CRD was replaced, and the API server answered the watch with 429 once. Afterwards the process
/// stayed unready until a client wrote an object of that kind.
#[tokio::test(start_paused = true)]
async fn restarted_watch_without_events_is_synced() {
    for code in [429, 403, 503, 500] {
        let (_model, informer, _running) = at_work(&format!("before watch pods.core #1..3 -> answer {code}"));
        sleep(Duration::from_millis(200)).await;
        assert_ne!(informer.health.phase(), Phase::Synced, "{code}: the watch was refused");
        sleep(seconds(3)).await;
        assert_eq!(informer.health.phase(), Phase::Synced, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn w3_expired_watch_is_not_an_outage() {
    for expired in ["before watch pods.core #1..3 -> answer 410", "frame ADDED pods.core #1..3 -> gone"] {
        let (model, informer, _running) = at_work(expired);
        informer.health.until_synced().await;
        for number in 0..500 {
            if number % 100 == 1 {
                let metadata = json!({"name": format!("pod-{number}"), "namespace": "default"});
                model.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
            }
            assert_eq!(informer.health.phase(), Phase::Synced, "{expired}");
            sleep(Duration::from_millis(10)).await;
        }
        sleep(seconds(10)).await;
        assert_eq!(
            (informer.store.counts().0, informer.health.figures().restarts),
            (5, vec![("expired", 3)]),
            "{expired}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn repeatedly_refused_watch_is_not_synced() {
    let (_model, informer, _running) = at_work("before watch pods.core -> answer 503");
    for _ in 0..100 {
        sleep(seconds(3)).await;
        assert!(matches!(informer.health.phase(), Phase::Failing(_)), "{:?}", informer.health.phase());
    }
}

#[tokio::test(start_paused = true)]
async fn a6_informer_waits_for_retry_after() {
    for (verb, kind) in [("list", Verb::List), ("watch", Verb::Watch)] {
        let refused = format!("before {verb} pods.core #1 -> answer 429 Retry-After=\"42\"");
        let (model, informer, _running) = at_work(&refused);
        sleep(seconds(41)).await;
        assert_eq!(asked(&model, kind), 1, "{verb}");
        sleep(seconds(2)).await;
        assert_eq!(asked(&model, kind), 2, "{verb}");
        assert_eq!(informer.health.phase(), Phase::Synced, "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn a17_list_or_watch_without_an_answer_times_out() {
    for stalled in [
        "before list pods.core #1 -> stall",
        "before watch pods.core #1 -> stall",
        "after list pods.core #1 -> trickle 1 1s",
    ] {
        let (_model, informer, _running) = at_work(stalled);
        sleep(seconds(70)).await;
        assert_eq!(informer.health.phase(), Phase::Synced, "{stalled}");
        assert_eq!(informer.health.figures().restarts, [("unreachable", 1)], "{stalled}");
    }
}

#[tokio::test(start_paused = true)]
async fn w12_silent_watch_is_reported_and_replaced() {
    let (model, informer, _running) = at_work("after watch pods.core #1 -> stall");
    sleep(seconds(10)).await;
    model.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}));
    let pod = ObjectKey::new("default", "a");
    let (begun, mut told) = (Instant::now(), Vec::new());
    while informer.store.get(&pod).is_none() {
        assert!(begun.elapsed() < seconds(900), "the pod never reached the cache");
        sleep(seconds(10)).await;
        told.extend(informer.health.warning());
    }
    let silent = begun.elapsed();
    assert!(silent < seconds(240), "a stalled watch is given up in less than four minutes: {silent:?}");
    assert!(told.contains(&"pods not heard of for 180s".to_owned()), "{told:?}");
    assert_eq!(informer.health.warning(), None, "the watch delivers again");
}

#[tokio::test(start_paused = true)]
async fn w9_bookmarks_count_as_activity() {
    let (model, informer, _running) = at_work("");
    for _ in 0..600 {
        sleep(seconds(7)).await;
        assert_eq!(informer.health.warning(), None);
    }
    assert_eq!(asked(&model, Verb::List), 1);
}

#[tokio::test(start_paused = true)]
async fn list_for_fills_the_cache_even_if_the_watch_lags() {
    let (model, informer, _running) =
        at_work("after watch pods.core -> stall; before list pods.core #2..3 -> answer 503");
    let informer = &informer;
    informer.list_for(0, "").await;
    assert_eq!(asked(&model, Verb::List), 1, "the first list covers the first term");
    let put = |name| {
        model.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}));
    };
    let holds = |name| informer.store.get(&ObjectKey::new("default", name)).is_some();
    let list_for = |term| async move { timeout(seconds(60), informer.list_for(term, "")).await.expect("a list") };
    put("a");
    sleep(seconds(10)).await;
    list_for(0).await;
    assert!(!holds("a"), "the watch lags");
    futures::future::join_all((0..100).map(|_| list_for(1))).await;
    assert!(holds("a"));
    assert_eq!(asked(&model, Verb::List), 4, "one list for all callers, after two that failed");
    put("b");
    list_for(1).await;
    sleep(seconds(10)).await;
    assert!(!holds("b"), "no second list for the same term");
    list_for(2).await;
    assert!(holds("b"));
    assert_eq!(asked(&model, Verb::List), 5);
}

#[tokio::test(start_paused = true)]
async fn retry_delay_grows_while_a_kind_keeps_failing() {
    let informer = Informer::<Projected<Pod>>::new(Namespaces::All, Arc::default());
    let mut retry_delay = WatchConnection::new(informer.health, 0).retry_delay(Rng::new());
    let mut total = Duration::ZERO;
    for _ in 0..10 {
        let wait = retry_delay.next_wait();
        total += wait;
        advance(wait).await;
    }
    assert!(total > seconds(12), "{total:?}");
    advance(seconds(31)).await;
    assert!(retry_delay.next_wait() <= Duration::from_millis(200), "after a quiet time");
}

/// The backup is as new as the last event. So the watch continues after the restore, and no version of it is lower than before.
#[tokio::test(start_paused = true)]
async fn write_that_a_restore_has_undone_does_not_stay_in_the_cache() {
    for is_created in [true, false] {
        let (model, informer, _running) = at_work("");
        put_pod(&model, "default", "deleted", 1);
        informer.health.until_synced().await;
        sleep(seconds(1)).await;
        // The restore breaks the watch before it delivers the write.
        let backup = model.snapshot();
        let key = |name| ObjectKey::new("default", name);
        let writer = Writer { controller: 0, key: key("primary") };
        if is_created {
            put_pod(&model, "default", "created", 1);
            let answer = model.object("pods", "default", "created").expect("a pod").to_string();
            informer.observe(&Decoded::read::<Projected<Pod>>(&answer).expect("a name"), writer);
        } else {
            let deleted = model.take("pods", "default", "deleted").expect("a pod");
            let uid = Uid::of(deleted["metadata"]["uid"].as_str().expect("a uid"));
            informer.observe_gone(&key("deleted"), uid, None, writer);
        }
        model.restore(&backup);
        assert_eq!(
            (holds(&informer, "default", "created"), holds(&informer, "default", "deleted")),
            (is_created, is_created)
        );
        sleep(seconds(5)).await;
        // The first one has the version of the lost write, which a bookmark may have before its event.
        for name in ["first", "second"] {
            let metadata = json!({"name": name, "namespace": "default"});
            model.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
        }
        sleep(seconds(200)).await;
        assert!(!holds(&informer, "default", "created") && holds(&informer, "default", "deleted"), "{is_created}");
        let restarts = informer.health.figures().restarts;
        assert_eq!(restarts.contains(&("restored", 1)), is_created, "{restarts:?}");
        assert_eq!(informer.alarm.count(), u64::from(is_created));
    }
}

#[tokio::test(start_paused = true)]
async fn object_that_a_list_has_brought_meanwhile_shows_no_restore() {
    let (model, informer, _running) = at_work("");
    put_pod(&model, "default", "listed", 1);
    informer.health.until_synced().await;
    sleep(seconds(1)).await;
    let check = |name| {
        let key = ObjectKey::new("default", name);
        informer.check_absence(Some(u64::MAX), &key, Uid::of("some"), 1);
        informer.alarm.count()
    };
    assert_eq!((check("listed"), check("absent")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn w24_failed_page_is_requested_again() {
    for (plan, lists, begins_again) in [
        ("", 3, false),
        ("before list pods.core #2 -> answer 429", 4, false),
        ("before list pods.core #2 -> answer 429 Retry-After=\"2\"", 4, false),
        ("before list pods.core #2..3 -> answer 503", 5, false),
        ("before list pods.core #2 -> answer 500; before list pods.core #4 -> drop", 5, false),
        ("before list pods.core #3..6 -> answer 504", 7, false),
        ("before list pods.core #2 -> delay 10s", 3, false),
        // After five attempts, after a long outage, and if the page has expired, the list begins again.
        ("before list pods.core #2..6 -> answer 503", 9, true),
        ("before list pods.core #2 -> answer 503; before list pods.core #3 -> delay 10s", 6, true),
        ("before list pods.core #2 -> answer 429 Retry-After=\"42\"", 5, true),
        ("before list pods.core #2 -> stall", 4, true), // the log lacks the request without an answer
        ("before list pods.core #2 -> answer 410", 5, true),
        ("before list pods.core #2 -> answer 403", 5, true),
    ] {
        let model = faulty(plan);
        for number in 0..250 {
            put_pod(&model, "default", &format!("pod-{number}"), 1);
        }
        let (informer, _running) = inform(model.client(), Namespaces::All);
        timeout(seconds(120), informer.list_for(0, "")).await.expect("a list");
        assert_eq!((informer.store.counts().0, asked(&model, Verb::List)), (250, lists), "{plan}");
        assert_eq!(!informer.health.figures().restarts.is_empty(), begins_again, "{plan}");
    }
}

/// Objects of the greatest size would otherwise take more memory than the process has.
#[tokio::test(start_paused = true)]
async fn w25_long_page_is_requested_in_parts() {
    for (pods, length) in [(120, 100_000), (3, 6_000_000)] {
        let model = Model::new();
        for number in 0..pods {
            put_pod(&model, "default", &format!("pod-{number}"), length);
        }
        let (service, limits) = (model.service("client"), Arc::<Mutex<Vec<usize>>>::default());
        let noted = limits.clone();
        let noting = service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let limit: Option<usize> = query.split('&').find_map(|it| it.strip_prefix("limit=")?.parse().ok());
            noted.lock().extend(limit);
            service.clone().oneshot(request)
        });
        let (informer, _running) = inform(Client::new(noting, "default"), Namespaces::All);
        timeout(seconds(10), informer.list_for(0, "")).await.expect("a list");
        assert_eq!(informer.store.counts().0, pods, "{length}");
        assert_eq!(informer.health.phase(), Phase::Synced, "{length}");
        let limits = limits.lock().clone();
        let small = limits.iter().position(|limit| limit * length < page_size::LONGEST || *limit == 1);
        let small = small.unwrap_or_else(|| panic!("{limits:?}"));
        assert!(small > 0 && limits[small..].iter().all(|limit| *limit <= limits[small]), "{length}: {limits:?}");
    }
}

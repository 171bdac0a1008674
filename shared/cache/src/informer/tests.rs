//! Tests of an informer of pods on a model API server with faults, on paused time.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use model_apiserver::{Entry, Model, Planned, Verb};
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, advance, sleep, timeout},
};

use super::*;
use crate::{decode::Projected, object::ObjectKey};

/// A running informer of pods, on a model API server with the faults of `plan`.
fn at_work(plan: &str) -> (Model, Arc<Informer<Projected<Pod>>>, JoinHandle<()>) {
    let model = Model::new();
    model.set_faults(Planned::new(&plan.parse().expect("a plan")));
    let informer = Arc::new(Informer::<Projected<Pod>>::new(Namespaces::All, Arc::default()));
    let running = informer.clone().run(model.client(), Rng::new(), None, CancellationToken::new());
    (model, informer, tokio::spawn(running))
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
    informer.list_for(0).await;
    assert_eq!(asked(&model, Verb::List), 1, "the first list covers the first term");
    let put = |name| {
        model.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}));
    };
    let holds = |name| informer.store.get(&ObjectKey::new("default", name)).is_some();
    let list_for = |term| async move { timeout(seconds(60), informer.list_for(term)).await.expect("a list") };
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

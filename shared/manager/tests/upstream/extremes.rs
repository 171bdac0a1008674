//! Objects that are large, many, contain unusual characters, or change all the time: rows C3 to C6 of `RELIABILITY.md`.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::kit::{
    Calls, MOMENT, TOYS, Toy, change, failure, is_ready, keep, keeper, model, plan, port, put, run, until, writes,
};

/// In bytes. etcd accepts at most one and a half mebibytes.
const LARGE: usize = 1_000_000;

#[tokio::test(start_paused = true)]
async fn c3_c4_large_unusual_reconcile_token_is_truncated_in_status() {
    // Characters of one to four bytes, a combining mark, a change of the writing direction, a line break, a null character.
    for unit in ["x", "ö", "o\u{308}", "字", "🙂", "\u{202e}", "\n", "\0"] {
        let model = model();
        put(&model, &["a", "b"]);
        let _harness = run(&model, &[], keeper(&Calls::default()));
        until("both are ready", || is_ready(&model, "a") && is_ready(&model, "b")).await;
        let token = unit.repeat(LARGE / unit.len());
        let annotations = json!({"tests.example.com/reconcile-requested-at": token});
        let api: Api<Toy> = Api::namespaced(model.client(), "default");
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}, "spec": {"size": 2}}));
        api.patch("a", &PatchParams::default(), &patch).await.expect("the patch is taken");
        change(&model, "b", 2).await;
        until("both are followed", || port(&model, "a") == Some(2) && port(&model, "b") == Some(2)).await;
        until("it is ready", || is_ready(&model, "a") && is_ready(&model, "b")).await;
        let toy = model.object(TOYS, "default", "a").expect("the object");
        let handled = toy["status"]["lastHandledReconcileAt"].as_str().expect("a reconcile was requested");
        assert!(!handled.is_empty() && handled.len() <= 1_024, "{unit:?}: {} bytes", handled.len());
        assert!(token.starts_with(handled.trim_end_matches('…')), "{unit:?}");
    }
}

/// A thousand objects wait at the start, ten thousand with `FAULT_PLANS=all`. Every tenth of them fails at first. New objects and
/// changes do not wait for the crowd.
#[tokio::test(start_paused = true)]
async fn c5_crowd_of_waiting_objects_delays_no_new_object_and_no_change() {
    let crowd = if std::env::var("FAULT_PLANS").is_ok_and(|asked| asked == "all") { 10_000 } else { 1_000 };
    let model = model();
    let names: Vec<String> = (0..crowd).map(|n| format!("crowd-{n}")).collect();
    put(&model, &names.iter().map(String::as_str).collect::<Vec<_>>());
    plan(&model, "before * * as toys -> delay 5ms");
    let calls = Calls::default();
    let begun = Instant::now();
    let reconciler = {
        let calls = calls.clone();
        move |toy: Arc<Toy>, context| {
            let calls = calls.clone();
            async move {
                calls.note(&toy);
                let name = toy.name_any();
                if name.starts_with("crowd") && name.ends_with('7') && calls.of(&name) == 1 {
                    return Err(failure());
                }
                keep(toy, context).await
            }
        }
    };
    let _harness = run(&model, &[], reconciler);
    let waiting = || names.iter().filter(|name| !is_ready(&model, name)).count();
    until("the first are ready", || waiting() < crowd).await;
    let mut longest = Duration::ZERO;
    for late in 0..10 {
        let name = format!("late-{late}");
        put(&model, &[&name]);
        longest = longest.max(until("a new object is ready", || is_ready(&model, &name)).await);
        change(&model, &name, 2).await;
        longest = longest.max(until("a change is followed", || port(&model, &name) == Some(2)).await);
    }
    let left = waiting();
    assert!(left > crowd / 2, "most of the crowd still waits: {left}");
    assert!(longest < MOMENT, "{longest:?}");
    until("all are ready", || names.iter().rev().all(|name| is_ready(&model, name))).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_mins(2), "{took:?}");
    let sent = writes(&model).len();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(writes(&model).len(), sent, "nothing is written any more");
}

#[tokio::test(start_paused = true)]
async fn c6_constantly_changing_object_delays_no_other() {
    const CHANGES: i32 = 500;
    let model = model();
    put(&model, &["a", "b"]);
    let calls = Calls::default();
    let _harness = run(&model, &[], keeper(&calls));
    until("both are ready", || is_ready(&model, "a") && is_ready(&model, "b")).await;
    let (before, looks) = (writes(&model).len(), calls.of("b"));
    for size in 0..CHANGES {
        change(&model, "a", 100 + size).await;
        if size == CHANGES / 2 {
            change(&model, "b", 2).await;
            let took = until("the other is followed", || port(&model, "b") == Some(2)).await;
            assert!(took < MOMENT, "{took:?}");
        }
        sleep(Duration::from_millis(10)).await;
    }
    let took = until("the last change is followed", || port(&model, "a") == Some(i64::from(99 + CHANGES))).await;
    assert!(took < MOMENT, "{took:?}");
    until("it is ready", || is_ready(&model, "a")).await;
    // The operator writes the Service for each change, and the status once for many changes.
    let sent = writes(&model).len() - before;
    assert!(sent <= 550, "{sent} writes");
    // Three causes: its change, the event of its Service, which the model delivers before it answers, and the delayed status.
    assert!(calls.of("b") <= looks + 3, "the other object is reconciled only for its own changes");
}

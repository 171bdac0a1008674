//! Objects that are large, contain unusual characters, or change all the time: rows C3, C4 and C6 of `RELIABILITY.md`.

use std::time::Duration;

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::sleep;

use crate::kit::{Calls, MOMENT, TOYS, Toy, change, is_ready, keeper, model, port, put, run, until, writes};

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

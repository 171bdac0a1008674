//! Shutdown, from the signal to the end of the last task.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use manager::{Action, EventType};
use tokio::{
    runtime::Handle,
    task::yield_now,
    time::{Instant, sleep},
};

use crate::kit::{Calls, MOMENT, model, plan, put, run, value};

/// Increments the counter when it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn stop_leaves_no_task_running() {
    let model = model();
    let before = Handle::current().metrics().num_alive_tasks();
    put(&model, &["a", "b", "c"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let mut harness = run(&model, &["--max-concurrent-reconciles=1"], move |toy, context| {
        noted.note(&toy);
        context.event(EventType::Normal, "Seen", "there it is");
        async {
            sleep(MOMENT).await;
            Ok(Action::Done)
        }
    });
    sleep(MOMENT / 2).await;
    let begun = Instant::now();
    harness.stop().await;
    let took = begun.elapsed();
    assert!(took >= MOMENT / 2 && took < MOMENT, "the running reconcile finishes, and no other starts: {took:?}");
    assert_eq!(calls.count(), 1);
    assert_eq!(model.objects("events.events.k8s.io").len(), 1, "the runtime still sends its event");

    drop(harness);
    let (requests, patience) = (model.requests().len(), Instant::now());
    while Handle::current().metrics().num_alive_tasks() > before && patience.elapsed() < MOMENT {
        yield_now().await; // tasks of the client end after the client is dropped
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(Handle::current().metrics().num_alive_tasks(), before);
    put(&model, &["d"]);
    sleep(60 * MOMENT).await;
    assert_eq!((calls.count(), model.requests().len()), (1, requests), "the stopped controller does nothing any more");
}

/// A new leader lists each kind again. A reconcile that waits for that list delays the end only until the list is complete.
#[tokio::test(start_paused = true)]
async fn reconcile_that_waits_for_the_cache_finishes() {
    let model = model();
    plan(&model, "before list services.core #2 -> delay 5s");
    put(&model, &["a"]);
    let mut harness =
        run(&model, &["--leader-elect", "--leader-election-namespace=default"], |_, context| async move {
            context.sync_cache::<Service>().await?;
            Ok(Action::Done)
        });
    sleep(2 * MOMENT).await;
    let begun = Instant::now();
    harness.stop().await;
    let took = begun.elapsed();
    assert!(took > MOMENT && took < 6 * MOMENT, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn hanging_reconcile_is_cancelled_at_the_graceful_timeout() {
    let model = model();
    put(&model, &["a"]);
    let dropped: Arc<AtomicUsize> = Arc::default();
    let counted = dropped.clone();
    let mut harness = run(&model, &["--graceful-shutdown-timeout=5s"], move |_, _| {
        let guard = Dropped(counted.clone());
        async move {
            let _guard = guard;
            pending().await
        }
    });
    sleep(MOMENT).await;
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "the reconcile runs");
    let begun = Instant::now();
    harness.stop().await;
    let took = begun.elapsed();
    assert!(took >= 5 * MOMENT && took < 6 * MOMENT, "{took:?}");
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "the reconcile was cancelled");
    let timeouts = value(&harness.scrape(), r#"controller_runtime_reconcile_timeouts_total{controller="toy"}"#);
    assert_eq!(timeouts, Some(0.0), "the reconcile time-out did not expire");
    let active = value(&harness.scrape(), r#"controller_runtime_active_workers{controller="toy"}"#);
    assert_eq!(active, Some(0.0), "no worker is active");
}

/// The lease ends while a reconcile still runs. Another process may lead from then on.
#[tokio::test(start_paused = true)]
async fn loss_of_the_leadership_cancels_reconciles_also_after_the_stop() {
    let model = model();
    put(&model, &["a"]);
    let dropped: Arc<AtomicUsize> = Arc::default();
    let counted = dropped.clone();
    let flags = ["--leader-elect", "--leader-election-namespace=default", "--graceful-shutdown-timeout=10m"];
    let mut harness = run(&model, &flags, move |_, _| {
        let guard = Dropped(counted.clone());
        async move {
            let _guard = guard;
            pending().await
        }
    });
    sleep(2 * MOMENT).await;
    plan(&model, "before * leases.coordination.k8s.io -> drop");
    let begun = Instant::now();
    harness.stop().await;
    let took = begun.elapsed();
    assert!(took < 60 * MOMENT, "{took:?}");
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "the reconcile was cancelled");
}

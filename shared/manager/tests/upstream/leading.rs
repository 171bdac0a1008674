//! Controllers under leader election, and the loss of leadership: rows L of `RELIABILITY.md`. The crate `leader-election` tests
//! the election itself.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager::{Action, Context, Error};
use model_apiserver::{Model, NoFaults};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::kit::{
    Calls, MOMENT, TOYS, Toy, change, is_ready, keep, keeper, model, plan, port, put, run_as, until, value, writes,
};

const ELECT: &[&str] = &["--leader-elect", "--leader-election-namespace=default", "--reconcile-timeout=10h"];

/// Counts the running reconciles.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn holder(model: &Model) -> String {
    let lease = model.object("leases.coordination.k8s.io", "default", "controller-manager.operators");
    lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned)).unwrap_or_default()
}

/// Reconciles without end: changes the child every half second.
async fn write_until_cancelled(
    toy: Arc<Toy>,
    context: Context<Toy>,
    running: Arc<AtomicUsize>,
) -> Result<Action, Error> {
    let _running = Running::new(&running);
    for port in 1.. {
        let mut next = (*toy).clone();
        next.spec.size = port;
        keep(Arc::new(next), context.clone()).await?;
        sleep(MOMENT / 2).await;
    }
    Ok(Action::Done)
}

#[tokio::test(start_paused = true)]
async fn l1_l9_failed_renewal_cancels_reconciles_until_leading_again() {
    let model = model();
    put(&model, &["a", "b"]);
    let running: Arc<AtomicUsize> = Arc::default();
    let count = running.clone();
    let harness =
        run_as(&model, "toys-1", ELECT, move |toy, context| write_until_cancelled(toy, context, count.clone()));
    until("both are written", || port(&model, "a") > Some(3) && port(&model, "b") > Some(3)).await;
    assert_eq!(running.load(Ordering::Relaxed), 2);

    // Only requests for the lease fail.
    for round in 0..3 {
        plan(&model, "before * leases.coordination.k8s.io -> drop");
        let begun = Instant::now();
        let took = until("no reconcile runs", || running.load(Ordering::Relaxed) == 0).await;
        assert!(took > 5 * MOMENT && took <= 11 * MOMENT, "{round}: {took:?}, but the renew deadline is 10 s");
        let before = writes(&model);
        sleep(60 * MOMENT).await;
        assert_eq!(writes(&model), before, "{round}: nothing is written after the deadline");
        assert_eq!(
            value(&harness.scrape(), r#"leader_election_master_status{name="controller-manager.operators"}"#),
            Some(0.0)
        );
        model.set_faults(NoFaults);
        until("it leads and works again", || running.load(Ordering::Relaxed) == 2).await;
        assert!(begun.elapsed() < 120 * MOMENT, "{round}");
    }
}

/// Lets the process lose the lease and, if it `leads_again`, acquire it half a minute later. Returns 75 seconds after the loss began.
async fn lose_the_lease(model: &Model, leads_again: bool) {
    plan(model, "before * leases.coordination.k8s.io -> drop");
    sleep(30 * MOMENT).await;
    if leads_again {
        model.set_faults(NoFaults);
    }
    sleep(45 * MOMENT).await;
}

#[tokio::test(start_paused = true)]
async fn l1_reconcile_sends_no_write_after_losing_the_lease() {
    for leads_again in [false, true] {
        let (model, calls) = (model(), Calls::default());
        put(&model, &["a"]);
        let noted = calls.clone();
        let harness = run_as(&model, "toys-1", ELECT, move |toy, context| {
            noted.note(&toy);
            async move {
                keep(toy.clone(), context.clone()).await?;
                // A separate task, which the runtime cannot cancel.
                let late = tokio::spawn(async move {
                    sleep(60 * MOMENT).await;
                    let mut next = (*toy).clone();
                    next.spec.size = 9;
                    keep(Arc::new(next), context).await
                });
                drop(late.await);
                Ok(Action::Done)
            }
        });
        until("the first write", || port(&model, "a") == Some(1)).await;
        let before = writes(&model).len();
        lose_the_lease(&model, leads_again).await;
        assert_eq!(calls.count(), 1 + usize::from(leads_again));
        let sent = writes(&model).split_off(before);
        assert!(sent.iter().all(|(_, resource, _)| resource != "services"), "{sent:?}");
        assert_eq!(port(&model, "a"), Some(1), "the client refused the second write before sending it");
        drop(harness);
    }
}

#[tokio::test(start_paused = true)]
async fn l6_lease_is_handed_over_after_running_reconciles_end() {
    let model = model();
    put(&model, &["a"]);
    let running: Arc<AtomicUsize> = Arc::default();
    let count = running.clone();
    let mut first = run_as(&model, "toys-1", ELECT, move |_, _| {
        let running = Running::new(&count);
        async move {
            let _running = running;
            sleep(5 * MOMENT).await;
            Ok(Action::Done)
        }
    });
    until("it works", || running.load(Ordering::Relaxed) == 1).await;
    let leader = holder(&model);
    let calls = Calls::default();
    let _second = run_as(&model, "toys-2", ELECT, keeper(&calls));
    sleep(2 * MOMENT).await;
    assert_eq!(calls.count(), 0, "a standby does nothing");
    let lasts = async {
        while running.load(Ordering::Relaxed) > 0 {
            assert_eq!(holder(&model), leader, "it leads until its reconcile has ended");
            sleep(MOMENT / 100).await;
        }
        Instant::now()
    };
    let ((), ended) = tokio::join!(first.stop(), lasts);
    until("the second works", || port(&model, "a") == Some(1)).await;
    assert!(ended.elapsed() < 2 * MOMENT, "{:?}", ended.elapsed());
}

#[tokio::test(start_paused = true)]
async fn l7_stopped_standby_never_leads() {
    let model = model();
    put(&model, &["a"]);
    let _first = run_as(&model, "toys-1", ELECT, |_, _| pending());
    sleep(MOMENT).await;
    let calls = Calls::default();
    let mut second = run_as(&model, "toys-2", ELECT, keeper(&calls));
    sleep(5 * MOMENT).await;
    second.stop().await;
    sleep(60 * MOMENT).await;
    assert_eq!(calls.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn l5_deleted_lease_is_reacquired_by_one_replica() {
    let model = model();
    put(&model, &["a"]);
    let running: Arc<AtomicUsize> = Arc::default();
    let most: Arc<AtomicUsize> = Arc::default();
    let replica = |name: &str| {
        let (running, most) = (running.clone(), most.clone());
        run_as(&model, name, ELECT, move |_, _| {
            let one = Running::new(&running);
            most.fetch_max(running.load(Ordering::Relaxed), Ordering::Relaxed);
            async move {
                let _one = one;
                pending().await
            }
        })
    };
    let _replicas = [replica("toys-1"), replica("toys-2")];
    for round in 0..10 {
        until("one works", || running.load(Ordering::Relaxed) == 1).await;
        sleep(Duration::from_millis(round * 773)).await;
        model.take("leases.coordination.k8s.io", "default", "controller-manager.operators");
        sleep(30 * MOMENT).await;
    }
    until("one works", || running.load(Ordering::Relaxed) == 1).await;
    assert_eq!(most.load(Ordering::Relaxed), 1, "never two");
}

/// The API server is down for eight of every sixteen seconds, which is less than the renew deadline.
#[tokio::test(start_paused = true)]
async fn l9_flapping_api_server_does_not_end_leadership() {
    let model = model();
    put(&model, &["a"]);
    let calls = Calls::default();
    let harness = run_as(&model, "toys-1", ELECT, keeper(&calls));
    until("it is there", || is_ready(&model, "a")).await;
    let leader = holder(&model);
    for size in 2..10 {
        plan(&model, "before * * -> drop; frame * * -> cut");
        sleep(8 * MOMENT).await;
        model.set_faults(NoFaults);
        change(&model, "a", size).await;
        let took = until("it is followed", || port(&model, "a") == Some(i64::from(size))).await;
        assert!(took < 8 * MOMENT, "{took:?}");
        sleep((8 * MOMENT).saturating_sub(took)).await;
        assert_eq!(holder(&model), leader);
    }
    assert_eq!(
        value(&harness.scrape(), r#"leader_election_master_status{name="controller-manager.operators"}"#),
        Some(1.0)
    );
    assert_eq!(model.objects("toys.tests.example.com").first().map(|toy| toy["metadata"]["name"] == "a"), Some(true));
}

#[tokio::test(start_paused = true)]
async fn l1_client_of_a_reconcile_sends_no_write_after_losing_the_lease() {
    for leads_again in [false, true] {
        let (model, calls) = (model(), Calls::default());
        put(&model, &["a"]);
        let late = Arc::new(AtomicUsize::new(0));
        let (count, noted) = (late.clone(), calls.clone());
        let harness = run_as(&model, "toys-1", ELECT, move |toy, context| {
            noted.note(&toy);
            let late = count.clone();
            async move {
                let toys: Api<Toy> = Api::namespaced(context.client(), "default");
                resize(&toys, 2).await?;
                // A separate task, which the runtime cannot cancel.
                let task = tokio::spawn(async move {
                    sleep(60 * MOMENT).await;
                    assert!(toys.get("a").await.is_ok(), "it may read");
                    let error = resize(&toys, 9).await.expect_err("it may not write");
                    let chain = Error::from(error).chain();
                    assert!(chain.ends_with("the write was not sent: this process is not the leader"), "{chain}");
                    late.fetch_add(1, Ordering::Relaxed);
                });
                drop(task.await);
                Ok(Action::Done)
            }
        });
        let size = || model.object(TOYS, "default", "a").expect("it exists")["spec"]["size"].clone();
        until("the first write", || size() == 2).await;
        lose_the_lease(&model, leads_again).await;
        assert_eq!(calls.count(), 1 + usize::from(leads_again));
        assert_eq!(late.load(Ordering::Relaxed), 1, "the task has ended");
        assert_eq!(size(), 2);
        drop(harness);
    }
}

async fn resize(toys: &Api<Toy>, size: i32) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"spec": {"size": size}}));
    toys.patch("a", &PatchParams::default(), &patch).await.map(drop)
}

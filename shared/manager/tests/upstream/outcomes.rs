//! What follows each possible outcome of a reconcile: retry, back-off, wait for a change.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::ResourceExt;
use manager::{Action, Context, Controller, Error, Manager, Request, harness::Harness};
use tokio::time::sleep;

use crate::kit::{Calls, MOMENT, NO_RESYNC, Toy, Toys, change, failure, model, put, put_into, run, until, value};

#[tokio::test(start_paused = true)]
async fn panic_is_counted_and_retried_and_delays_no_other_object() {
    let model = model();
    put(&model, &["bad", "good"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let harness = run(&model, &["--max-concurrent-reconciles=1"], move |toy, _| {
        noted.note(&toy);
        async move {
            assert_eq!(toy.name_any(), "good");
            Ok(Action::Done)
        }
    });
    sleep(MOMENT).await;
    assert_eq!(calls.of("good"), 1);
    let (bad, scrape) = (calls.of("bad"), harness.scrape());
    assert!(bad > 3, "tried {bad} times");
    for counter in ["reconcile_panics", "reconcile_errors"] {
        let counted = value(&scrape, &format!("controller_runtime_{counter}_total{{controller=\"toy\"}}"));
        assert_eq!(counted.map(|it| format!("{it}")), Some(bad.to_string()), "{counter}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_reconcile_timeout_is_counted_as_timeout() {
    let cases = [
        ("success", 0.0),
        ("error", 0.0),
        ("deadline of a request", 0.0),
        ("panic", 0.0),
        ("slow", 0.0),
        ("hangs", 1.0),
    ];
    for (case, expected) in cases {
        let model = model();
        put(&model, &["a"]);
        let harness = run(&model, &["--reconcile-timeout=10s"], move |_, _| async move {
            match case {
                "error" => return Err(failure()),
                "deadline of a request" => {
                    let (kind, name) = ("Service".to_owned(), "a".to_owned());
                    let request = Request { verb: "create", kind, namespace: String::new(), name };
                    return Err(Error::Deadline { request, after: MOMENT });
                }
                "panic" => panic!("{case}"),
                "slow" => sleep(9 * MOMENT).await,
                "hangs" => pending().await,
                _ => {}
            }
            Ok(Action::Done)
        });
        sleep(15 * MOMENT).await;
        let timeouts = value(&harness.scrape(), r#"controller_runtime_reconcile_timeouts_total{controller="toy"}"#);
        assert_eq!(timeouts, Some(expected), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_waits_for_a_change() {
    let model = model();
    put(&model, &["a"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let harness = run(&model, &[], move |toy, _| {
        noted.note(&toy);
        async { Err(Error::Invalid { field: "spec.size".to_owned(), why: "is too much".to_owned() }) }
    });
    sleep(3_600 * MOMENT).await;
    assert_eq!(calls.count(), 1);
    change(&model, "a", 2).await;
    sleep(3_600 * MOMENT).await;
    assert_eq!(calls.count(), 2);
    let scrape = harness.scrape();
    for counter in ["reconcile_errors", "terminal_reconcile_errors"] {
        let counted = value(&scrape, &format!("controller_runtime_{counter}_total{{controller=\"toy\"}}"));
        assert_eq!(counted, Some(2.0), "{counter}");
    }
    assert_eq!(value(&scrape, r#"workqueue_retries_total{controller="toy",name="toy"}"#), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn back_off_grows_until_there_is_no_error() {
    let model = model();
    put(&model, &["a"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let _harness = run(&model, &[], move |toy, _| {
        noted.note(&toy);
        let fails = noted.count() != 10; // one success in the middle
        async move { if fails { Err(failure()) } else { Ok(Action::Done) } }
    });
    sleep(60 * MOMENT).await;
    let first = calls.gaps();
    assert_eq!(first.len(), 9, "nine failures, then a success: {first:?}");
    change(&model, "a", 2).await;
    sleep(MOMENT).await;
    let second = calls.gaps().split_off(10); // without the wait for the change
    assert!(second.len() >= 5, "{second:?}");
    for gaps in [first, second] {
        for (gap, doublings) in gaps.into_iter().zip(0..) {
            let nominal = Duration::from_millis(5) * 2_u32.pow(doublings);
            // Timers have a resolution of one millisecond.
            let allowed = nominal.mul_f64(0.8)..=nominal.mul_f64(1.2) + Duration::from_millis(2);
            assert!(allowed.contains(&gap), "after {doublings} doublings: {gap:?} instead of {allowed:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requeue_after_is_not_rate_limited() {
    let model = model();
    put(&model, &["a"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let _harness = run(&model, &[], move |toy, _| {
        noted.note(&toy);
        async { Ok(Action::After(30 * MOMENT)) }
    });
    sleep(610 * MOMENT).await;
    assert_eq!(calls.count(), 21, "every 30 seconds");
    let late =
        calls.gaps().into_iter().find(|gap| *gap < 30 * MOMENT || *gap > 30 * MOMENT + Duration::from_millis(10));
    assert_eq!(late, None);
}

#[tokio::test(start_paused = true)]
async fn retry_backs_off_from_its_base_and_is_no_error() {
    let model = model();
    put(&model, &["a"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let harness = run(&model, &[], move |toy, _| {
        noted.note(&toy);
        async { Ok(Action::Retry(MOMENT)) }
    });
    sleep(90 * MOMENT).await;
    let gaps = calls.gaps();
    assert!(gaps.len() >= 5, "{gaps:?}");
    for (gap, doublings) in gaps.into_iter().zip(0..) {
        let nominal = MOMENT * 2_u32.pow(doublings);
        let allowed = nominal.mul_f64(0.8)..=nominal.mul_f64(1.2) + Duration::from_millis(2);
        assert!(allowed.contains(&gap), "after {doublings} doublings: {gap:?} instead of {allowed:?}");
    }
    let scrape = harness.scrape();
    let counted = |series: &str| value(&scrape, &format!("controller_runtime_reconcile_{series}"));
    assert_eq!(counted(r#"errors_total{controller="toy"}"#), Some(0.0));
    let requeued = counted(r#"total{controller="toy",result="requeue"}"#);
    assert_eq!(requeued.map(|it| format!("{it}")), Some(calls.count().to_string()));
}

#[tokio::test(start_paused = true)]
async fn not_before_also_holds_back_a_change() {
    let model = model();
    put(&model, &["a"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let _harness = run(&model, &[], move |toy, _| {
        noted.note(&toy);
        async { Ok(Action::NotBefore(30 * MOMENT)) }
    });
    sleep(10 * MOMENT).await;
    change(&model, "a", 2).await;
    sleep(55 * MOMENT).await;
    let gaps = calls.gaps();
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= 30 * MOMENT), "{gaps:?}");
}

/// By a flag that names the kind, and by the declaration of the controller without a flag.
#[tokio::test(start_paused = true)]
async fn max_concurrent_reconciles_is_respected() {
    three_reconciles_run_at_once(None, &["--max-concurrent-reconciles=1,Toy=3"]).await;
    three_reconciles_run_at_once(Some(3), &[]).await;
}

/// Checks that a controller with this number of workers of its own reconciles three of nine objects at a time.
async fn three_reconciles_run_at_once(own: Option<usize>, flags: &[&str]) {
    let model = model();
    put(&model, &["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    let (calls, running, most) = (Calls::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (noted, now, peak) = (calls.clone(), running.clone(), most.clone());
    let reconcile = move |toy: Arc<Toy>, _: Context<Toy>| {
        noted.note(&toy);
        let (now, peak) = (now.clone(), peak.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            sleep(10 * MOMENT).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Ok(Action::Done)
        }
    };
    let setup = move |manager: &mut Manager| {
        let controller = Controller::of::<Toy>();
        let controller = match own {
            Some(workers) => controller.workers(workers),
            None => controller,
        };
        manager.add(controller.reconcile(reconcile.clone()));
    };
    let (clock, flags) = (model.clone(), [flags, &[NO_RESYNC]].concat());
    let harness = Harness::start(&Toys(setup), &flags, model.client_named("toys"), move || clock.now());
    sleep(5 * MOMENT).await;
    let scrape = harness.scrape();
    for gauge in ["max_concurrent_reconciles", "active_workers"] {
        let shown = value(&scrape, &format!("controller_runtime_{gauge}{{controller=\"toy\"}}"));
        assert_eq!(shown, Some(3.0), "{gauge} with {own:?} and {flags:?}");
    }
    sleep(26 * MOMENT).await;
    assert_eq!((calls.count(), most.load(Ordering::Relaxed), running.load(Ordering::Relaxed)), (9, 3, 0));
}

/// In one line, the object of the other namespace would wait for the whole crowd: 500 reconciles.
#[tokio::test(start_paused = true)]
async fn crowd_of_one_namespace_delays_another_by_one_reconcile() {
    let model = model();
    let calls = Calls::default();
    let noted = calls.clone();
    let _harness = run(&model, &["--max-concurrent-reconciles=1"], move |toy, _| {
        noted.note(&toy);
        async move {
            sleep(MOMENT).await;
            Ok(Action::Done)
        }
    });
    sleep(MOMENT).await;
    let crowd: Vec<_> = (0..500).map(|number| format!("crowd-{number}")).collect();
    put_into(&model, "crowded", &crowd.iter().map(String::as_str).collect::<Vec<_>>());
    put_into(&model, "quiet", &["single"]);
    until("the object of the other namespace is reconciled", || calls.of("single") > 0).await;
    // The reconcile that runs when the key arrives, and at most one of the crowd that is older.
    assert!(calls.count() <= 3, "{} reconciles, that of the other namespace included", calls.count());
}

//! If a reconcile requests several times for the next one, the earliest counts, even if the reconcile failed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use manager::{Action, Health, Verdict};
use model_apiserver::{Model, NoFaults};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::kit::{Calls, MOMENT, TOYS, change, failure, keep, model, plan, put, run, until};

const QUOTA: &str = r#"before create services.core -> answer 403 body="{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Forbidden\",\"message\":\"services \\\"a\\\" is forbidden: exceeded quota: q\",\"code\":403}""#;

/// The longest time between two reconciles.
fn longest(calls: &Calls) -> Duration {
    calls.gaps().into_iter().max().expect("two reconciles")
}

#[tokio::test(start_paused = true)]
async fn refused_child_does_not_delay_a_scheduled_reconcile() {
    for asks in ["After", "requeue_at", "requeue_at, and later After"] {
        let model = model();
        put(&model, &["a"]);
        plan(&model, QUOTA);
        let calls = Calls::default();
        let noted = calls.clone();
        let _harness = run(&model, &[], move |toy, context| {
            noted.note(&toy);
            async move {
                keep(toy, context.clone()).await?;
                let in_thirty_seconds = context.now() + 30 * MOMENT;
                if asks == "After" {
                    return Ok(Action::After(30 * MOMENT));
                }
                context.requeue_at(in_thirty_seconds);
                Ok(if asks == "requeue_at" { Action::Done } else { Action::After(3_000 * MOMENT) })
            }
        });
        sleep(1_200 * MOMENT).await;
        assert!(longest(&calls) <= 31 * MOMENT, "{asks}: {:?}", longest(&calls));
        assert!(calls.count() < 60, "{asks}: the back-off still grows: {}", calls.count());
    }
}

#[tokio::test(start_paused = true)]
async fn error_keeps_an_earlier_requeue_at() {
    let model = model();
    put(&model, &["a"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let _harness = run(&model, &[], move |toy, context| {
        noted.note(&toy);
        async move {
            context.requeue_at(context.now() + 30 * MOMENT);
            Err(failure())
        }
    });
    sleep(1_200 * MOMENT).await;
    assert!(longest(&calls) <= 31 * MOMENT, "{:?}", longest(&calls));
}

/// A suspended machine resumes, or its clock is set. A reconcile that waits for a time of day starts on time by the new clock.
#[tokio::test(start_paused = true)]
async fn scheduled_time_of_day_is_kept_when_the_clock_jumps() {
    let model = model();
    put(&model, &["a"]);
    let calls = Calls::default();
    let noted = calls.clone();
    let at = model.now() + 3_600 * MOMENT;
    let _harness = run(&model, &[], move |toy, context| {
        noted.note(&toy);
        async move {
            keep(toy, context.clone()).await?;
            if context.now() < at {
                context.requeue_at(at);
            }
            Ok(Action::Done)
        }
    });
    sleep(60 * MOMENT).await;
    let before = calls.count();
    sleep(60 * MOMENT).await;
    assert_eq!(calls.count(), before, "a clock that does not jump causes no reconcile");
    model.set_time(at);
    let took = until("a reconcile", || calls.count() > before).await;
    assert!(took <= 11 * MOMENT, "{took:?}");
}

/// The generation that the status reports.
fn observed(model: &Model) -> Option<i64> {
    model.object(TOYS, "default", "a")?["status"]["observedGeneration"].as_i64()
}

#[tokio::test(start_paused = true)]
async fn delayed_status_is_written_despite_a_later_error() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], |toy, context| async move {
        let port = json!([{"name": "a", "port": toy.spec.size, "protocol": "TCP", "targetPort": toy.spec.size}]);
        let service = json!({"metadata": {"name": toy.name_any()}, "spec": {"ports": port}});
        context.apply::<Service>(serde_json::from_value(service).expect("a Service")).await?;
        let health = Health::of(Verdict::no("Waiting", "it waits"));
        context.apply_status(health.into()).await?;
        Err(failure())
    });
    sleep(1_000 * MOMENT).await; // the back-off has grown
    change(&model, "a", 2).await;
    sleep(MOMENT).await;
    assert_eq!(observed(&model), Some(2));
}

#[tokio::test(start_paused = true)]
async fn new_token_is_used_within_75_seconds() {
    let model = model();
    put(&model, &["a"]);
    plan(&model, "before create services.core -> answer 401");
    let calls = Calls::default();
    let noted = calls.clone();
    let _harness = run(&model, &[], move |toy, context| {
        noted.note(&toy);
        keep(toy, context)
    });
    sleep(1_800 * MOMENT).await;
    assert!(longest(&calls) <= 75 * MOMENT, "{:?}", longest(&calls));
    model.set_faults(NoFaults);
    let begun = Instant::now();
    while model.objects("services").is_empty() {
        sleep(MOMENT).await;
    }
    assert!(begun.elapsed() <= 75 * MOMENT, "{:?}", begun.elapsed());
    let tried = calls.count();
    assert!(tried < 60, "the runtime must not flood an API server that answers 401: {tried} attempts");
}

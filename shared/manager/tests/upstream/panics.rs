//! A panic in any function of an operator ends this one call, and nothing else.

use kube::ResourceExt;
use manager::{Action, Controller, Manager, harness::Harness};
use model_apiserver::{Model, NoFaults};
use tokio::time::sleep;

use crate::kit::{Calls, MOMENT, NO_RESYNC, TOYS, Toy, Toys, change, model, plan, put, until, value};

/// Starts a controller whose functions panic for the object "bad".
fn start(model: &Model, calls: &Calls, more: &[&str]) -> Harness {
    let setup = |manager: &mut Manager| {
        let noted = calls.clone();
        let controller = Controller::of::<Toy>()
            .on_demotion(|| panic!("on_demotion panics"))
            .on_gone(|key| assert_ne!(&*key.name, "bad", "on_gone panics"))
            .on_scrape(|objects, _| objects.for_each(|toy| assert_ne!(toy.name_any(), "bad", "on_scrape panics")))
            .index("name", |toy| {
                assert_ne!(toy.name_any(), "bad", "an index panics");
                vec![toy.name_any()]
            })
            .reconcile(move |toy: std::sync::Arc<Toy>, _| {
                noted.note(&toy);
                assert!(toy.name_any() != "bad" || toy.spec.size == 1, "the reconciler panics before it waits");
                async { Ok(Action::Done) }
            });
        manager.add(controller);
    };
    let (flags, clock) = ([&[NO_RESYNC, "--max-concurrent-reconciles=1"], more].concat(), model.clone());
    Harness::start(&Toys(setup), &flags, model.client_named("toys"), move || clock.now())
}

fn panics(harness: &Harness) -> Option<f64> {
    value(&harness.scrape(), r#"controller_runtime_reconcile_panics_total{controller="toy"}"#)
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_on_gone_is_counted_and_the_worker_lives_on() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["good"]);
    let harness = start(&model, &calls, &[]);
    sleep(MOMENT).await;
    for round in 1..=3 {
        put(&model, &["bad"]);
        sleep(MOMENT).await;
        model.take(TOYS, "default", "bad").expect("it was there");
        sleep(60 * MOMENT).await;
        assert_eq!(panics(&harness), Some(f64::from(round)), "once per deleted object");
        let before = calls.of("good");
        change(&model, "good", round + 1).await;
        sleep(MOMENT).await;
        assert_eq!(calls.of("good"), before + 1, "the only worker continues");
    }
}

#[tokio::test(start_paused = true)]
async fn panic_in_on_scrape_removes_no_metric() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["bad", "good"]);
    let harness = start(&model, &calls, &[]);
    sleep(MOMENT).await;
    let scrape = harness.scrape();
    assert_eq!(value(&scrape, r#"operator_informer_objects{kind="Toy"}"#), Some(2.0), "{scrape}");
    assert_eq!(value(&scrape, r#"operator_resource_condition_aggregated{kind="Toy"}"#), Some(0.0), "{scrape}");
    assert_eq!(value(&scrape, r#"controller_runtime_reconcile_panics_total{controller="toy"}"#), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn panic_before_the_first_await_delays_no_other_object() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["bad", "good"]);
    let harness = start(&model, &calls, &[]);
    sleep(MOMENT).await;
    change(&model, "bad", 2).await;
    sleep(MOMENT).await;
    assert!(calls.of("bad") > 3, "the runtime retries it: {} calls", calls.of("bad"));
    change(&model, "good", 2).await;
    sleep(MOMENT).await;
    assert_eq!(calls.of("good"), 2, "the only worker continues");
    assert!(panics(&harness) > Some(3.0));
}

#[tokio::test(start_paused = true)]
async fn panic_in_on_demotion_is_counted_and_the_process_can_lead_again() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["good"]);
    let harness = start(&model, &calls, &["--leader-elect", "--leader-election-namespace=default"]);
    until("it leads", || calls.of("good") == 1).await;
    plan(&model, "before * leases.coordination.k8s.io -> drop");
    until("it is demoted", || panics(&harness) == Some(1.0)).await;
    model.set_faults(NoFaults);
    change(&model, "good", 2).await;
    until("it leads again", || calls.of("good") == 2).await;
}

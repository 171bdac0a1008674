//! Namespaces whose lists the API server refuses for a while: which objects wait, what a wait costs, and what ends it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::Service;
use kube::{CustomResource, CustomResourceExt};
use manager::{Action, Context, Controller, Manager, StandardStatus, harness::Harness, normalize};
use model_apiserver::NoFaults;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    kit::{Calls, MOMENT, NO_RESYNC, TOYS, Toys, keep, keeper, labels, model, plan, run, value},
    namespaces::{filled, port, resize},
};

const NAMESPACES: &str = "--watch-namespaces=one,two";

/// How often a key of this kind has become ready.
fn adds(harness: &Harness, kind: &str) -> Option<f64> {
    value(&harness.scrape(), &format!("workqueue_adds_total{{controller=\"{kind}\",name=\"{kind}\"}}"))
}

#[tokio::test(start_paused = true)]
async fn w27_recovery_of_one_namespace_wakes_only_its_objects() {
    let (model, calls) = (filled(), Calls::default());
    for name in ["one", "two"] {
        model.put(json!({
            "apiVersion": "tests.example.com/v1", "kind": "Toy",
            "metadata": {"name": name, "namespace": name, "generation": 1}, "spec": {"size": 1},
        }));
    }
    let _harness = run(&model, &[NAMESPACES], keeper(&calls));
    sleep(10 * MOMENT).await;
    let before = ["one", "two"].map(|name| calls.of(name));
    plan(&model, &format!("frame MODIFIED {TOYS} two/* -> gone; before list {TOYS} two/* -> answer 503"));
    resize(&model, "two", 2).await; // the event of the object "a" ends the watch
    sleep(10 * MOMENT).await;
    assert_eq!(["one", "two"].map(|name| calls.of(name)), before);
    model.set_faults(NoFaults);
    sleep(10 * MOMENT).await;
    assert_eq!(["one", "two"].map(|name| calls.of(name)), [before[0], before[1] + 1]);
}

/// A child names the object. Whether the object exists is unknown until its list succeeds.
#[tokio::test(start_paused = true)]
async fn w28_unknown_object_does_not_wait_for_a_refused_list() {
    let (model, calls) = (filled(), Calls::default());
    model.put(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "late", "namespace": "two", "labels": labels("late")},
        "spec": {"clusterIP": "None"},
    }));
    plan(&model, &format!("before list {TOYS} two/* -> answer 403"));
    let harness = run(&model, &[NAMESPACES], keeper(&calls));
    sleep(10 * MOMENT).await;
    let before = adds(&harness, "toy");
    assert!(before.is_some());
    sleep(600 * MOMENT).await;
    assert_eq!(adds(&harness, "toy"), before);
    assert_eq!(value(&harness.scrape(), r#"operator_waiting_objects{kind="Toy"}"#), Some(0.0));
    model.put(json!({
        "apiVersion": "tests.example.com/v1", "kind": "Toy",
        "metadata": {"name": "late", "namespace": "two", "generation": 1}, "spec": {"size": 1},
    }));
    model.set_faults(NoFaults);
    sleep(15 * MOMENT).await;
    assert!(calls.of("late") > 0, "its list wakes it");
}

/// How often a [`Size`] was decoded.
static DECODED: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Size(i32);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        DECODED.fetch_add(1, Ordering::Relaxed);
        i32::deserialize(from).map(Self)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "tests.example.com", version = "v1", kind = "Counted", namespaced, status = "StandardStatus")]
struct CountedSpec {
    size: Size,
}

#[tokio::test(start_paused = true)]
async fn w28_object_that_waits_for_a_refused_list_is_rarely_looked_at_and_not_decoded() {
    let model = model();
    model.install(&normalize(&Counted::crd()));
    model.put(json!({
        "apiVersion": "tests.example.com/v1", "kind": "Counted",
        "metadata": {"name": "a", "namespace": "two", "generation": 1}, "spec": {"size": 1},
    }));
    plan(&model, "before list services.core two/* -> answer 403");
    let (clock, calls) = (model.clone(), Arc::<AtomicUsize>::default());
    let counted = calls.clone();
    let setup = move |manager: &mut Manager| {
        let calls = counted.clone();
        let reconcile = move |_: Arc<Counted>, _: Context<Counted>| {
            calls.fetch_add(1, Ordering::Relaxed);
            async { Ok(Action::Done) }
        };
        manager.add(Controller::of::<Counted>().owns::<Service>().reconcile(reconcile));
    };
    let flags = [NAMESPACES, NO_RESYNC];
    let harness = Harness::start(&Toys(setup), &flags, model.client_named("toys"), move || clock.now());
    sleep(10 * MOMENT).await;
    let before = adds(&harness, "counted").expect("the object was ready");
    let decoded = DECODED.load(Ordering::Relaxed); // a scrape decodes the objects
    sleep(600 * MOMENT).await;
    assert_eq!(DECODED.load(Ordering::Relaxed), decoded);
    let looks = adds(&harness, "counted").expect("the object was ready") - before;
    assert!(looks < 20.0, "{looks} looks in ten minutes");
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    model.set_faults(NoFaults);
    sleep(15 * MOMENT).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// The list after the gap shows the change, or the watch delivers it late.
#[tokio::test(start_paused = true)]
async fn w22_change_of_a_child_while_its_watch_is_refused_is_not_missed() {
    for (fault, refused) in [("gone", "list"), ("truncate 20", "watch")] {
        let model = filled();
        let _harness = run(&model, &[NAMESPACES], keep);
        sleep(10 * MOMENT).await;
        assert_eq!(port(&model, "two"), Some(1), "{refused}");
        let lost = format!("frame DELETED services.core two/* -> {fault}");
        plan(&model, &format!("{lost}; before {refused} services.core two/* -> answer 403"));
        model.take("services", "two", "a").expect("it exists");
        sleep(60 * MOMENT).await;
        assert_eq!(port(&model, "two"), None, "{refused}");
        model.set_faults(NoFaults);
        sleep(15 * MOMENT).await;
        assert_eq!(port(&model, "two"), Some(1), "{refused}");
    }
}

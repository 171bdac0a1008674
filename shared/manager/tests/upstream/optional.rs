//! Declarations that controller-runtime's tests do not cover: optional kinds, which a cluster may not have, and indices.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::Service, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use manager::{Action, Context, Controller, Error, Manager, Operator, harness::Harness, normalize, permissions};
use model_apiserver::{Model, NoFaults, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;
use workloads::{Child, Viewed};

use crate::kit::{Calls, MOMENT, NO_RESYNC, Toy, change, model, plan, put, reconcile_errors};

/// A kind of another project, such as `ServiceMonitor`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "gadgets.example.com", version = "v1", kind = "Gadget", namespaced)]
struct GadgetSpec {
    size: i32,
}

#[derive(Debug, PartialEq, Deserialize)]
struct GadgetView {}

impl Viewed for Gadget {
    type View = GadgetView;
}

impl Child for Gadget {
    fn set_defaults(_: &mut Value) {}
}

/// Creates a Gadget if the kind is installed, and always a Service. Records which toys have the same size.
#[derive(Clone, Default)]
struct Gadgets {
    calls: Calls,
    twins: Arc<Mutex<Vec<String>>>,
}

impl Operator for Gadgets {
    fn name(&self) -> &'static str {
        "gadgets"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        Vec::new()
    }

    fn sample(&self) -> &'static str {
        "{}"
    }

    fn setup(&self, manager: &mut Manager) {
        let this = self.clone();
        manager.add(
            Controller::of::<Toy>()
                .owns::<Service>()
                .owns_if_installed::<Gadget>()
                .index("size", |toy: &Toy| vec![toy.spec.size.to_string()])
                .reconcile(move |toy, context| reconcile(this.clone(), toy, context)),
        );
    }
}

async fn reconcile(gadgets: Gadgets, toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    gadgets.calls.note(&toy);
    let twins = context.indexed("size", &toy.spec.size.to_string());
    *gadgets.twins.lock().expect("no panic") = twins.iter().map(|toy| toy.name_any()).collect();
    let gadget = Gadget::new(&toy.name_any(), GadgetSpec { size: toy.spec.size });
    context.apply_or_delete(Some(gadget)).await?;
    let service = json!({"metadata": {"name": toy.name_any()}, "spec": {"ports": [{"port": 80, "targetPort": 80}]}});
    context.apply::<Service>(serde_json::from_value(service).expect("a Service")).await?;
    Ok(Action::Done)
}

fn start(model: &Model) -> (Gadgets, Harness) {
    start_with(model, &[])
}

fn start_with(model: &Model, flags: &[&str]) -> (Gadgets, Harness) {
    let (gadgets, clock) = (Gadgets::default(), model.clone());
    let flags = [flags, &[NO_RESYNC]].concat();
    let harness = Harness::start(&gadgets, &flags, model.client_named("toys"), move || clock.now());
    (gadgets, harness)
}

#[tokio::test(start_paused = true)]
async fn uninstalled_kind_blocks_nothing_and_is_used_once_installed() {
    let model = model();
    put(&model, &["a"]);
    let (gadgets, harness) = start(&model);
    sleep(MOMENT).await;
    assert_eq!(model.objects("services").len(), 1, "the other children exist");
    assert_eq!(reconcile_errors(&harness), Some(0.0));
    let writes = |model: &Model| {
        model.requests().iter().filter(|it| it.resource.starts_with("gadgets") && it.verb.writes()).count()
    };
    assert_eq!(writes(&model), 0, "no request for a kind that is not installed");
    let before = gadgets.calls.count();
    sleep(Duration::from_hours(1)).await;
    model.clear_requests();
    sleep(Duration::from_mins(10)).await;
    let idle: Vec<_> = model.requests().into_iter().filter(|it| it.verb != Verb::Watch).collect();
    assert!(idle.is_empty(), "a watch of the definition replaces all lists: {idle:?}");

    model.install(&normalize(&Gadget::crd()));
    sleep(10 * MOMENT).await;
    assert_eq!(model.objects("gadgets.gadgets.example.com").len(), 1);
    assert!(gadgets.calls.count() > before);

    // After the kind is uninstalled, the controller sends no request for it. After it is installed again, the Gadget is created.
    model.uninstall("gadgets.gadgets.example.com");
    sleep(600 * MOMENT).await;
    let asked = writes(&model);
    change(&model, "a", 2).await;
    sleep(10 * MOMENT).await;
    assert_eq!(writes(&model), asked);
    model.install(&normalize(&Gadget::crd()));
    sleep(10 * MOMENT).await;
    assert_eq!(model.objects("gadgets.gadgets.example.com").len(), 1);
}

#[test]
fn only_the_definition_of_an_optional_kind_may_be_watched() {
    let rules = permissions(&[&Gadgets::default()]);
    let of_definitions: Vec<_> = rules
        .iter()
        .filter(|rule| rule.resources.iter().flatten().any(|it| it == "customresourcedefinitions"))
        .map(|rule| (rule.api_groups.clone(), rule.resource_names.clone(), rule.verbs.clone()))
        .collect();
    let only = |text: &str| Some(vec![text.to_owned()]);
    let expected = (only("apiextensions.k8s.io"), only("gadgets.gadgets.example.com"), vec!["watch".to_owned()]);
    assert_eq!(of_definitions, [expected], "not that of Toy, which is required");
}

#[tokio::test(start_paused = true)]
async fn only_a_missing_kind_is_reported_as_missing() {
    let model = model();
    model.install(&normalize(&Gadget::crd()));
    plan(&model, "before list gadgets.gadgets.example.com #1 -> answer 503");
    put(&model, &["a"]);
    let (_gadgets, _harness) = start(&model);
    let reported = || model.objects("events.events.k8s.io").iter().any(|it| it["reason"] == "GadgetUnavailable");
    sleep(10 * MOMENT).await;
    assert_eq!(model.objects("gadgets.gadgets.example.com").len(), 1);
    assert!(!reported(), "it is installed, and was only not listed yet");

    model.uninstall("gadgets.gadgets.example.com");
    sleep(600 * MOMENT).await;
    change(&model, "a", 2).await;
    sleep(10 * MOMENT).await;
    assert!(reported());
}

/// The Role of one namespace lacks the optional kind. The other namespace uses the kind nevertheless.
#[tokio::test(start_paused = true)]
async fn w22_optional_kind_that_one_namespace_cannot_list_is_used_in_the_others() {
    for answer in ["403", "503"] {
        let model = model();
        put(&model, &["a"]);
        model.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}));
        model.put(json!({
            "apiVersion": "tests.example.com/v1", "kind": "Toy",
            "metadata": {"name": "b", "namespace": "other", "generation": 1}, "spec": {"size": 1},
        }));
        plan(&model, &format!("before list gadgets.gadgets.example.com other/* -> answer {answer}"));
        let (_gadgets, _harness) = start_with(&model, &["--watch-namespaces=default,other"]);
        let gadget = |namespace, name| model.object("gadgets.gadgets.example.com", namespace, name).is_some();
        let gadgets = || (gadget("default", "a"), gadget("other", "b"));
        sleep(10 * MOMENT).await;
        assert_eq!(model.objects("services").len(), 2, "{answer}: the other children exist");

        model.install(&normalize(&Gadget::crd()));
        sleep(120 * MOMENT).await; // with named namespaces, only the next list shows the kind
        assert_eq!(gadgets(), (true, false), "{answer}");
        model.set_faults(NoFaults);
        sleep(15 * MOMENT).await;
        assert_eq!(gadgets(), (true, true), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn index_follows_object_changes() {
    let model = model();
    put(&model, &["a", "b", "c"]);
    let (gadgets, _harness) = start(&model);
    sleep(MOMENT).await;
    let twins = || gadgets.twins.lock().expect("no panic").clone();
    change(&model, "b", 2).await;
    sleep(MOMENT).await;
    assert_eq!(twins(), ["b"]);
    change(&model, "c", 2).await;
    sleep(MOMENT).await;
    assert_eq!(twins(), ["b", "c"]);
    model.take("toys.tests.example.com", "default", "b");
    sleep(MOMENT).await;
    change(&model, "a", 2).await;
    sleep(MOMENT).await;
    assert_eq!(twins(), ["a", "c"]);
}

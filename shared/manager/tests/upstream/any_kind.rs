//! Children of kinds without a view in `workloads`: cached whole, or as a view of the operator's own.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Secret};
use kube::{
    Api, CustomResource, CustomResourceExt, ResourceExt,
    api::{Patch, PatchParams},
};
use manager::{Action, Context, Controller, Error, Health, Manager, Verdict, harness::Harness, normalize};
use model_apiserver::Model;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;
use workloads::{As, ViewOf, Whole};

use crate::kit::{Calls, MOMENT, NO_RESYNC, Toy, Toys, change, condition, model, put, writes};

/// The part of a `StatefulSet` that the reconciler reads.
#[derive(Debug, PartialEq, Deserialize)]
struct SetView {
    spec: SetSpec,
}

#[derive(Debug, PartialEq, Deserialize)]
struct SetSpec {
    replicas: Option<i32>,
}

impl ViewOf<StatefulSet> for SetView {}

type Set = As<StatefulSet, SetView>;

fn typed<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object of that kind")
}

/// A `StatefulSet` with one replica per size.
fn set(name: &str, size: i32) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": size, "serviceName": name, "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "a", "image": "a", "ports": [{"containerPort": 80}]}]},
        },
    }})
}

/// Keeps a Secret, and a `StatefulSet` with one replica per size.
async fn keep(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let name = toy.name_any();
    let secret: Secret = typed(json!({"metadata": {"name": name}, "data": {"size": "MQ=="}, "type": "Opaque"}));
    let secret = context.apply(Whole::from(secret)).await?;
    let set = context.apply(Set::from(typed::<StatefulSet>(set(&name, toy.spec.size)))).await?;
    let replicas = set.and_then(|set| set.spec.replicas);
    let has_data = secret.is_some_and(|secret| secret.data.as_ref().is_some_and(|data| data.contains_key("size")));
    let verdict = Verdict::yes("Ready", format!("{replicas:?} replicas, data: {has_data}"));
    context.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

fn start(model: &Model, calls: &Calls) -> Harness {
    let (clock, calls) = (model.clone(), calls.clone());
    let setup = move |manager: &mut Manager| {
        let calls = calls.clone();
        manager.add(Controller::of::<Toy>().owns::<Set>().owns::<Whole<Secret>>().reconcile(
            move |toy: Arc<Toy>, context| {
                calls.note(&toy);
                keep(toy, context)
            },
        ));
    };
    Harness::start(&Toys(setup), &[NO_RESYNC], model.client_named("toys"), move || clock.now())
}

fn message(model: &Model) -> Value {
    let toy = model.object(crate::kit::TOYS, "default", "a").expect("it exists");
    condition(&toy, "Ready")["message"].clone()
}

#[tokio::test(start_paused = true)]
async fn children_without_a_view_are_kept_in_sync() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a"]);
    let _harness = start(&model, &calls);
    sleep(MOMENT).await;
    assert_eq!(message(&model), "Some(1) replicas, data: true");
    let before = writes(&model).len();
    sleep(600 * MOMENT).await;
    assert_eq!(writes(&model).len(), before, "nothing is written once the state is reached");

    change(&model, "a", 3).await;
    sleep(MOMENT).await;
    assert_eq!(model.object("statefulsets.apps", "default", "a").expect("it exists")["spec"]["replicas"], 3);

    let secrets: Api<Secret> = Api::namespaced(model.client(), "default");
    let patch = Patch::Merge(json!({"data": {"size": "Mg=="}}));
    secrets.patch("a", &PatchParams::default(), &patch).await.expect("the patch is accepted");
    sleep(MOMENT).await;
    assert_eq!(model.object("secrets", "default", "a").expect("it exists")["data"]["size"], "MQ==", "it is put back");
}

#[tokio::test(start_paused = true)]
async fn defaults_are_given_up_once_and_the_next_process_sends_nothing() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a"]);
    let harness = start(&model, &calls);
    sleep(MOMENT).await;
    harness.crash().await;
    let spec = |model: &Model| model.object("statefulsets.apps", "default", "a").expect("it exists")["spec"].clone();
    let sent = writes(&model).into_iter().filter(|it| it.1 == "statefulsets.apps").map(|it| it.0);
    assert_eq!(sent.collect::<Vec<_>>(), ["create", "patch"], "the patch gives up the defaults");

    let requests = model.requests().len();
    let harness = start(&model, &calls);
    sleep(60 * MOMENT).await;
    let sent = model.requests().split_off(requests);
    let sent: Vec<_> =
        sent.iter().filter(|it| it.resource == "statefulsets.apps" && it.verb.as_str() != "watch").collect();
    assert!(sent.len() <= 1, "only the list of the cache: {sent:?}");

    change(&model, "a", 4).await;
    sleep(MOMENT).await;
    assert_eq!(spec(&model)["replicas"], 4, "later changes work");
    let sets: Api<StatefulSet> = Api::namespaced(model.client(), "default");
    let patch = Patch::Merge(json!({"spec": {"replicas": 9, "podManagementPolicy": "Parallel"}}));
    sets.patch("a", &PatchParams::default(), &patch).await.expect("the patch is accepted");
    sleep(MOMENT).await;
    assert_eq!((&spec(&model)["replicas"], &spec(&model)["podManagementPolicy"]), (&json!(4), &json!("Parallel")));
    drop(harness);
}

/// Keeps such a `StatefulSet` with a volume for each replica. The API server sets defaults in the elements of this list. The list
/// has no keys, so a client owns it as a whole, with the defaults.
async fn keep_with_volumes(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let mut set = set(&toy.name_any(), toy.spec.size);
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }}]);
    context.apply(Set::from(typed::<StatefulSet>(set))).await?;
    context.apply_status(Health::of(Verdict::yes("Ready", "it is kept")).into()).await?;
    Ok(Action::Done)
}

#[tokio::test(start_paused = true)]
async fn defaults_in_a_list_without_keys_cost_a_read_and_a_dry_run_in_each_process() {
    let model = model();
    put(&model, &["a"]);
    let setup = |manager: &mut Manager| {
        manager.add(Controller::of::<Toy>().owns::<Set>().reconcile(keep_with_volumes));
    };
    let life = async |size: i32| {
        let (clock, before) = (model.clone(), model.requests().len());
        let harness = Harness::start(&Toys(setup), &[NO_RESYNC], model.client_named("toys"), move || clock.now());
        sleep(600 * MOMENT).await;
        let started = model.requests().len();
        change(&model, "a", size).await;
        sleep(600 * MOMENT).await;
        harness.crash().await;
        let mut sent = model.requests().split_off(before);
        let later = sent.split_off(started - before);
        [sent, later].map(|sent| {
            let of_sets = sent.into_iter().filter(|it| it.client == "toys" && it.resource == "statefulsets.apps");
            let requests = of_sets.map(|it| (it.verb.as_str(), it.dry_run));
            requests.filter(|(verb, _)| !["list", "watch"].contains(verb)).collect::<Vec<_>>()
        })
    };
    let [first, _] = life(2).await;
    assert_eq!(first, [("create", false)]);
    for size in [3, 4] {
        let [started, changed] = life(size).await;
        assert_eq!(started, [("get", false), ("patch", true)], "size {size}");
        assert!(changed.iter().all(|(_, is_dry_run)| !is_dry_run), "{changed:?}");
        let set = model.object("statefulsets.apps", "default", "a").expect("it exists");
        assert_eq!(set["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"], "Filesystem");
        assert_eq!(set["spec"]["replicas"], size);
    }
}

#[tokio::test(start_paused = true)]
async fn bookkeeping_of_a_whole_child_wakes_nothing() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a"]);
    let _harness = start(&model, &calls);
    sleep(MOMENT).await;
    let before = calls.count();
    let secrets: Api<Secret> = Api::namespaced(model.client(), "default");
    // Another manager applies what is there already: only `managedFields` change.
    let mine = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "Opaque"});
    secrets.patch("a", &PatchParams::apply("other"), &Patch::Apply(&mine)).await.expect("the patch is accepted");
    sleep(MOMENT).await;
    assert_eq!(calls.count(), before);
}

/// A kind of another project. Its type implements no trait of this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "gadgets.example.com", version = "v1", kind = "Gadget", namespaced, derive = "PartialEq")]
struct GadgetSpec {
    size: i32,
    /// The API server sets a default.
    #[serde(default = "red", skip_serializing_if = "String::is_empty")]
    colour: String,
}

fn red() -> String {
    "red".to_owned()
}

const GADGETS: &str = "gadgets.gadgets.example.com";

/// Keeps a Gadget of the object's size, in any colour.
async fn keep_gadget(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let gadget = Gadget::new(&toy.name_any(), GadgetSpec { size: toy.spec.size, colour: String::new() });
    let gadget = context.apply(Whole::from(gadget)).await?;
    let colour = gadget.map(|gadget| gadget.spec.colour.clone()).unwrap_or_default();
    context.apply_status(Health::of(Verdict::yes("Ready", format!("it is {colour}"))).into()).await?;
    Ok(Action::Done)
}

#[tokio::test(start_paused = true)]
async fn child_of_a_kind_of_another_project_is_kept_in_sync() {
    let model = model();
    model.install(&normalize(&Gadget::crd()));
    put(&model, &["a"]);
    let clock = model.clone();
    let setup = |manager: &mut Manager| {
        manager.add(Controller::of::<Toy>().owns::<Whole<Gadget>>().reconcile(keep_gadget));
    };
    let _harness = Harness::start(&Toys(setup), &[NO_RESYNC], model.client_named("toys"), move || clock.now());
    let spec = || model.object(GADGETS, "default", "a").expect("it exists")["spec"].clone();
    sleep(MOMENT).await;
    assert_eq!((spec(), message(&model)), (json!({"size": 1, "colour": "red"}), json!("it is red")));
    sleep(600 * MOMENT).await;
    let sent = writes(&model).into_iter().filter(|it| it.1 == GADGETS).map(|it| it.0);
    assert_eq!(sent.collect::<Vec<_>>(), ["create", "patch"], "the patch gives up the default");

    change(&model, "a", 3).await;
    sleep(MOMENT).await;
    assert_eq!(spec(), json!({"size": 3, "colour": "red"}));
    let gadgets: Api<Gadget> = Api::namespaced(model.client(), "default");
    let patch = Patch::Merge(json!({"spec": {"size": 9, "colour": "blue"}}));
    gadgets.patch("a", &PatchParams::default(), &patch).await.expect("the patch is accepted");
    sleep(MOMENT).await;
    assert_eq!(spec(), json!({"size": 3, "colour": "blue"}), "the colour is not ours");
    assert_eq!(message(&model), "it is blue");
}

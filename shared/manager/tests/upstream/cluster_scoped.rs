//! A primary that is in no namespace, with a child that is in none either, and one that is.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResource, CustomResourceExt, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
};
use manager::{
    Action, Context, Controller, Deletion, Error, Health, Manager, Operator, StandardStatus, Verdict, harness::Harness,
    normalize,
};
use model_apiserver::{Model, NoFaults, Planned, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;
use workloads::Whole;

use crate::kit::{MOMENT, NO_RESYNC, condition, plan, value};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "tests.example.com", version = "v1", kind = "Tenant", status = "StandardStatus")]
struct TenantSpec {
    text: String,
}

const TENANTS: &str = "tenants.tests.example.com";

struct Tenants {
    /// Whether the desired `ConfigMap` names its namespace.
    names_namespace: bool,
}

impl Operator for Tenants {
    fn name(&self) -> &'static str {
        "tenants"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Tenant::crd()]
    }

    fn sample(&self) -> &'static str {
        "{}"
    }

    fn setup(&self, manager: &mut Manager) {
        let names_namespace = self.names_namespace;
        manager.add(
            Controller::of::<Tenant>()
                .owns::<Whole<Namespace>>()
                .owns::<ConfigMap>()
                .on_delete("tests.example.com/farewell", |_, _| async { Ok(Deletion::Finished) })
                .reconcile(move |tenant, context| keep(tenant, context, names_namespace)),
        );
    }
}

async fn keep(tenant: Arc<Tenant>, context: Context<Tenant>, names_namespace: bool) -> Result<Action, Error> {
    context.ensure_finalizer().await?;
    let name = tenant.name_any();
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let namespace = context.apply(Whole::from(Namespace { metadata, ..Namespace::default() })).await?;
    let metadata = ObjectMeta {
        name: Some("welcome".to_owned()),
        namespace: names_namespace.then(|| name.clone()),
        ..ObjectMeta::default()
    };
    let data = Some(BTreeMap::from([("text".to_owned(), tenant.spec.text.clone())]));
    context.apply(ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
    let verdict = if namespace.is_some() { Verdict::yes("Ready", "it is there") } else { Verdict::no("Missing", "no") };
    context.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

fn start(model: &Model, names_namespace: bool, flags: &[&str]) -> Harness {
    let clock = model.clone();
    let flags = [flags, &[NO_RESYNC]].concat();
    Harness::start(&Tenants { names_namespace }, &flags, model.client_named("tenants"), move || clock.now())
}

fn with_tenants(names: &[&str]) -> Model {
    let model = Model::new();
    model.install(&normalize(&Tenant::crd()));
    for name in names {
        model.put(json!({
            "apiVersion": "tests.example.com/v1", "kind": "Tenant",
            "metadata": {"name": name, "generation": 1}, "spec": {"text": "hello"},
        }));
    }
    model
}

fn ready(model: &Model, name: &str) -> Value {
    let tenant = model.object(TENANTS, "", name).expect("it exists");
    condition(&tenant, "Ready")["status"].clone()
}

fn text(model: &Model, namespace: &str) -> Value {
    let map = model.object("configmaps", namespace, "welcome").unwrap_or_default();
    map["data"]["text"].clone()
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_object_keeps_children_in_and_outside_of_namespaces() {
    let model = with_tenants(&["red", "blue"]);
    let _harness = start(&model, true, &[]);
    sleep(MOMENT).await;
    for name in ["red", "blue"] {
        assert_eq!((ready(&model, name), text(&model, name)), (json!("True"), json!("hello")), "{name}");
        let namespace = model.object("namespaces", "", name).expect("it exists");
        let owner = &namespace["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["name"]), (&json!("Tenant"), &json!(name)));
    }
    let before = model.requests().len();
    sleep(600 * MOMENT).await;
    let writes = model.requests()[before..]
        .iter()
        .filter(|it| it.verb.writes() && it.resource != "leases.coordination.k8s.io")
        .count();
    assert_eq!(writes, 0, "nothing is written once the state is reached");
}

#[tokio::test(start_paused = true)]
async fn change_of_a_child_wakes_its_cluster_scoped_owner() {
    let model = with_tenants(&["red"]);
    let _harness = start(&model, true, &[]);
    sleep(MOMENT).await;
    let maps: Api<ConfigMap> = Api::namespaced(model.client(), "red");
    let patch = Patch::Merge(json!({"data": {"text": "goodbye"}}));
    maps.patch("welcome", &PatchParams::default(), &patch).await.expect("the patch is accepted");
    sleep(MOMENT).await;
    assert_eq!(text(&model, "red"), "hello");
    maps.delete("welcome", &DeleteParams::default()).await.expect("it is deleted");
    sleep(10 * MOMENT).await;
    assert_eq!(text(&model, "red"), "hello");
    let namespaces: Api<Namespace> = Api::all(model.client());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/name": "other"}}}));
    namespaces.patch("red", &PatchParams::default(), &patch).await.expect("the patch is accepted");
    sleep(MOMENT).await;
    let namespace = model.object("namespaces", "", "red").expect("it exists");
    assert_eq!(namespace["metadata"]["labels"]["app.kubernetes.io/name"], "tenant");
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_object_is_watched_with_any_watched_namespaces() {
    let model = with_tenants(&["red", "blue"]);
    let _harness = start(&model, true, &["--watch-namespaces=red"]);
    sleep(MOMENT).await;
    assert_eq!(ready(&model, "red"), "True");
    assert_eq!(ready(&model, "blue"), "True");
}

/// Its children may be in any namespace.
#[tokio::test(start_paused = true)]
async fn cluster_scoped_object_that_waits_for_the_list_of_one_namespace_is_counted() {
    let model = with_tenants(&["red"]);
    plan(&model, "before list configmaps.core blue/* -> answer 403");
    let harness = start(&model, true, &["--watch-namespaces=red,blue"]);
    let waiting = || value(&harness.scrape(), r#"operator_waiting_objects{kind="Tenant"}"#);
    sleep(10 * MOMENT).await;
    assert_eq!((ready(&model, "red"), waiting()), (Value::Null, Some(1.0)));
    model.set_faults(NoFaults);
    sleep(15 * MOMENT).await;
    assert_eq!((ready(&model, "red"), waiting()), (json!("True"), Some(0.0)));
}

/// A finalizer holds the namespace of the children.
#[tokio::test(start_paused = true)]
async fn terminating_namespace_of_the_children_is_reported() {
    let model = with_tenants(&["red"]);
    let _harness = start(&model, true, &[]);
    sleep(MOMENT).await;
    let (namespaces, maps) =
        (Api::<Namespace>::all(model.client()), Api::<ConfigMap>::namespaced(model.client(), "red"));
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["tests.example.com/stay"]}}));
    namespaces.patch("red", &PatchParams::default(), &held).await.expect("the patch is accepted");
    namespaces.delete("red", &DeleteParams::default()).await.expect("it is being deleted");
    maps.delete("welcome", &DeleteParams::default()).await.expect("it is deleted");
    sleep(10 * MOMENT).await;
    assert_eq!(text(&model, "red"), Value::Null, "no object can be made in the namespace");
    assert_eq!(ready(&model, "red"), "False");
}

#[tokio::test(start_paused = true)]
async fn deleted_cluster_scoped_object_is_cleaned_up() {
    let model = with_tenants(&["red"]);
    let _harness = start(&model, true, &[]);
    sleep(MOMENT).await;
    let tenants: Api<Tenant> = Api::all(model.client());
    tenants.delete("red", &DeleteParams::default()).await.expect("it is deleted");
    sleep(10 * MOMENT).await;
    assert!(model.object(TENANTS, "", "red").is_none(), "the finalizer is removed");
}

/// The API server answers the removal of the last finalizer with the former version of the object, and other content.
#[tokio::test(start_paused = true)]
async fn removal_of_the_last_finalizer_does_not_look_like_a_restored_cluster() {
    let model = with_tenants(&["red"]);
    let _harness = start(&model, true, &[]);
    sleep(MOMENT).await;
    model.set_faults(Planned::new(&"frame DELETED tenants.* -> delay 1s".parse().expect("a plan")));
    model.clear_requests();
    let tenants: Api<Tenant> = Api::all(model.client());
    tenants.delete("red", &DeleteParams::default()).await.expect("it is deleted");
    sleep(10 * MOMENT).await;
    assert!(model.object(TENANTS, "", "red").is_none(), "the finalizer is removed");
    let lists: Vec<_> = model.requests().into_iter().filter(|request| request.verb == Verb::List).collect();
    assert!(lists.is_empty(), "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn child_outside_of_the_selected_namespaces_does_not_look_like_a_restored_cluster() {
    let model = with_tenants(&["red"]);
    let _harness = start(&model, true, &["--watch-namespace-selector=team=a"]);
    sleep(10 * MOMENT).await;
    model.clear_requests();
    let tenants: Api<Tenant> = Api::all(model.client());
    for text in ["goodbye", "hello again"] {
        let patch = Patch::Merge(json!({"spec": {"text": text}}));
        tenants.patch("red", &PatchParams::default(), &patch).await.expect("the patch is accepted");
        sleep(40 * MOMENT).await;
    }
    let lists: Vec<_> = model.requests().into_iter().filter(|request| request.verb == Verb::List).collect();
    assert!(lists.is_empty(), "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn child_without_a_namespace_of_a_cluster_scoped_object_is_an_error() {
    let model = with_tenants(&["red"]);
    let harness = start(&model, false, &[]);
    sleep(MOMENT).await;
    assert!(model.object("namespaces", "", "red").is_some());
    assert_eq!(model.objects("configmaps"), Vec::<Value>::new());
    assert!(harness.scrape().contains(r#"controller_runtime_reconcile_errors_total{controller="tenant"}"#));
}

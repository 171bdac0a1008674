//! The tools of these tests: the kind `Toy`, an operator whose reconciler each test supplies, and helpers around the model.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::Service, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResource, CustomResourceExt, ResourceExt,
    api::{Patch, PatchParams},
};
use manager::{
    Action, Context, Controller, Error, Health, Manager, Operator, StandardStatus, Verdict, harness::Harness,
};
use model_apiserver::{Model, Planned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Long enough for everything that does not wait deliberately.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);
/// Turns resyncs off, so that only real causes start a reconcile.
pub(crate) const NO_RESYNC: &str = "--resync-interval=10000h";

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "tests.example.com", version = "v1", kind = "Toy", namespaced, status = "StandardStatus")]
pub(crate) struct ToySpec {
    pub(crate) size: i32,
}

/// An operator of the kind `Toy`. The function adds its controllers.
pub(crate) struct Toys<F>(pub(crate) F);

impl<F: Fn(&mut Manager) + Send + Sync> Operator for Toys<F> {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Toy::crd()]
    }

    fn sample(&self) -> &'static str {
        "{}"
    }

    fn setup(&self, manager: &mut Manager) {
        self.0(manager);
    }
}

/// A model of the API server with the CRD of `Toy`.
pub(crate) fn model() -> Model {
    let model = Model::new();
    model.install(&manager::normalize(&Toy::crd()));
    model
}

/// Starts a controller of the kind `Toy`.
pub(crate) fn run<F, R>(model: &Model, flags: &[&str], reconcile: F) -> Harness
where
    F: Fn(Arc<Toy>, Context<Toy>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Action, Error>> + Send,
{
    run_as(model, "toys", flags, reconcile)
}

/// Same as [`run`], with a client name that fault plans can match.
pub(crate) fn run_as<F, R>(model: &Model, name: &str, flags: &[&str], reconcile: F) -> Harness
where
    F: Fn(Arc<Toy>, Context<Toy>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Action, Error>> + Send,
{
    let clock = model.clone();
    let flags = [flags, &[NO_RESYNC]].concat();
    let setup = |manager: &mut Manager| {
        manager.add(Controller::of::<Toy>().owns::<Service>().reconcile(reconcile.clone()));
    };
    Harness::start(&Toys(setup), &flags, model.client_named(name), move || clock.now())
}

/// Creates objects with size 1.
pub(crate) fn put(model: &Model, names: &[&str]) {
    put_into(model, "default", names);
}

/// Same as [`put`], in another namespace.
pub(crate) fn put_into(model: &Model, namespace: &str, names: &[&str]) {
    for name in names {
        model.put(json!({
            "apiVersion": "tests.example.com/v1", "kind": "Toy",
            "metadata": {"name": name, "namespace": namespace, "generation": 1, "annotations": {"note": "größer als ➀"}},
            "spec": {"size": 1},
        }));
    }
}

/// The labels of the children of an object.
pub(crate) fn labels(name: &str) -> Value {
    json!({
        "app.kubernetes.io/name": "toy", "app.kubernetes.io/instance": name, "app.kubernetes.io/managed-by": "toy-operator",
    })
}

/// Changes the size of an object, as a user does.
pub(crate) async fn change(model: &Model, name: &str, size: i32) {
    let api: Api<Toy> = Api::namespaced(model.client(), "default");
    let patch = Patch::Merge(json!({"spec": {"size": size}}));
    api.patch(name, &PatchParams::default(), &patch).await.expect("the API server accepts the patch");
}

/// An error that the runtime retries.
pub(crate) fn failure() -> Error {
    Error::Other("no".into())
}

/// The value of one series in a scrape.
pub(crate) fn value(scrape: &str, series: &str) -> Option<f64> {
    scrape.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Records which objects were reconciled, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<(String, Instant)>>>);

impl Calls {
    pub(crate) fn note(&self, toy: &Toy) {
        self.0.lock().expect("no panic").push((toy.name_any(), Instant::now()));
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    pub(crate) fn of(&self, name: &str) -> usize {
        self.0.lock().expect("no panic").iter().filter(|call| call.0 == name).count()
    }

    /// The times between successive calls.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        self.0.lock().expect("no panic").windows(2).map(|pair| pair[1].1 - pair[0].1).collect()
    }
}

/// A reconciler that keeps one Service with the object's size as its port, and reports the object as ready.
pub(crate) async fn keep(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let port = json!([{"name": "a", "port": toy.spec.size, "protocol": "TCP", "targetPort": toy.spec.size}]);
    keep_service(&toy, &context, json!({"spec": {"ports": port}})).await
}

/// Keeps one Service like this under the name of the object, and reports the object as ready.
pub(crate) async fn keep_service(toy: &Toy, context: &Context<Toy>, mut service: Value) -> Result<Action, Error> {
    service["metadata"]["name"] = json!(toy.name_any());
    let kept =
        context.apply::<Service>(serde_json::from_value(service).map_err(|error| Error::Other(error.into()))?).await?;
    let verdict =
        if kept.is_some() { Verdict::yes("Ready", "it is there") } else { Verdict::no("Missing", "it is not") };
    context.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

/// A reconciler that writes the object's size into the message of `Ready`.
pub(crate) async fn report_size(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let verdict = Verdict::yes("Ready", format!("size {}", toy.spec.size));
    context.apply_status_at_once(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

/// [`keep`], which also records every call.
pub(crate) fn keeper(calls: &Calls) -> impl Fn(Arc<Toy>, Context<Toy>) -> Keeping + Clone + Send + Sync + 'static {
    let calls = calls.clone();
    move |toy, context| {
        calls.note(&toy);
        Box::pin(keep(toy, context))
    }
}

type Keeping = Pin<Box<dyn Future<Output = Result<Action, Error>> + Send>>;

/// Applies the fault plan from now on.
pub(crate) fn plan(model: &Model, text: &str) -> Arc<Planned> {
    let planned = Arc::new(Planned::new(&text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))));
    model.set_shared_faults(planned.clone());
    planned
}

/// The port of the Service with this name, if the present object with this name owns it.
pub(crate) fn port(model: &Model, name: &str) -> Option<i64> {
    let (toy, service) = (model.object(TOYS, "default", name)?, model.object("services", "default", name)?);
    let is_its = service["metadata"]["ownerReferences"][0]["uid"] == toy["metadata"]["uid"];
    service["spec"]["ports"][0]["port"].as_i64().filter(|_| is_its)
}

/// Whether the status reports the present generation of the object as ready.
pub(crate) fn is_ready(model: &Model, name: &str) -> bool {
    let Some(toy) = model.object(TOYS, "default", name) else { return false };
    let ready = condition(&toy, "Ready");
    ready["status"] == "True" && ready["observedGeneration"] == toy["metadata"]["generation"]
}

/// The condition `Ready` of the object with this name; null if there is none.
pub(crate) fn ready(model: &Model, name: &str) -> Value {
    condition(&model.object(TOYS, "default", name).unwrap_or_default(), "Ready")
}

/// The condition of this type in the status of the object; null if there is none.
pub(crate) fn condition(object: &Value, type_: &str) -> Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|it| it["type"] == type_).cloned().unwrap_or_default()
}

/// Waits until `is_so`, and returns how long that took. Panics after one hour.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_hours(1), "not within one hour: {what}");
        tokio::time::sleep((begun.elapsed() / 50).max(Duration::from_millis(10))).await;
    }
    begun.elapsed()
}

/// All write requests, also failed ones, without events and leases: verb, resource, status code.
pub(crate) fn writes(model: &Model) -> Vec<(&'static str, String, Option<u16>)> {
    let entries = model.requests().into_iter().filter(|it| it.verb.writes() && it.client.starts_with("toys"));
    let told = entries.filter(|it| !it.resource.starts_with("events") && !it.resource.starts_with("leases"));
    told.map(|it| (it.verb.as_str(), it.resource, it.code)).collect()
}

/// Waits for the final state, and checks that the operator then writes nothing for ten minutes. Returns how long the wait took.
pub(crate) async fn settles(model: &Model, what: &str) -> Duration {
    let took = until(what, || port(model, "a") == Some(1) && is_ready(model, "a")).await;
    assert_eq!(model.objects("services").len(), 1, "{what}");
    tokio::time::sleep(MOMENT).await;
    let before = writes(model);
    tokio::time::sleep(600 * MOMENT).await;
    assert_eq!(writes(model), before, "{what}: the operator still writes");
    took
}

pub(crate) const TOYS: &str = "toys.tests.example.com";

/// Keeps a Service unless the object's size is zero.
pub(crate) async fn keep_unless_zero(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let port = json!([{"name": "a", "port": 80}]);
    let service = json!({"metadata": {"name": toy.name_any()}, "spec": {"ports": port}});
    let wanted = (toy.spec.size > 0).then(|| serde_json::from_value(service).expect("a Service"));
    context.apply_or_delete::<Service>(wanted).await?;
    Ok(Action::Done)
}

/// Keeps a Service with as many ports as the object's size: a change of a list, which the runtime sends as an apply.
pub(crate) async fn keep_ports(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let ports: Vec<_> = (1..=toy.spec.size).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    let service = json!({"metadata": {"name": toy.name_any()}, "spec": {"ports": ports}});
    context.apply::<Service>(serde_json::from_value(service).expect("a Service")).await?;
    Ok(Action::Done)
}

/// How many reconciles of toys have failed; `None` before the first reconcile.
pub(crate) fn reconcile_errors(harness: &Harness) -> Option<f64> {
    value(&harness.scrape(), r#"controller_runtime_reconcile_errors_total{controller="toy"}"#)
}

//! A kind whose reconciler is the test's.

use std::{
    future::Future,
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
use manager::{Action, Condition, Context, Controller, Error, Manager, Operator, Reconcile, harness::Harness};
use model_apiserver::Model;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

/// Long enough for whatever does not wait on purpose.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);
/// No resync in any test that does not want one.
pub(crate) const NO_RESYNC: &str = "--resync-interval=10000h";

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "tests.example.com", version = "v1", kind = "Toy", namespaced, status = "ToyStatus")]
pub(crate) struct ToySpec {
    size: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ToyStatus {
    observed_generation: Option<i64>,
    last_handled_reconcile_at: Option<String>,
    conditions: Vec<Condition>,
}
manager::standard_status!(ToyStatus);

struct Toys<F>(F);

impl<F: Reconcile<Toy> + Clone> Operator for Toys<F> {
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
        manager.add(Controller::of::<Toy>().owns::<Service>().reconcile(self.0.clone()));
    }
}

/// An API server that knows the kind.
pub(crate) fn model() -> Model {
    let model = Model::new();
    model.install(&manager::normalize(&Toy::crd()));
    model
}

/// Starts a controller of the kind.
pub(crate) fn run<F, R>(model: &Model, flags: &[&str], reconcile: F) -> Harness
where
    F: Fn(Arc<Toy>, Context<Toy>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Action, Error>> + Send,
{
    let clock = model.clone();
    let flags = [flags, &[NO_RESYNC]].concat();
    Harness::start(&Toys(reconcile), &flags, model.client_named("toys"), move || clock.now())
}

/// Makes objects.
pub(crate) fn put(model: &Model, names: &[&str]) {
    for name in names {
        model.put(json!({
            "apiVersion": "tests.example.com/v1", "kind": "Toy",
            "metadata": {"name": name, "namespace": "default", "generation": 1}, "spec": {"size": 1},
        }));
    }
}

/// Changes an object as a user does.
pub(crate) async fn change(model: &Model, name: &str, size: i32) {
    let api: Api<Toy> = Api::namespaced(model.client(), "default");
    let patch = Patch::Merge(json!({"spec": {"size": size}}));
    api.patch(name, &PatchParams::default(), &patch).await.expect("the patch is taken");
}

/// An error that is tried again.
pub(crate) fn failure() -> Error {
    Error::Other("no".into())
}

/// The value of one series, as it stands in a scrape.
pub(crate) fn value(scrape: &str, series: &str) -> Option<f64> {
    scrape.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Which objects were reconciled, and when.
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

    /// The times between them.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        self.0.lock().expect("no panic").windows(2).map(|pair| pair[1].1 - pair[0].1).collect()
    }
}

//! The shortest operator that works: a Greeting keeps a `ConfigMap`. `cargo run -p manager --example minimal -- crds`
use std::{process::ExitCode, sync::Arc};

use k8s_openapi::{api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions};
use kube::{CustomResource, CustomResourceExt, api::ObjectMeta};
use manager::{Action, Condition, Context, Controller, Error, Health, Manager, Operator, Report, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, status = "GreetingStatus")]
struct GreetingSpec {
    text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct GreetingStatus {
    observed_generation: Option<i64>,
    last_handled_reconcile_at: Option<String>,
    conditions: Vec<Condition>,
}
manager::standard_status!(GreetingStatus);

async fn reconcile(greeting: Arc<Greeting>, ctx: Context<Greeting>) -> Result<Action, Error> {
    let metadata = ObjectMeta { name: greeting.metadata.name.clone(), ..ObjectMeta::default() };
    let data = Some([("text".to_owned(), greeting.spec.text.clone())].into());
    ctx.apply(ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
    let health = Health::of(Verdict::yes("Ready", "the greeting is written"));
    ctx.apply_status(Report { status: GreetingStatus::default(), health }).await?;
    Ok(Action::Done)
}

struct Greetings;
impl Operator for Greetings {
    fn name(&self) -> &'static str {
        "greetings"
    }
    fn crds(&self) -> Vec<apiextensions::CustomResourceDefinition> {
        vec![Greeting::crd()]
    }
    fn sample(&self) -> &'static str {
        "{apiVersion: example.com/v1, kind: Greeting, metadata: {name: hello}, spec: {text: Hi}}"
    }
    fn setup(&self, manager: &mut Manager) {
        manager.add(Controller::of::<Greeting>().owns::<ConfigMap>().reconcile(reconcile));
    }
}
fn main() -> ExitCode {
    manager::main(&[&Greetings])
}

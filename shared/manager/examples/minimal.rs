//! The shortest operator that works: a Greeting keeps a `ConfigMap`. `cargo run -p operators-manager --example minimal -- crds`
use std::{process::ExitCode, sync::Arc};

use k8s_openapi::{api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions};
use kube::{CustomResource, CustomResourceExt, api::ObjectMeta};
use manager::{Action, Context, Controller, Error, Health, Manager, Operator, StandardStatus, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, status = "StandardStatus")]
struct GreetingSpec {
    text: String,
}

async fn reconcile(greeting: Arc<Greeting>, ctx: Context<Greeting>) -> Result<Action, Error> {
    let metadata = ObjectMeta { name: greeting.metadata.name.clone(), ..ObjectMeta::default() };
    let data = Some([("text".to_owned(), greeting.spec.text.clone())].into());
    ctx.apply(ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
    let health = Health::of(Verdict::yes("Ready", "the greeting is written"));
    ctx.apply_status(health.into()).await?;
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

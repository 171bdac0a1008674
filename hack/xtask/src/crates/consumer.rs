//! A program outside of the workspace, which depends on the packaged crates by version. `cargo xtask nightly --only crates` builds
//! and runs it.

use std::sync::Arc;
use std::time::Duration;

use fault_plan::Plan;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, CustomResource, CustomResourceExt};
use manager::{Action, Context, Controller, Error, Health, Manager, Operator, StandardStatus, Verdict};
use manager_testing::InMemory;
use model_apiserver::Model;
use schedule::{Schedule, Zone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use webhooks::Webhook;
use workqueue::{Outcome, Priority, WorkQueue};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, status = "StandardStatus")]
struct GreetingSpec {
    text: String,
}

async fn reconcile(greeting: Arc<Greeting>, ctx: Context<Greeting>) -> Result<Action, Error> {
    let metadata = ObjectMeta { name: greeting.metadata.name.clone(), ..ObjectMeta::default() };
    let data = Some([("text".to_owned(), greeting.spec.text.clone())].into());
    ctx.apply(ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
    ctx.apply_status(Health::of(Verdict::yes("Ready", "the greeting is written")).into()).await?;
    Ok(Action::Done)
}

struct Greetings;

impl Operator for Greetings {
    fn name(&self) -> &'static str {
        "greetings"
    }
    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Greeting::crd()]
    }
    fn sample(&self) -> &'static str {
        "{apiVersion: example.com/v1, kind: Greeting, metadata: {name: hello}, spec: {text: Hi}}"
    }
    fn setup(&self, manager: &mut Manager) {
        manager.add(Controller::of::<Greeting>().owns::<ConfigMap>().reconcile(reconcile));
    }
}

/// The runtime with its cache and its queues, on the model of the API server, with the test kit.
async fn operator_runs() {
    let mut memory = InMemory::new(&Greetings, &[]);
    let client = memory.model.client_named("user");
    let greetings: Api<Greeting> = Api::namespaced(client.clone(), "default");
    let hello = Greeting::new("hello", GreetingSpec { text: "Hi".to_owned() });
    greetings.create(&PostParams::default(), &hello).await.expect("the model stores the object");
    memory.start();
    let writes = memory.until_quiet().await;
    assert!(!writes.is_empty(), "the operator wrote nothing");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let map = maps.get("hello").await.expect("the operator has created the ConfigMap");
    assert_eq!(map.data.unwrap_or_default()["text"], "Hi");
}

async fn queue_hands_out() {
    let queue = WorkQueue::new(workqueue::Config::default());
    queue.add("key", Priority::LIVE);
    queue.add("key", Priority::LIVE);
    let item = queue.get().await.expect("a key");
    assert_eq!(item.key(), &"key");
    item.done(Outcome::Success);
    let none = tokio::time::timeout(Duration::from_secs(1), queue.get()).await;
    assert!(none.is_err(), "the queue has handed out a key twice");
}

fn schedule_fires() {
    let schedule: Schedule = "0 9 * * mon-fri".parse().expect("a schedule");
    let now = "2026-11-20T12:00:00Z".parse().expect("a time");
    let zone = Zone::named("Europe/Berlin").expect("a zone");
    let next = "2026-11-23T09:00:00+01:00".parse().expect("a time");
    assert_eq!(schedule.times(&zone, now).after(now), Some(next));
}

/// The other crates: that they link, and that their types are those of this program's `kube` and `k8s-openapi`.
fn others_link() {
    leader_election::Config::new("default", "lease").validate().expect("the default durations are valid");
    let _ = cache::Informers::default();
    let _ = Webhook::validating::<Greeting>(|_, _| webhooks::ValidationResult::none());
    let plan: Plan = "after create configmaps.core */a #1 -> drop".parse().expect("a plan");
    assert!(!plan.to_string().is_empty());
    assert!(Model::new().objects("configmaps").is_empty());
    assert!(simulation::Campaign::from_env(Duration::from_secs(1)).worlds > 0);
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    schedule_fires();
    others_link();
    queue_hands_out().await;
    operator_runs().await;
    println!("the packages work together");
}

//! Rollback: an older version of an operator runs after a newer one, then the newer one runs again. The CRD stays that of the
//! newer version.
//!
//! The newer version has several things that the older one does not know: a field of the spec, of the status and of its memory, a
//! condition, an annotation, fields of a child, and a kind of child.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResource, CustomResourceExt, ResourceExt,
    api::{Patch, PatchParams},
};
use manager::{
    Action, Condition, Context, Controller, Error, Fence, Health, Manager, Operator, Report, Verdict, harness::Harness,
    normalize,
};
use model_apiserver::{Collecting, Model};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const CACHES: &str = "caches.tests.example.com";
const NAME: &str = "web";
const FLAGS: &[&str] = &["--leader-elect", "--leader-election-namespace=default", "--resync-interval=1m"];
/// Longer than the delay of a status, a lease and several resyncs.
const LONG: Duration = Duration::from_mins(5);

/// One version of the operator.
struct Version {
    definition: fn() -> CustomResourceDefinition,
    setup: fn(&mut Manager),
}

impl Operator for Version {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![(self.definition)()]
    }

    fn sample(&self) -> &'static str {
        "{}"
    }

    fn setup(&self, manager: &mut Manager) {
        (self.setup)(manager);
    }
}

mod older {
    use super::*;

    #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
    #[kube(group = "tests.example.com", version = "v1", kind = "Cache", namespaced, status = "CacheStatus")]
    pub(super) struct CacheSpec {
        size: i32,
    }

    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct CacheStatus {
        last_resize: Option<Resize>,
        fence: Option<Fence>,
        observed_generation: Option<i64>,
        last_handled_reconcile_at: Option<String>,
        conditions: Vec<Condition>,
    }
    manager::standard_status!(CacheStatus, fenced);

    /// The operator's memory: how often the size changed.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    pub(super) struct Resize {
        size: i32,
        count: i32,
    }

    pub(super) fn operator() -> Version {
        Version { definition: Cache::crd, setup }
    }

    fn setup(manager: &mut Manager) {
        manager.add(Controller::of::<Cache>().owns::<Deployment>().reconcile(reconcile));
    }

    async fn reconcile(_: Arc<Cache>, ctx: Context<Cache>) -> Result<Action, Error> {
        let Some(cache) = ctx.refresh_status().await? else { return Ok(Action::Done) };
        ctx.apply::<Deployment>(typed(deployment(&cache.name_any(), cache.spec.size))).await?;
        let mut status = cache.status.clone().unwrap_or_default();
        let resize = status.last_resize.get_or_insert_default();
        if resize.size != cache.spec.size {
            *resize = Resize { size: cache.spec.size, count: resize.count + 1 };
        }
        ctx.apply_status(Report { status, health: Health::of(Verdict::yes("Ready", "")) }).await?;
        Ok(Action::Done)
    }
}

mod newer {
    use super::*;

    #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
    #[kube(group = "tests.example.com", version = "v1", kind = "Cache", namespaced, status = "CacheStatus")]
    pub(super) struct CacheSpec {
        size: i32,
        shards: Option<i32>,
    }

    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct CacheStatus {
        last_resize: Option<Resize>,
        shards: Option<i32>,
        fence: Option<Fence>,
        observed_generation: Option<i64>,
        last_handled_reconcile_at: Option<String>,
        conditions: Vec<Condition>,
    }
    manager::standard_status!(CacheStatus, fenced);

    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    pub(super) struct Resize {
        size: i32,
        count: i32,
        from: Option<i32>,
    }

    pub(super) fn operator() -> Version {
        Version { definition: Cache::crd, setup }
    }

    fn setup(manager: &mut Manager) {
        let controller = Controller::of::<Cache>().owns::<Deployment>().owns::<Service>().annotates();
        manager.add(controller.reconcile(reconcile));
    }

    async fn reconcile(_: Arc<Cache>, ctx: Context<Cache>) -> Result<Action, Error> {
        let Some(cache) = ctx.refresh_status().await? else { return Ok(Action::Done) };
        let marked = cache.annotations().contains_key(SHARDED);
        let cache = if marked { cache } else { ctx.annotate(&[(SHARDED, Some("true"))]).await? };
        let mut wanted = deployment(&cache.name_any(), cache.spec.size);
        wanted["metadata"]["annotations"] = json!({"shards": "2"});
        wanted["spec"]["minReadySeconds"] = json!(7);
        let pod = &mut wanted["spec"]["template"]["spec"];
        pod["terminationGracePeriodSeconds"] = json!(60);
        pod["containers"].as_array_mut().expect("a list").push(json!({"name": "router", "image": "router:2"}));
        ctx.apply::<Deployment>(typed(wanted)).await?;
        let service = json!({"metadata": {"name": cache.name_any()}, "spec": {"ports": [{"port": 80}]}});
        ctx.apply::<Service>(typed(service)).await?;
        let mut status = cache.status.clone().unwrap_or_default();
        status.shards = cache.spec.shards;
        let resize = status.last_resize.get_or_insert_default();
        if resize.size != cache.spec.size {
            *resize = Resize { size: cache.spec.size, count: resize.count + 1, from: Some(resize.size) };
        }
        let ready = Verdict::yes("Ready", "");
        let health = Health { available: Some(Verdict::yes("Sharded", "")), ..Health::of(ready) };
        ctx.apply_status(Report { status, health }).await?;
        Ok(Action::Done)
    }
}

const SHARDED: &str = "tests.example.com/sharded";

/// The part of the Deployment that both versions want.
fn deployment(name: &str, size: i32) -> Value {
    let labels = json!({"app": name});
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": size, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "cache", "image": "cache:1"}]},
        }},
    })
}

fn typed<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of that kind")
}

/// The API server, and the operator version that runs now.
struct World {
    model: Model,
    running: Option<Harness>,
    runs: u32,
}

impl World {
    /// A world with the CRD of the newer version, which runs and has reconciled one object.
    async fn with_newer_version_running() -> Self {
        let model = Model::new();
        model.set_collecting(Collecting::AtOnce);
        model.install(&normalize(&newer::Cache::crd()));
        let mut world = Self { model, running: None, runs: 0 };
        world.user(json!({"spec": {"size": 3, "shards": 2}})).await;
        world.run(&newer::operator()).await;
        let annotated = json!({"metadata": {"annotations": {"note": "of a user"}}});
        let deployments: Api<Deployment> = Api::namespaced(world.model.client(), "default");
        deployments.patch(NAME, &PatchParams::default(), &Patch::Merge(&annotated)).await.expect("it is taken");
        world
    }

    /// Stops the running version, as an update of its Deployment does, and starts another. Returns the writes of the latter.
    async fn run(&mut self, operator: &dyn Operator) -> Vec<String> {
        if let Some(mut running) = self.running.take() {
            running.stop().await;
        }
        self.runs += 1;
        let (client, clock) = (self.model.client_named(&format!("run-{}", self.runs)), self.model.clone());
        self.running = Some(Harness::start(operator, FLAGS, client, move || clock.now()));
        self.writes().await
    }

    /// Lets time pass, and returns the operator's writes in this time, without leases and events.
    async fn writes(&self) -> Vec<String> {
        let before = self.model.requests().len();
        tokio::time::sleep(LONG).await;
        let requests = self.model.requests().split_off(before).into_iter();
        let ours = requests.filter(|it| it.client.starts_with("run-") && it.verb.writes());
        let ours = ours.filter(|it| !it.resource.starts_with("events") && !it.resource.starts_with("leases"));
        ours.map(|it| format!("{} {}/{}", it.verb.as_str(), it.resource, it.subresource)).collect()
    }

    async fn user(&self, more: Value) {
        let mut cache =
            json!({"apiVersion": "tests.example.com/v1", "kind": "Cache", "metadata": {"name": NAME}, "spec": {}});
        merge(&mut cache, &more);
        let api: Api<newer::Cache> = Api::namespaced(self.model.client(), "default");
        api.patch(NAME, &PatchParams::apply("kubectl").force(), &Patch::Apply(&cache)).await.expect("it is taken");
    }

    fn cache(&self) -> Value {
        self.model.object(CACHES, "default", NAME).expect("it is there")
    }

    fn deployment(&self) -> Value {
        self.model.object("deployments.apps", "default", NAME).expect("it is there")
    }

    fn warnings(&self) -> Vec<String> {
        let events = self.model.objects("events.events.k8s.io").into_iter();
        events.filter(|it| it["type"] == "Warning").map(|it| it["note"].to_string()).collect()
    }
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            more.iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, more) => *into = more.clone(),
    }
}

fn conditions(cache: &Value) -> Vec<&str> {
    cache["status"]["conditions"].as_array().into_iter().flatten().filter_map(|it| it["type"].as_str()).collect()
}

/// Whether the Deployment has each of the four things that only the newer version wants.
fn has_fields_of_newer_version(deployment: &Value) -> [bool; 4] {
    let pod = &deployment["spec"]["template"]["spec"];
    [
        deployment["metadata"]["annotations"]["shards"] == "2",
        deployment["spec"]["minReadySeconds"] == 7,
        pod["terminationGracePeriodSeconds"] == 60,
        pod["containers"].as_array().is_some_and(|containers| containers.len() == 2),
    ]
}

#[tokio::test(start_paused = true)]
async fn older_version_keeps_unknown_data_and_comes_to_rest() {
    let mut world = World::with_newer_version_running().await;
    let (of_newer, uid) = (world.cache(), world.deployment()["metadata"]["uid"].clone());
    assert_eq!(has_fields_of_newer_version(&world.deployment()), [true; 4]);
    assert_eq!(conditions(&of_newer), ["Available", "Degraded", "Ready"]);

    let written = world.run(&older::operator()).await;
    assert_eq!(
        written,
        ["patch deployments.apps/".to_owned(), "patch deployments.apps/".to_owned(), format!("patch {CACHES}/status")],
        "our entry in `managedFields` becomes an apply entry, then follow the apply and the status"
    );
    let (cache, deployment) = (world.cache(), world.deployment());
    assert_eq!(has_fields_of_newer_version(&deployment), [false; 4], "the child follows the running version");
    assert_eq!(deployment["metadata"]["annotations"]["note"], "of a user");
    assert_eq!(deployment["metadata"]["uid"], uid);
    assert_eq!(world.model.objects("services").len(), 1, "a child whose kind the older version does not know stays");
    assert_eq!(cache["spec"], of_newer["spec"]);
    assert_eq!(cache["metadata"]["annotations"], of_newer["metadata"]["annotations"]);
    assert_eq!(conditions(&cache), ["Degraded", "Ready"], "the older version could not keep the other condition true");
    for (what, is) in of_newer["status"].as_object().expect("a status") {
        if !["conditions", "fence"].contains(&what.as_str()) {
            assert_eq!(&cache["status"][what], is, "{what}");
        }
    }

    assert_eq!(world.writes().await, [""; 0], "no writes after further reconciles");
    assert_eq!(world.run(&older::operator()).await, [""; 0], "a new process does not write either");
}

#[tokio::test(start_paused = true)]
async fn newer_version_recovers_its_data_after_a_rollback() {
    let mut world = World::with_newer_version_running().await;
    let (of_newer, spec) = (world.cache(), world.deployment()["spec"].clone());
    world.run(&older::operator()).await;
    world.user(json!({"spec": {"size": 4, "shards": 2}})).await;
    world.writes().await;
    let resize = json!({"size": 4, "count": 2, "from": 0});
    assert_eq!(world.cache()["status"]["lastResize"], resize, "the unknown field keeps the value of the first resize");
    world.user(json!({"spec": {"size": 3, "shards": 2}})).await;
    world.writes().await;

    world.run(&newer::operator()).await;
    let cache = world.cache();
    assert_eq!(world.deployment()["spec"], spec);
    assert_eq!(cache["status"]["shards"], of_newer["status"]["shards"]);
    assert_eq!(cache["status"]["lastResize"], json!({"size": 3, "count": 3, "from": 0}));
    assert_eq!(conditions(&cache), conditions(&of_newer));
    assert_eq!(world.writes().await, [""; 0]);
    assert_eq!(world.run(&newer::operator()).await, [""; 0]);
}

/// The rollback and the upgrade after it emit no `DriftReverted`: the changes were not made by another client.
#[tokio::test(start_paused = true)]
async fn changes_by_another_version_are_not_drift() {
    let mut world = World::with_newer_version_running().await;
    world.run(&older::operator()).await;
    assert_eq!(world.warnings(), [""; 0], "after the rollback");
    world.run(&newer::operator()).await;
    assert_eq!(world.warnings(), [""; 0], "after the upgrade");
}

/// A fence may name another lease: that of another installation, or one that was deleted.
#[tokio::test(start_paused = true)]
async fn fence_of_another_lease_is_ignored_and_replaced() {
    let mut world = World::with_newer_version_running().await;
    let fence = json!({"status": {"fence": {"lease": "of another installation", "epoch": 99}}});
    let api: Api<newer::Cache> = Api::namespaced(world.model.client(), "default");
    api.patch_status(NAME, &PatchParams::default(), &Patch::Merge(&fence)).await.expect("it is taken");
    world.run(&older::operator()).await;
    world.user(json!({"spec": {"size": 4, "shards": 2}})).await;
    world.writes().await;
    let leases = world.model.objects("leases.coordination.k8s.io");
    let status = world.cache()["status"].take();
    assert_eq!(status["lastResize"]["count"], 2);
    assert_eq!(status["fence"]["lease"], leases[0]["metadata"]["uid"]);
    assert_eq!(status["fence"]["epoch"], leases[0]["spec"]["leaseTransitions"]);
    assert_eq!(world.run(&older::operator()).await, [""; 0]);
}

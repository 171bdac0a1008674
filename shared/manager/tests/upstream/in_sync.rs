//! Deciding whether a child is in sync. The operator restores missing fields, accepts what admission makes of our fields, and the
//! next process decides the same.

mod managed_fields;
mod policies;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, networking::v1::NetworkPolicy};
use kube::{
    Api, Resource,
    api::{ApiResource, DynamicObject, PostParams},
    core::NamespaceResourceScope,
};
use manager::{Action, Context, Controller, Error, Health, Manager, Verdict, harness::Harness};
use model_apiserver::{Entry, Kind, Model};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use workloads::Child;

use crate::kit::{NO_RESYNC, Toy, Toys, model};

const NAME: &str = "a";
/// Longer than any write is delayed.
const QUIET: Duration = Duration::from_secs(10);

/// A cluster with one primary, whose child has the kind `C`.
struct World<C> {
    model: Model,
    running: Option<Harness>,
    kind: std::marker::PhantomData<fn() -> C>,
}

/// A kind of child in a namespace.
trait NamespacedChild: Child + Resource<Scope = NamespaceResourceScope> + DeserializeOwned {}
impl<C: Child + Resource<Scope = NamespaceResourceScope> + DeserializeOwned> NamespacedChild for C {}

impl<C: NamespacedChild> World<C> {
    fn new() -> Self {
        let model = model();
        model.register(Kind::custom("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"));
        crate::kit::put(&model, &[NAME]);
        Self { model, running: None, kind: std::marker::PhantomData }
    }

    fn resource() -> String {
        let (group, plural) = (C::group(&()), C::plural(&()));
        if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
    }

    /// Starts a new process with this desired child. Returns its requests, without watches and lists, until it is quiet.
    async fn run(&mut self, desired: &Value) -> Vec<Entry> {
        self.stop().await;
        let before = self.model.requests().len();
        let setup = |manager: &mut Manager| {
            let desired = desired.clone();
            let reconcile = move |_: Arc<Toy>, context: Context<Toy>| {
                let child: Result<C, _> = serde_json::from_value(desired.clone());
                async move {
                    context.apply(child.map_err(|error| Error::Other(error.into()))?).await?;
                    let health = Health::of(Verdict::yes("Ready", "it is there"));
                    context.apply_status(health.into()).await?;
                    Ok(Action::Done)
                }
            };
            manager.add(Controller::of::<Toy>().owns::<C>().reconcile(reconcile));
        };
        let (client, clock) = (self.model.client_named("keeper"), self.model.clone());
        self.running = Some(Harness::start(&Toys(setup), &[NO_RESYNC], client, move || clock.now()));
        self.since(before).await
    }

    async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.crash().await;
        }
    }

    /// Returns the requests from now on, without watches and lists, until the process is quiet.
    async fn quiet(&self) -> Vec<Entry> {
        self.since(self.model.requests().len()).await
    }

    async fn since(&self, before: usize) -> Vec<Entry> {
        tokio::time::sleep(QUIET).await;
        let asked = self.model.requests().split_off(before).into_iter().filter(|it| it.client == "keeper");
        asked.filter(|it| !matches!(it.verb.as_str(), "watch" | "list")).collect()
    }

    fn child(&self) -> Value {
        self.model.object(&Self::resource(), "default", NAME).expect("the child")
    }

    /// Changes the child as another client does with a PUT.
    async fn edit(&self, manager: &str, edit: impl FnOnce(&mut Value)) {
        let mut child = self.child();
        edit(&mut child);
        let resource = ApiResource::erase::<C>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.model.client(), "default", &resource);
        let parameters = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
        let child = serde_json::from_value(child).expect("an object");
        api.replace(NAME, &parameters, &child).await.expect("the API server accepts the change");
    }

    /// Reason and note of all events, without those of creations.
    fn told(&self) -> Vec<String> {
        let events = self.model.objects("events.events.k8s.io").into_iter();
        let text = |event: Value| format!("{}: {}", event["reason"].as_str().unwrap_or_default(), event["note"]);
        events.filter(|it| it["reason"] != "Created").map(text).collect()
    }
}

/// The writes among these requests, without dry runs and events: verb and resource.
fn writes(asked: &[Entry]) -> Vec<(&str, &str)> {
    let writes = asked.iter().filter(|it| it.verb.writes() && !it.dry_run && !it.resource.starts_with("events"));
    writes.map(|it| (it.verb.as_str(), &*it.resource)).collect()
}

fn without(value: &Value, pointer: &str) -> Value {
    let mut value = value.clone();
    take(&mut value, pointer);
    value
}

fn take(value: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    match value.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&last.replace("~1", "/"))),
        Some(Value::Array(items)) => {
            if let Some(index) = last.parse().ok().filter(|index| *index < items.len()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

/// A Deployment with each sort of empty value that the API server keeps.
fn deployment() -> Value {
    json!({"metadata": {"name": NAME}, "spec": {
        "replicas": 0, "paused": true,
        "selector": {"matchLabels": {"app": "a"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {
            "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": false, "runAsUser": 0},
            "containers": [{
                "name": "app", "image": "app:1", "args": ["-v"], "env": [{"name": "A", "value": "1"}],
                "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "1000m"}, "limits": {"memory": "1024Mi"}},
                "readinessProbe": {"grpc": {"port": 80, "service": ""}, "timeoutSeconds": 2},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": false,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 0}],
            "volumes": [
                {"name": "data", "emptyDir": {}},
                {"name": "token", "projected": {"defaultMode": 0, "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                ]}},
            ],
        }},
    }})
}

const FALSE: &str = "/spec/template/spec/automountServiceAccountToken";
const CONTAINER_FALSE: &str = "/spec/template/spec/containers/0/securityContext/allowPrivilegeEscalation";

#[tokio::test(start_paused = true)]
async fn removed_false_zero_or_empty_value_is_restored() {
    let pod = "/spec/template/spec";
    for (pointer, whole) in [
        (FALSE.to_owned(), json!(false)),
        (CONTAINER_FALSE.to_owned(), json!(false)),
        (format!("{pod}/terminationGracePeriodSeconds"), json!(0)),
        (format!("{pod}/securityContext/runAsUser"), json!(0)),
        (format!("{pod}/containers/0/readinessProbe/grpc/service"), json!("")),
        (format!("{pod}/volumes/0/emptyDir"), json!({})),
    ] {
        let mut world = World::<Deployment>::new();
        world.run(&deployment()).await;
        for process in ["the same", "the next"] {
            assert_eq!(world.child().pointer(&pointer), Some(&whole));
            world.edit("kubectl-patch", |child| take(child, &pointer)).await;
            if process == "the next" {
                world.run(&deployment()).await;
            } else {
                world.quiet().await;
            }
            // Where the API server's default equals our value, this holds without a write.
            assert_eq!(world.child().pointer(&pointer), Some(&whole), "{pointer} by {process} process");
        }
        assert!(world.quiet().await.is_empty());
    }
}

/// The API server refuses an object that has both alternatives, and an apply alone would only add ours.
#[tokio::test(start_paused = true)]
async fn mutually_exclusive_field_of_another_client_is_reverted() {
    let container = "/spec/template/spec/containers/0";
    for (parent, theirs) in [
        ("/spec/template/spec/volumes/0".to_owned(), json!({"name": "data", "configMap": {"name": "x"}})),
        (format!("{container}/env/0"), json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})),
        (format!("{container}/readinessProbe"), json!({"tcpSocket": {"port": 80}, "timeoutSeconds": 2})),
    ] {
        for is_applied in [false, true] {
            let mut world = World::<Deployment>::new();
            if is_applied {
                let mut before = deployment();
                before["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["-q"]);
                world.run(&before).await;
            }
            world.run(&deployment()).await;
            let ours = world.child().pointer(&parent).cloned().expect("ours");
            world.edit("kubectl-edit", |child| *child.pointer_mut(&parent).expect("ours") = theirs.clone()).await;
            world.quiet().await;
            assert_eq!(world.child().pointer(&parent), Some(&ours), "after an apply: {is_applied}");
            assert!(world.quiet().await.is_empty());
            assert!(writes(&world.run(&deployment()).await).is_empty());
            let told = world.told();
            let drift: Vec<&String> = told.iter().filter(|it| it.starts_with("DriftReverted")).collect();
            assert_eq!(drift.len(), 1, "{told:?}");
        }
    }
}

/// The API server adds defaults to some alternatives, here to the first of each pair. Each change is one change of the template, so
/// that a Deployment rolls out once.
#[tokio::test(start_paused = true)]
async fn own_alternative_is_exchanged_by_one_write() {
    let container = "/spec/template/spec/containers/0";
    for (parent, alternatives) in [
        (
            "/spec/template/spec/volumes/0".to_owned(),
            [json!({"name": "data", "configMap": {"name": "x"}}), json!({"name": "data", "emptyDir": {}})],
        ),
        (
            format!("{container}/env/0"),
            [
                json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
                json!({"name": "A", "value": "1"}),
            ],
        ),
        (
            format!("{container}/readinessProbe"),
            [
                json!({"httpGet": {"path": "/", "port": 80}, "timeoutSeconds": 2}),
                json!({"tcpSocket": {"port": 80}, "timeoutSeconds": 2}),
            ],
        ),
    ] {
        let mut world = World::<Deployment>::new();
        for step in 0..4_usize {
            let mut desired = deployment();
            *desired.pointer_mut(&parent).expect("a place") = alternatives[step % 2].clone();
            desired["spec"]["template"]["spec"]["containers"][0]["args"] = json!([step.to_string()]);
            let generation = world.model.object("deployments.apps", "default", NAME).map_or(0, |it| generation_of(&it));
            world.run(&desired).await;
            let child = world.child();
            let (ours, other) = (&alternatives[step % 2], &alternatives[(step + 1) % 2]);
            let now = child.pointer(&parent).expect("ours");
            for name in ours.as_object().expect("an object").keys() {
                assert!(now.get(name).is_some(), "{name} of {parent} in step {step}: {now}");
            }
            for name in other.as_object().expect("an object").keys().filter(|name| ours.get(name).is_none()) {
                assert_eq!(now.get(name), None, "{name} of {parent} in step {step}");
            }
            assert_eq!(generation_of(&child), generation + 1, "{parent} in step {step}");
            assert!(world.quiet().await.is_empty());
        }
    }
}

fn generation_of(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().expect("a generation")
}

#[tokio::test(start_paused = true)]
async fn new_false_or_empty_field_reaches_existing_children() {
    for pointer in [FALSE, CONTAINER_FALSE, "/spec/template/spec/volumes/0/emptyDir"] {
        let mut world = World::<Deployment>::new();
        world.run(&without(&deployment(), pointer)).await;
        assert_eq!(world.child().pointer(pointer), None);
        world.run(&deployment()).await;
        assert!(world.child().pointer(pointer).is_some(), "{pointer}");
        let told = world.told();
        assert!(told.iter().all(|it| !it.starts_with("DriftReverted")), "the new version is not drift: {told:?}");
        assert!(writes(&world.run(&deployment()).await).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn fields_of_others_below_our_empty_map_are_unowned() {
    let mut world = World::<Deployment>::new();
    world.run(&deployment()).await;
    let limit = "/spec/template/spec/volumes/0/emptyDir/sizeLimit";
    world
        .edit("kubectl", |child| {
            child["spec"]["template"]["spec"]["volumes"][0]["emptyDir"] = json!({"sizeLimit": "1Gi"});
        })
        .await;
    assert!(world.quiet().await.is_empty());
    let asked = world.run(&deployment()).await;
    assert!(asked.is_empty(), "{asked:#?}");
    assert_eq!(world.child().pointer(limit), Some(&json!("1Gi")));
    assert_eq!(world.told(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn drift_event_lists_only_changed_fields() {
    let mut world = World::<Deployment>::new();
    world.model.mutate("deployments.apps", |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("mirror/app:1");
    });
    world.run(&deployment()).await;
    world.edit("kubectl", |child| child["spec"]["replicas"] = json!(7)).await;
    world.quiet().await;
    assert_eq!(world.child()["spec"]["replicas"], 0);
    let told = world.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("made by kubectl: spec.replicas; "), "{told:?}");
}

/// An empty `NetworkPolicy` has an empty selector too, so the API server does not record that the create set it. If no entry owns
/// a field, another client could change the field, and our entry would not show it.
#[tokio::test(start_paused = true)]
async fn fields_missing_from_the_create_entry_are_claimed_once() {
    let policy = json!({"metadata": {"name": NAME}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
    let holds_selector = |world: &World<NetworkPolicy>| {
        world.child()["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:podSelector"].is_object()
    };
    let mut world = World::<NetworkPolicy>::new();
    world.run(&policy).await;
    assert!(!holds_selector(&world));
    world.run(&policy).await;
    assert!(holds_selector(&world));
    assert!(writes(&world.run(&policy).await).is_empty());
    assert_eq!(world.told(), [""; 0]);
}

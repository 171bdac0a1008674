//! When a child is in sync: what is missing is put back, what the cluster makes of our fields is let be, and the next
//! process comes to the same verdict.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Service},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use manager::{Action, Context, Controller, Error, Health, Manager, Namespaced, Report, Verdict, harness::Harness};
use model_apiserver::{Entry, Kind, Model, Planned, Signalled};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use workloads::{Child, ServiceMonitor};

use crate::kit::{NO_RESYNC, Toy, ToyStatus, Toys, model};

const NAME: &str = "a";
/// Longer than anything is held back.
const QUIET: Duration = Duration::from_secs(10);

/// A cluster with one object, whose child is of this kind.
struct World<C> {
    model: Model,
    running: Option<Harness>,
    kind: std::marker::PhantomData<fn() -> C>,
}

impl<C: Child + Namespaced + DeserializeOwned> World<C> {
    fn new() -> Self {
        let model = model();
        model.register(Kind::custom("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"));
        model.register(Kind::custom("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"));
        crate::kit::put(&model, &[NAME]);
        Self { model, running: None, kind: std::marker::PhantomData }
    }

    fn resource() -> String {
        let (group, plural) = (C::group(&()), C::plural(&()));
        if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
    }

    /// Another process, which wants this; returns what it has asked for beside watches, until it asks no more.
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
                    context.apply_status(Report { status: ToyStatus::default(), health }).await?;
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

    /// What is asked for beside watches and lists from now on, until nothing is any more.
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
        api.replace(NAME, &parameters, &child).await.expect("the change is taken");
    }

    /// Replaces the `managedFields` of the child at a moment that the plan signals. Returns how often that happened.
    fn replace_managed_fields_at(&self, faults: &str, entries: &Value) -> Arc<AtomicUsize> {
        let resource = ApiResource::erase::<C>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.model.client(), "default", &resource);
        let count = Arc::new(AtomicUsize::new(0));
        let counting = count.clone();
        let patch = Patch::Merge(json!({"metadata": {"managedFields": entries}}));
        let replace = move |_: &str| -> Signalled {
            let (api, count, patch) = (api.clone(), counting.clone(), patch.clone());
            Box::pin(async move {
                api.patch(NAME, &PatchParams::default(), &patch).await.expect("the change is taken");
                count.fetch_add(1, Ordering::Relaxed);
            })
        };
        self.model.set_shared_faults(Arc::new(Planned::with_signals(&faults.parse().expect("a plan"), replace)));
        count
    }

    /// Type, reason and text of all events, without those of creations.
    fn told(&self) -> Vec<String> {
        let events = self.model.objects("events.events.k8s.io").into_iter();
        let text = |event: Value| format!("{}: {}", event["reason"].as_str().unwrap_or_default(), event["note"]);
        events.filter(|it| it["reason"] != "Created").map(text).collect()
    }
}

/// What is stored or would be, events aside.
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

/// A Deployment with an empty value of each sort that the API server keeps.
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
async fn a_false_zero_or_empty_object_of_ours_that_is_removed_is_put_back() {
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
            // What the API server fills in by itself is not ours to tell apart.
            assert_eq!(world.child().pointer(&pointer), Some(&whole), "{pointer} by {process} process");
        }
        assert!(world.quiet().await.is_empty());
    }
}

/// With both, the API server refuses the object, and an apply only adds.
#[tokio::test(start_paused = true)]
async fn another_alternative_than_ours_makes_room_for_it() {
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

#[tokio::test(start_paused = true)]
async fn a_false_that_a_new_version_wants_reaches_children_that_exist() {
    for pointer in [FALSE, CONTAINER_FALSE, "/spec/template/spec/volumes/0/emptyDir"] {
        let mut world = World::<Deployment>::new();
        world.run(&without(&deployment(), pointer)).await;
        assert_eq!(world.child().pointer(pointer), None);
        world.run(&deployment()).await;
        assert!(world.child().pointer(pointer).is_some(), "{pointer}");
        let told = world.told();
        assert!(told.iter().all(|it| !it.starts_with("DriftReverted")), "the new version is no drift: {told:?}");
        assert!(writes(&world.run(&deployment()).await).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn after_managed_fields_were_cleared_drift_is_seen_and_dropped_fields_go() {
    let mut world = World::<Deployment>::new();
    world.run(&deployment()).await;
    let clear = |child: &mut Value| child["metadata"]["managedFields"] = json!([{}]);
    world.edit("kubectl-patch", clear).await;
    world.quiet().await;
    let managers = |child: &Value| -> Vec<String> {
        let entries = child["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.iter().filter_map(|it| it["manager"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(managers(&world.child()), ["toy-controller"], "our entry is made anew, and no other");
    assert_eq!(world.told(), [""; 0]);

    world.edit("kubectl", |child| child["spec"]["replicas"] = json!(7)).await;
    world.quiet().await;
    assert_eq!(world.child()["spec"]["replicas"], 0);
    assert_eq!(world.told().len(), 1);

    world.stop().await;
    world.edit("kubectl-patch", clear).await;
    world.edit("kubectl", |child| child["spec"]["replicas"] = json!(7)).await;
    let lighter = without(&deployment(), "/spec/template/spec/tolerations");
    world.run(&lighter).await;
    assert_eq!(world.child()["spec"]["replicas"], 0);
    assert_eq!(world.child().pointer("/spec/template/spec/tolerations"), None);
    world.run(&without(&lighter, CONTAINER_FALSE)).await;
    assert_eq!(world.child().pointer(CONTAINER_FALSE), None);
    assert!(writes(&world.run(&without(&lighter, CONTAINER_FALSE)).await).is_empty());
}

/// Nobody can tell any more whose the old port is. With two ports of one name the API server would refuse the Service.
#[tokio::test(start_paused = true)]
async fn an_element_of_ours_that_is_dropped_goes_even_if_managed_fields_were_cleared_meanwhile() {
    let service = |port: u16| json!({"metadata": {"name": NAME}, "spec": {"ports": [{"name": "p", "port": port}]}});
    let ports = |world: &World<Service>| -> Vec<Value> {
        let child = world.child();
        child["spec"]["ports"].as_array().into_iter().flatten().map(|it| it["port"].clone()).collect()
    };
    let clear = |child: &mut Value| child["metadata"]["managedFields"] = json!([{}]);
    for has_other_entry in [false, true] {
        let mut world = World::<Service>::new();
        world.run(&service(1)).await;
        world.stop().await;
        world.edit("kubectl-patch", clear).await;
        if has_other_entry {
            world.edit("kubectl", |child| child["metadata"]["managedFields"] = labelled_by("kubectl")).await;
        }
        world.run(&service(2)).await;
        assert_eq!(ports(&world), [2], "{has_other_entry}");
        assert!(writes(&world.run(&service(2)).await).is_empty());
    }
}

/// The entry is made anew, and then the apply fails; the next one wants something else.
#[tokio::test(start_paused = true)]
async fn an_element_of_ours_that_is_dropped_goes_even_if_the_apply_after_the_new_entry_failed() {
    let service = |port: u16| json!({"metadata": {"name": NAME}, "spec": {"ports": [{"name": "p", "port": port}]}});
    let mut world = World::<Service>::new();
    world.run(&service(1)).await;
    world.stop().await;
    world.edit("kubectl-patch", |child| child["metadata"]["managedFields"] = json!([{}])).await;
    // The first patch is a dry run, the second makes the entry, the third is the apply.
    let planned = crate::kit::plan(&world.model, "before patch services.core #3..99 -> answer 500");
    world.run(&service(1)).await;
    assert!(planned.unused().is_empty());
    world.model.set_faults(model_apiserver::NoFaults);
    world.run(&service(2)).await;
    assert_eq!(world.child()["spec"]["ports"].as_array().map(Vec::len), Some(1), "{:#}", world.child()["spec"]);
}

/// `managedFields` are cleared right before the API server handles one of the requests that change a child; all later ones fail,
/// or none. The next version of the operator drops something.
#[tokio::test(start_paused = true)]
async fn what_is_dropped_goes_even_if_managed_fields_are_cleared_while_a_change_is_on_its_way() {
    let fewer = without(&deployment(), "/spec/template/spec/tolerations");
    let mut more = deployment();
    more["spec"]["replicas"] = json!(3);
    let mut happened = 0;
    let ours_or_all = [labelled_by("kubectl"), json!([{}])];
    // Another client's change is put back by an edit; a new version changes a field, or drops one, by an apply.
    for (next, left) in
        [None, Some(&more), Some(&fewer)].into_iter().flat_map(|next| ours_or_all.iter().map(move |left| (next, left)))
    {
        for (nth, is_last) in (1..4).flat_map(|nth| [(nth, false), (nth, true)]) {
            let mut faults = format!("before patch deployments.apps as keeper #{nth} -> signal clear");
            if is_last {
                write!(faults, "; before patch deployments.apps as keeper #{}..99 -> answer 500", nth + 1)
                    .expect("a text");
            }
            let mut world = World::<Deployment>::new();
            world.run(&deployment()).await;
            let count = world.replace_managed_fields_at(&faults, left);
            match next {
                None => {
                    world.edit("kubectl", |child| child["spec"]["replicas"] = json!(7)).await;
                    world.quiet().await;
                }
                Some(desired) => drop(world.run(desired).await),
            }
            happened += count.load(Ordering::Relaxed);
            world.model.set_faults(model_apiserver::NoFaults);
            world.run(&fewer).await;
            let dropped = world.child().pointer("/spec/template/spec/tolerations").cloned();
            assert_eq!(dropped, None, "{next:?}, {left}, {faults}");
            assert!(writes(&world.run(&fewer).await).is_empty(), "{faults}");
        }
    }
    assert!(happened >= 24, "{happened} of 36 happened");
}

/// At the first apply of an object without `managedFields`, the API server gives all that is there to `before-first-apply`.
#[tokio::test(start_paused = true)]
async fn what_is_dropped_goes_even_if_another_client_applied_after_managed_fields_were_cleared() {
    let mut world = World::<Deployment>::new();
    world.run(&deployment()).await;
    world.stop().await;
    world.edit("kubectl", |child| child["metadata"]["managedFields"] = json!([{}])).await;
    let seized = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME}, "spec": {"minReadySeconds": 3},
    });
    let api: Api<DynamicObject> =
        Api::namespaced_with(world.model.client(), "default", &ApiResource::erase::<Deployment>(&()));
    let forced = PatchParams::apply("somebody").force();
    api.patch(NAME, &forced, &Patch::Apply(seized)).await.expect("it is applied");
    assert!(world.child()["metadata"]["managedFields"].to_string().contains("before-first-apply"));

    world.run(&deployment()).await;
    world.run(&without(&deployment(), "/spec/template/spec/tolerations")).await;
    assert_eq!(world.child().pointer("/spec/template/spec/tolerations"), None);
    assert_eq!(world.child()["spec"]["minReadySeconds"], 3, "somebody holds it");
}

/// Entries of `managedFields` of which none holds anything of ours.
fn labelled_by(manager: &str) -> Value {
    json!([{
        "manager": manager, "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}},
    }])
}

#[tokio::test(start_paused = true)]
async fn what_others_put_below_our_empty_map_is_theirs() {
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
async fn only_what_a_write_has_changed_is_told() {
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

/// Every place of a value that holds no object or list with something in it, as JSON pointers.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    let step = |name: &str| format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| leaves(value, &step(name), found));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(index, item)| leaves(item, &step(&index.to_string()), found));
        }
        _ => found.push(at.to_owned()),
    }
}

/// Whatever single field of a child a policy of the cluster takes out or rewrites: a process comes to rest, and the next
/// one writes and tells nothing. `other` is what a new version of the operator wants.
async fn lives_with_every_policy<C>(desired: Value, other: Value)
where
    C: Child + Namespaced + DeserializeOwned,
{
    let mut places = Vec::new();
    leaves(&desired, "", &mut places);
    places.retain(|place| place.starts_with("/spec") || place.starts_with("/data"));
    // Identities and what decides whose the child is.
    places.retain(|place| !place.ends_with("/name") && !place.contains("/selector/"));
    places.retain(|place| !["ort", "/protocol", "/mountPath"].iter().any(|key| place.ends_with(key)));
    assert!(!places.is_empty());
    for place in places {
        for rewrites in [false, true] {
            let what = format!("{} {place}, {}", C::kind(&()), if rewrites { "rewritten" } else { "taken out" });
            let mut world = World::<C>::new();
            let there = place.clone();
            world.model.mutate(&World::<C>::resource(), move |object| match object.pointer_mut(&there) {
                Some(value) if rewrites => *value = rewritten(value),
                _ => take(object, &there),
            });
            world.run(&desired).await;
            let asked = world.run(&desired).await;
            assert!(writes(&asked).is_empty(), "{what}: {:?} {}", writes(&asked), world.child());
            assert_eq!(world.told(), [""; 0], "{what}");
            world.run(&other).await;
            let told = world.told();
            assert!(told.iter().all(|it| !it.starts_with("DriftReverted")), "{what}: {told:?}");
            let asked = world.run(&other).await;
            assert!(writes(&asked).is_empty(), "{what}, after an upgrade: {:?} {}", writes(&asked), world.child());
            assert_eq!(world.told(), told, "{what}");
        }
    }
}

fn rewritten(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => json!(!flag),
        Value::Number(_) => json!(77),
        Value::String(_) => json!("other"),
        Value::Object(_) => json!({"other": "x"}),
        _ => json!(["other"]),
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_a_policy_makes_of_a_deployment_it_is_in_sync() {
    let mut other = without(&deployment(), "/spec/template/spec/tolerations");
    other["spec"]["replicas"] = json!(3);
    lives_with_every_policy::<Deployment>(deployment(), other).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_a_policy_makes_of_other_children_they_are_in_sync() {
    let service = |idle: i32| {
        json!({"metadata": {"name": NAME}, "spec": {
            "selector": {"app": "a"}, "publishNotReadyAddresses": false, "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": idle}},
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "appProtocol": ""}],
        }})
    };
    lives_with_every_policy::<Service>(service(5), service(6)).await;
    let budget = |count: i32| json!({"metadata": {"name": NAME}, "spec": {"maxUnavailable": count, "selector": {"matchLabels": {"app": "a"}}}});
    lives_with_every_policy::<PodDisruptionBudget>(budget(0), budget(1)).await;
    let map = |value: &str| json!({"metadata": {"name": NAME}, "data": {"empty": "", "full": value}});
    lives_with_every_policy::<ConfigMap>(map("x"), map("y")).await;
    let policy = |port: i32| {
        json!({"metadata": {"name": NAME}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [
            {"from": [{"podSelector": {}}], "ports": [{"port": port, "protocol": "TCP"}]},
        ]}})
    };
    lives_with_every_policy::<NetworkPolicy>(policy(80), policy(81)).await;
    let monitor = |interval: &str| {
        json!({"metadata": {"name": NAME}, "spec": {
            "endpoints": [{"port": "", "interval": interval}], "selector": {},
        }})
    };
    lives_with_every_policy::<ServiceMonitor>(monitor("1s"), monitor("2s")).await;
    let job = |parallelism: i32| {
        json!({"metadata": {"name": NAME}, "spec": {"backoffLimit": 0, "suspend": false, "parallelism": parallelism,
            "ttlSecondsAfterFinished": 0, "template": {"spec": {"restartPolicy": "Never", "containers": []}}}})
    };
    lives_with_every_policy::<Job>(job(0), job(2)).await;
}

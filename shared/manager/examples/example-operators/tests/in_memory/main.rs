//! The examples against a model of the API server, in simulated time.

use std::{sync::Arc, time::Duration};

use example_operators::{banners::Banners, ledgers::Ledgers, registry::Registry, tenants::Tenants, tracks::Tracks};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use manager::{ObjectKey, Operator, harness::Harness, normalize, permissions};
use model_apiserver::{Model, NoFaults, Planned};
use serde_json::{Value, json};
use tokio::time::sleep;

mod webhooks;

const MOMENT: Duration = Duration::from_secs(1);

/// A cluster with the definitions of `operator`, which runs.
fn start(operator: &dyn Operator) -> (Model, Harness) {
    start_with(operator, &[])
}

/// The same with these flags.
fn start_with(operator: &dyn Operator, flags: &[&str]) -> (Model, Harness) {
    let model = Model::new();
    for crd in operator.crds() {
        model.install(&normalize(&crd));
    }
    let (clock, flags) = (model.clone(), [flags, &["--resync-interval=10000h"]].concat());
    let harness = Harness::start(operator, &flags, model.client_named(operator.name()), move || clock.now());
    (model, harness)
}

async fn put(model: &Model, kind: &str, namespace: &str, name: &str, spec: Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("examples.example.com", "v1", kind));
    let api: Api<DynamicObject> = match namespace {
        "" => Api::all_with(model.client(), &resource),
        _ => Api::namespaced_with(model.client(), namespace, &resource),
    };
    let object = json!({
        "apiVersion": "examples.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(object)).await.expect("the object is accepted");
    sleep(MOMENT).await;
}

async fn configure(model: &Model, name: &str, data: Value) {
    let maps: Api<ConfigMap> = Api::namespaced(model.client(), "default");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    maps.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(map)).await.expect("it is accepted");
    sleep(MOMENT).await;
}

/// Creates the Deployment `web`.
fn deploy(model: &Model) {
    let labels = json!({"app": "web"});
    model.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]},
        }},
    }));
}

/// The status, the reason and the message of `Ready`.
fn ready(model: &Model, resource: &str, namespace: &str, name: &str) -> String {
    let object = model.object(&format!("{resource}.examples.example.com"), namespace, name).expect("it exists");
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.into_iter().find(|it| it["type"] == "Ready").expect("it is reconciled");
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

/// Checks that nothing is written any more.
async fn rests(model: &Model) {
    let before = model.requests().len();
    sleep(600 * MOMENT).await;
    let requests = model.requests();
    let writes: Vec<_> =
        requests[before..].iter().filter(|it| it.verb.writes() && !it.resource.starts_with("leases")).collect();
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn tenant_gets_a_namespace_with_a_quota() {
    let (model, _harness) = start(&Tenants);
    put(&model, "Tenant", "", "red", json!({"pods": 10})).await;
    assert_eq!(ready(&model, "tenants", "", "red"), "True Ready: 1 namespaces with 10 pods each");
    let hard = |model: &Model| model.object("resourcequotas", "red", "red").expect("a quota")["spec"]["hard"].clone();
    assert_eq!(hard(&model), json!({"pods": "10"}));
    rests(&model).await;
    put(&model, "Tenant", "", "red", json!({"pods": 20})).await;
    assert_eq!(hard(&model), json!({"pods": "20"}));
}

#[tokio::test(start_paused = true)]
async fn quota_stays_while_a_write_of_its_namespace_is_refused() {
    let (model, _harness) = start(&Tenants);
    put(&model, "Tenant", "", "red", json!({"pods": 10})).await;
    let quota = || model.object("resourcequotas", "red", "red");
    let before = quota();
    assert!(before.is_some());
    let label = || {
        let namespace = model.object("namespaces", "", "red").expect("a namespace");
        namespace["metadata"]["labels"]["app.kubernetes.io/instance"].clone()
    };
    let faults = Arc::new(Planned::new(&"before patch namespaces.core -> answer 422".parse().expect("a plan")));
    model.set_shared_faults(faults.clone());
    let mut namespace = model.object("namespaces", "", "red").expect("a namespace");
    namespace["metadata"]["labels"]["app.kubernetes.io/instance"] = json!("blue");
    model.put(namespace);
    sleep(60 * MOMENT).await;
    assert!(faults.unused().is_empty(), "a write was refused");
    assert_eq!((label(), quota()), (json!("blue"), before));
    model.set_faults(NoFaults);
    sleep(600 * MOMENT).await;
    assert_eq!(label(), "red");
    assert_eq!(ready(&model, "tenants", "", "red"), "True Ready: 1 namespaces with 10 pods each");
}

/// A revert that has to wait is no problem in the status until the same field has been reverted three times.
#[tokio::test(start_paused = true)]
async fn tenant_is_not_ready_while_the_write_of_its_namespace_waits() {
    let (model, _harness) = start(&Tenants);
    put(&model, "Tenant", "", "red", json!({"pods": 10})).await;
    let label = |namespace: &Value| namespace["metadata"]["labels"]["app.kubernetes.io/instance"].clone();
    for expected in ["red", "red", "blue"] {
        let mut namespace = model.object("namespaces", "", "red").expect("a namespace");
        namespace["metadata"]["labels"]["app.kubernetes.io/instance"] = json!("blue");
        model.put(namespace);
        sleep(MOMENT / 5).await;
        let namespace = model.object("namespaces", "", "red").expect("a namespace");
        assert_eq!(label(&namespace), expected, "the third revert waits for a second");
    }
    assert_eq!(ready(&model, "tenants", "", "red"), "False NamespaceOutdated: namespace red is not up to date");
    sleep(600 * MOMENT).await;
    assert_eq!(ready(&model, "tenants", "", "red"), "True Ready: 1 namespaces with 10 pods each");
}

/// Adds a namespace to a tenant, or takes it out.
async fn label(model: &Model, namespace: &str, tenant: Option<&str>) {
    let labels = tenant.map_or(json!({}), |tenant| json!({"examples.example.com/tenant": tenant}));
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
    let (namespaces, apply) = (Api::<Namespace>::all(model.client()), PatchParams::apply("user").force());
    namespaces.patch(namespace, &apply, &Patch::Apply(object)).await.expect("it is accepted");
    sleep(MOMENT).await;
}

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";

#[tokio::test(start_paused = true)]
async fn account_of_a_tenant_comes_and_goes_with_its_namespaces() {
    let (model, _harness) = start(&Tenants);
    put(&model, "Tenant", "", "red", json!({"pods": 10})).await;
    let are_in = |resource: &str| {
        let objects = model.objects(resource).into_iter();
        objects.map(|it| it["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    for (tenant, namespaces) in [(Some("red"), ["red", "shop"].as_slice()), (None, ["red"].as_slice())] {
        label(&model, "shop", tenant).await;
        for resource in ["serviceaccounts", ROLES, BINDINGS] {
            assert_eq!(are_in(resource), namespaces, "{resource}");
        }
    }
    let binding = model.object(BINDINGS, "red", "red").expect("a binding");
    assert_eq!(binding["roleRef"]["name"], "red");
    assert_eq!(binding["subjects"], json!([{"kind": "ServiceAccount", "name": "red", "namespace": "red"}]));
    // The real API server refuses a binding to a role that is not there.
    let created = |resource: &str| {
        let requests = model.requests();
        requests.iter().position(|it| it.verb.as_str() == "create" && it.resource == resource).expect("it was created")
    };
    assert!(created(ROLES) < created(BINDINGS));
    rests(&model).await;
}

/// The real API server refuses a Role that allows more than its author may do.
#[tokio::test(start_paused = true)]
async fn operator_of_tenants_may_do_what_its_role_allows() {
    let (model, _harness) = start(&Tenants);
    put(&model, "Tenant", "", "red", json!({"pods": 10})).await;
    let role = model.object(ROLES, "red", "red").expect("a role");
    let own = serde_json::to_value(permissions(&[&Tenants])).expect("JSON");
    for rule in role["rules"].as_array().expect("rules") {
        assert!(own.as_array().expect("rules").contains(rule), "{rule}");
    }
}

#[tokio::test(start_paused = true)]
async fn role_of_another_owner_is_bound_to_nobody() {
    let (model, _harness) = start(&Tenants);
    put(&model, "Tenant", "", "blue", json!({"pods": 10})).await;
    label(&model, "shop", Some("blue")).await;
    let is_bound = |namespace: &str| model.object(BINDINGS, namespace, "blue").is_some();
    assert!(is_bound("blue") && is_bound("shop"));
    model.take(ROLES, "shop", "blue");
    model.put(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "blue", "namespace": "shop"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    }));
    sleep(60 * MOMENT).await;
    assert!(is_bound("blue") && !is_bound("shop"));
    assert!(ready(&model, "tenants", "", "blue").starts_with("False ResourceConflict"));
    model.take(ROLES, "shop", "blue");
    sleep(600 * MOMENT).await;
    assert!(is_bound("blue") && is_bound("shop"));
    assert_eq!(ready(&model, "tenants", "", "blue"), "True Ready: 2 namespaces with 10 pods each");
}

#[tokio::test(start_paused = true)]
async fn namespace_joins_and_leaves_a_tenant_by_its_label() {
    let (model, _harness) = start(&Tenants);
    put(&model, "Tenant", "", "red", json!({"pods": 10})).await;
    put(&model, "Tenant", "", "blue", json!({"pods": 5})).await;
    let says = |model: &Model, name: &str| ready(model, "tenants", "", name);
    let hard = |model: &Model| {
        let quotas = model.objects("resourcequotas").into_iter().filter(|it| it["metadata"]["namespace"] == "shop");
        quotas.map(|it| it["spec"]["hard"]["pods"].clone()).collect::<Vec<_>>()
    };
    let namespaces: Api<Namespace> = Api::all(model.client());
    for (tenant, pods) in [("red", Some("10")), ("blue", Some("5")), ("gone", None), ("red", Some("10"))] {
        label(&model, "shop", Some(tenant)).await;
        assert_eq!(hard(&model), Vec::from_iter(pods), "{tenant}");
        for (name, pods) in [("red", 10), ("blue", 5)] {
            let count = if name == tenant { 2 } else { 1 };
            assert_eq!(says(&model, name), format!("True Ready: {count} namespaces with {pods} pods each"));
        }
    }
    // The tenant's own namespace counts once, also if a user labels it.
    let patch = json!({"metadata": {"labels": {"examples.example.com/tenant": "red"}}});
    namespaces.patch("red", &PatchParams::default(), &Patch::Merge(patch)).await.expect("it is accepted");
    sleep(MOMENT).await;
    assert_eq!(says(&model, "red"), "True Ready: 2 namespaces with 10 pods each");
    namespaces.delete("shop", &DeleteParams::default()).await.expect("it is deleted");
    sleep(MOMENT).await;
    assert_eq!(says(&model, "red"), "True Ready: 1 namespaces with 10 pods each");
    rests(&model).await;
}

#[tokio::test(start_paused = true)]
async fn ledger_keeps_its_password_and_follows_its_database() {
    let (model, _harness) = start(&Ledgers::default());
    put(&model, "Ledger", "default", "books", json!({"replicas": 1})).await;
    assert_eq!(ready(&model, "ledgers", "default", "books"), "False StillStarting: 0 of 1 replicas are ready");
    let password = model.object("secrets", "default", "books").expect("a Secret")["data"].clone();
    assert!(model.object("persistentvolumeclaims", "default", "books").is_some());

    let sets: Api<StatefulSet> = Api::namespaced(model.client(), "default");
    let patch = Patch::Merge(json!({"status": {"replicas": 1, "readyReplicas": 1}}));
    sets.patch_status("books", &PatchParams::default(), &patch).await.expect("it is accepted");
    sleep(MOMENT).await;
    assert_eq!(ready(&model, "ledgers", "default", "books"), "True Ready: 1 of 1 replicas are ready");
    rests(&model).await;
    put(&model, "Ledger", "default", "books", json!({"replicas": 2})).await;
    let set = model.object("statefulsets.apps", "default", "books").expect("a StatefulSet");
    assert_eq!(set["spec"]["replicas"], 2);
    assert_eq!(model.object("secrets", "default", "books").expect("a Secret")["data"], password);
}

#[tokio::test(start_paused = true)]
async fn password_stays_when_another_client_removes_the_label_of_its_secret() {
    let (model, _harness) = start(&Ledgers::default());
    put(&model, "Ledger", "default", "books", json!({"replicas": 0})).await;
    let secret = || model.object("secrets", "default", "books").expect("a Secret");
    let before = secret();
    let secrets: Api<Secret> = Api::namespaced(model.client(), "default");
    let patch = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}});
    secrets.patch("books", &PatchParams::default(), &Patch::Merge(patch)).await.expect("it is accepted");
    sleep(60 * MOMENT).await;
    assert_ne!(secret()["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(secret()["metadata"]["labels"], before["metadata"]["labels"], "the label is put back");
    assert_eq!(secret()["data"], before["data"]);
}

/// Lets the controller of the `DaemonSet` report that this many of two servers are ready.
async fn serve(model: &Model, ready: i32) {
    let set = model.object("daemonsets.apps", "default", "door-page").expect("a DaemonSet");
    let status = json!({
        "observedGeneration": set["metadata"]["generation"], "currentNumberScheduled": 2, "desiredNumberScheduled": 2,
        "numberReady": ready,
    });
    let (sets, patch) = (Api::<DaemonSet>::namespaced(model.client(), "default"), json!({"status": status}));
    sets.patch_status("door-page", &PatchParams::default(), &Patch::Merge(patch)).await.expect("it is accepted");
    sleep(MOMENT).await;
}

#[tokio::test(start_paused = true)]
async fn banner_follows_its_text_and_its_theme() {
    let (model, _harness) = start(&Banners::default());
    put(&model, "Banner", "default", "door", json!({"config": "text", "theme": "dark"})).await;
    let says = |model: &Model| ready(model, "banners", "default", "door");
    let page =
        |model: &Model| model.object("configmaps", "default", "door-page").map(|map| map["data"]["index.html"].clone());
    assert_eq!(says(&model), "False NoText: ConfigMap \"text\" has no text");
    configure(&model, "text", json!({"text": "hello"})).await;
    assert_eq!((says(&model), page(&model)), ("False NoTheme: Theme \"dark\" is not there".to_owned(), None));
    put(&model, "Theme", "default", "dark", json!({"colour": "black"})).await;
    assert_eq!(says(&model), "False StillStarting: The servers are not scheduled yet");
    serve(&model, 2).await;
    assert_eq!(says(&model), "True Ready: 5 characters are shown");
    assert_eq!(page(&model), Some(json!("<body style=\"color: black\">hello</body>")));
    put(&model, "Theme", "default", "dark", json!({"colour": "navy"})).await;
    configure(&model, "text", json!({"text": "hi"})).await;
    assert_eq!(page(&model), Some(json!("<body style=\"color: navy\">hi</body>")));
    rests(&model).await;
}

#[tokio::test(start_paused = true)]
async fn banner_is_served_on_each_node_and_under_its_host() {
    let (model, _harness) = start(&Banners::default());
    put(&model, "Theme", "default", "dark", json!({"colour": "black"})).await;
    configure(&model, "text", json!({"text": "hello", "host": "a.example.com"})).await;
    put(&model, "Banner", "default", "door", json!({"config": "text", "theme": "dark"})).await;
    let ingress = || model.object("ingresses.networking.k8s.io", "default", "door-page");
    let rule = |host: &str| {
        let backend = json!({"service": {"name": "door-page", "port": {"name": "http"}}});
        json!([{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}])
    };
    assert_eq!(ingress().expect("an Ingress")["spec"]["rules"], rule("a.example.com"));
    configure(&model, "text", json!({"text": "hello", "host": "b.example.com"})).await;
    assert_eq!(ingress().expect("an Ingress")["spec"]["rules"], rule("b.example.com"));
    configure(&model, "text", json!({"text": "hello"})).await;
    assert_eq!(ingress(), None);

    let sets: Api<DaemonSet> = Api::namespaced(model.client(), "default");
    for (ready_servers, says) in
        [(1, "False StillStarting: 1 of 2 servers are ready"), (2, "True Ready: 5 characters are shown")]
    {
        serve(&model, ready_servers).await;
        assert_eq!(ready(&model, "banners", "default", "door"), says);
    }
    let patch = Patch::Merge(json!({"spec": {"minReadySeconds": 9}}));
    sets.patch("door-page", &PatchParams::default(), &patch).await.expect("it is accepted");
    sleep(MOMENT).await;
    let set = model.object("daemonsets.apps", "default", "door-page").expect("a DaemonSet");
    assert_eq!(set["spec"]["minReadySeconds"], 5, "it is put back");
    rests(&model).await;
}

#[tokio::test(start_paused = true)]
async fn track_keeps_the_size_of_its_deployment() {
    let registry = Arc::<Registry>::default();
    let (model, _harness) = start(&Tracks { registry: registry.clone() });
    deploy(&model);
    registry.publish(&ObjectKey::new("default", "browser"), "1.0");
    put(&model, "Track", "default", "browser", json!({"deployment": "web"})).await;
    let size = || model.object("deployments.apps", "default", "web").expect("a Deployment")["spec"]["replicas"].clone();
    let deployments: Api<Deployment> = Api::namespaced(model.client(), "default");
    let scale = async |replicas: i32| {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        deployments.patch_scale("web", &PatchParams::default(), &patch).await.expect("it is accepted");
        sleep(MOMENT).await;
    };
    scale(5).await;
    assert_eq!(size(), 5, "the Track names no size");
    put(&model, "Track", "default", "browser", json!({"deployment": "web", "replicas": 2})).await;
    assert_eq!(size(), 2);
    scale(7).await;
    assert_eq!(size(), 2, "it is put back");
    let resources = model.requests().into_iter().filter(|it| it.client == "tracks" && it.verb.as_str() == "patch");
    let scales = resources.filter(|it| it.resource == "deployments.apps" && it.subresource == "scale");
    assert!(scales.count() > 1);
    rests(&model).await;
}

#[tokio::test(start_paused = true)]
async fn track_that_names_no_deployment_keeps_the_one_of_its_name() {
    let registry = Arc::<Registry>::default();
    let (model, _harness) = start(&Tracks { registry: registry.clone() });
    deploy(&model);
    registry.publish(&ObjectKey::new("default", "web"), "1.0");
    put(&model, "Track", "default", "web", json!({})).await;
    assert_eq!(ready(&model, "tracks", "default", "web"), "True Ready: the newest version is 1.0");
}

#[tokio::test(start_paused = true)]
async fn track_follows_the_messages_of_its_registry() {
    let registry = Arc::<Registry>::default();
    let (model, _harness) = start(&Tracks { registry: registry.clone() });
    put(&model, "Track", "default", "browser", json!({"deployment": "web"})).await;
    let says = |model: &Model| ready(model, "tracks", "default", "browser");
    assert_eq!(says(&model), "False NoDeployment: Deployment \"web\" is not there");
    deploy(&model);
    sleep(MOMENT).await;
    assert_eq!(says(&model), "False NoVersion: the registry has published no version");
    for version in ["1.0", "1.1"] {
        registry.publish(&ObjectKey::new("default", "browser"), version);
        registry.publish(&ObjectKey::new("default", "unknown"), version);
        sleep(MOMENT).await;
        let deployment = model.object("deployments.apps", "default", "web").expect("a Deployment");
        let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations["examples.example.com/version"], version);
    }
    rests(&model).await;
}

#[tokio::test(start_paused = true)]
async fn only_the_oldest_track_of_a_deployment_writes_it() {
    let registry = Arc::<Registry>::default();
    let (model, _harness) = start(&Tracks { registry: registry.clone() });
    deploy(&model);
    for (name, version) in [("older", "1.0"), ("last", "2.0")] {
        registry.publish(&ObjectKey::new("default", name), version);
        put(&model, "Track", "default", name, json!({"deployment": "web"})).await;
    }
    let says = |name: &str| ready(&model, "tracks", "default", name);
    assert_eq!(says("older"), "True Ready: the newest version is 1.0");
    assert_eq!(says("last"), "False DeploymentTaken: Track \"older\" keeps Deployment \"web\"");
    rests(&model).await;
    model.take("tracks.examples.example.com", "default", "older");
    sleep(60 * MOMENT).await;
    assert_eq!(says("last"), "True Ready: the newest version is 2.0");
    rests(&model).await;
}

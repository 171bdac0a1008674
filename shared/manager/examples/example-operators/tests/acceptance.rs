//! The examples on a real API server.

use std::{io::Write, net::TcpStream};

use cluster::{Cluster, Nodes, Port};
use example_operators::{banners::Banners, ledgers::Ledgers, tenants::Tenants, tracks::Tracks};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, ResourceQuota, Secret, ServiceAccount},
    networking::v1::Ingress,
    rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use manager::{Operator, permissions};
use manager_testing::World;
use serde_json::{Value, json};

fn object(kind: &str, name: &str, spec: &Value) -> String {
    json!({"apiVersion": "examples.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}).to_string()
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("examples.example.com", "v1", kind))
}

/// Waits until `Ready` has this message.
async fn until_says(world: &World, api: &Api<DynamicObject>, name: &str, message: &str) {
    world
        .until(message, async || {
            let object = api.get(name).await.ok()?;
            let conditions = object.data["status"]["conditions"].as_array()?;
            conditions.iter().find(|it| it["type"] == "Ready" && it["message"] == message).map(drop)
        })
        .await;
}

/// Permissions that the tests need not use, and why they are declared. A `*` matches any text.
const RARELY_USED: &[(&str, &str)] = &[
    ("get *", "for a read where the cache is not sufficient, such as after a conflict"),
    ("delete *", "for a child that is no longer wanted; the others go with their owner"),
    ("update */finalizers", "clusters that restrict blockOwnerDeletion, such as OpenShift, require it"),
    ("* events", "the runtime sends events later than the writes that they report"),
];

/// Checks that the operator has not sent a request that it may not send, and that it has used all of its permissions but those that
/// are rarely used and `unused`, which the test does not exercise.
fn assert_permitted(world: &World, operator: &dyn Operator, unused: &[&str]) {
    let requests = world.requests();
    let forbidden = requests.forbidden();
    assert!(forbidden.is_empty(), "{forbidden:?}");
    let is_rare = |what: &str| {
        RARELY_USED.iter().any(|(pattern, _)| {
            let (start, end) = pattern.split_once('*').expect("a pattern");
            what.starts_with(start) && what.ends_with(end)
        })
    };
    let mut left = requests.unused(&permissions(&[operator]));
    left.retain(|what| !is_rare(what) && !unused.contains(&what.as_str()));
    assert!(left.is_empty(), "no request has used {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_gets_its_children() {
    let operator = Box::leak(Box::<Ledgers>::default());
    let Some(world) = World::start(operator, env!("CARGO_BIN_EXE_ledgers")).await else { return };
    world.apply(&object("Ledger", "books", &json!({"replicas": 1}))).await;
    let api = Api::namespaced_with(world.client.clone(), &world.namespace, &resource("Ledger"));
    until_says(&world, &api, "books", "0 of 1 replicas are ready").await;
    let password = world.get::<Secret>("books").await.expect("a Secret").data;
    assert!(world.get::<PersistentVolumeClaim>("books").await.is_some());
    world.patch_status::<StatefulSet>("books", json!({"replicas": 1, "readyReplicas": 1})).await;
    until_says(&world, &api, "books", "1 of 1 replicas are ready").await;
    world.patch::<StatefulSet>("books", json!({"spec": {"replicas": 5}})).await;
    world
        .until("the replicas are put back", async || {
            let set = world.get::<StatefulSet>("books").await?;
            (set.spec?.replicas == Some(1)).then_some(())
        })
        .await;
    assert_eq!(world.get::<Secret>("books").await.expect("a Secret").data, password);
    // The test changes neither the Secret nor the claim.
    assert_permitted(&world, operator, &["patch secrets", "patch persistentvolumeclaims"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn banner_follows_its_text_and_its_theme() {
    let operator = Box::leak(Box::<Banners>::default());
    let Some(world) = World::start(operator, env!("CARGO_BIN_EXE_banners")).await else { return };
    world.apply(operator.sample()).await;
    let api = Api::namespaced_with(world.client.clone(), &world.namespace, &resource("Banner"));
    until_says(&world, &api, "door", "ConfigMap \"door\" has no text").await;
    world.create::<ConfigMap>(json!({"metadata": {"name": "door"}, "data": {"text": "hello"}})).await;
    until_says(&world, &api, "door", "Theme \"dark\" is not there").await;
    world.apply(&object("Theme", "dark", &json!({"colour": "black"}))).await;
    until_says(&world, &api, "door", "The servers are not scheduled yet").await;
    let status = json!({
        "observedGeneration": 1, "currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0,
        "numberReady": 1,
    });
    world.patch_status::<DaemonSet>("door-page", status).await;
    until_says(&world, &api, "door", "5 characters are shown").await;
    world.patch::<ConfigMap>("door", json!({"data": {"text": "hi", "host": "a.example.com"}})).await;
    until_says(&world, &api, "door", "2 characters are shown").await;
    for host in ["a.example.com", "b.example.com"] {
        world.patch::<ConfigMap>("door", json!({"data": {"host": host}})).await;
        world
            .until("the Ingress has the host", async || {
                let rules = world.get::<Ingress>("door-page").await?.spec?.rules?;
                rules.iter().find(|rule| rule.host.as_deref() == Some(host)).map(drop)
            })
            .await;
    }
    world.patch::<ConfigMap>("door", json!({"data": {"host": null}})).await;
    world
        .until("the Ingress is deleted", async || world.get::<Ingress>("door-page").await.is_none().then_some(()))
        .await;
    world.patch::<DaemonSet>("door-page", json!({"spec": {"minReadySeconds": 9}})).await;
    world
        .until("the DaemonSet is put back", async || {
            let set = world.get::<DaemonSet>("door-page").await?;
            (set.spec?.min_ready_seconds == Some(5)).then_some(())
        })
        .await;
    // The test does not change the Service.
    assert_permitted(&world, operator, &["patch services"]);
}

/// On a cluster of its own, because a webhook configuration applies to a whole cluster.
#[tokio::test(flavor = "multi_thread")]
async fn theme_that_a_banner_shows_cannot_be_deleted() {
    let operator = Box::leak(Box::<Banners>::default());
    let binary = env!("CARGO_BIN_EXE_banners");
    let Some(mut world) = World::prepare(operator, binary, || Cluster::fresh(Nodes::None)).await else { return };
    make_administrator(&world).await;
    let port = Port::reserve().expect("a port");
    let (address, url) = (format!("127.0.0.1:{}", port.number()), format!("https://127.0.0.1:{}", port.number()));
    world.run(&["--webhook-bind-address", &address, "--webhook-client-url", &url]);
    world.apply(&object("Theme", "dark", &json!({"colour": "black"}))).await;
    world.apply(operator.sample()).await;

    let themes: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource("Theme"));
    let refused = "Theme.examples.example.com \"dark\" is invalid: metadata.name: Banner \"door\" shows this theme";
    world
        .until("the theme is protected", async || {
            let dry_run = DeleteParams { dry_run: true, ..DeleteParams::default() };
            themes.delete("dark", &dry_run).await.err().filter(|error| error.to_string().contains(refused))
        })
        .await;
    let collection = themes.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    let error = collection.expect_err("it is refused").to_string();
    assert!(error.contains(refused), "{error}");
    assert_namespace_controller_may_delete(&world, "dark");
    let banners: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource("Banner"));
    banners.delete("door", &DeleteParams::default()).await.expect("it is deleted");
    world.until("the theme is deleted", async || themes.delete("dark", &DeleteParams::default()).await.ok()).await;
}

/// The controller that empties a deleted namespace is left out by the condition of the webhook: it may delete what others may not.
fn assert_namespace_controller_may_delete(world: &World, theme: &str) {
    let mut kubectl = world.cluster.kubectl(["delete", "themes.examples.example.com", theme, "--dry-run=server"]);
    kubectl.args(["--namespace", &world.namespace, "--as=system:serviceaccount:kube-system:namespace-controller"]);
    let output = kubectl.output().expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Makes the operator an administrator: outside of a cluster, it writes the webhook configuration itself.
async fn make_administrator(world: &World) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "banners"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("operator:{}", world.namespace),
        }],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.patch("banners", &PatchParams::apply("test"), &Patch::Apply(&binding)).await.expect("it is accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_gets_a_namespace_with_a_quota() {
    let Some(world) = World::start(&Tenants, env!("CARGO_BIN_EXE_tenants")).await else { return };
    let name = format!("{}-red", world.namespace);
    let api: Api<DynamicObject> = Api::all_with(world.client.clone(), &resource("Tenant"));
    let tenant = json!({
        "apiVersion": "examples.example.com/v1", "kind": "Tenant", "metadata": {"name": name}, "spec": {"pods": 10},
    });
    api.patch(&name, &PatchParams::apply("kubectl"), &Patch::Apply(&tenant)).await.expect("it is accepted");
    until_says(&world, &api, &name, "1 namespaces with 10 pods each").await;
    let namespace = Api::<Namespace>::all(world.client.clone()).get(&name).await.expect("a namespace");
    assert_eq!(namespace.owner_references()[0].kind, "Tenant");
    let quotas: Api<ResourceQuota> = Api::namespaced(world.client.clone(), &name);
    quotas.delete(&name, &DeleteParams::default()).await.expect("it is deleted");
    world.until("the quota is made again", async || quotas.get_opt(&name).await.ok()?).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), &name);
    accounts.get(&name).await.expect("an account");
    let bindings: Api<RoleBinding> = Api::namespaced(world.client.clone(), &name);
    assert_eq!(bindings.get(&name).await.expect("a binding").role_ref.name, name);
    let roles: Api<Role> = Api::namespaced(world.client.clone(), &name);
    let more = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    roles.patch(&name, &PatchParams::default(), &Patch::Merge(more)).await.expect("it is accepted");
    world
        .until("the role is put back", async || {
            let granted = roles.get(&name).await.ok()?.rules?;
            (granted[0].resources.as_deref()? == ["pods"]).then_some(())
        })
        .await;
    let member = format!("{name}-shop");
    let namespaces = Api::<Namespace>::all(world.client.clone());
    let labels = json!({"examples.example.com/tenant": name});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": member, "labels": labels}});
    let apply = PatchParams::apply("kubectl");
    namespaces.patch(&member, &apply, &Patch::Apply(&namespace)).await.expect("it is accepted");
    until_says(&world, &api, &name, "2 namespaces with 10 pods each").await;
    // The test changes none of these; the operator itself looks at no pods, but its role allows that.
    let unchanged = ["namespaces", "resourcequotas", "serviceaccounts", "rolebindings"].map(|it| format!("patch {it}"));
    let unused: Vec<&str> = unchanged.iter().map(String::as_str).chain(["list pods", "watch pods"]).collect();
    assert_permitted(&world, &Tenants, &unused);
    namespaces.delete(&member, &DeleteParams::default()).await.expect("it is deleted");
    api.delete(&name, &DeleteParams::default()).await.expect("it is deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn track_follows_the_messages_of_its_registry() {
    let operator = Box::leak(Box::<Tracks>::default());
    let binary = env!("CARGO_BIN_EXE_tracks");
    let Some(mut world) = World::prepare(operator, binary, || Cluster::shared(Nodes::None)).await else { return };
    let port = Port::reserve().expect("a port");
    let address = format!("127.0.0.1:{}", port.number());
    world.run(&[&format!("--tracks-listen={address}")]);
    let labels = json!({"app": "web"});
    world
        .create::<Deployment>(json!({
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]},
            }},
        }))
        .await;
    world.apply(&object("Track", "browser", &json!({"deployment": "web"}))).await;
    let api = Api::namespaced_with(world.client.clone(), &world.namespace, &resource("Track"));
    until_says(&world, &api, "browser", "the registry has published no version").await;
    let mut stream = TcpStream::connect(&address).expect("the registry listens");
    writeln!(stream, "{}/browser 1.0", world.namespace).expect("it is read");
    until_says(&world, &api, "browser", "the newest version is 1.0").await;
    let deployment: Deployment = world.get("web").await.expect("a Deployment");
    let annotations = deployment.spec.and_then(|spec| spec.template.metadata?.annotations).unwrap_or_default();
    assert_eq!(annotations.get("examples.example.com/version").map(String::as_str), Some("1.0"));
    world.apply(&object("Track", "browser", &json!({"deployment": "web", "replicas": 3}))).await;
    world
        .until("the Deployment has the size", async || {
            let deployment: Deployment = world.get("web").await?;
            (deployment.spec?.replicas == Some(3)).then_some(())
        })
        .await;
    assert_permitted(&world, operator, &[]);
}

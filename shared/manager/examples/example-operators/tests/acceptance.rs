//! The examples on a real API server.

use std::{
    fmt::Debug,
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use cluster::{Cluster, Nodes, Port};
use example_operators::{banners::Banners, ledgers::Ledgers, tenants::Tenants, tracks::Tracks};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, ResourceQuota, Secret, Service, ServiceAccount},
        networking::v1::Ingress,
        rbac::v1::{PolicyRule, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use manager::{Operator, WebhookPermissions, normalize, webhook_configurations, webhook_permissions};
use manager_testing::{FOR_ADOPTION, PAST_THE_CACHE, World};
use serde::de::DeserializeOwned;
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

/// Changes a label of a child as another client does, and waits until the operator has put it back.
async fn puts_back<K>(world: &World, api: &Api<K>, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    const LABEL: &str = "app.kubernetes.io/instance";
    let label = |child: &K| child.labels().get(LABEL).cloned();
    let ours = label(&api.get(name).await.expect("a child"));
    assert!(ours.is_some(), "{name} has no label {LABEL}");
    let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL: "another"}}}));
    let changed = api.patch(name, &PatchParams::default(), &patch).await.expect("it is accepted");
    assert_ne!(label(&changed), ours);
    world.until("the label is put back", async || (label(&api.get(name).await.ok()?) == ours).then_some(())).await;
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
    puts_back::<Secret>(&world, &world.api(), "books").await;
    puts_back::<PersistentVolumeClaim>(&world, &world.api(), "books").await;
    managed_fields_of_others_reconcile_nothing(&world, &api).await;
    // The operator reads the Secret before it makes a password.
    let read = ["get ledgers.examples.example.com", "get persistentvolumeclaims", "get statefulsets.apps"];
    let deleted = ["delete persistentvolumeclaims", "delete secrets", "delete statefulsets.apps"];
    world.assert_permitted(operator, &[(PAST_THE_CACHE, &read), (FOR_ADOPTION, &deleted)]);
}

/// How many managers write nothing but `managedFields`.
const MANAGERS: u64 = 20;

/// Checks that writes of other managers that change nothing but `managedFields` do not reconcile the Ledger. The pause comes after them
/// in the same watch, so all of them have arrived when the operator reports it. The pause costs a reconcile, and late events of children
/// may cost a few more: their watches have no common order with this one.
async fn managed_fields_of_others_reconcile_nothing(world: &World, api: &Api<DynamicObject>) {
    let running = world.operator.as_ref().expect("it runs");
    let reconciles = async || {
        world.until("no reconcile runs", async || running.is_idle().then_some(())).await;
        let metrics = running.metrics().expect("metrics");
        let of_each_result = metrics.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total{"));
        let count = |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
        of_each_result.map(|line| count(line).expect("a number")).sum::<u64>()
    };
    let before = reconciles().await;
    let same: Value = serde_json::from_str(&object("Ledger", "books", &json!({"replicas": 1}))).expect("JSON");
    let mut known = api.get("books").await.expect("a Ledger");
    for manager in 0..MANAGERS {
        let by = PatchParams::apply(&format!("manager-{manager}"));
        let written = api.patch("books", &by, &Patch::Apply(&same)).await.expect("it is accepted");
        assert_ne!(written.resource_version(), known.resource_version(), "it is written");
        assert_eq!((written.metadata.generation, &written.data), (known.metadata.generation, &known.data));
        known = written;
    }
    let pause = Patch::Merge(json!({"metadata": {"annotations": {"examples.example.com/paused": "true"}}}));
    api.patch("books", &PatchParams::default(), &pause).await.expect("it is accepted");
    until_says(world, api, "books", "Reconciliation is paused by annotation examples.example.com/paused").await;
    let grown = reconciles().await - before;
    assert!((1..MANAGERS / 2).contains(&grown), "{grown} reconciles after {MANAGERS} such writes and a pause");
}

/// A change of another object wakes in milliseconds, which the tests in paused time prove. This is far longer, for a machine that runs
/// other tests too, and far shorter than any resync.
const SOON: Duration = Duration::from_secs(10);

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
    let begun = Instant::now();
    world.patch::<ConfigMap>("door", json!({"data": {"text": "hi", "host": "a.example.com"}})).await;
    let shows_it = async || {
        let page = world.get::<ConfigMap>("door-page").await?.data?;
        page["index.html"].contains(">hi<").then_some(())
    };
    world.within(SOON, "the page has the new text", shows_it).await;
    println!("the page followed its ConfigMap within {} ms", begun.elapsed().as_millis());
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
    puts_back::<Service>(&world, &world.api(), "door-page").await;
    let read = [
        "get banners.examples.example.com",
        "get configmaps",
        "get daemonsets.apps",
        "get ingresses.networking.k8s.io",
        "get services",
    ];
    let deleted = ["delete configmaps", "delete daemonsets.apps", "delete services"];
    world.assert_permitted(operator, &[(PAST_THE_CACHE, &read), (FOR_ADOPTION, &deleted)]);
}

/// An operator that serves its webhook as in a cluster: with its own account, behind a Service, with a configuration that it did not
/// write. The cluster is its own, because a webhook configuration applies to a whole cluster.
struct Served {
    world: World,
    /// The permissions to serve the webhook.
    granted: Vec<PolicyRule>,
    /// Keeps the port of the webhook.
    _port: Port,
}

/// The Service of the webhook.
const SERVICE: &str = "webhooks";

impl Served {
    async fn start(operator: &'static dyn Operator, binary: &str) -> Option<Self> {
        let mut world = World::prepare(operator, binary, || Cluster::fresh(Nodes::None)).await?;
        let port = Port::reserve().expect("a port");
        let granted = install_webhook(&world, operator, port.number()).await;
        let (address, service) = (format!("127.0.0.1:{}", port.number()), format!("{}/{SERVICE}", world.namespace));
        let lifetime = "--webhook-cert-lifetime=9s"; // so that the test sees a renewal
        world.run(&["--webhook-bind-address", &address, "--webhook-service", &service, lifetime]);
        Some(Self { world, granted, _port: port })
    }

    /// Checks that the API server has refused no request, and that the operator has used each permission to serve the webhook.
    async fn assert_permitted(&self) {
        let is_renewed = async || (self.world.requests().count("update secrets") > 0).then_some(());
        self.world.until("the certificate is renewed", is_renewed).await;
        assert_eq!(self.world.requests().forbidden(), Vec::<&str>::new());
        assert_eq!(self.world.requests().unused(&self.granted), Vec::<String>::new());
    }
}

/// Installs the webhook as the chart does: a configuration that calls a Service, and the derived permissions to serve it, which are
/// returned. The Service leads to this port of the machine.
async fn install_webhook(world: &World, operator: &dyn Operator, port: u16) -> Vec<PolicyRule> {
    let (name, secret) = ("controller-manager", "webhook-server-cert"); // the defaults of the flags
    let WebhookPermissions { cluster, namespaced } =
        webhook_permissions(&[operator], name, secret).expect("it has a webhook");
    world.allow_in_cluster("webhook", &cluster).await;
    world.allow("webhook", &namespaced).await;
    // Without a node, the API server reaches no address of a Service. That of an external one it takes as it is.
    let external = json!({"type": "ExternalName", "externalName": "127.0.0.1"});
    world.create::<Service>(json!({"metadata": {"name": SERVICE}, "spec": external})).await;
    for mut wanted in webhook_configurations(&[operator], name, &world.namespace, SERVICE) {
        for webhook in wanted["webhooks"].as_array_mut().into_iter().flatten() {
            webhook["clientConfig"]["service"]["port"] = json!(port);
        }
        let kind = wanted["kind"].as_str().expect("a kind");
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(world.client.clone(), &resource);
        api.patch(name, &PatchParams::apply("helm"), &Patch::Apply(&wanted)).await.expect("it is accepted");
    }
    [cluster, namespaced].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn theme_that_a_banner_shows_cannot_be_deleted() {
    let operator = Box::leak(Box::<Banners>::default());
    let Some(served) = Served::start(operator, env!("CARGO_BIN_EXE_banners")).await else { return };
    let world = &served.world;
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
    assert_namespace_controller_may_delete(world, "dark");
    assert_only_designers_change_the_colour(world, "dark");
    let banners: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource("Banner"));
    banners.delete("door", &DeleteParams::default()).await.expect("it is deleted");
    world.until("the theme is deleted", async || themes.delete("dark", &DeleteParams::default()).await.ok()).await;
    served.assert_permitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn track_that_names_no_deployment_gets_the_one_of_its_name() {
    let operator = Box::leak(Box::<Tracks>::default());
    let Some(served) = Served::start(operator, env!("CARGO_BIN_EXE_tracks")).await else { return };
    let world = &served.world;
    let nameless = object("Track", "web", &json!({}));
    world
        .until("the webhook writes the default", async || {
            let track = world.try_apply(&nameless).await.ok()?; // refused as long as nothing answers
            (track.data["spec"]["deployment"] == "web").then_some(())
        })
        .await;
    let named = world.apply(&object("Track", "other", &json!({"deployment": "web"}))).await;
    assert_eq!(named.data["spec"], json!({"deployment": "web"}));
    served.assert_permitted().await;
}

/// The controller that empties a deleted namespace is left out by the condition of the webhook: it may delete what others may not.
fn assert_namespace_controller_may_delete(world: &World, theme: &str) {
    let mut kubectl = world.cluster.kubectl(["delete", "themes.examples.example.com", theme, "--dry-run=server"]);
    kubectl.args(["--namespace", &world.namespace, "--as=system:serviceaccount:kube-system:namespace-controller"]);
    let output = kubectl.output().expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Changes the colour of the Theme as this user. Returns whether that is allowed, and what kubectl prints besides.
fn recolour(world: &World, theme: &str, colour: &str, user: &[&str]) -> (bool, String) {
    let patch = json!({"spec": {"colour": colour}}).to_string();
    let mut kubectl = world.cluster.kubectl(["patch", "themes.examples.example.com", theme, "--type=merge"]);
    kubectl.args(["--namespace", &world.namespace, "--patch", &patch]).args(user);
    let output = kubectl.output().expect("kubectl runs");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Two users who may write all objects, one of them a designer. The colour in the Theme differs from the one that they set.
fn assert_only_designers_change_the_colour(world: &World, theme: &str) {
    let (eve, dora) = (["--as=eve", "--as-group=system:masters"], ["--as=dora", "--as-group=system:masters"]);
    let designer = [dora.as_slice(), &["--as-group=designers"]].concat();
    let (is_allowed, says) = recolour(world, theme, "navy", &eve);
    assert!(!is_allowed && says.contains("spec.colour: Banner \"door\" shows it, and eve is no designer"), "{says}");
    let (is_allowed, says) = recolour(world, theme, "navy", &[designer.as_slice(), &["--dry-run=server"]].concat());
    assert!(is_allowed && says.is_empty(), "{says}");
    let (is_allowed, says) = recolour(world, theme, "navy", &designer);
    assert!(is_allowed && says.contains("Warning: Banner \"door\" changes its colour"), "{says}");
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
    puts_back(&world, &namespaces, &name).await;
    puts_back(&world, &quotas, &name).await;
    puts_back(&world, &accounts, &name).await;
    puts_back(&world, &bindings, &name).await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"examples.example.com/tenant": null}}}));
    namespaces.patch(&member, &PatchParams::default(), &labels).await.expect("it is accepted");
    until_says(&world, &api, &name, "1 namespaces with 10 pods each").await;
    let read = [
        "get namespaces",
        "get resourcequotas",
        "get rolebindings.rbac.authorization.k8s.io",
        "get roles.rbac.authorization.k8s.io",
        "get serviceaccounts",
        "get tenants.examples.example.com",
    ];
    let granted = ["get pods", "list pods", "watch pods"];
    let why = "the API server refuses a Role that allows more than its author may do";
    world.assert_permitted(
        &Tenants,
        &[(PAST_THE_CACHE, &read), (FOR_ADOPTION, &["delete namespaces"]), (why, &granted)],
    );
    namespaces.delete(&member, &DeleteParams::default()).await.expect("it is deleted");
    api.delete(&name, &DeleteParams::default()).await.expect("it is deleted");
}

/// The text in the `Warning` headers of a deprecated version.
const WARNING: &str = "Ledgers of v1 will not be served for ever";

/// Makes the API server answer each request for Ledgers with a warning, and waits until it does.
async fn deprecate(world: &World, operator: &dyn Operator) {
    let mut definition = normalize(&operator.crds()[0]);
    let version = &mut definition.spec.versions[0];
    (version.deprecated, version.deprecation_warning) = (Some(true), Some(WARNING.to_owned()));
    let definitions = Api::<CustomResourceDefinition>::all(world.client.clone());
    let apply = PatchParams::apply("test").force();
    let applied = definitions.patch(&definition.name_any(), &apply, &Patch::Apply(&definition)).await;
    applied.expect("the definition is accepted");
    let warns = async || {
        let mut kubectl =
            world.cluster.kubectl(["get", "ledgers.examples.example.com", "--namespace", &world.namespace]);
        let output = kubectl.output().expect("kubectl runs");
        String::from_utf8_lossy(&output.stderr).contains(WARNING).then_some(())
    };
    world.until("the API server warns", warns).await;
}

/// The cluster is its own, because a definition applies to a whole cluster.
#[tokio::test(flavor = "multi_thread")]
async fn warnings_of_a_deprecated_version_are_counted_and_logged_once() {
    let operator = Box::leak(Box::<Ledgers>::default());
    let binary = env!("CARGO_BIN_EXE_ledgers");
    let Some(mut world) = World::prepare(operator, binary, || Cluster::fresh(Nodes::None)).await else { return };
    deprecate(&world, operator).await;
    world.run(&[]);
    let running = world.operator.as_ref().expect("it runs");
    let count = || -> Option<u64> {
        let metrics = running.metrics()?;
        metrics.lines().find_map(|line| line.strip_prefix("operator_api_warnings_total ")?.parse().ok())
    };
    let api = Api::namespaced_with(world.client.clone(), &world.namespace, &resource("Ledger"));
    let mut counted = 0;
    for replicas in [1, 2] {
        world.apply(&object("Ledger", "books", &json!({"replicas": replicas}))).await;
        // The operator has written the status.
        until_says(&world, &api, "books", &format!("0 of {replicas} replicas are ready")).await;
        counted = world.until("more warnings are counted", async || count().filter(|it| *it > counted)).await;
    }
    let log = running.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(WARNING)).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    println!("{counted} warnings: {}", warnings[0]);
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
    world.assert_permitted(operator, &[(PAST_THE_CACHE, &["get tracks.examples.example.com"])]);
}

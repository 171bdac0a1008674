//! The world of an acceptance test: a namespace of a real API server, with one operator in it.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use cluster::{Cluster, Nodes};
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        events::v1::Event,
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, ValidationDirective},
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, GroupVersionKind, NamespaceResourceScope},
    discovery::ApiResource,
};
use manager::{Operator, leader_election_permissions, normalize, permissions};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{audit::Requests, process::Process};

/// Far longer than any step takes: only a failure waits this long.
const PATIENCE: Duration = Duration::from_mins(1);

/// A namespaced kind with a typed form.
pub trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// A namespace, an operator and the test's own client.
pub struct World {
    /// The cluster of the namespace.
    pub cluster: Arc<Cluster>,
    /// The namespace's name, unique.
    pub namespace: String,
    /// The test's client: the cluster's administrator.
    pub client: Client,
    /// The user as which the operator authenticates.
    user: String,
    program: Option<Program>,
    /// The operator, if it runs as a process of this test.
    pub operator: Option<Process>,
}

/// The operator's binary, and the kubeconfig of its user.
struct Program {
    binary: PathBuf,
    kubeconfig: PathBuf,
    /// The namespaces to watch; empty for all.
    watched: String,
}

/// Starts the same operator any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Starter {
    binary: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    watched: String,
    log: PathBuf,
    flags: Vec<String>,
}

impl Starter {
    pub(crate) fn with(&self, kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_path_buf(), ..self.clone() }
    }

    pub(crate) fn start(&self) -> Process {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        Process::start(&self.binary, &self.kubeconfig, &self.namespace, &self.watched, self.log.clone(), &flags)
            .expect("the operator starts")
    }
}

impl World {
    /// Prepares a world on the shared cluster without nodes, and starts the operator. Returns `None` if this machine cannot run a
    /// cluster.
    pub async fn start(operator: &'static dyn Operator, binary: impl AsRef<Path>) -> Option<Self> {
        let mut world = Self::prepare(operator, binary, || Cluster::shared(Nodes::None)).await?;
        world.run(&[]);
        Some(world)
    }

    /// Same as [`start`](Self::start), but on a cluster of the test's choice and without starting the operator.
    pub async fn prepare(
        operator: &'static dyn Operator,
        binary: impl AsRef<Path>,
        cluster: impl FnOnce() -> anyhow::Result<Cluster> + Send + 'static,
    ) -> Option<Self> {
        let mut world = Self::visit(operator.name(), cluster).await?;
        world.user = format!("operator:{}", world.namespace);
        let kubeconfig = world.cluster.kubeconfig_for(&world.user, &[]).expect("a kubeconfig");
        world.program = Some(Program {
            binary: binary.as_ref().to_path_buf(),
            kubeconfig,
            watched: if is_cluster_scoped(operator) { String::new() } else { world.namespace.clone() },
        });
        world.install(operator).await;
        Some(world)
    }

    /// Prepares only a namespace and a client, on a cluster of the test's choice: for operators that run inside the cluster.
    pub async fn visit(
        prefix: &str,
        cluster: impl FnOnce() -> anyhow::Result<Cluster> + Send + 'static,
    ) -> Option<Self> {
        drop(rustls::crypto::ring::default_provider().install_default());
        let cluster = tokio::task::spawn_blocking(move || cluster::or_skip(cluster())).await.expect("no panic")?;
        let client = connect(&cluster.kubeconfig()).await;
        let namespace = format!("{prefix}-{}", run_id());
        let world =
            Self { cluster: Arc::new(cluster), namespace, client, user: String::new(), program: None, operator: None };
        world.make_namespace().await;
        Some(world)
    }

    /// Lets the operator watch all namespaces from its next start on, with its permissions in the whole cluster: for a cluster that no
    /// other test uses. Only there, an operator watches the definitions of its optional kinds.
    pub async fn watch_all_namespaces(&mut self, operator: &dyn Operator) {
        self.allow_in_cluster("cluster", &permissions(&[operator])).await;
        self.program.as_mut().expect("a world that was prepared for an operator").watched.clear();
    }

    /// Kills the running operator, and starts it again with these flags.
    pub fn run(&mut self, flags: &[&str]) {
        self.operator = None;
        self.operator = Some(self.replica("", flags));
    }

    /// Starts one more replica with its own log. Dropping the handle kills it.
    pub fn replica(&self, name: &str, flags: &[&str]) -> Process {
        self.starter_with(name, self.kubeconfig(), flags).start()
    }

    /// The kubeconfig of the operator.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.program().kubeconfig
    }

    /// A starter of the operator with another kubeconfig.
    pub(crate) fn starter(&self, kubeconfig: &Path, flags: &[&str]) -> Starter {
        self.starter_with("", kubeconfig, flags)
    }

    fn starter_with(&self, name: &str, kubeconfig: &Path, flags: &[&str]) -> Starter {
        Starter {
            binary: self.program().binary.clone(),
            kubeconfig: kubeconfig.to_path_buf(),
            namespace: self.namespace.clone(),
            watched: self.program().watched.clone(),
            log: self.log_file(name),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        }
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.cluster.state_dir().join(format!("{}{name}.log", self.namespace))
    }

    fn program(&self) -> &Program {
        self.program.as_ref().expect("a world that was prepared for an operator")
    }

    /// Deletes the namespace without waiting: for tests that create many.
    pub(crate) async fn forget(self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        // Errors do not matter: leftovers are deleted with the cluster.
        drop(namespaces.delete(&self.namespace, &DeleteParams::background()).await);
    }

    /// Kills the operator as a crash does, and starts it again.
    pub fn restart(&mut self) {
        self.run(&[]);
    }

    /// Applies YAML as `kubectl apply --server-side` does. The API server rejects unknown fields.
    pub async fn apply(&self, yaml: &str) -> DynamicObject {
        self.try_apply(yaml).await.unwrap_or_else(|error| panic!("{error}\n{yaml}"))
    }

    /// Same as [`apply`](Self::apply), for objects that the API server should refuse.
    pub async fn try_apply(&self, yaml: &str) -> Result<DynamicObject, kube::Error> {
        let value: Value = kube_yaml(yaml);
        let kind = value["kind"].as_str().expect("a kind");
        let (group, version) =
            value["apiVersion"].as_str().expect("an apiVersion").split_once('/').unwrap_or(("", "v1"));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let name = value["metadata"]["name"].as_str().expect("a name").to_owned();
        let parameters = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("kubectl").force()
        };
        api.patch(&name, &parameters, &Patch::Apply(&value)).await
    }

    /// The typed API of a kind in this namespace.
    pub fn api<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The object, if it exists.
    pub async fn get<K: Namespaced>(&self, name: &str) -> Option<K> {
        self.api().get_opt(name).await.expect("the API server answers")
    }

    /// All objects of a kind.
    pub async fn list<K: Namespaced>(&self) -> Vec<K> {
        self.api().list(&ListParams::default()).await.expect("the API server answers").items
    }

    /// Changes an object as another client does, with a merge patch.
    pub async fn patch<K: Namespaced>(&self, name: &str, patch: Value) -> K {
        let parameters = PatchParams { field_manager: Some("another-manager".to_owned()), ..PatchParams::default() };
        self.api().patch(name, &parameters, &Patch::Merge(patch)).await.expect("the API server accepts the patch")
    }

    /// Writes an object's status, as the kubelet or another controller does.
    pub async fn patch_status<K: Namespaced>(&self, name: &str, status: Value) -> K {
        let patch = json!({"status": status});
        let parameters = PatchParams { field_manager: Some("kubelet".to_owned()), ..PatchParams::default() };
        self.api().patch_status(name, &parameters, &Patch::Merge(patch)).await.expect("the status is accepted")
    }

    /// Creates an object as another client does.
    pub async fn create<K: Namespaced>(&self, object: Value) -> K {
        let object: K = serde_json::from_value(object).expect("an object of that kind");
        self.api().create(&PostParams::default(), &object).await.expect("the API server accepts the object")
    }

    /// Deletes an object.
    pub async fn delete<K: Namespaced>(&self, name: &str) {
        drop(self.api::<K>().delete(name, &DeleteParams::default()).await.expect("the object is deleted"));
    }

    /// Waits until `look` returns a value, and returns it. After one minute the test fails and prints the operator's log.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        self.within(PATIENCE, what, async move || look().await).await
    }

    /// Same as [`until`](Self::until), with a time limit that is part of the test.
    pub async fn within<T>(&self, limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            if begun.elapsed() > limit {
                let log = std::fs::read_to_string(self.log_file("")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(30).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                panic!("not within {}s: {what}\n--- the operator's log:\n{}", limit.as_secs(), tail.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// All requests of the operator so far.
    pub fn requests(&self) -> Requests {
        Requests::of(&self.user, &self.cluster.audit_log()).expect("an audit log")
    }

    /// Checks that the API server has refused no request of the operator, and that the operator has used each of its permissions. A
    /// run need not use those in `rarely_used`, such as `get deployments.apps`, which are listed under the reason for it.
    pub fn assert_permitted(&self, operator: &dyn Operator, rarely_used: &[(&str, &[&str])]) {
        let requests = self.requests();
        assert_eq!(requests.forbidden(), Vec::<&str>::new());
        assert_eq!(requests.findings(&permissions(&[operator]), rarely_used), Vec::<String>::new());
    }

    /// The events on an object: type, reason and note.
    pub async fn events(&self, name: &str) -> Vec<(String, String, String)> {
        let events: Vec<Event> = self.list().await;
        let mut found: Vec<&Event> = events
            .iter()
            .filter(|event| event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(name))
            .collect();
        found.sort_by_key(|event| event.event_time.clone());
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        found.iter().map(|event| (text(&event.type_), text(&event.reason), text(&event.note))).collect()
    }

    /// Waits for an event with this type and reason, and returns its note.
    pub async fn until_event(&self, name: &str, type_: &str, reason: &str) -> String {
        self.until(&format!("an event {type_} {reason}"), async || {
            let events = self.events(name).await;
            events.into_iter().find(|event| event.0 == type_ && event.1 == reason).map(|event| event.2)
        })
        .await
    }

    /// Creates the namespace. It enforces the restricted Pod Security Standard.
    async fn make_namespace(&self) {
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}});
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let apply = PatchParams::apply("test").force();
        namespaces.patch(&self.namespace, &apply, &Patch::Apply(&namespace)).await.expect("the namespace is accepted");
    }

    /// Installs the operator's CRDs and grants the permissions that its code declares: in the namespace or, if a kind is
    /// cluster-scoped, in the whole cluster. A second call changes nothing.
    pub async fn install(&self, operator: &'static dyn Operator) {
        let apply = PatchParams::apply("test").force();
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in operator.crds() {
            let crd = normalize(&crd);
            let name = crd.name_any();
            crds.patch(&name, &apply, &Patch::Apply(&crd)).await.expect("the CRD is accepted");
            self.until(&format!("{name} is established"), async || {
                let crd = crds.get(&name).await.ok()?;
                let conditions = crd.status?.conditions?;
                conditions
                    .iter()
                    .find(|condition| condition.type_ == "Established" && condition.status == "True")
                    .cloned()
            })
            .await;
        }
        let role = format!("test-{}", operator.name());
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let granted = permissions(&[operator]);
        let body = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": granted,
        });
        roles.patch(&role, &apply, &Patch::Apply(&body)).await.expect("the role is accepted");
        let bindings: Api<RoleBinding> = self.api();
        self.allow("leader-election", &leader_election_permissions("controller-manager.operators")).await;
        let binding = |kind: &str, name: &str| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.user}],
            })
        };
        if is_cluster_scoped(operator) {
            let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
            let body = binding("ClusterRoleBinding", &self.namespace);
            bindings.patch(&self.namespace, &apply, &Patch::Apply(&body)).await.expect("the binding is accepted");
        } else {
            let body = binding("RoleBinding", "operator");
            bindings.patch("operator", &apply, &Patch::Apply(&body)).await.expect("the binding is accepted");
        }
    }

    /// Grants the operator more permissions in its namespace, by a Role and a binding of this name.
    pub async fn allow(&self, name: &str, rules: &[PolicyRule]) {
        let apply = PatchParams::apply("test").force();
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules,
        });
        self.api::<Role>().patch(name, &apply, &Patch::Apply(&role)).await.expect("the role is valid");
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.user}],
        });
        let bindings = self.api::<RoleBinding>();
        bindings.patch(name, &apply, &Patch::Apply(&binding)).await.expect("the binding is valid");
    }

    /// Grants the operator more permissions in the whole cluster, by a `ClusterRole` and a binding. Their name is that of the namespace
    /// with this suffix.
    pub async fn allow_in_cluster(&self, suffix: &str, rules: &[PolicyRule]) {
        let (apply, name) = (PatchParams::apply("test").force(), format!("{}-{suffix}", self.namespace));
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        });
        let of_all: Api<ClusterRole> = Api::all(self.client.clone());
        of_all.patch(&name, &apply, &Patch::Apply(&role)).await.expect("the role is valid");
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.user}],
        });
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        bindings.patch(&name, &apply, &Patch::Apply(&binding)).await.expect("the binding is valid");
    }
}

/// Whether a kind of the operator is cluster-scoped. Such an operator watches the whole cluster.
fn is_cluster_scoped(operator: &dyn Operator) -> bool {
    operator.crds().iter().any(|crd| crd.spec.scope == "Cluster")
}

/// A string that is unique among all tests of this run.
pub fn run_id() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}-{}", now.as_micros() % 0xff_ffff_ffff, std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

async fn connect(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

fn kube_yaml(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("not YAML: {error}\n{yaml}"))
}

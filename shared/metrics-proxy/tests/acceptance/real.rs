//! The proxy with a real API server, which authenticates and authorises.

use std::sync::{Arc, atomic::AtomicU32};

use clap::Parser as _;
use cluster::{Cluster, Nodes};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use metrics_proxy::{Flags, Program};
use serde_json::json;

use crate::{
    kit::{Behind, HELLO, PATIENCE, Running, soon},
    tls::{Authority, asked, write},
};

/// A namespace, a user with the permissions of a proxy, and service accounts with tokens.
struct World {
    cluster: Arc<Cluster>,
    admin: Client,
    name: String,
    behind: Behind,
}

impl World {
    async fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let cluster = tokio::task::spawn_blocking(|| cluster::or_skip(Cluster::shared(Nodes::None))).await.unwrap()?;
        let admin = metrics_proxy::client(Some(&cluster.kubeconfig())).await.unwrap();
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("metrics-proxy-{}-{count}", std::process::id());
        let world = Self { cluster: Arc::new(cluster), admin, name, behind: Behind::new(HELLO).await };
        let namespace = Namespace { metadata: named(&world.name), ..Namespace::default() };
        Api::all(world.admin.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        world.bind("auth", "system:auth-delegator", json!({"kind": "User", "name": world.proxy_user()})).await;
        Some(world)
    }

    fn proxy_user(&self) -> String {
        format!("proxy-of-{}", self.name)
    }

    /// The name of a cluster-wide object, which contains the name of this world.
    fn cluster_wide(&self, what: &str) -> String {
        format!("{}-{what}", self.name)
    }

    async fn bind(&self, what: &str, role: &str, subject: serde_json::Value) {
        let mut subject = subject;
        if subject["kind"] != "ServiceAccount" {
            subject["apiGroup"] = "rbac.authorization.k8s.io".into();
        }
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": self.cluster_wide(what)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }))
        .unwrap();
        Api::all(self.admin.clone()).create(&PostParams::default(), &binding).await.unwrap();
    }

    async fn role(&self, what: &str, rule: serde_json::Value) -> String {
        let name = self.cluster_wide(what);
        let object: ClusterRole = serde_json::from_value(json!({"metadata": {"name": name}, "rules": [rule]})).unwrap();
        Api::all(self.admin.clone()).create(&PostParams::default(), &object).await.unwrap();
        name
    }

    fn accounts(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.admin.clone(), &self.name)
    }

    async fn account(&self, name: &str) -> serde_json::Value {
        let account = ServiceAccount { metadata: named(name), ..ServiceAccount::default() };
        self.accounts().create(&PostParams::default(), &account).await.unwrap();
        json!({"kind": "ServiceAccount", "name": name, "namespace": self.name})
    }

    async fn token(&self, account: &str, audiences: &[&str]) -> String {
        let audiences = Some(audiences.iter().map(ToString::to_string).collect()).filter(|it: &Vec<_>| !it.is_empty());
        let spec = TokenRequestSpec { audiences, ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = self.accounts().create_token_request(account, &PostParams::default(), &request).await.unwrap();
        answer.status.unwrap().token.unwrap()
    }

    /// Starts a proxy that has only the permissions of a proxy.
    async fn proxy(&self, more: &[&str]) -> Running {
        let (cluster, user) = (self.cluster.clone(), self.proxy_user());
        let kubeconfig =
            tokio::task::spawn_blocking(move || cluster.kubeconfig_for(&user, &[])).await.unwrap().unwrap();
        let upstream = format!("--upstream=http://{}/", self.behind.address);
        let file = format!("--kubeconfig={}", kubeconfig.display());
        let usual = ["metrics-proxy", "--insecure-listen-address=127.0.0.1:0", &upstream, &file];
        let flags = Flags::try_parse_from(usual.iter().chain(more)).unwrap();
        Running::run(Program::start(&flags).await.unwrap())
    }

    async fn end(self) {
        let (bindings, roles) =
            (Api::<ClusterRoleBinding>::all(self.admin.clone()), Api::<ClusterRole>::all(self.admin.clone()));
        for what in ["auth", "reader", "services"] {
            drop(bindings.delete(&self.cluster_wide(what), &DeleteParams::default()).await);
            drop(roles.delete(&self.cluster_wide(what), &DeleteParams::default()).await);
        }
        drop(Api::<Namespace>::all(self.admin.clone()).delete(&self.name, &DeleteParams::default()).await);
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn metrics_rule() -> serde_json::Value {
    json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})
}

#[tokio::test]
async fn rbac_decides_access() {
    let Some(world) = World::new().await else { return };
    let proxy = world
        .proxy(&[
            "--authorization-webhook-cache-authorized-ttl=1s",
            "--authorization-webhook-cache-unauthorized-ttl=100ms",
        ])
        .await;
    let reader = world.account("reader").await;
    let token = world.token("reader", &[]).await;
    let (code, text) = proxy.get("/metrics", Some(&token)).await;
    assert_eq!(code, 403, "no rights yet");
    assert_eq!(
        text,
        format!("Forbidden (user=system:serviceaccount:{}:reader, verb=get, resource=, subresource=)\n", world.name)
    );
    let role = world.role("reader", metrics_rule()).await;
    world.bind("reader", &role, reader).await;
    let until = async |expected| {
        let reached = async { while proxy.get("/metrics", Some(&token)).await.0 != expected {} };
        tokio::time::timeout(PATIENCE, reached).await.unwrap();
    };
    until(200).await;
    assert_eq!(proxy.get("/other", Some(&token)).await.0, 403);
    // Without the binding, access ends when the cached answer expires.
    Api::<ClusterRoleBinding>::all(world.admin.clone())
        .delete(&world.cluster_wide("reader"), &DeleteParams::default())
        .await
        .unwrap();
    until(403).await;
    world.end().await;
}

#[tokio::test]
async fn invalid_tokens_get_401() {
    let Some(world) = World::new().await else { return };
    let role = world.role("reader", metrics_rule()).await;
    world.bind("reader", &role, world.account("reader").await).await;
    world.account("gone").await;
    let (proxy, token) = (world.proxy(&[]).await, world.token("reader", &[]).await);
    let reached = async { while proxy.get("/metrics", Some(&token)).await.0 != 200 {} };
    soon(reached).await;

    let (head, signature) = token.rsplit_once('.').unwrap();
    let changed = if signature.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{head}.{changed}{}", &signature[1..]);
    assert_eq!(proxy.get("/metrics", Some(&forged)).await.0, 401);
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", token.split('.').nth(1).unwrap());
    assert_eq!(proxy.get("/metrics", Some(&unsigned)).await.0, 401);
    assert_eq!(proxy.get("/metrics", Some(&world.token("reader", &["elsewhere"]).await)).await.0, 401);
    let gone = world.token("gone", &[]).await;
    world.accounts().delete("gone", &DeleteParams::default()).await.unwrap();
    assert_eq!(proxy.get("/metrics", Some(&gone)).await.0, 401, "its account was deleted");
    assert_eq!(proxy.get("/metrics", None).await.0, 401);
    world.end().await;
}

#[tokio::test]
async fn token_for_wrong_audience_gets_401() {
    let Some(world) = World::new().await else { return };
    let role = world.role("reader", metrics_rule()).await;
    world.bind("reader", &role, world.account("reader").await).await;
    let proxy = world
        .proxy(&["--auth-token-audiences=metrics,more", "--authorization-webhook-cache-unauthorized-ttl=100ms"])
        .await;
    let token = world.token("reader", &["more"]).await;
    soon(async { while proxy.get("/metrics", Some(&token)).await.0 != 200 {} }).await;
    for audiences in [&["wrong"][..], &[]] {
        assert_eq!(proxy.get("/metrics", Some(&world.token("reader", audiences).await)).await.0, 401, "{audiences:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn query_parameter_selects_authorised_namespace() {
    let Some(world) = World::new().await else { return };
    let account = world.account("reader").await;
    let reads = json!({"apiGroups": [""], "resources": ["services/metrics"], "verbs": ["get"]});
    let role = world.role("services", reads).await;
    // In this namespace only.
    let binding = serde_json::from_value(json!({
        "metadata": {"name": "services"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [account],
    }))
    .unwrap();
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::namespaced(world.admin.clone(), &world.name);
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "authorization:\n  rewrites: {byQueryParameter: {name: namespace}}\n  resourceAttributes: \
                {apiVersion: v1, resource: services, subresource: metrics, namespace: '{{ .Value }}'}\n";
    std::fs::write(&file, text).unwrap();
    let config = format!("--config-file={}", file.path().display());
    let proxy = world.proxy(&[&config, "--authorization-webhook-cache-unauthorized-ttl=100ms"]).await;
    let token = world.token("reader", &[]).await;
    let ours = format!("/metrics?namespace={}", world.name);
    soon(async { while proxy.get(&ours, Some(&token)).await.0 != 200 {} }).await;
    for (path, expected) in [
        ("/metrics?namespace=default", 403),
        (&format!("{ours}&namespace=default"), 403),
        ("/metrics?namespace=", 403),
        ("/metrics", 400),
    ] {
        assert_eq!(proxy.get(path, Some(&token)).await.0, expected, "{path}");
    }
    world.end().await;
}

#[tokio::test]
async fn client_certificate_group_is_authorised_by_rbac() {
    let Some(world) = World::new().await else { return };
    let role = world.role("reader", metrics_rule()).await;
    let group = world.cluster_wide("scrapers");
    world.bind("reader", &role, json!({"kind": "Group", "name": group})).await;
    let (authority, clients, folder) = (Authority::new("a"), Authority::new("b"), tempfile::tempdir().unwrap());
    write(folder.path(), &authority.pair("localhost", &[]));
    std::fs::write(folder.path().join("ca.crt"), clients.pem()).unwrap();
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.path().join(name).display());
    let files =
        [file("tls-cert-file", "tls.crt"), file("tls-private-key-file", "tls.key"), file("client-ca-file", "ca.crt")];
    let more: Vec<_> = files.iter().map(String::as_str).collect();
    let usual = ["--secure-listen-address=127.0.0.1:0", "--authorization-webhook-cache-unauthorized-ttl=100ms"];
    let proxy = world.proxy(&[&usual[..], &more].concat()).await;
    let scraper = clients.pair("prometheus", &[&group]);
    soon(async { while asked(&proxy, authority.client_with(&scraper), None).await != 200 {} }).await;
    let other = clients.pair("prometheus", &["others"]);
    assert_eq!(asked(&proxy, authority.client_with(&other), None).await, 403, "not in the group");
    let unknown = Authority::new("c").pair("prometheus", &[&group]);
    assert_eq!(asked(&proxy, authority.client_with(&unknown), None).await, 0, "another authority");
    world.end().await;
}

#[tokio::test]
async fn proxy_without_permissions_answers_503() {
    let Some(world) = World::new().await else { return };
    world.account("reader").await;
    let token = world.token("reader", &[]).await;
    Api::<ClusterRoleBinding>::all(world.admin.clone())
        .delete(&world.cluster_wide("auth"), &DeleteParams::default())
        .await
        .unwrap();
    let proxy = world.proxy(&["--authentication-token-webhook-cache-ttl=100ms"]).await;
    soon(async { while proxy.get("/metrics", Some(&token)).await.0 != 503 {} }).await;
    world.end().await;
}

//! Helpers of the webhook tests: a cluster, the binary as a process, and objects.

use std::{
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::{Cluster, Nodes, Port};
use controller_manager::manifests;
use k8s_openapi::api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Namespace};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::DynamicObject,
    discovery::ApiResource,
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
pub(crate) const NAMESPACE: &str = "webhooks";

/// A cluster of its own, because webhook configurations apply to a whole cluster.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
}

/// The running binary; ends with the handle.
pub(crate) struct Manager {
    pub(crate) child: Child,
    webhooks: Port,
    probes: Port,
    metrics: Port,
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl World {
    pub(crate) async fn new() -> Option<Self> {
        drop(rustls::crypto::ring::default_provider().install_default());
        let start = || cluster::or_skip(Cluster::fresh(Nodes::None));
        let cluster = tokio::task::spawn_blocking(start).await.unwrap()?;
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let world = Self { cluster, client };
        for definition in manifests::definitions() {
            world.cluster_wide("apiextensions.k8s.io/v1", "CustomResourceDefinition").create(&definition).await;
        }
        let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::all(world.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        until("Memcached is served", async || world.caches().list(&kube::api::ListParams::default()).await.is_ok())
            .await;
        Some(world)
    }

    pub(crate) fn cluster_wide(&self, api_version: &str, kind: &str) -> Made {
        let (group, version) = api_version.split_once('/').unwrap();
        let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
        Made(Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind)))
    }

    pub(crate) fn caches(&self) -> Api<DynamicObject> {
        self.caches_of("v1")
    }

    pub(crate) fn caches_of(&self, version: &str) -> Api<DynamicObject> {
        let kind = kube::core::GroupVersionKind::gvk("memcached.cache.example.com", version, "Memcached");
        let resource = ApiResource::from_gvk_with_plural(&kind, "memcacheds");
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    pub(crate) fn configurations(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    /// Starts the manager so that the API server calls it by URL.
    pub(crate) async fn by_url(&self, flags: &[&str]) -> Manager {
        self.by_url_within(PATIENCE, flags).await
    }

    /// Like [`Self::by_url`], with another limit for the time until the manager is ready.
    pub(crate) async fn by_url_within(&self, limit: Duration, flags: &[&str]) -> Manager {
        let port = Port::reserve().unwrap();
        let url = format!("https://127.0.0.1:{}", port.number());
        let manager = self.start(port, &[&["--webhook-client-url", &url], flags].concat());
        manager.until_ready_within(limit).await;
        manager
    }

    pub(crate) fn start(&self, webhooks: Port, flags: &[&str]) -> Manager {
        let (probes, metrics) = (Port::reserve().unwrap(), Port::reserve().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_controller-manager"))
            .args(["run", "--operators", "memcached", "--log-format", "text"])
            .args(["--metrics-bind-address", &format!("127.0.0.1:{}", metrics.number())])
            .args(["--health-probe-bind-address", &format!("127.0.0.1:{}", probes.number())])
            .args(["--webhook-bind-address", &format!("127.0.0.1:{}", webhooks.number()), "--kubeconfig"])
            .arg(self.cluster.kubeconfig())
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .expect("the binary starts");
        Manager { child, webhooks, probes, metrics }
    }

    pub(crate) async fn create(&self, name: &str, spec: &Value) -> Result<DynamicObject, kube::Error> {
        self.caches().create(&PostParams::default(), &cache(name, spec)).await
    }
}

/// Creates objects of one kind from JSON.
pub(crate) struct Made(Api<DynamicObject>);

impl Made {
    pub(crate) async fn create(&self, object: &Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        self.0.create(&PostParams::default(), &object).await.unwrap();
    }
}

impl Manager {
    /// Returns the text of `/readyz?verbose`; empty if the server does not answer.
    pub(crate) async fn readiness(&self) -> String {
        get(&self.probes, "/readyz?verbose").await
    }

    /// Returns the metrics; empty if the server does not answer.
    pub(crate) async fn metrics(&self) -> String {
        get(&self.metrics, "/metrics").await
    }

    pub(crate) async fn until_ready(&self) {
        self.until_ready_within(PATIENCE).await;
    }

    async fn until_ready_within(&self, limit: Duration) {
        until_within(limit, "ready", async || self.readiness().await.contains("readyz check passed")).await;
    }

    /// Sends bytes over TLS, trusting `bundle`, and returns what comes back.
    pub(crate) async fn send(&self, bundle: &str, bytes: &[u8]) -> String {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.webhooks.number())).await.unwrap();
        let mut stream = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap();
        let mut answer = Vec::new();
        // The server may respond and close the connection before it has read all bytes.
        drop(stream.write_all(bytes).await);
        drop(tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer"));
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Returns what the server at this port answers; empty if it does not.
async fn get(port: &Port, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port.number())).await else {
        return String::new();
    };
    let mut text = String::new();
    drop(stream.write_all(request.as_bytes()).await);
    drop(stream.read_to_string(&mut text).await);
    text
}

pub(crate) fn cache(name: &str, spec: &Value) -> DynamicObject {
    cache_of("v1", name, spec)
}

pub(crate) fn cache_of(version: &str, name: &str, spec: &Value) -> DynamicObject {
    let api_version = format!("memcached.cache.example.com/{version}");
    serde_json::from_value(json!({
        "apiVersion": api_version, "kind": "Memcached", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn refused() -> Value {
    json!({"config": {"extraArgs": ["-p 1"]}})
}

pub(crate) fn message(error: &kube::Error) -> &str {
    match error {
        kube::Error::Api(status) => &status.message,
        other => panic!("{other}"),
    }
}

pub(crate) async fn until(what: &str, holds: impl AsyncFnMut() -> bool) {
    until_within(PATIENCE, what, holds).await;
}

/// Like [`until`], with another limit.
pub(crate) async fn until_within(limit: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

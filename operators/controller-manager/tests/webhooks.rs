//! Webhooks as the API server calls them: a real one, and the binary as a process beside it.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use cluster::{Cluster, Nodes};
use controller_manager::manifests;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::DynamicObject,
    discovery::ApiResource,
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PATIENCE: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "webhooks";

/// A cluster of its own: configurations hold for all of it.
struct World {
    cluster: Cluster,
    client: Client,
}

/// The binary as a process that ends with the handle.
struct Manager {
    child: Child,
    webhooks: u16,
    probes: u16,
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl World {
    async fn new() -> Option<Self> {
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

    fn cluster_wide(&self, api_version: &str, kind: &str) -> Made {
        let (group, version) = api_version.split_once('/').unwrap();
        let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
        Made(Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind)))
    }

    fn caches(&self) -> Api<DynamicObject> {
        self.caches_of("v1")
    }

    fn caches_of(&self, version: &str) -> Api<DynamicObject> {
        let kind = kube::core::GroupVersionKind::gvk("memcached.cache.example.com", version, "Memcached");
        let resource = ApiResource::from_gvk_with_plural(&kind, "memcacheds");
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    fn configurations(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    /// Starts the manager so that the API server calls it by URL.
    async fn by_url(&self, flags: &[&str]) -> Manager {
        let port = free_port();
        let url = format!("https://127.0.0.1:{port}");
        let manager = self.start(port, &[&["--webhook-client-url", &url], flags].concat());
        manager.until_ready().await;
        manager
    }

    fn start(&self, port: u16, flags: &[&str]) -> Manager {
        let probes = free_port();
        let child = Command::new(env!("CARGO_BIN_EXE_controller-manager"))
            .args(["run", "--operators", "memcached", "--log-format", "text", "--metrics-bind-address", "0"])
            .args(["--health-probe-bind-address", &format!("127.0.0.1:{probes}")])
            .args(["--webhook-bind-address", &format!("127.0.0.1:{port}"), "--kubeconfig"])
            .arg(self.cluster.kubeconfig())
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .expect("the binary starts");
        Manager { child, webhooks: port, probes }
    }

    async fn create(&self, name: &str, spec: &Value) -> Result<DynamicObject, kube::Error> {
        self.caches().create(&PostParams::default(), &cache(name, spec)).await
    }
}

/// Objects of one kind, made from JSON.
struct Made(Api<DynamicObject>);

impl Made {
    async fn create(&self, object: &Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        self.0.create(&PostParams::default(), &object).await.unwrap();
    }
}

impl Manager {
    /// What `/readyz?verbose` says.
    async fn readiness(&self) -> String {
        let request = "GET /readyz?verbose HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", self.probes)).await else {
            return String::new();
        };
        let mut text = String::new();
        drop(stream.write_all(request.as_bytes()).await);
        drop(stream.read_to_string(&mut text).await);
        text
    }

    async fn until_ready(&self) {
        until("ready", async || self.readiness().await.contains("readyz check passed")).await;
    }

    /// Sends bytes over TLS, trusting `bundle`, and returns what comes back.
    async fn send(&self, bundle: &str, bytes: &[u8]) -> String {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.webhooks)).await.unwrap();
        let mut stream = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap();
        let mut answer = Vec::new();
        // A server may answer and close before it has read everything.
        drop(stream.write_all(bytes).await);
        drop(tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer"));
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn cache(name: &str, spec: &Value) -> DynamicObject {
    cache_of("v1", name, spec)
}

fn cache_of(version: &str, name: &str, spec: &Value) -> DynamicObject {
    let api_version = format!("memcached.cache.example.com/{version}");
    serde_json::from_value(json!({
        "apiVersion": api_version, "kind": "Memcached", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

fn refused() -> Value {
    json!({"config": {"extraArgs": ["-p 1"]}})
}

fn message(error: &kube::Error) -> &str {
    match error {
        kube::Error::Api(status) => &status.message,
        other => panic!("{other}"),
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn bundle_of(configuration: &ValidatingWebhookConfiguration) -> String {
    let webhook = &configuration.webhooks.as_ref().unwrap()[0];
    String::from_utf8(webhook.client_config.ca_bundle.clone().unwrap().0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_refuses_in_our_words_and_lets_pass_what_was_stored_before() {
    let Some(world) = World::new().await else { return };
    world.create("older", &refused()).await.expect("no webhook yet");
    let mut manager = world.by_url(&[]).await;

    let error = world.create("a", &refused()).await.expect_err("is refused");
    let expected = "admission webhook \"vmemcached-v1.memcached.cache.example.com\" denied the request: \
                    Memcached.memcached.cache.example.com \"a\" is invalid: spec.config.extraArgs[0]: \"-p\"";
    assert!(message(&error).starts_with(expected), "{error}");

    let kubectl = world
        .cluster
        .kubectl(["create", "--namespace", NAMESPACE, "--filename", "-", "--dry-run=server"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            let moving = serde_json::to_string(&cache("b", &json!({"image": "memcached:latest"})))?;
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), moving.as_bytes())?;
            child.wait_with_output()
        })
        .unwrap();
    let said = String::from_utf8_lossy(&kubectl.stderr);
    assert!(said.contains("Warning: spec.image: \"memcached:latest\" has no fixed tag"), "{said}");

    let scaled = json!({"spec": {"size": 2}});
    world.caches().patch("older", &PatchParams::default(), &Patch::Merge(&scaled)).await.expect("another field");
    let worse = json!({"spec": {"config": {"extraArgs": ["-p 2"]}}});
    world.caches().patch("older", &PatchParams::default(), &Patch::Merge(&worse)).await.expect_err("the same field");
    world.caches().delete("older", &DeleteParams::default()).await.expect("goes");

    // At the end what was written for the URL is taken back.
    let pid = rustix::process::Pid::from_child(&manager.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(manager.child.wait().unwrap().success());
    assert!(world.configurations().get_opt("controller-manager").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_h4_without_an_answer_the_policy_decides() {
    let Some(world) = World::new().await else { return };
    let manager = world.by_url(&[]).await;
    let pid = rustix::process::Pid::from_child(&manager.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let error = world.create("a", &json!({})).await.expect_err("nobody answers");
    assert!(message(&error).contains("failed calling webhook"), "{error}");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    world.create("a", &json!({})).await.expect("somebody answers again");
    until("its own writes pass", async || {
        world.caches().get("a").await.unwrap().data["status"]["observedGeneration"] == 1
    })
    .await;

    drop(manager); // killed: nothing is taken back
    let error = world.create("b", &json!({})).await.expect_err("nobody is there");
    assert!(message(&error).contains("connection refused"), "{error}");
    let status = json!({"status": {"nodes": []}});
    let patched = world.caches().patch_status("a", &PatchParams::default(), &Patch::Merge(&status)).await;
    patched.expect("what an operator writes needs no webhook");
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_certificates_and_authorities_are_renewed_without_one_failure() {
    let Some(world) = World::new().await else { return };
    // An authority lives four times as long, and is replaced after two thirds: after 16 s.
    let _manager = world.by_url(&["--webhook-cert-lifetime", "6s"]).await;
    let first = bundle_of(&world.configurations().get("controller-manager").await.unwrap());
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let asking: Vec<_> = (0..4)
        .map(|index| {
            let (stop, sent, api) = (stop.clone(), sent.clone(), world.caches());
            tokio::spawn(async move {
                let parameters = PostParams { dry_run: true, ..PostParams::default() };
                let mut ticks = tokio::time::interval(Duration::from_millis(40)); // 25 a second, four times
                while !stop.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    let asked = api.create(&parameters, &cache(&format!("a{index}"), &refused())).await;
                    let error = asked.expect_err("is refused");
                    assert!(message(&error).contains("denied the request"), "{error}");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    until("a new authority signs", async || {
        let bundle = bundle_of(&world.configurations().get("controller-manager").await.unwrap());
        let signs = bundle.split("-----END CERTIFICATE-----").next().unwrap().to_owned();
        !first.contains(&signs)
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for task in asking {
        task.await.expect("no request failed");
    }
    assert!(sent.load(Ordering::Relaxed) > 100, "{} requests", sent.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_one_certificate_and_leave_other_webhooks_alone() {
    let Some(world) = World::new().await else { return };
    let mut configuration: ValidatingWebhookConfiguration = serde_json::from_value(
        manager::webhook_configurations(controller_manager::OPERATORS, "controller-manager", NAMESPACE, "hooks")
            .remove(0),
    )
    .unwrap();
    let webhooks = configuration.webhooks.as_mut().unwrap();
    let mut foreign = webhooks[0].clone();
    foreign.name = "other.example.com".to_owned();
    webhooks.insert(0, foreign);
    // Nobody answers at the Service here: what is tested is who trusts whom.
    for webhook in webhooks.iter_mut() {
        webhook.failure_policy = Some("Ignore".to_owned());
    }
    world.configurations().create(&PostParams::default(), &configuration).await.unwrap();

    let service = format!("{NAMESPACE}/hooks");
    let replicas: Vec<Manager> = (0..3).map(|_| world.start(free_port(), &["--webhook-service", &service])).collect();
    for replica in &replicas {
        replica.until_ready().await;
    }
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    let secret = secrets.get("webhook-server-cert").await.unwrap();
    let value = |key: &str| String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(value("ca.crt").matches("BEGIN CERTIFICATE").count(), 1, "made once");
    let stored = world.configurations().get("controller-manager").await.unwrap();
    for webhook in stored.webhooks.iter().flatten() {
        let trusted = webhook.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.clone());
        let ours = webhook.name.starts_with("vmemcached-"); // the only operator that runs here
        assert_eq!(trusted, ours.then(|| value("ca.crt").into_bytes()), "{}", webhook.name);
        assert!(webhook.rules.is_some() && webhook.client_config.service.is_some(), "only the bundle is ours");
    }
    let managers: Vec<_> = stored.metadata.managed_fields.unwrap().into_iter().filter_map(|it| it.manager).collect();
    assert!(managers.contains(&"webhook-certificates".to_owned()), "{managers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_a_certificate_that_nobody_would_trust_is_told_by_readiness() {
    let Some(world) = World::new().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let authority = |name: &str| {
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        (pem.clone(), rcgen::Issuer::from_ca_cert_pem(&pem, key).unwrap())
    };
    let ((right, signs), (wrong, _)) = (authority("right"), authority("wrong"));
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec![format!("hooks.{NAMESPACE}.svc")];
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &signs).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("ca.crt", &wrong);

    let flags = ["--webhook-service", &format!("{NAMESPACE}/hooks"), "--webhook-cert-dir", path(folder.path())];
    let manager = world.start(free_port(), &flags);
    until("the folder is empty", async || manager.readiness().await.contains("[-]webhooks failed: --webhook-cert-dir"))
        .await;
    write("tls.crt", &certificate.pem());
    write("tls.key", &key.serialize_pem());
    let told = "[-]webhooks failed: the API server would not trust our certificate for hooks.webhooks.svc";
    until("nobody trusts it", async || manager.readiness().await.contains(told)).await;
    write("ca.crt", &right);
    manager.until_ready().await;
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_whatever_is_sent_gets_a_proper_answer() {
    let Some(world) = World::new().await else { return };
    let manager = world.by_url(&[]).await;
    let bundle = bundle_of(&world.configurations().get("controller-manager").await.unwrap());
    let validate = "/validate-memcached-cache-example-com-v1-memcached";
    let post = |path: &str, kind: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let deep = format!("{}{}", "{\"a\":".repeat(20_000), "}".repeat(20_000));
    let huge = format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20));
    for (what, request, status) in [
        ("a GET", format!("GET {validate} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "405"),
        ("another path", post("/validate-other", "application/json", "{}"), "404"),
        ("no body", post(validate, "application/json", ""), "400"),
        ("another type", post(validate, "text/plain", "{}"), "400"),
        ("not JSON", post(validate, "application/json", "{"), "400"),
        ("nested deeply", post(validate, "application/json", &deep), "400"),
        ("3 MiB", post(validate, "application/json", &huge), "400"),
    ] {
        let answer = manager.send(&bundle, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer:.200}");
    }
    let over = format!(
        "POST {validate} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n\r\n"
    );
    let answer = manager.send(&bundle, over.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer:.200}");
    world.create("a", &json!({})).await.expect("it still serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_nothing_is_served_and_nothing_is_written() {
    let Some(world) = World::new().await else { return };
    let port = free_port();
    let url = format!("https://127.0.0.1:{port}");
    let manager = world.start(port, &["--enable-webhooks=false", "--webhook-client-url", &url]);
    manager.until_ready().await;
    assert!(!manager.readiness().await.contains("webhooks"), "{}", manager.readiness().await);
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(world.configurations().get_opt("controller-manager").await.unwrap().is_none());
    world.create("a", &refused()).await.expect("is stored");
    until("the controller says the same", async || {
        let conditions = world.caches().get("a").await.unwrap().data["status"]["conditions"].clone();
        conditions.as_array().into_iter().flatten().any(|it| it["type"] == "Ready" && it["reason"] == "InvalidSpec")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_both_versions_of_an_object_are_served_while_somebody_converts() {
    let Some(world) = World::new().await else { return };
    let (v1, v1alpha1) = (world.caches(), world.caches_of("v1alpha1"));
    let is_served = async || v1alpha1.list(&kube::api::ListParams::default()).await.is_ok();
    assert!(!is_served().await, "nobody converts yet");
    let mut manager = world.by_url(&[]).await;
    until("v1alpha1 is served", is_served).await;

    let create = async |version: &str, name: &str, spec: Value| {
        world.caches_of(version).create(&PostParams::default(), &cache_of(version, name, &spec)).await
    };
    let size = async |version: &str, name: &str| {
        let object = world.caches_of(version).get(name).await.unwrap();
        (object.data["spec"]["size"].clone(), object.metadata.annotations)
    };
    create("v1alpha1", "a", json!({"size": "3"})).await.unwrap();
    assert_eq!((size("v1", "a").await, size("v1alpha1", "a").await), ((json!(3), None), (json!("3"), None)));
    create("v1", "b", json!({"size": 5})).await.unwrap();
    assert_eq!((size("v1", "b").await, size("v1alpha1", "b").await), ((json!(5), None), (json!("5"), None)));
    let seven = Patch::Merge(json!({"spec": {"size": "7"}}));
    v1alpha1.patch("b", &PatchParams::default(), &seven).await.unwrap();
    assert_eq!(size("v1", "b").await.0, 7);
    create("v1alpha1", "c", json!({})).await.unwrap();
    assert_eq!((size("v1", "c").await.0, size("v1alpha1", "c").await.0), (json!(1), json!("1")));

    for (version, given) in [
        ("v1alpha1", json!(3)),
        ("v1", json!("3")),
        ("v1alpha1", json!("65")),
        ("v1alpha1", json!("-1")),
        ("v1alpha1", json!("3 ")),
    ] {
        let error = create(version, "d", json!({"size": given})).await.expect_err("is refused");
        assert!(message(&error).contains("spec.size"), "{version} {given}: {error}");
    }
    // The rules of v1 hold for objects of both.
    let error = create("v1alpha1", "d", refused()).await.expect_err("is refused");
    assert!(message(&error).contains("spec.config.extraArgs[0]: \"-p\""), "{error}");

    let kubectl = world
        .cluster
        .kubectl(["get", "--namespace", NAMESPACE, "memcacheds.v1alpha1.memcached.cache.example.com", "a"])
        .output()
        .unwrap();
    let (shown, said) = (String::from_utf8_lossy(&kubectl.stdout), String::from_utf8_lossy(&kubectl.stderr));
    assert!(said.contains("Warning: memcached.cache.example.com/v1alpha1 Memcached is deprecated; use v1"), "{said}");
    let row: Vec<&str> = shown.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row.get(..2), Some(&["a", "3"][..]), "{shown}");

    // The same children, whichever version was written.
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(world.client.clone(), NAMESPACE);
    let wanted = async |name: &str| deployments.get_opt(name).await.unwrap().and_then(|it| it.spec?.replicas);
    until("three nodes", async || wanted("a").await == Some(3)).await;

    // What was no size is shown as it was, and freezes the number of nodes until somebody says what it is.
    let note = "memcached.cache.example.com/invalid-size";
    let mut frozen = cache("frozen", &json!({"size": 1}));
    frozen.metadata.annotations = Some([(note.to_owned(), "\"three\"".to_owned())].into());
    v1.create(&PostParams::default(), &frozen).await.unwrap();
    until("it is told", async || {
        let conditions = v1.get("frozen").await.unwrap().data["status"]["conditions"].clone();
        conditions.as_array().into_iter().flatten().any(|it| it["type"] == "Degraded" && it["reason"] == "InvalidSize")
    })
    .await;
    assert_eq!((size("v1alpha1", "frozen").await.0, wanted("frozen").await), (json!("three"), None));
    let two = Patch::Merge(json!({"spec": {"size": 2}}));
    v1.patch("frozen", &PatchParams::default(), &two).await.unwrap();
    until("two nodes", async || wanted("frozen").await == Some(2)).await;
    until("the note is gone", async || size("v1", "frozen").await == (json!(2), None)).await;

    let pid = rustix::process::Pid::from_child(&manager.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(manager.child.wait().unwrap().success());
    until("v1alpha1 is not served any more", async || !is_served().await).await;
    assert_eq!(size("v1", "b").await.0, 7);
}

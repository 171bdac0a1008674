//! `--metrics-secure`: a real API server decides which clients may read metrics.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
    time::Duration,
};

use cluster::{Cluster, Nodes};
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use manager::metrics_permissions;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);

/// The running binary; ends with the handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn put<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.expect("applied")
}

fn role(name: &str, rules: &Value) -> Value {
    let metadata = json!({"name": name});
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules})
}

fn binding(name: &str, subject: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}, "subjects": [subject],
    })
}

/// Returns status code and body of the response to a client with this token; `None` while no server listens.
async fn read(port: u16, path: &str, token: Option<&str>) -> Option<(u16, String)> {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().expect("an address"));
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    let client = Client::try_from(config).expect("a client");
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    match client.request_text(request).await {
        Ok(text) => Some((200, text)),
        Err(kube::Error::Api(status)) => Some((status.code, status.message.clone())),
        Err(_) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_authorized_clients_read_metrics() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let started = tokio::task::spawn_blocking(|| cluster::or_skip(Cluster::shared(Nodes::None)));
    let Some(cluster) = started.await.expect("no panic") else { return };
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let admin = Client::try_from(config.expect("a configuration")).expect("a client");
    let id = format!("secure-metrics-{}", std::process::id());
    let (own, reader) = (id.clone(), format!("{id}-reader"));
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
    let (roles, bindings) = (Api::<ClusterRole>::all(admin.clone()), Api::<ClusterRoleBinding>::all(admin.clone()));
    put(&roles, role(&own, &json!(metrics_permissions()))).await;
    let user = json!({"kind": "User", "name": own, "apiGroup": "rbac.authorization.k8s.io"});
    put(&bindings, binding(&own, &user)).await;
    put(&roles, role(&reader, &json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]))).await;
    let account = json!({"kind": "ServiceAccount", "name": reader, "namespace": "default"});
    put(&bindings, binding(&reader, &account)).await;
    let mut tokens = Vec::new();
    for name in [&reader, &format!("{id}-unauthorised")] {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        put(&accounts, account).await;
        let request = TokenRequest::default();
        let made = accounts.create_token_request(name, &PostParams::default(), &request).await.expect("a token");
        tokens.push(made.status.and_then(|status| status.token).expect("a token"));
    }

    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()).expect("a port").port();
    let child = Command::new(env!("CARGO_BIN_EXE_controller-manager"))
        .args(["run", "--metrics-secure", "--metrics-bind-address", &format!("127.0.0.1:{port}")])
        .args(["--health-probe-bind-address", "0", "--operators", "foo", "--kubeconfig"])
        .arg(cluster.kubeconfig_for(&own, &[]).expect("a kubeconfig"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _running = Running(child.expect("the binary starts"));
    let begun = std::time::Instant::now();
    while read(port, "/metrics", None).await.is_none() {
        assert!(begun.elapsed() < PATIENCE, "the server never listened");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(read(port, "/metrics", None).await.map(|it| it.0), Some(401));
    assert_eq!(read(port, "/metrics", Some("made-up")).await.map(|it| it.0), Some(401));
    let (code, text) = read(port, "/metrics", Some(&tokens[1])).await.expect("an answer");
    assert_eq!(code, 403, "{text}");
    let (code, text) = read(port, "/metrics", Some(&tokens[0])).await.expect("an answer");
    assert_eq!(code, 200, "{text}");
    assert!(text.contains("controller_runtime_reconcile_total{controller=\"foo\",result=\"success\"} 0"), "{text}");

    for name in [&own, &reader] {
        drop(bindings.delete(name, &DeleteParams::default()).await);
        drop(roles.delete(name, &DeleteParams::default()).await);
    }
    for name in [&reader, &format!("{id}-unauthorised")] {
        drop(accounts.delete(name, &DeleteParams::default()).await);
    }
}

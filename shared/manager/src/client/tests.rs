use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener},
    path::Path,
    time::Instant,
};

use cache::ObjectKey;
use clap::{Args as _, FromArgMatches as _};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::DeleteParams, client::Body};
use leader_election::{BootClock, Epoch, Leadership};
use parking_lot::Mutex;
use rcgen::{CertifiedKey, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::json;
use tower::{BoxError, ServiceExt};
use workloads::Fence;

use super::*;
use crate::{api::Requests, leading::Leading, metrics::MetricRegistry};

/// kube reads the file again after a minute.
const REREAD: Duration = Duration::from_mins(1);

fn certificate() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate")
}

fn server_config(certificate: &CertifiedKey<KeyPair>) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").with_no_client_auth();
    Arc::new(builder.with_single_cert(vec![certificate.cert.der().clone()], key).expect("a key"))
}

/// An API server that answers one request per connection. Its certificate can be replaced.
struct Server {
    port: u16,
    config: Arc<Mutex<Arc<ServerConfig>>>,
}

impl Server {
    fn start(certificate: &CertifiedKey<KeyPair>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let config = Arc::new(Mutex::new(server_config(certificate)));
        let current = config.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let connection = ServerConnection::new(current.lock().clone()).expect("a connection");
                let mut stream = StreamOwned::new(connection, stream);
                // A client that does not trust the certificate breaks off.
                if stream.read(&mut [0; 4096]).is_ok() {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                    drop(stream.write_all(answer).and_then(|()| stream.flush()));
                }
            }
        });
        Self { port, config }
    }

    fn kubeconfig(&self, cluster: &serde_json::Value) -> Kubeconfig {
        let server = format!("https://127.0.0.1:{}", self.port);
        let mut kubeconfig = json!({
            "current-context": "here", "clusters": [{"name": "here", "cluster": {"server": server}}],
            "contexts": [
                {"name": "here", "context": {"cluster": "here", "user": "me"}},
                {"name": "lost", "context": {"cluster": "elsewhere", "user": "me"}},
            ],
            "users": [{"name": "me", "user": {"token": "secret"}}],
        });
        for (name, value) in cluster.as_object().into_iter().flatten() {
            kubeconfig["clusters"][0]["cluster"][name] = value.clone();
        }
        serde_json::from_value(kubeconfig).expect("a kubeconfig")
    }
}

async fn answers(client: &Client) -> bool {
    let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
    client.request_text(request).await.is_ok_and(|text| text == "ok")
}

#[test]
fn only_a_file_of_the_chosen_cluster_is_read_again() {
    let server = Server { port: 1, config: Arc::new(Mutex::new(server_config(&certificate()))) };
    let found = |cluster: serde_json::Value, context: Option<&str>| {
        let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        authority_file(&server.kubeconfig(&cluster), &options)
    };
    let (file, data) = (json!({"certificate-authority": "/ca.crt"}), json!({"certificate-authority-data": "AAAA"}));
    assert_eq!(found(file.clone(), None).as_deref(), Some(Path::new("/ca.crt")));
    assert_eq!(found(file.clone(), Some("here")).as_deref(), Some(Path::new("/ca.crt")));
    assert_eq!(found(file.clone(), Some("lost")), None);
    assert_eq!(found(file, Some("unknown")), None);
    assert_eq!(found(data, None), None);
    // kube prefers the data.
    let both = json!({"certificate-authority": "/ca.crt", "certificate-authority-data": "AAAA"});
    assert_eq!(found(both, None), None);
    assert_eq!(found(json!({}), None), None);
}

#[tokio::test]
async fn a15_rotated_certificate_authority_is_trusted_without_a_restart() {
    if std::env::var("FAULT_PLANS").is_ok_and(|asked| asked == "all") {
        rotate().await;
    } else {
        skip::unasked("takes more than a minute: set FAULT_PLANS=all");
    }
}

async fn rotate() {
    let (old, new) = (certificate(), certificate());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, old.cert.pem()).expect("written");
    let server = Server::start(&old);
    let kubeconfig = server.kubeconfig(&json!({"certificate-authority": file}));
    let config = from_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a configuration");
    // The two clients of a manager.
    let clients = [
        Client::try_from(config.clone()).expect("a client"),
        leader_election::client(config, Duration::from_secs(10)).expect("a client"),
    ];
    for client in &clients {
        assert!(answers(client).await);
    }
    *server.config.lock() = server_config(&new);
    for client in &clients {
        assert!(!answers(client).await, "the new certificate is not trusted yet");
    }
    std::fs::write(&file, new.cert.pem()).expect("written");
    let deadline = Instant::now() + 2 * REREAD;
    for client in &clients {
        while !answers(client).await {
            assert!(Instant::now() < deadline, "the new certificate authority is not trusted");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    // Not only because the client trusts everything.
    *server.config.lock() = server_config(&old);
    for client in &clients {
        assert!(!answers(client).await, "the old certificate authority is still trusted");
    }
}

/// A flood of made-up tokens must not take the operators' requests, and a busy operator must not delay scrapes.
#[tokio::test]
async fn reviews_neither_use_up_the_limit_of_requests_nor_wait_for_it() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    let routes = axum::Router::new().fallback(async || "ok");
    tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kubeconfig");
    let kubeconfig = json!({
        "current-context": "a", "clusters": [{"name": "a", "cluster": {"server": server}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "users": [{"name": "a", "user": {}}],
    });
    std::fs::write(&file, kubeconfig.to_string()).expect("written");
    let kubeconfig = format!("--kubeconfig={}", file.display());
    let flags = ["run", "--kube-api-qps=0.001", "--kube-api-burst=1", &kubeconfig];
    let matches = Settings::augment_args(clap::Command::new("run")).get_matches_from(flags);
    let settings = Settings::from_arg_matches(&matches).expect("they parse");
    let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
    let requests = connect(&settings, &metrics).await.expect("a client");
    let reviews = for_reviews(&settings, &metrics).await.expect("a client");
    let within = |time, client| tokio::time::timeout(time, answers(client));
    let soon = Duration::from_secs(20);
    for _ in 0..3 {
        assert_eq!(within(soon, &reviews).await, Ok(true));
    }
    assert_eq!(within(soon, &requests).await, Ok(true), "the reviews have used up the burst");
    assert!(within(Duration::from_millis(100), &requests).await.is_err(), "the burst is one request");
    assert_eq!(within(soon, &reviews).await, Ok(true), "a review waits with the requests");
}

#[tokio::test]
async fn every_request_is_counted() {
    let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
    let counted = Counted { metrics: metrics.clone(), host: "api:6443".into(), warnings: Arc::default() };
    let server = counted.layer(tower::service_fn(async |request: http::Request<()>| match request.uri().path() {
        "/away" => Err("no answer"),
        "/b" => {
            let response = http::Response::builder().header(http::header::WARNING, r#"299 - "b is deprecated""#);
            Ok(response.body(()).expect("a response"))
        }
        _ => Ok(http::Response::new(())),
    }));
    for (method, path) in [("GET", "/a"), ("GET", "/b"), ("PATCH", "/a"), ("GET", "/away")] {
        let request = http::Request::builder().method(method).uri(path).body(()).expect("a request");
        drop(server.clone().oneshot(request).await);
    }
    for (code, method, times) in [("200", "GET", 2), ("200", "PATCH", 1), ("<error>", "GET", 1)] {
        let count = metrics.client_requests.with_label_values(&[code, method, "api:6443"]).get();
        assert_eq!(count, times, "{code} {method}");
    }
    assert_eq!(metrics.client_warnings.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn l1_write_that_waits_for_its_turn_while_the_leadership_ends_is_not_sent() {
    let leading = Leading::elected();
    let epoch = Epoch { lease_uid: "uid".into(), transitions: 3 };
    leading.begin(Leadership::scripted(epoch, Arc::new(BootClock), Duration::from_hours(1)));
    let received: Arc<Mutex<Vec<http::Method>>> = Arc::default();
    let seen = received.clone();
    let server = tower::service_fn(move |request: http::Request<Body>| {
        seen.lock().push(request.method().clone());
        async { Ok::<_, BoxError>(http::Response::new(Body::from(b"{}".to_vec()))) }
    });
    let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
    let counted = Counted { metrics, host: "api:6443".into(), warnings: Arc::default() };
    let client = Client::new(layers(counted, Some(Limit::new(1.0, Some(1)))).layer(server), "default");
    // The runtime's own requests, and those of a reconciler.
    let requests = Requests::of::<Secret>(client.clone(), "tester", leading.term());
    let api: Api<Secret> = Api::namespaced(guarded(client, leading.term()), "default");
    let (key, object, parameters) = (ObjectKey::new("default", "a"), json!({}), DeleteParams::default());
    requests.create(&key, &object).await.expect("the first write is sent at once");

    let ends = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        leading.term().witness(&Fence { lease: "uid".to_owned(), epoch: 4 });
    };
    let writes = async { tokio::join!(requests.create(&key, &object), api.delete("a", &parameters)) };
    let ((own, reconcilers), ()) = tokio::join!(writes, ends);
    assert!(matches!(own, Err(crate::Error::NotLeading { .. })), "{own:?}");
    let error = reconcilers.expect_err("it was not sent");
    assert!(is_not_leading(&error), "{error:?}");
    requests.get(&key).await.expect("a former leader may read");
    assert_eq!(*received.lock(), [http::Method::POST, http::Method::GET]);
}

/// A reconcile may outlive its term, and its process may lead again meanwhile.
#[tokio::test]
async fn l1_write_of_an_earlier_term_is_not_sent_in_a_later_one() {
    let (leading, sent) = (Leading::elected(), Arc::<Mutex<Vec<String>>>::default());
    let seen = sent.clone();
    let server = tower::service_fn(move |request: http::Request<Body>| {
        seen.lock().push(format!("{} {}", request.method(), request.uri().path()));
        async { Ok::<_, BoxError>(http::Response::new(Body::from(b"{}".to_vec()))) }
    });
    let client = Client::new(server, "default");
    let mut terms = Vec::new();
    for transitions in [3, 5] {
        let epoch = Epoch { lease_uid: "uid".into(), transitions };
        leading.begin(Leadership::scripted(epoch, Arc::new(BootClock), Duration::from_hours(1)));
        terms.push(leading.term());
        leading.term().witness(&Fence { lease: "uid".to_owned(), epoch: 4 });
    }
    let object = json!({});
    for (term, name, is_sent) in [(&terms[0], "earlier", false), (&terms[1], "present", true)] {
        let key = ObjectKey::new("default", name);
        let own = Requests::of::<Secret>(client.clone(), "tester", term.clone()).merge_patch(&key, &object).await;
        assert_eq!(own.is_ok(), is_sent, "{own:?}");
        let api: Api<Secret> = Api::namespaced(guarded(client.clone(), term.clone()), "default");
        let reconcilers = api.delete(name, &DeleteParams::default()).await;
        assert_eq!(reconcilers.is_err_and(|error| is_not_leading(&error)), !is_sent);
    }
    let path = "/api/v1/namespaces/default/secrets/present";
    assert_eq!(*sent.lock(), [format!("PATCH {path}"), format!("DELETE {path}")]);
}

//! Tests of Memcached with real memcached servers.

mod cache_client;
mod cache_load;
mod rotation;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Context as _;
use cluster::Access;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, Secret},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::util::intstr::IntOrString::Int,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use manager_testing::World;
use memcached_operator::{Memcached, api::convert::INVALID_SIZE};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use serde_json::{Value, json};

use crate::kit::{get, inside, world, world_with};
use cache_client::CacheClient;

const SAMPLE: &str = include_str!("../../../operators/memcached-operator/samples/cache_v1_memcached.yaml");
const NAME: &str = "memcached-sample";

async fn ready(world: &World, size: usize) -> Memcached {
    world
        .until(&format!("{size} nodes are ready"), async || {
            let memcached: Memcached = world.get(NAME).await?;
            (is_ready(&memcached) && nodes_of(&memcached).len() == size).then_some(memcached)
        })
        .await
}

/// Whether the status is of the present spec, and says that the object is ready.
fn is_ready(memcached: &Memcached) -> bool {
    memcached.status.as_ref().is_some_and(|status| {
        status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
            && status.observed_generation == memcached.metadata.generation
    })
}

/// The addresses of the nodes in the status.
fn nodes_of(memcached: &Memcached) -> BTreeSet<SocketAddr> {
    let endpoints = memcached.status.iter().flat_map(|status| &status.endpoints);
    endpoints.map(|it| it.parse().expect("an address")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t19_pods_serve_cache_and_are_listed_in_status() {
    let Some(world) = world_with(Access::Network).await else { return };
    world.apply(SAMPLE).await;
    let memcached = ready(&world, 3).await;
    let status = memcached.status.expect("a status");
    assert_eq!(status.nodes.len(), 3);
    let addresses: Vec<SocketAddr> = status.endpoints.iter().map(|it| it.parse().expect("an address")).collect();
    let set_and_get = |address: SocketAddr| -> anyhow::Result<String> {
        let mut client = CacheClient::connect(address)?;
        client.set("greeting", &format!("hello {address}"))?;
        client.get("greeting")?.context("the node has lost the value")
    };
    let work = move || addresses.into_iter().map(set_and_get).collect::<anyhow::Result<Vec<_>>>();
    let answers = inside(world.cluster.clone(), work).await.expect("every node sets and gets");
    let expected: Vec<String> = status.endpoints.iter().map(|address| format!("hello {address}")).collect();
    assert_eq!(answers, expected);

    let lost = status.nodes[0].clone();
    world.api::<Pod>().delete(&lost, &DeleteParams::default()).await.expect("deleted");
    world
        .within(Duration::from_secs(5), "the status does not list the lost node", async || {
            let nodes = world.get::<Memcached>(NAME).await?.status?.nodes;
            (!nodes.contains(&lost)).then_some(())
        })
        .await;
    ready(&world, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_manager_is_replaced_and_work_continues() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let managers: Api<Pod> = Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE);
    let manager = managers.list(&ListParams::default()).await.expect("pods").items;
    for pod in &manager {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        managers.delete(name, &DeleteParams::default().grace_period(0)).await.expect("killed");
    }
    // The webhooks are unavailable too, until a new manager is ready.
    let grown = SAMPLE.replace("size: 3", "size: 5");
    world.until("the API server accepts the size", async || world.try_apply(&grown).await.ok()).await;
    ready(&world, 5).await;
    let deployments: Vec<Deployment> = world.list().await;
    assert_eq!(deployments.len(), 1, "the operator created two Deployments");
}

/// An object with the annotation that the conversion of an invalid size leaves, as a backup of an old object contains it. The
/// schema of v1alpha1 refuses such a size today, so no client can create one in that version.
#[tokio::test(flavor = "multi_thread")]
async fn preserved_invalid_size_is_reported_until_a_valid_one_replaces_it() {
    let Some(world) = world().await else { return };
    let annotated = format!("metadata:\n  annotations:\n    {INVALID_SIZE}: '\"three\"'");
    world.apply(&SAMPLE.replacen("metadata:", &annotated, 1).replace("size: 3", "size: 1")).await;
    world
        .until("the operator reports the invalid size", async || {
            let conditions = world.get::<Memcached>(NAME).await?.status?.conditions;
            conditions.into_iter().find(|it| it.type_ == "Ready" && it.reason == "InvalidSize")
        })
        .await;
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 2}})).await;
    ready(&world, 2).await;
    world
        .until("the operator removes the annotation", async || {
            let annotations = world.get::<Memcached>(NAME).await?.metadata.annotations.unwrap_or_default();
            (!annotations.contains_key(INVALID_SIZE)).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn optional_children_follow_the_spec() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let asked = |from: &[&str], most: u8| {
        let from: Vec<_> = from.iter().map(|app| json!({"podSelector": {"matchLabels": {"app": app}}})).collect();
        json!({"spec": {
            "networkPolicy": {"enabled": true, "from": from},
            "podDisruptionBudget": {"mode": "Always", "maxUnavailable": most},
        }})
    };
    world.patch::<Memcached>(NAME, asked(&["shop"], 1)).await;
    let peers = async || {
        let policy: NetworkPolicy = world.get(NAME).await?;
        let rules = policy.spec?.ingress?;
        Some(rules.into_iter().flat_map(|rule| rule.from.unwrap_or_default()).count())
    };
    let most = async || world.get::<PodDisruptionBudget>(NAME).await?.spec?.max_unavailable;
    world
        .until("both children exist", async || (peers().await == Some(1) && most().await == Some(Int(1))).then_some(()))
        .await;

    world.patch::<Memcached>(NAME, asked(&["shop", "admin"], 2)).await;
    world
        .until("both children have changed", async || {
            (peers().await == Some(2) && most().await == Some(Int(2))).then_some(())
        })
        .await;

    let neither = json!({"spec": {"networkPolicy": {"enabled": false}, "podDisruptionBudget": {"mode": "Never"}}});
    world.patch::<Memcached>(NAME, neither).await;
    world
        .until("both children are gone", async || (peers().await.is_none() && most().await.is_none()).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_replaces_one_pod_at_a_time_without_client_errors() {
    let Some(world) = world_with(Access::Network).await else { return };
    world.apply(SAMPLE).await;
    world.patch::<Memcached>(NAME, json!({"spec": {"rollout": {"minReadySeconds": 5}}})).await;
    let before = nodes_of(&ready(&world, 3).await);

    // Like a client of the Service: it looks up the present nodes, and uses these until the next look-up.
    let nodes = Arc::new(Mutex::new(Some(before.clone())));
    let asked = Arc::downgrade(&nodes); // so that the load also ends when the test fails
    let present = move || asked.upgrade()?.lock().expect("no panic").clone();
    let load = inside(world.cluster.clone(), move || cache_load::load(present));
    let roll = async {
        world.patch::<Memcached>(NAME, json!({"spec": {"podAnnotations": {"release": "2"}}})).await;
        world
            .until("all nodes are replaced and ready", async || {
                let memcached: Memcached = world.get(NAME).await?;
                let present = nodes_of(&memcached);
                let done = is_ready(&memcached) && present.len() == 3 && present.is_disjoint(&before);
                *nodes.lock().expect("no panic") = Some(present);
                done.then_some(())
            })
            .await;
        tokio::time::sleep(Duration::from_secs(1)).await; // so that the chart shows the last node warm
        *nodes.lock().expect("no panic") = None;
    };
    let (rate, ()) = tokio::join!(load, roll);
    eprintln!("hit rate while three nodes are replaced:\n{rate}");
    let failures: usize = rate.0.iter().map(|round| round.failures).sum();
    assert_eq!(failures, 0, "clients must leave a node before it ends");
    let most = rate.0.iter().skip(1).map(|round| round.new.len()).max();
    assert_eq!(most, Some(1), "the rollout must replace nodes one by one");
    // One of four nodes is new, then one of four goes. Each step moves at most about a third of the keys.
    assert!(rate.lowest() > 0.4, "more than one node was cold:\n{rate}");
}

/// A certificate authority and the certificates that it has signed, as PEM, each with its key.
struct Certificates {
    authority: String,
    node: (String, String),
    client: (String, String),
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of the caches");
        let key = KeyPair::generate().expect("a key");
        let authority = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::from_ca_cert_pem(&authority, key).expect("an authority");
        let signed = |name: &str| {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
            let certificate = params.signed_by(&key, &issuer).expect("a certificate");
            (certificate.pem(), key.serialize_pem())
        };
        Self { node: signed("cache.example.com"), client: signed("shop"), authority }
    }

    /// The certificate and key as data of a Secret.
    fn of_node(&self) -> Value {
        let (certificate, key) = &self.node;
        json!({"tls.crt": certificate, "tls.key": key, "ca.crt": self.authority})
    }

    /// The configuration of a client that trusts the authority, with a certificate if one is given.
    fn config(&self, shows: bool) -> Arc<ClientConfig> {
        use rustls::pki_types::pem::PemObject;
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.authority)).expect("an authority");
        let config = ClientConfig::builder().with_root_certificates(roots);
        let (chain, key) = &self.client;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
        Arc::new(if shows {
            config.with_client_auth_cert(vec![certificate(chain)], key).expect("they belong together")
        } else {
            config.with_no_client_auth()
        })
    }
}

async fn make_secret(world: &World, name: &str, data: &Value) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    world.create::<Secret>(secret).await;
}

/// The metrics page of the exporter beside a node.
async fn scraped(world: &World, node: &str) -> std::io::Result<String> {
    let address: SocketAddr = node.parse().expect("an address");
    get(world.cluster.clone(), (&address.ip().to_string(), 9150), "/metrics", "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn exporter_reports_its_pod_with_and_without_tls() {
    let Some(world) = world_with(Access::Network).await else { return };
    let certificates = Certificates::new();
    make_secret(&world, "certificates", &certificates.of_node()).await;
    world.apply(SAMPLE).await;
    let mut before = None;
    for tls in [json!(null), json!({"secretName": "certificates", "clientAuth": "Require"})] {
        let spec = json!({"size": 1, "metrics": {"enabled": true}, "tls": tls, "rollout": {"minReadySeconds": 0}});
        world.patch::<Memcached>(NAME, json!({"spec": spec})).await;
        let tells = async || {
            let node = ready(&world, 1).await.status?.endpoints.pop().filter(|node| before.as_ref() != Some(node))?;
            scraped(&world, &node).await.is_ok_and(|answer| answer.contains("\nmemcached_up 1\n")).then_some(node)
        };
        before = Some(world.until(&format!("a new node's exporter reports it, tls: {tls}"), tells).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_pod_requires_certificate_and_password() {
    let Some(world) = world_with(Access::Network).await else { return };
    let certificates = Certificates::new();
    make_secret(&world, "certificates", &certificates.of_node()).await;
    make_secret(&world, "users", &json!({"password-file": "shop:secret\n"})).await;
    world.apply(SAMPLE).await;
    let guarded = json!({"size": 1, "tls": {"secretName": "certificates", "clientAuth": "Require"}, "auth": {"secretName": "users"}});
    world.patch::<Memcached>(NAME, json!({"spec": guarded})).await;
    let endpoints = ready(&world, 1).await.status.expect("a status").endpoints;
    let address: SocketAddr = endpoints[0].parse().expect("an address");

    let (known, without_certificate) = (certificates.config(true), certificates.config(false));
    inside(world.cluster.clone(), move || {
        let connect =
            |config: &Arc<ClientConfig>| CacheClient::connect_tls(address, "cache.example.com", config.clone());
        let mut client = connect(&known).expect("a connection");
        client.authenticate("shop", "secret").expect("the password is right");
        client.set("greeting", "hello").expect("the node stores the value");
        assert_eq!(client.get("greeting").expect("an answer").as_deref(), Some("hello"));

        let refused = |what: &str, client: anyhow::Result<CacheClient>, password: Option<&str>| {
            let asked = client.and_then(|mut client| {
                password.map_or(Ok(()), |password| client.authenticate("shop", password))?;
                client.get("greeting")
            });
            assert!(asked.is_err(), "{what}: {asked:?}");
        };
        refused("no TLS", CacheClient::connect(address), Some("secret"));
        refused("no certificate", connect(&without_certificate), Some("secret"));
        refused("no password", connect(&known), None);
        refused("a wrong password", connect(&known), Some("guessed"));
    })
    .await;
}

/// The value of a key of a Secret.
async fn value(world: &World, secret: &str, key: &str) -> String {
    let secret: Secret = world.get(secret).await.expect("a Secret");
    let value = secret.data.and_then(|mut data| data.remove(key)).expect("the key");
    String::from_utf8(value.0).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_certificate_and_password_admit_a_client_that_has_both() {
    use rustls::pki_types::pem::PemObject;
    let Some(world) = world_with(Access::Network).await else { return };
    world.apply(SAMPLE).await;
    let spec =
        json!({"size": 1, "tls": {"generate": true}, "auth": {"generate": true}, "rollout": {"minReadySeconds": 0}});
    world.patch::<Memcached>(NAME, json!({"spec": spec})).await;
    let (certificates, passwords) = (format!("{NAME}-tls"), format!("{NAME}-auth"));
    let mut before = None;
    for chosen in [None, Some("chosen")] {
        if let Some(password) = chosen {
            world.patch::<Secret>(&passwords, json!({"stringData": {"password": password}})).await;
        }
        let node = world
            .within(Duration::from_mins(3), "a new node serves", async || {
                ready(&world, 1).await.status?.endpoints.pop().filter(|node| before.as_ref() != Some(node))
            })
            .await;
        before = Some(node.clone());
        let authority = value(&world, &certificates, "ca.crt").await;
        let (user, password) =
            (value(&world, &passwords, "username").await, value(&world, &passwords, "password").await);
        assert!(chosen.is_none_or(|chosen| chosen == password));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM")).expect("an authority");
        let config = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
        let name = format!("{NAME}.{}.svc", world.namespace);
        inside(world.cluster.clone(), move || {
            let address: SocketAddr = node.parse().expect("an address");
            let mut client = CacheClient::connect_tls(address, &name, config.clone()).expect("a connection");
            client.authenticate(&user, &password).expect("the password is right");
            client.set("greeting", "hello").expect("the node stores the value");
            assert!(
                CacheClient::connect_tls(address, "other.svc", config.clone()).and_then(|mut it| it.get("a")).is_err()
            );
            let mut guesser = CacheClient::connect_tls(address, &name, config).expect("a connection");
            assert!(guesser.authenticate(&user, "guessed").and_then(|()| guesser.get("greeting")).is_err());
        })
        .await;
    }
}

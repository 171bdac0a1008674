//! Generated passwords and certificates change while clients use the cache.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use cluster::Access;
use k8s_openapi::api::core::v1::Secret;
use memcached_operator::Memcached;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use serde_json::json;

use super::{NAME, cache_client::CacheClient, is_ready, nodes_of, ready, value};
use crate::kit::{inside, world_with};

/// The operator reads the Secrets once a minute. Then each new node serves for some seconds before a former one goes.
const PATIENCE: Duration = Duration::from_mins(4);

/// A client that trusts the authority of the cache, and knows the password from before the change and the one from after it.
struct Client {
    config: Arc<ClientConfig>,
    name: String,
    user: String,
    passwords: [String; 2],
}

impl Client {
    fn is_served_by(&self, node: SocketAddr) -> bool {
        let set = |password: &String| {
            let mut client = CacheClient::connect_tls(node, &self.name, self.config.clone())?;
            client.authenticate(&self.user, password)?;
            client.set("greeting", "hello")
        };
        self.passwords.iter().any(|password| set(password).is_ok())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_of_password_and_certificate_leaves_clients_a_node_at_each_moment() {
    let Some(world) = world_with(Access::Network).await else { return };
    let object = json!({
        "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached", "metadata": {"name": NAME},
        "spec": {
            "size": 2, "tls": {"generate": true}, "auth": {"generate": true}, "rollout": {"minReadySeconds": 5},
        },
    });
    world.apply(&object.to_string()).await;
    let before = nodes_of(&ready(&world, 2).await);

    let (certificates, passwords) = (format!("{NAME}-tls"), format!("{NAME}-auth"));
    let authority = value(&world, &certificates, "ca.crt").await;
    let first = value(&world, &certificates, "tls.crt").await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM")).expect("an authority");
    let client = Client {
        config: Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()),
        name: format!("{NAME}.{}.svc", world.namespace),
        user: value(&world, &passwords, "username").await,
        passwords: [value(&world, &passwords, "password").await, "chosen".to_owned()],
    };

    // Like a client of the Service: it looks up the present nodes, and uses one that serves it.
    let nodes = Arc::new(Mutex::new(Some(before.clone())));
    let asked = Arc::downgrade(&nodes); // so that the load also ends when the test fails
    let load = inside(world.cluster.clone(), move || {
        let present = || asked.upgrade()?.lock().expect("no panic").clone();
        let (mut rounds, mut outages) = (0_usize, 0_usize);
        while let Some(nodes) = present() {
            rounds += 1;
            outages += usize::from(!nodes.iter().any(|node| client.is_served_by(*node)));
            std::thread::sleep(Duration::from_millis(50)); // limits the load
        }
        (rounds, outages)
    });
    let replaced = async |what: &str, former: BTreeSet<SocketAddr>| {
        world
            .within(PATIENCE, what, async || {
                let memcached: Memcached = world.get(NAME).await?;
                let present = nodes_of(&memcached);
                *nodes.lock().expect("no panic") = Some(present.clone());
                let is_done = is_ready(&memcached) && present.len() == 2 && present.is_disjoint(&former);
                is_done.then_some(present)
            })
            .await
    };
    let rotate = async {
        world.patch::<Secret>(&passwords, json!({"stringData": {"password": "chosen"}})).await;
        let second = replaced("both nodes are replaced after the change of the password", before).await;
        world.delete::<Secret>(&certificates).await;
        replaced("both nodes are replaced after the loss of the certificate", second).await;
        *nodes.lock().expect("no panic") = None;
    };
    let ((rounds, outages), ()) = tokio::join!(load, rotate);
    assert!(rounds > 0 && outages == 0, "{outages} of {rounds} times, no node served the client");
    assert_ne!(value(&world, &certificates, "tls.crt").await, first);
    assert_eq!(value(&world, &certificates, "ca.crt").await, authority, "clients trust the next certificate already");
}

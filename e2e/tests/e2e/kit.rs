//! Helpers for tests that use a namespace on the shared real node, with the operators installed.

use std::{
    io::{Read, Write},
    net::TcpStream,
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use chart::helm::succeeded;
use cluster::{Access, Cluster};
use helloapp_operator::HelloApp;
use manager_testing::{World, condition};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

/// A namespace for one test. The end of the test deletes it with all its pods, because the node is small. After a failure it
/// stays for diagnosis.
pub(crate) struct Visit(World);

impl Deref for Visit {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let namespace = &self.0.namespace;
            let mut delete = self.0.cluster.kubectl(["delete", "namespace", namespace, "--wait=false"]);
            succeeded(&mut delete).expect("the namespace is deleted");
        }
    }
}

/// `None` if no real node can run here.
pub(crate) async fn world() -> Option<Visit> {
    let world = World::visit("e2e", installation::shared_cluster).await?;
    let cluster = world.cluster.clone();
    let installed = tokio::task::spawn_blocking(move || {
        let image = installation::image_for(&cluster)?;
        installation::install(&cluster, &image)
    });
    installed.await.expect("no panic").expect("the operators are installed");
    Some(Visit(world))
}

/// Like [`world`], and also `None` if the nodes cannot get the image [`installation::TESTBOX`].
pub(crate) async fn world_with_testbox() -> Option<Visit> {
    let world = world().await?;
    let cluster = world.cluster.clone();
    let provided =
        tokio::task::spawn_blocking(move || installation::provide_testbox(&cluster)).await.expect("no panic");
    cluster::or_skip(provided).map(|()| world)
}

/// Like [`world`], and also `None` if the cluster does not support `access`.
pub(crate) async fn world_with(access: Access) -> Option<Visit> {
    let world = world().await?;
    let cluster = world.cluster.clone();
    let allowed = tokio::task::spawn_blocking(move || cluster.require(access)).await.expect("no panic");
    cluster::or_skip(allowed).map(|()| world)
}

/// Waits until the app is `Ready`. If it has no probe, each new pod has to run for 10 seconds first.
pub(crate) async fn app_is_ready(world: &World, name: &str) -> HelloApp {
    world
        .within(Duration::from_mins(3), &format!("{name} is Ready"), async || {
            let app: HelloApp = world.get(name).await?;
            let ready = condition(&app, "Ready").filter(|it| it.observed_generation == app.metadata.generation)?;
            (ready.status == "True" && ready.reason == "Ready").then_some(app)
        })
        .await
}

/// The answer to a GET from inside the cluster's network, head and body. `headers` are whole lines, with their ends.
pub(crate) async fn get(
    cluster: Arc<Cluster>,
    (host, port): (&str, u16),
    path: &str,
    headers: &str,
) -> std::io::Result<String> {
    let (host, request) = (host.to_owned(), request(host, path, headers));
    inside(cluster, move || exchange(TcpStream::connect((host, port))?, &request)).await
}

/// Like [`get`], over TLS: the server at the address must have a certificate for `name` that these authorities (PEM) signed.
pub(crate) async fn get_over_tls(
    cluster: Arc<Cluster>,
    (host, port): (&str, u16),
    (name, authorities): (&str, &str),
    path: &str,
    headers: &str,
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority.expect("PEM")).expect("an authority");
    }
    let config = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    let (host, request) = (host.to_owned(), request(name, path, headers));
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let ask = move || {
        let connection = ClientConnection::new(config, name).map_err(std::io::Error::other)?;
        exchange(StreamOwned::new(connection, TcpStream::connect((host, port))?), &request)
    };
    inside(cluster, ask).await
}

fn request(host: &str, path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n{headers}\r\n")
}

fn exchange(mut stream: impl Read + Write, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Runs `work` inside the cluster's network.
pub(crate) async fn inside<T: Send + 'static>(cluster: Arc<Cluster>, work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(move || cluster.in_network(|| Ok(work()))).await;
    done.expect("no panic").expect("the network is there")
}

//! A namespace on the shared real node, with the operators installed.

use std::{net::SocketAddr, ops::Deref, sync::Arc};

use chart::helm::succeeded;
use cluster::{Cluster, Nodes};
use manager_testing::World;

/// A namespace that is deleted at the end with all that runs in it: the node is small. After a failure it stays, to be looked
/// at.
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

/// `None` where no real node can run.
pub(crate) async fn world() -> Option<Visit> {
    let world = World::visit("e2e", || Cluster::shared(Nodes::Real)).await?;
    let cluster = world.cluster.clone();
    let installed = tokio::task::spawn_blocking(move || {
        let image = e2e::build_image()?;
        e2e::install(&cluster, &image)
    });
    installed.await.expect("no panic").expect("the operators are installed");
    Some(Visit(world))
}

/// Sets and gets through every address, from inside the cluster's network.
pub(crate) async fn set_and_get(cluster: Arc<Cluster>, addresses: Vec<String>) -> Vec<String> {
    let work = move || -> anyhow::Result<Vec<String>> {
        cluster.enter_network()?;
        addresses
            .iter()
            .map(|address| {
                e2e::cache_client::set_and_get(address.parse::<SocketAddr>()?, "greeting", &format!("hello {address}"))
            })
            .collect()
    };
    // A thread of its own: it stays in that network.
    tokio::task::spawn_blocking(move || std::thread::spawn(work).join())
        .await
        .expect("no panic")
        .expect("no panic")
        .expect("every node sets and gets")
}

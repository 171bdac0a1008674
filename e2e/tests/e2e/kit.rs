//! A namespace on the shared real node, with the operators installed.

use std::{net::SocketAddr, sync::Arc};

use cluster::{Cluster, Nodes};
use manager_testing::World;

/// `None` where no real node can run.
pub(crate) async fn world() -> Option<World> {
    let world = World::visit("e2e", || Cluster::shared(Nodes::Real)).await?;
    let cluster = world.cluster.clone();
    let installed = tokio::task::spawn_blocking(move || {
        let image = e2e::build_image()?;
        e2e::install(&cluster, &image)
    });
    installed.await.expect("no panic").expect("the operators are installed");
    Some(world)
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

//! Asks the servers of a release, like a client in the cluster.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use cluster::Cluster;
use http::Request;
use kube::{Client, Config, client::Body};

/// The HTTP status of the answer to `GET path` over TLS at this address, such as that of a Service, from inside the cluster's network.
/// Whose certificate it is does not matter.
pub fn status_at(cluster: &Cluster, address: SocketAddr, path: &str) -> Result<u16> {
    let url = format!("https://{address}");
    cluster.in_network(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(get(&url, path)))
}

async fn get(url: &str, path: &str) -> Result<u16> {
    let mut config = Config::new(url.parse().context("not an address")?);
    config.accept_invalid_certs = true;
    let request = Request::get(path).body(Body::from(Vec::<u8>::new()))?;
    Ok(Client::try_from(config)?.send(request).await?.status().as_u16())
}

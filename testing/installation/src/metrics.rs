//! Reads the operators' metrics through the proxy, like a client that scrapes them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use chart::helm::succeeded;
use cluster::Cluster;
use http::Request;
use kube::{Client, Config, config::AuthInfo};
use serde_json::json;

use crate::{MANAGER, MANAGER_NAMESPACE, install::apply};

/// The chart's role for readers of metrics.
pub const READERS: &str = "operators-metrics-reader";

/// The metrics page, or the HTTP status of the refusal.
pub type Answer = std::result::Result<String, u16>;

/// A token of a `ServiceAccount` in the namespace `default`, which is created if it is missing. To read metrics, the account
/// needs a role, see [`let_read`].
pub fn token(cluster: &Cluster, account: &str) -> Result<String> {
    let metadata = json!({"name": account, "namespace": "default"});
    apply(cluster, &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))?;
    Ok(succeeded(&mut cluster.kubectl(["create", "token", account]))?.trim().to_owned())
}

/// Binds the account to the chart's role for readers of metrics.
pub fn let_read(cluster: &Cluster, account: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READERS},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    });
    apply(cluster, &binding)
}

/// Requests the metrics from their Service, from inside the cluster's network.
pub fn scrape(cluster: &Cluster, token: Option<&str>) -> Result<Answer> {
    let service = format!("{MANAGER}-metrics");
    let path = "--output=jsonpath={.spec.clusterIP}";
    let address =
        succeeded(&mut cluster.kubectl(["get", "service", &service, "--namespace", MANAGER_NAMESPACE, path]))?;
    scrape_at(cluster, address.trim().parse().context("not an address")?, token)
}

/// Requests the metrics from this address of their Service, from inside the cluster's network.
pub fn scrape_at(cluster: &Cluster, address: IpAddr, token: Option<&str>) -> Result<Answer> {
    let url = format!("https://{}", SocketAddr::new(address, 8443));
    cluster
        .in_network(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(get(&url, token)))
}

async fn get(url: &str, token: Option<&str>) -> Result<Answer> {
    let mut config = Config::new(url.parse().context("not an address")?);
    config.accept_invalid_certs = true; // the certificate is self-signed
    config.auth_info = AuthInfo { token: token.map(|token| token.to_owned().into()), ..AuthInfo::default() };
    match Client::try_from(config)?.request_text(Request::get("/metrics").body(Vec::new())?).await {
        Ok(text) => Ok(Ok(text)),
        Err(kube::Error::Api(status)) => Ok(Err(status.code)),
        Err(error) => Err(error.into()),
    }
}

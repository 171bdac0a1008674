//! The clusters on which the suite runs.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use cluster::{Cluster, IpFamily, Nodes, Unsupported};

/// The name of the kind cluster that tests share.
pub(crate) const KIND: &str = "operators-e2e";

/// The choice of `E2E_CLUSTER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The cluster that this repository builds and runs itself. It supports nearly all tests.
    Local,
    /// The cluster of kubectl's current context. Tests that it does not support are skipped with the reason.
    Existing,
    /// A cluster of kind with two workers, in the user's Docker or Podman, or in a Docker that this repository unpacks.
    Kind,
}

impl Backend {
    /// The backend that `E2E_CLUSTER` names; `local` if it is not set.
    pub fn chosen() -> Result<Self> {
        Self::named(&std::env::var("E2E_CLUSTER").unwrap_or_default())
    }

    /// The backend with this name, as a value of `E2E_CLUSTER`.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "" | "local" => Ok(Self::Local),
            "existing" => Ok(Self::Existing),
            "kind" => Ok(Self::Kind),
            other => bail!("E2E_CLUSTER is {other:?}: choose local, existing or kind"),
        }
    }

    /// Checks that this repository runs the clusters of this backend. `needs` completes the sentence "this test …".
    fn require_local(self, needs: &str) -> Result<()> {
        match self {
            Self::Local => Ok(()),
            Self::Existing | Self::Kind => {
                let why = format!("this test {needs}, which only clusters of this repository support");
                Err(Unsupported(why).into())
            }
        }
    }
}

/// The addresses of the local cluster: those that `E2E_IP_FAMILY` names, `ipv4` if it is not set.
fn ip_family() -> Result<IpFamily> {
    match std::env::var("E2E_IP_FAMILY") {
        Ok(family) => family.parse().map_err(|error| anyhow!("E2E_IP_FAMILY: {error}")),
        Err(_) => Ok(IpFamily::Ipv4),
    }
}

/// The cluster that end-to-end tests share. Each test must use its own namespace.
pub fn shared_cluster() -> Result<Cluster> {
    match Backend::chosen()? {
        Backend::Local => Cluster::shared_with(Nodes::Real, ip_family()?),
        Backend::Existing => Cluster::existing(None),
        Backend::Kind => kind_cluster(None),
    }
}

/// The cluster of kind that end-to-end tests share. It stays until [`delete_kind`](crate::delete_kind). If it does not exist, its
/// nodes get this image, or else that of [`cluster::KIND_NODE_IMAGE`] or the default one.
pub fn kind_cluster(node_image: Option<&str>) -> Result<Cluster> {
    Cluster::kind(KIND, 2, node_image, &cluster::progress::to_stderr)
}

/// A cluster for one test alone, which may install, upgrade and remove releases in it.
pub fn fresh_cluster() -> Result<Cluster> {
    match Backend::chosen()? {
        Backend::Local => cluster_with(ip_family()?),
        Backend::Existing => {
            Err(Unsupported("this test needs a cluster of its own, and E2E_CLUSTER is existing".into()).into())
        }
        Backend::Kind => Cluster::fresh_kind(),
    }
}

/// A cluster for one test alone that this repository runs. The test may read its audit log, find the processes of its pods on this
/// machine, and enter their networks.
///
/// # Errors
///
/// On another backend, before anything is created.
pub fn own_cluster() -> Result<Cluster> {
    Backend::chosen()?.require_local("reads the audit log, or looks into pods from this machine")?;
    cluster_with(ip_family()?)
}

/// A cluster for one test alone, with addresses of this family.
pub fn cluster_with(ip_family: IpFamily) -> Result<Cluster> {
    Backend::chosen()?.require_local(&format!("chooses addresses ({ip_family})"))?;
    Cluster::fresh_with(Nodes::Real, |options| options.ip_family = ip_family)
}

/// A cluster for one test alone with two nodes, of which the test may pause, stop and delete the second. Kubernetes gives up a
/// silent node after `patience`, and replaces its pods after the same time again.
pub fn failing_cluster(patience: Duration) -> Result<Cluster> {
    Backend::chosen()?.require_local("stops a node")?;
    let ip_family = ip_family()?;
    Cluster::fresh_with(Nodes::Real, |options| {
        options.workers = 2;
        options.ip_family = ip_family;
        options.node_patience = Some(patience);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_is_chosen_by_name_and_defaults_to_local() {
        let named = |name| Backend::named(name).map_err(|error| error.to_string());
        assert_eq!([named(""), named("local")], [Ok(Backend::Local), Ok(Backend::Local)]);
        assert_eq!([named("existing"), named("kind")], [Ok(Backend::Existing), Ok(Backend::Kind)]);
        assert_eq!(named("minikube"), Err("E2E_CLUSTER is \"minikube\": choose local, existing or kind".into()));
    }

    #[test]
    fn test_that_needs_a_cluster_of_this_repository_is_skipped_elsewhere_with_the_reason() {
        assert!(Backend::Local.require_local("stops a node").is_ok());
        for backend in [Backend::Existing, Backend::Kind] {
            let error = backend.require_local("stops a node").unwrap_err();
            assert!(error.is::<Unsupported>(), "{error}");
            assert_eq!(error.to_string(), "this test stops a node, which only clusters of this repository support");
        }
    }
}

//! The clusters on which the suite runs.

use anyhow::{Result, bail};
use cluster::{Cluster, Nodes, Unsupported};

/// The name of the kind cluster that tests share.
pub(crate) const KIND: &str = "operators-e2e";

/// The choice of `E2E_CLUSTER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The cluster that this repository builds and runs itself. It supports nearly all tests.
    Local,
    /// The cluster of kubectl's current context. Tests that it does not support are skipped with the reason.
    Existing,
    /// A cluster of kind with two workers. Needs Docker.
    Kind,
}

impl Backend {
    /// The backend that `E2E_CLUSTER` names; `local` if it is not set.
    pub fn chosen() -> Result<Self> {
        Self::named(&std::env::var("E2E_CLUSTER").unwrap_or_default())
    }

    fn named(name: &str) -> Result<Self> {
        match name {
            "" | "local" => Ok(Self::Local),
            "existing" => Ok(Self::Existing),
            "kind" => Ok(Self::Kind),
            other => bail!("E2E_CLUSTER is {other:?}: choose local, existing or kind"),
        }
    }
}

/// The cluster that end-to-end tests share. Each test must use its own namespace.
pub fn shared_cluster() -> Result<Cluster> {
    match Backend::chosen()? {
        Backend::Local => Cluster::shared(Nodes::Real),
        Backend::Existing => Cluster::existing(None),
        Backend::Kind => Cluster::kind(KIND, 2),
    }
}

/// A cluster for one test alone, which may install, upgrade and remove releases in it.
pub fn fresh_cluster() -> Result<Cluster> {
    match Backend::chosen()? {
        Backend::Local => Cluster::fresh(Nodes::Real),
        Backend::Existing => {
            Err(Unsupported("this test needs a cluster of its own, and E2E_CLUSTER is existing".into()).into())
        }
        Backend::Kind => Cluster::fresh_kind(),
    }
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
}

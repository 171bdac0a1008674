//! Which clusters the suite runs on.

use anyhow::{Result, bail};
use cluster::{Cluster, Nodes, Unsupported};

/// The name of the kind cluster that tests share.
const KIND: &str = "operators-e2e";

/// What `E2E_CLUSTER` chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The cluster that this repository builds and runs itself: everything is tested.
    Local,
    /// The cluster of kubectl's current context. Tests that need more than it lets them do are skipped, and say why.
    Existing,
    /// kind, with two workers; needs Docker.
    Kind,
}

impl Backend {
    /// The one that the environment names; `local` if it names none.
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

/// The cluster that end-to-end tests share. Whoever uses it stays in a namespace of its own.
pub fn shared_cluster() -> Result<Cluster> {
    match Backend::chosen()? {
        Backend::Local => Cluster::shared(Nodes::Real),
        Backend::Existing => Cluster::existing(None),
        Backend::Kind => Cluster::kind(KIND, 2),
    }
}

/// A cluster for one test alone, in which it may install, upgrade and remove as it likes.
pub fn fresh_cluster() -> Result<Cluster> {
    match Backend::chosen()? {
        Backend::Local => Cluster::fresh(Nodes::Real),
        Backend::Existing => {
            Err(Unsupported("this test needs a cluster of its own, and E2E_CLUSTER is existing".into()).into())
        }
        Backend::Kind => Cluster::fresh_kind(),
    }
}

/// Takes away what the suite has left on a cluster of somebody else, and says what stays.
pub fn clean_up() -> Result<Option<String>> {
    match Backend::chosen()? {
        Backend::Local => Ok(None), // it ends by itself
        Backend::Existing => {
            let cluster = Cluster::existing(None)?;
            let gone = crate::uninstall(&cluster)?;
            let said = format!("the operators are gone from {}; their definitions stay", cluster.name());
            cluster.forget()?;
            Ok(gone.then_some(said))
        }
        Backend::Kind => {
            cluster::delete_kind(KIND)?;
            Ok(Some(format!("the kind cluster {KIND} is gone")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_chosen_by_name_and_ours_when_nothing_is_said() {
        let named = |name| Backend::named(name).map_err(|error| error.to_string());
        assert_eq!([named(""), named("local")], [Ok(Backend::Local), Ok(Backend::Local)]);
        assert_eq!([named("existing"), named("kind")], [Ok(Backend::Existing), Ok(Backend::Kind)]);
        assert_eq!(named("minikube"), Err("E2E_CLUSTER is \"minikube\": choose local, existing or kind".into()));
    }
}

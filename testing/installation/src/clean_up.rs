//! Removes what the suite has left on a cluster that it did not start.

use std::path::PathBuf;

use anyhow::Result;
use cluster::Cluster;

use crate::{Backend, backend::KIND, uninstall};

/// Removes what the suite has left on a cluster of kind or on an existing cluster. Returns a sentence about the result, or `None`
/// for the local cluster.
pub fn clean_up() -> Result<Option<String>> {
    match Backend::chosen()? {
        Backend::Local => Ok(None), // it stops by itself
        Backend::Existing => {
            let cluster = Cluster::existing(None)?;
            let gone = uninstall(&cluster)?;
            let said = format!("removed the operators from {}; their CRDs stay", cluster.name());
            cluster.forget()?;
            Ok(gone.then_some(said))
        }
        Backend::Kind => {
            delete_kind()?;
            Ok(Some(format!("deleted the kind cluster {KIND}")))
        }
    }
}

/// Deletes the kind cluster of the suite and those that killed tests have left, and what they run in if this repository has started
/// that.
pub fn delete_kind() -> Result<()> {
    for name in cluster::fresh_kind_clusters() {
        cluster::delete_kind(&name)?;
    }
    cluster::delete_kind(KIND)
}

/// Keeps the logs of that cluster under this name. Returns their folder.
pub fn keep_kind_logs(kept_as: &str) -> Result<PathBuf> {
    cluster::keep_kind_logs(KIND, kept_as)
}

/// The names of the nodes of that cluster; none if it does not exist.
pub fn kind_nodes() -> Result<Vec<String>> {
    cluster::kind_nodes(KIND)
}

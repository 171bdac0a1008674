//! The paths of all files of a cluster.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The folder of one cluster. It contains everything that the cluster writes, and is removed with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    folder: PathBuf,
}

impl Layout {
    /// The folder of the cluster with this name, whether it exists or not.
    pub(crate) fn of(name: &str) -> Result<Self> {
        check_name(name, "cluster")?;
        Ok(Self { folder: root().join(name) })
    }

    pub(crate) fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// All clusters that have a folder, running or not.
    pub(crate) fn all() -> Vec<String> {
        let entries = std::fs::read_dir(root()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| Self::of(name).is_ok_and(|it| it.folder.is_dir())).collect();
        names.sort();
        names
    }

    /// The folder itself.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The lock for starting and removing the cluster. It is outside of the folder, so that it outlives it.
    pub(crate) fn lock(&self) -> PathBuf {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        self.folder.with_file_name(format!(".{name}.lock"))
    }

    /// The file with the cluster's `Spec`, which the supervisor reads.
    pub(crate) fn spec(&self) -> PathBuf {
        self.folder.join("spec.json")
    }

    /// The Unix socket on which the supervisor listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("control.sock")
    }

    /// Certificates and keys.
    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        self.folder.join("pki").join(file)
    }

    /// Configuration files of the parts.
    pub(crate) fn config(&self, file: &str) -> PathBuf {
        self.folder.join("config").join(file)
    }

    /// The log of the part with this name.
    pub(crate) fn log(&self, part: &str) -> PathBuf {
        self.folder.join("log").join(format!("{part}.log"))
    }

    /// The data of a part. With a real node, this is on a private tmpfs, because containerd cannot work on an overlay.
    pub(crate) fn data(&self, part: &str) -> PathBuf {
        self.folder.join("data").join(part)
    }

    /// The snapshots of the cluster's store.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.folder.join("snapshots")
    }

    /// The administrator's kubeconfig. It works inside and outside of the cluster's network.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The API server's audit log: a line of JSON for each stage of each request.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }
}

/// Checks that `name` can be the name of a `thing`, and so of its folder.
pub(crate) fn check_name(name: &str, thing: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 40 || !name.chars().all(fits) || name.starts_with('-') {
        bail!("{name:?} cannot name a {thing}: use up to 40 of a-z, 0-9 and '-'");
    }
    Ok(())
}

/// The folder of all clusters.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("OPERATORS_STATE")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("XDG_STATE_HOME")?).join("operators/clusters")))
        .or_else(|| Some(std::env::home_dir()?.join(".local/state/operators/clusters")))
        .unwrap_or_else(|| std::env::temp_dir().join("operators-clusters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_name_is_one_plain_word() {
        for good in ["dev", "e2e-1", "9"] {
            assert!(Layout::of(good).is_ok(), "{good}");
        }
        for bad in ["", "-x", "a/b", "..", "Dev", ".dev", &"x".repeat(41)] {
            assert!(Layout::of(bad).is_err(), "{bad}");
        }
    }
}

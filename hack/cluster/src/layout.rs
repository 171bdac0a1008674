//! Where a cluster keeps its files.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The folder of one cluster. Everything that a cluster writes is in it, and goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    folder: PathBuf,
}

impl Layout {
    /// The folder of the cluster with that name, whether it exists or not.
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

    /// Held while the cluster is started or removed; outlives the folder.
    pub(crate) fn lock(&self) -> PathBuf {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        self.folder.with_file_name(format!(".{name}.lock"))
    }

    /// What the supervisor was told.
    pub(crate) fn spec(&self) -> PathBuf {
        self.folder.join("spec.json")
    }

    /// Where the supervisor listens.
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

    /// What the part of that name has said.
    pub(crate) fn log(&self, part: &str) -> PathBuf {
        self.folder.join("log").join(format!("{part}.log"))
    }

    /// What the parts keep. A private tmpfs where there is a real node: containerd cannot work on an overlay.
    pub(crate) fn data(&self, part: &str) -> PathBuf {
        self.folder.join("data").join(part)
    }

    /// The snapshots of the cluster's store.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.folder.join("snapshots")
    }

    /// For people: the administrator's kubeconfig. It works inside and outside of the cluster's network.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// One line of JSON for each request that the API server has answered.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }
}

/// Whether this can be the name of such a thing, and so of its folder.
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
    fn a_name_is_one_plain_word() {
        for good in ["dev", "e2e-1", "9"] {
            assert!(Layout::of(good).is_ok(), "{good}");
        }
        for bad in ["", "-x", "a/b", "..", "Dev", ".dev", &"x".repeat(41)] {
            assert!(Layout::of(bad).is_err(), "{bad}");
        }
    }
}

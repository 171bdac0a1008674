//! What a cluster is to be: written by whoever starts it, read by its supervisor.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::layout::Layout;
use crate::ports::Ports;
use crate::tools::{Tool, Tools, hex};

/// What stands behind the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nodes {
    /// Nothing: etcd, the API server and a few controllers, on loopback. For integration tests.
    None,
    /// Nodes that pretend, with a scheduler and all controllers: pods become Ready without running. For scale, and without root.
    Simulated,
    /// One node that runs pods, in namespaces of its own. Needs root.
    Real,
}

impl Nodes {
    /// What a cluster of this kind is made of.
    pub(crate) fn tools(self) -> &'static [Tool] {
        use Tool::{Cni, Containerd, Coredns, Etcd, Kubernetes, Kwok, Nft, Runc};
        match self {
            Self::None => &[Etcd, Kubernetes],
            Self::Simulated => &[Etcd, Kubernetes, Kwok],
            Self::Real => &[Etcd, Kubernetes, Containerd, Runc, Cni, Coredns, Nft],
        }
    }
}

impl std::fmt::Display for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Simulated => "simulated",
            Self::Real => "real",
        })
    }
}

impl std::str::FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "simulated" => Ok(Self::Simulated),
            "real" => Ok(Self::Real),
            other => Err(format!("{other:?} is not one of none, simulated, real")),
        }
    }
}

/// Everything a supervisor needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) nodes: Nodes,
    /// Which controllers run; see [`Controllers`].
    pub(crate) controllers: Controllers,
    /// How many nodes pretend.
    pub(crate) simulated: u16,
    pub(crate) tools: Tools,
    /// Of Kubernetes, such as "v1.36.3".
    pub(crate) version: String,
    pub(crate) ports: Ports,
    /// Without users for so long, the cluster ends itself.
    pub(crate) idle: Option<Duration>,
    /// The images that a real node can pull: an OCI layout.
    pub(crate) images: Option<PathBuf>,
    /// Seconds since 1970.
    pub(crate) created: u64,
}

/// How much of the controller-manager runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Controllers {
    /// Garbage collection, namespaces and service accounts. The others would overwrite statuses that tests write.
    Reduced,
    /// All of them.
    All,
}

impl Spec {
    pub(crate) fn layout(&self) -> Layout {
        Layout::at(&self.folder)
    }

    pub(crate) fn read(layout: &Layout) -> Result<Self> {
        let file = layout.spec();
        let text = std::fs::read(&file).with_context(|| format!("could not read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} was written by another version", file.display()))
    }

    pub(crate) fn write(&self) -> Result<()> {
        let file = self.layout().spec();
        let text = serde_json::to_vec_pretty(self)?;
        std::fs::write(&file, text).with_context(|| format!("could not write {}", file.display()))
    }

    /// The cgroup below which a real node and its pods live; the same for every controller.
    pub(crate) fn cgroup(&self) -> String {
        // Another state folder may have a cluster of the same name.
        let folder = Sha256::digest(self.folder.as_os_str().as_encoded_bytes());
        format!("operators-{}-{}", self.name, hex(&folder[..4]))
    }
}

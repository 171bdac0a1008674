//! The description of a cluster. The process that starts the cluster writes it, and the supervisor reads it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::layout::Layout;
use crate::network::{IpFamily, Node};
use crate::ports::Ports;
use crate::tools::{Tool, Tools, hex};

/// The kind of nodes of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nodes {
    /// No nodes: only etcd, the API server and a few controllers, on loopback. For integration tests.
    None,
    /// Simulated nodes, with a scheduler and all controllers. Pods become Ready without running. For large numbers; needs no
    /// root.
    Simulated,
    /// Nodes that run pods, in Linux namespaces of their own. Needs root.
    Real,
}

impl Nodes {
    /// The tools that a cluster with these nodes needs.
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

/// All settings of a supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) nodes: Nodes,
    /// The controllers that run; see [`Controllers`].
    pub(crate) controllers: Controllers,
    /// The number of simulated nodes.
    pub(crate) simulated: u16,
    /// The number of real nodes.
    pub(crate) workers: u8,
    /// The addresses of a cluster with real nodes.
    pub(crate) ip_family: IpFamily,
    /// How long a real node may be silent; see [`Options::node_patience`](crate::Options::node_patience).
    pub(crate) node_patience: Option<Duration>,
    pub(crate) tools: Tools,
    /// The version of Kubernetes, such as "v1.36.3".
    pub(crate) version: String,
    pub(crate) ports: Ports,
    /// The cluster stops itself after this time without users; `None` for never.
    pub(crate) idle: Option<Duration>,
    /// The images that a real node can pull: an OCI layout.
    pub(crate) images: Option<PathBuf>,
    /// The time of the start, in seconds since 1970.
    pub(crate) created: u64,
}

/// The controllers of the controller-manager that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Controllers {
    /// Garbage collection, namespaces, service accounts and role aggregation. Other controllers would overwrite statuses that
    /// tests write.
    Reduced,
    /// All controllers.
    All,
}

impl Spec {
    pub(crate) fn layout(&self) -> Layout {
        Layout::at(&self.folder)
    }

    pub(crate) fn read(layout: &Layout) -> Result<Self> {
        let file = layout.spec();
        let text = std::fs::read(&file).with_context(|| format!("could not read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("another version has written {}", file.display()))
    }

    pub(crate) fn write(&self) -> Result<()> {
        let file = self.layout().spec();
        let text = serde_json::to_vec_pretty(self)?;
        std::fs::write(&file, text).with_context(|| format!("could not write {}", file.display()))
    }

    /// The real nodes.
    pub(crate) fn real_nodes(&self) -> impl Iterator<Item = Node> + use<> {
        Node::all(if self.nodes == Nodes::Real { self.workers } else { 0 })
    }

    /// The cgroup of a node and its pods. Those of the other nodes are inside of that of the first.
    pub(crate) fn cgroup_of(&self, node: Node) -> String {
        if node.is_first() { self.cgroup() } else { format!("{}/{node}", self.cgroup()) }
    }

    /// The name of the cgroup for all real nodes and their pods, the same in every hierarchy.
    pub(crate) fn cgroup(&self) -> String {
        // The hash of the folder makes the name unique: another state folder may have a cluster of the same name.
        let folder = Sha256::digest(self.folder.as_os_str().as_encoded_bytes());
        format!("operators-{}-{}", self.name, hex(&folder[..4]))
    }
}

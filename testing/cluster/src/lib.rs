//! Builds and runs real Kubernetes clusters for tests and demos.
//!
//! A test gets a [`Cluster`] in one of these ways:
//!
//! - [`Cluster::shared`] joins the cluster that all tests share.
//! - [`Cluster::fresh`] starts a cluster for this test alone.
//! - [`Cluster::existing`] and [`Cluster::kind`] are handles to clusters that this repository does not run, and support less.
//!
//! [`or_skip`] skips the test where such a cluster cannot run. On the command line, `cargo xtask cluster` does the same work.
//!
//! Reading order: `spec` describes a cluster; [`tools`] finds or builds its programs; `start` and `remove` start and stop it;
//! `snapshot` copies and restores its store, and `compaction` ends its history; `supervisor` is the process that owns a cluster;
//! `parts` are the processes that the supervisor owns; `foreign` and `kind` handle existing clusters; `host` shows what a cluster
//! leaves on the machine. The other modules are small.
#![deny(missing_docs)]

mod api;
pub mod audit;
mod cgroups;
mod cluster;
mod compaction;
mod foreign;
mod host;
mod kept_logs;
mod kind;
mod kubeconfig;
mod layout;
mod list;
mod missing;
mod network;
mod network_namespace;
mod parts;
mod pki;
mod port;
mod ports;
mod prerequisites;
pub mod progress;
mod protocol;
mod remove;
mod skip;
mod snapshot;
mod spec;
mod start;
#[doc(hidden)]
pub mod supervisor;
mod supervisor_program;
pub mod tools;

pub use self::cluster::{Access, Cluster};
pub use self::host::{HostState, Residue};
pub use self::kept_logs::FAILED_CLUSTERS;
pub use self::kind::{
    NODE_IMAGE as KIND_NODE_IMAGE, down as delete_kind, fresh as fresh_kind_clusters,
    is_of_user as kind_engine_is_of_user, keep_logs as keep_kind_logs, nodes as kind_nodes,
};
pub use self::list::{Summary, list, summary};
pub use self::missing::{Missing, Unsupported};
pub use self::network::IpFamily;
pub use self::port::Port;
pub use self::progress::Progress;
pub use self::protocol::{Part, PartState, Phase, Status};
pub use self::remove::down;
pub use self::skip::or_skip;
pub use self::snapshot::{Restore, Restored, Snapshot};
pub use self::spec::{Controllers, Nodes};
pub use self::start::{MOST_WORKERS, Options};
pub use self::tools::{TOOLS, Tool, Tools};

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

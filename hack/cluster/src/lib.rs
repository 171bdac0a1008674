//! Builds and runs real Kubernetes clusters for tests and demos.
//!
//! A test asks for a [`Cluster`]: [`Cluster::shared`] joins the one that all tests use, [`Cluster::fresh`] starts one of
//! its own; [`or_skip`] says what happens where a cluster cannot run. `cargo xtask cluster` is the same for people.
//! [`Cluster::existing`] and [`Cluster::kind`] are handles to clusters of others, with as much of it as these allow.
//!
//! Reading order: `spec` says what a cluster is to be, [`tools`] finds or builds its programs, `start` and `remove` do
//! up and down, `snapshot` copies and restores its store, `supervisor` is the process that owns a cluster, `parts` are the
//! processes it owns; `foreign` and `kind` are the clusters of others. The files beside them are small and about what their name says.

mod api;
pub mod audit;
mod cgroups;
mod cluster;
mod foreign;
mod kind;
mod kubeconfig;
mod layout;
mod list;
mod missing;
mod network;
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
pub use self::kind::down as delete_kind;
pub use self::list::{Summary, list, summary};
pub use self::missing::{Missing, Unsupported};
pub use self::port::Port;
pub use self::progress::Progress;
pub use self::protocol::{Part, PartState, Phase, Status};
pub use self::remove::down;
pub use self::skip::or_skip;
pub use self::snapshot::{Restore, Restored, Snapshot};
pub use self::spec::{Controllers, Nodes};
pub use self::start::Options;
pub use self::tools::{TOOLS, Tool, Tools};

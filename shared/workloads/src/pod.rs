//! What is kept of a Pod: whether and where it serves, and what keeps it from serving.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use crate::{Live, Viewed};

mod wire;

impl Viewed for Pod {
    type View = PodView;
}

/// The part of a Pod that reconcilers read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "wire::Pod")]
pub struct PodView {
    phase: Phase,
    ready: bool,
    ip: Option<IpAddr>,
    /// Boxed: nearly every pod has none.
    trouble: Option<Box<Trouble>>,
}

/// `status.phase`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum Phase {
    /// Not all containers have started.
    #[default]
    Pending,
    /// Bound to a node, and at least one container has started.
    Running,
    /// All containers have ended well, for good.
    Succeeded,
    /// All containers have ended, one of them badly; evicted pods are here too.
    Failed,
    /// The node does not answer. The catch-all for phases of later releases.
    #[serde(other)]
    Unknown,
}

/// Why a pod does not serve, as far as a person can do something about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// No node takes it.
    Unschedulable {
        /// Since when the scheduler says so.
        since: Option<Timestamp>,
        /// The scheduler's words.
        message: Box<str>,
    },
    /// An image cannot be pulled.
    ImagePull {
        /// The image as the pod names it.
        image: Box<str>,
        /// The kubelet's words.
        message: Box<str>,
    },
    /// The image wants to be root, or does not say who it wants to be, and the pod forbids it.
    RunsAsRoot {
        /// The image as the pod names it.
        image: Box<str>,
    },
    /// A Secret or a `ConfigMap`, or a key of it, that a container asks for is not there.
    MissingInput {
        /// Which.
        message: Box<str>,
    },
    /// A container cannot be started.
    CannotStart {
        /// Its name.
        container: Box<str>,
        /// The kubelet's words.
        message: Box<str>,
    },
    /// It has a node, but its volumes and its network are not ready.
    Preparing {
        /// Since when.
        since: Option<Timestamp>,
    },
    /// A container ends again and again.
    CrashLoop {
        /// Its name.
        container: Box<str>,
        /// How it ended the last time.
        exit_code: i32,
        /// How often it has ended.
        exits: i32,
        /// When it runs at the moment: since when. It may be about to end once more.
        running_since: Option<Timestamp>,
        /// The end of what it said last, or Kubernetes's word for how it ended (`OOMKilled`); at most 200 bytes.
        tail: Box<str>,
    },
}

impl PodView {
    /// Its condition `Ready` is true.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Its first address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// What keeps it from serving.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_deref()
    }
}

impl Live<PodView> {
    /// It serves or may still come to it: not ended, not being deleted, not lost with its node.
    pub fn is_alive(&self) -> bool {
        self.deleting.is_none() && matches!(self.phase, Phase::Pending | Phase::Running)
    }
}

#[cfg(test)]
mod tests;

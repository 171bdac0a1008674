//! The cached view of a Pod: whether and where it serves, and what prevents it from serving.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use crate::{Live, Viewed};

mod wire;

/// The `terminationMessagePolicy` of our containers. If a program fails and has written no termination message, the kubelet stores
/// the end of its log instead: then [`Trouble::CrashLoop`] says why the program ends.
pub const LAST_WORDS: &str = "FallbackToLogsOnError";

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
    port: Option<u16>,
    /// Boxed to keep the view small: nearly every pod has none.
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
    /// All containers have ended successfully and do not restart.
    Succeeded,
    /// All containers have ended, at least one with an error. Evicted pods have this phase too.
    Failed,
    /// The node does not answer. Also stands for phases that later releases of Kubernetes may add.
    #[serde(other)]
    Unknown,
}

/// Why a pod does not serve, for causes that a user can fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The scheduler finds no node for it.
    Unschedulable {
        /// Since when the scheduler reports it.
        since: Option<Timestamp>,
        /// The scheduler's message.
        message: Box<str>,
    },
    /// An image cannot be pulled.
    ImagePull {
        /// The image as the pod names it.
        image: Box<str>,
        /// The kubelet's message.
        message: Box<str>,
    },
    /// The pod has `runAsNonRoot`, but the image runs as root or gives its user by name instead of by number.
    RunsAsRoot {
        /// The image as the pod names it.
        image: Box<str>,
    },
    /// A Secret or a `ConfigMap` that a container needs, or a key of it, does not exist.
    MissingInput {
        /// Which of them is missing.
        message: Box<str>,
    },
    /// A container cannot be started.
    CannotStart {
        /// Its name.
        container: Box<str>,
        /// The kubelet's message.
        message: Box<str>,
    },
    /// The pod has a node, but its volumes or its network are not ready.
    Preparing {
        /// Since when it waits.
        since: Option<Timestamp>,
    },
    /// A container ends again and again.
    CrashLoop {
        /// Its name.
        container: Box<str>,
        /// The exit code of its last end.
        exit_code: i32,
        /// How often it has ended.
        exits: i32,
        /// The start time, if it runs at the moment. It may be about to end again.
        running_since: Option<Timestamp>,
        /// The last 200 bytes of its termination message, or Kubernetes's reason for its end (`OOMKilled`).
        tail: Box<str>,
    },
}

impl PodView {
    /// Whether its condition `Ready` is true.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Its first address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The first port that a container of it declares.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// What prevents it from serving.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_deref()
    }
}

impl Live<PodView> {
    /// Whether it serves or may still become ready: not ended, not being deleted, not lost with its node.
    pub fn is_alive(&self) -> bool {
        self.deleting.is_none() && matches!(self.phase, Phase::Pending | Phase::Running)
    }
}

#[cfg(test)]
mod tests;

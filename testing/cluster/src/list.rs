//! Lists the clusters on this machine and their state.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustix::process::Pid;

use crate::api::Api;
use crate::layout::Layout;
use crate::pki::Authority;
use crate::protocol::{Connection, Status};
use crate::remove::members;
use crate::spec::{Nodes, Spec};

/// The state of one cluster.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The cluster's name.
    pub name: String,
    /// The kind of its nodes.
    pub nodes: Nodes,
    /// The Kubernetes version.
    pub version: String,
    /// Time since the start.
    pub age: Duration,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The folder with all files of the cluster.
    pub folder: PathBuf,
    /// The supervisor's process; `None` if it does not run, for example after a crash.
    pub pid: Option<i32>,
    /// The supervisor's report; `None` if it does not answer.
    pub status: Option<Status>,
    /// Whether the API server reports that it is ready.
    pub ready: bool,
}

/// All clusters of this user, including crashed ones.
pub fn list() -> Vec<Summary> {
    Layout::all().iter().filter_map(|name| summary(name).ok()).collect()
}

/// The cluster with this name.
pub fn summary(name: &str) -> Result<Summary> {
    let layout = Layout::of(name)?;
    let spec = Spec::read(&layout).with_context(|| format!("there is no cluster {name}"))?;
    let mut connection = Connection::open(&layout);
    let api = Authority::load(&layout).and_then(|authority| Api::new(spec.ports.api, &authority));
    let mut status = connection.as_mut().and_then(|connection| connection.status().ok());
    if let Some(status) = &mut status {
        let outside = numbers_outside(layout.folder());
        for part in &mut status.parts {
            part.pid = part.pid.and_then(|pid| outside.get(&pid).copied());
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Summary {
        name: spec.name,
        nodes: spec.nodes,
        version: spec.version,
        age: now.saturating_sub(Duration::from_secs(spec.created)),
        kubeconfig: layout.kubeconfig(),
        folder: layout.folder().to_path_buf(),
        pid: connection.as_ref().and_then(|connection| connection.pid().ok()),
        ready: connection.is_some() && api.is_ok_and(|api| api.is_ready()),
        status,
    })
}

/// The process ids of the cluster in this folder: a map from the id in the process's own namespace to the id on this machine.
fn numbers_outside(folder: &Path) -> HashMap<i32, i32> {
    let numbers = members(folder).into_iter().map(Pid::as_raw_nonzero).filter_map(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some((innermost_number(&status)?, pid.get()))
    });
    numbers.collect()
}

/// A process's id in its innermost namespace, from `/proc/PID/status`. The kernel lists the ids from the outermost namespace to
/// the innermost.
fn innermost_number(status: &str) -> Option<i32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn innermost_pid_is_last_in_nspid() {
        assert_eq!(innermost_number("Name:\tetcd\nNSpid:\t15853\t10\nSeccomp:\t0\n"), Some(10));
        assert_eq!(innermost_number("NSpid:\t15853\n"), Some(15853));
        assert_eq!(innermost_number("Name:\tetcd\n"), None);
    }
}

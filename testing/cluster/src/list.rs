//! Lists the clusters on this machine and their state.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::api::Api;
use crate::kind;
use crate::layout::Layout;
use crate::network::IpFamily;
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
    /// Whether the program kind has made its nodes. Then it has no supervisor.
    pub is_kind: bool,
    /// The number of its real nodes; 0 with other kinds of nodes. With kind, the number of those beside the control plane.
    pub workers: usize,
    /// The addresses of its real nodes.
    pub ip_family: IpFamily,
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

/// All clusters of this user, including crashed ones and those of kind.
pub fn list() -> Vec<Summary> {
    Layout::all().iter().filter_map(|name| summary(name).ok()).collect()
}

/// The cluster with this name.
pub fn summary(name: &str) -> Result<Summary> {
    let layout = Layout::of(name)?;
    if let Some(summary) = kind::summary(name, &layout) {
        return Ok(summary);
    }
    let spec = Spec::read(&layout).with_context(|| format!("there is no cluster {name}"))?;
    let mut connection = Connection::open(&layout);
    let api = Authority::load(&layout).and_then(|authority| Api::new(spec.ports.api, &authority));
    let mut status = connection.as_mut().and_then(|connection| connection.status().ok());
    if let Some(status) = &mut status {
        let supervisor = connection.as_ref().and_then(|connection| connection.pid().ok());
        let outside = supervisor.map(|pid| numbers_outside(layout.folder(), pid)).unwrap_or_default();
        for part in &mut status.parts {
            part.pid = part.pid.and_then(|pid| outside.get(&pid).copied());
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Summary {
        workers: spec.real_nodes().count(),
        ip_family: spec.ip_family,
        name: spec.name,
        nodes: spec.nodes,
        is_kind: false,
        version: spec.version,
        age: now.saturating_sub(Duration::from_secs(spec.created)),
        kubeconfig: layout.kubeconfig(),
        folder: layout.folder().to_path_buf(),
        pid: connection.as_ref().and_then(|connection| connection.pid().ok()),
        ready: connection.is_some() && api.is_ok_and(|api| api.is_ready()),
        status,
    })
}

/// The process ids of the cluster in this folder: a map from the id in the supervisor's namespace to the id on this machine.
fn numbers_outside(folder: &Path, supervisor: i32) -> HashMap<i32, i32> {
    let numbers_of = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(); // it may have ended
        numbers(&status)
    };
    let Some(depth) = numbers_of(supervisor).len().checked_sub(1) else { return HashMap::new() };
    let pids = members(folder).into_iter().map(|pid| pid.as_raw_nonzero().get());
    pids.filter_map(|pid| Some((*numbers_of(pid).get(depth)?, pid))).collect()
}

/// The id on this machine of a process in a container, from its id where the container's engine runs. `None` if the process is not
/// on this machine.
pub(crate) fn outside(pid: i32, container: &str) -> Option<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|candidate| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{candidate}/{file}")).unwrap_or_default(); // may end
        is_process(&read("status"), &read("cgroup"), pid, container)
    })
}

/// Whether these files of `/proc` are those of the first process of the container. Elsewhere, a process may have the same id.
fn is_process(status: &str, cgroup: &str, pid: i32, container: &str) -> bool {
    let numbers = numbers(status);
    cgroup.contains(container) && numbers.last() == Some(&1) && numbers.contains(&pid)
}

/// The ids of a process, from `/proc/PID/status`: from the outermost namespace to the innermost.
fn numbers(status: &str) -> Vec<i32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_has_a_pid_in_each_namespace() {
        assert_eq!(numbers("Name:\tetcd\nNSpid:\t15853\t10\nSeccomp:\t0\n"), [15853, 10]);
        assert_eq!(numbers("NSpid:\t15853\n"), [15853]);
        assert!(numbers("Name:\tetcd\n").is_empty());
    }

    #[test]
    fn process_of_a_container_is_found_in_each_nesting() {
        let cgroup = "5:memory:/operators-kind-1/3f9a/init.scope\n";
        assert!(is_process("NSpid:\t900\t1\n", cgroup, 900, "3f9a"), "an engine of this machine");
        assert!(is_process("NSpid:\t900\t77\t1\n", cgroup, 77, "3f9a"), "an engine with processes of its own");
        assert!(!is_process("NSpid:\t900\t77\t1\n", cgroup, 77, "b00c"), "another container");
        assert!(!is_process("NSpid:\t901\t77\t5\n", cgroup, 77, "3f9a"), "another process");
    }
}

//! What runs here.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::api::Api;
use crate::layout::Layout;
use crate::pki::Authority;
use crate::protocol::{Connection, Status};
use crate::spec::{Nodes, Spec};

/// One cluster at a glance.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// What stands behind the API server.
    pub nodes: Nodes,
    /// Its Kubernetes version.
    pub version: String,
    /// Time since it was started.
    pub age: Duration,
    /// For its administrator.
    pub kubeconfig: PathBuf,
    /// The folder with all its files.
    pub folder: PathBuf,
    /// The supervisor's process; none when it has crashed or been killed.
    pub pid: Option<i32>,
    /// What the supervisor says.
    pub status: Option<Status>,
    /// Whether the API server answers and calls itself ready.
    pub ready: bool,
}

/// All clusters of this user, crashed ones too.
pub fn list() -> Vec<Summary> {
    Layout::all().iter().filter_map(|name| summary(name).ok()).collect()
}

/// One cluster.
pub fn summary(name: &str) -> Result<Summary> {
    let layout = Layout::of(name)?;
    let spec = Spec::read(&layout).with_context(|| format!("there is no cluster {name}"))?;
    let mut connection = Connection::open(&layout);
    let api = Authority::load(&layout).and_then(|authority| Api::new(spec.ports.api, &authority));
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
        status: connection.as_mut().and_then(|connection| connection.status().ok()),
    })
}

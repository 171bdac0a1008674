//! What this repository records of a cluster of kind, in the cluster's folder. It is written before kind makes the first node, so that
//! an interrupted call leaves no node that `down` does not find.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::engine::Which;
use crate::layout::Layout;

/// The record of a cluster. An unknown field has its default, because another version may have written the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    /// What runs the nodes; `None` if it is unknown.
    pub(super) engine: Option<Which>,
    /// The image of nodes that the first call named; `None` for kind's default.
    pub(super) image: Option<String>,
    pub(super) workers: usize,
    /// The version of Kubernetes; empty if it is unknown.
    pub(super) version: String,
    /// The time of the creation, in seconds since 1970; 0 if it is unknown.
    pub(super) created: u64,
    pub(super) stage: Stage,
}

/// How far the creation of a cluster has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// kind creates the nodes.
    Creating,
    /// All nodes exist, and the network between their pods may be missing.
    Created,
    #[default]
    Ready,
}

impl Record {
    /// The record in this folder; `None` if this repository has not created a cluster of kind there.
    pub(super) fn read(layout: &Layout) -> Option<Self> {
        let text = fs::read(file(layout)).ok()?;
        Some(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Writes it as a whole: an interrupted call leaves the earlier one.
    pub(super) fn write(&self, layout: &Layout) -> Result<()> {
        let (file, text) = (file(layout), serde_json::to_vec_pretty(self)?);
        let partial = file.with_extension("partial");
        fs::write(&partial, text)
            .and_then(|()| fs::rename(&partial, &file))
            .with_context(|| format!("could not write {}", file.display()))
    }

    /// Removes it if there is one.
    pub(super) fn remove(layout: &Layout) {
        let _ = fs::remove_file(file(layout));
    }
}

/// Whether there is a record in this folder.
pub(super) fn exists(layout: &Layout) -> bool {
    file(layout).is_file()
}

fn file(layout: &Layout) -> PathBuf {
    layout.folder().join("kind.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        assert_eq!(Record::read(&layout), None);
        let record = Record {
            engine: Some(Which::Podman),
            image: Some("kindest/node:v1.31.14".to_owned()),
            workers: 2,
            version: "v1.31.14".to_owned(),
            created: 1_700_000_000,
            stage: Stage::Created,
        };
        record.write(&layout).unwrap();
        assert!(exists(&layout));
        assert_eq!(Record::read(&layout), Some(record));
        Record::remove(&layout);
        assert!(!exists(&layout));
    }

    #[test]
    fn record_of_another_version_still_tells_that_the_cluster_exists() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        for text in [r#"{"kind":"Cluster","nodes":[{"role":"worker"}]}"#, r#"{"stage":"Paused","engine":"docker"}"#] {
            fs::write(folder.path().join("kind.json"), text).unwrap();
            assert_eq!(Record::read(&layout), Some(Record::default()), "{text}");
        }
    }
}

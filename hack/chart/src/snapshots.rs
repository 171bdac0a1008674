//! What the chart renders with its default values, and what Helm says about it, as files of the repository: so a review shows what a
//! change means for users.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::helm::Helm;

/// The command that writes the snapshots.
pub const UPDATE: &str = "UPDATE_SNAPSHOTS=1 cargo test -p chart snapshot::";

/// A snapshot: the name of its file, and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    name: &'static str,
    /// Without white space at the ends of lines.
    pub text: String,
}

impl Snapshot {
    /// The objects that the chart renders.
    pub fn of_objects(helm: &Helm) -> Result<Self> {
        // The CRDs have files of their own, which are in the repository, too.
        let is_shown = |document: &&str| !document.contains("\nkind: CustomResourceDefinition\n");
        let rendered = helm.template(&json!({}), &[])?.text;
        let documents: Vec<&str> = rendered.trim_end().split("\n---\n").filter(is_shown).collect();
        Ok(Self::new("default.yaml", &documents.join("\n---\n")))
    }

    /// The notes after an upgrade, of which those after an install are a part.
    pub fn of_notes(helm: &Helm) -> Result<Self> {
        Ok(Self::new("notes.txt", &helm.notes(&json!({}), &["--is-upgrade"])?))
    }

    fn new(name: &'static str, text: &str) -> Self {
        Self { name, text: text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n" }
    }

    /// The path of its file, relative to the root of the checkout.
    pub fn path(&self) -> String {
        format!("hack/chart/snapshots/{}", self.name)
    }

    /// Writes its file.
    pub fn write(&self) -> Result<()> {
        let path = self.path();
        fs::write(root().join(&path), &self.text).with_context(|| format!("could not write {path}"))
    }

    /// The content of its file.
    pub fn stored(&self) -> Result<String> {
        let path = self.path();
        fs::read_to_string(root().join(&path)).with_context(|| format!("could not read {path}"))
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

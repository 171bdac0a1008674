//! A small repository whose commit is ready for a release: the chart of this one, and what else a release reads. With it, tests make
//! releases under versions that do not exist, and from files that are not committed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use chart::helm::succeeded;
use images::Platform;
use semver::Version;
use tempfile::TempDir;

use crate::artifacts::write;
use crate::statement::Builder;
use crate::{Plan, git, plan};

/// A repository in a temporary folder.
#[derive(Debug)]
pub struct Checkout {
    folder: TempDir,
    version: Version,
}

impl Checkout {
    /// A repository whose commit is ready for the release of this version.
    pub fn new(version: &str) -> Result<Self> {
        let checkout = Self { folder: tempfile::tempdir()?, version: plan::version(version)? };
        checkout.write("Cargo.toml", &format!("[workspace.package]\nversion = \"{version}\"\n"))?;
        checkout.write("Cargo.lock", "version = 4\n")?;
        let changelog = format!(
            "# Changelog\n\n## [Unreleased]\n\n## [{version}] - 2026-01-01\n\n### Added\n\n- The first release.\n"
        );
        checkout.write("CHANGELOG.md", &changelog)?;
        checkout.write("LICENSE", "a licence\n")?;
        checkout.write("shared/kubectl-operators/kubectl_complete-operators", "#!/bin/sh\n")?;
        let charts = checkout.root().join("charts");
        fs::create_dir_all(&charts).with_context(|| format!("could not create {}", charts.display()))?;
        succeeded(Command::new("cp").arg("-r").arg(chart::folder()).arg(charts)).context("could not copy the chart")?;
        checkout.git(&["init", "--quiet"])?;
        checkout.commit()?;
        Ok(checkout)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("checkout")
    }

    /// A folder beside the repository.
    pub fn output(&self) -> PathBuf {
        self.folder.path().join("output")
    }

    /// Writes a file of the repository.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.root().join(name);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
        write(&path, text.as_bytes())
    }

    /// Commits all files.
    pub fn commit(&self) -> Result<()> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message=change"])
    }

    /// Gives the last commit a tag.
    pub fn tag(&self, name: &str) -> Result<()> {
        self.git(&["tag", name])
    }

    /// Sets a value of git's configuration in this repository, in place of the user's.
    pub fn configure(&self, name: &str, value: &str) -> Result<()> {
        self.git(&["config", name, value])
    }

    fn git(&self, arguments: &[&str]) -> Result<()> {
        let author = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
        git::git(&self.root(), &[&author[..], arguments].concat()).map(drop)
    }

    /// The release of this version to a registry.
    pub fn plan(&self, registry: &str, platforms: &[Platform]) -> Result<Plan> {
        Ok(Plan {
            version: self.version.clone(),
            registry: plan::registry(registry)?,
            platforms: platforms.to_vec(),
            profile: "release".to_owned(),
            builder: Builder::from_environment(|_| None),
            checkout: self.root(),
            output: self.output(),
        })
    }
}

//! A copy of the checkout in the target folder, for tasks that change source files. So their changes never reach the checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace;

/// A copy of all text files, with its own target folder beside it. There is only one copy, at a fixed place, so that Cargo builds
/// only what has changed since the last time.
#[derive(Debug)]
pub(crate) struct CheckoutCopy {
    folder: PathBuf,
}

impl CheckoutCopy {
    /// Brings the copy up to date. Writes only files that differ, so that Cargo does not build the others again.
    pub(crate) fn new() -> Result<Self> {
        let copy = Self { folder: workspace::root().join("target/mutated/checkout") };
        let files = workspace::files()?;
        for file in &files {
            let path = copy.folder.join(&file.path);
            if fs::read_to_string(&path).ok().as_ref() != Some(&file.text) {
                fs::create_dir_all(path.parent().unwrap_or(&path))?;
                fs::write(&path, &file.text)?;
            }
        }
        for old in workspace::files_in(&copy.folder)? {
            if files.binary_search_by(|file| file.path.cmp(&old.path)).is_err() {
                remove(&copy.folder, &old.path)?;
            }
        }
        Ok(copy)
    }

    /// The folder of the copy.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes `cargo` run in the copy, with the copy's target folder. It builds without debug information: the tests only pass or fail.
    pub(crate) fn cargo(&self, mut cargo: Command) -> Command {
        cargo.current_dir(&self.folder).env("CARGO_TARGET_DIR", self.folder.with_file_name("target"));
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "none");
        cargo
    }

    /// Restores a file from the checkout.
    pub(crate) fn restore(&self, file: &str) -> Result<()> {
        fs::copy(workspace::root().join(file), self.folder.join(file))
            .with_context(|| format!("could not copy {file}"))?;
        Ok(())
    }

    /// Builds a test program and returns a command that runs it directly: if Cargo ran it and were killed, the program would live
    /// on.
    pub(crate) fn test_program(&self, package: &str, target: &str) -> Result<Command> {
        let mut cargo = self.cargo(workspace::cargo());
        cargo.args(["test", "--quiet", "--package", package, "--test", target, "--no-run"]);
        cargo.args(["--message-format", "json-render-diagnostics"]).stderr(self.log("build")?);
        let output = cargo.output().context("could not run cargo")?;
        if !output.status.success() {
            bail!("the test program does not build: see {}", self.log_path("build").display());
        }
        let messages = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let built = messages.find(|message| message["target"]["name"] == target && message["executable"].is_string());
        let built = built.context("Cargo has not built the test program")?;
        let path = |value: &Value| PathBuf::from(value.as_str().unwrap_or_default());
        let mut tests = Command::new(path(&built["executable"]));
        tests.current_dir(path(&built["manifest_path"]).parent().unwrap_or(&self.folder));
        tests.stdin(Stdio::null());
        Ok(tests)
    }

    /// The path of the log for a child process.
    pub(crate) fn log_path(&self, name: &str) -> PathBuf {
        self.folder.with_file_name(format!("{name}.log"))
    }

    /// Creates that log.
    pub(crate) fn log(&self, name: &str) -> Result<fs::File> {
        Ok(fs::File::create(self.log_path(name))?)
    }
}
/// Removes a file, and the folders that are empty without it: Cargo takes every folder of the workspace's patterns for a crate.
fn remove(root: &Path, path: &str) -> Result<()> {
    let path = root.join(path);
    fs::remove_file(&path)?;
    for folder in path.ancestors().skip(1).take_while(|folder| *folder != root) {
        if fs::remove_dir(folder).is_err() {
            break; // it is not empty
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_folders_are_removed_with_their_last_file() {
        let root = tempfile::tempdir().expect("a folder");
        for path in ["shared/gone/src/lib.rs", "shared/kept/Cargo.toml"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, "").expect("a file");
        }
        remove(root.path(), "shared/gone/src/lib.rs").expect("it exists");
        assert!(!root.path().join("shared/gone").exists());
        assert!(root.path().join("shared/kept/Cargo.toml").exists());
    }
}

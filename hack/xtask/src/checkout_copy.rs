//! The checkout once more, in the target folder, for what changes the source: nothing of that can stay behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace;

/// A copy of all text files, with a target folder of its own beside it. There is one, at one place, so that Cargo builds only
/// what differs from the last time.
#[derive(Debug)]
pub(crate) struct CheckoutCopy {
    folder: PathBuf,
}

impl CheckoutCopy {
    /// Brings it up to date. Files that are the same are not touched.
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
                fs::remove_file(copy.folder.join(&old.path))?;
            }
        }
        Ok(copy)
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// `cargo` in it.
    pub(crate) fn cargo(&self, mut cargo: Command) -> Command {
        cargo.current_dir(&self.folder).env("CARGO_TARGET_DIR", self.folder.with_file_name("target"));
        cargo
    }

    /// Makes a file again what it is in the checkout.
    pub(crate) fn restore(&self, file: &str) -> Result<()> {
        fs::copy(workspace::root().join(file), self.folder.join(file))
            .with_context(|| format!("could not copy {file}"))?;
        Ok(())
    }

    /// Builds a program of tests. It is called without Cargo, which would leave it behind when it is ended itself.
    pub(crate) fn test_program(&self, package: &str, target: &str) -> Result<Command> {
        let mut cargo = self.cargo(workspace::cargo());
        cargo.args(["test", "--quiet", "--package", package, "--test", target, "--no-run"]);
        cargo.args(["--message-format", "json-render-diagnostics"]).stderr(self.log("build")?);
        let output = cargo.output().context("could not run cargo")?;
        if !output.status.success() {
            bail!("it does not build: see {}", self.log_path("build").display());
        }
        let messages = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let built = messages.find(|message| message["target"]["name"] == target && message["executable"].is_string());
        let built = built.context("Cargo has built no program")?;
        let path = |value: &Value| PathBuf::from(value.as_str().unwrap_or_default());
        let mut tests = Command::new(path(&built["executable"]));
        tests.current_dir(path(&built["manifest_path"]).parent().unwrap_or(&self.folder));
        tests.stdin(Stdio::null());
        Ok(tests)
    }

    /// Where the output of a child is kept.
    pub(crate) fn log_path(&self, name: &str) -> PathBuf {
        self.folder.with_file_name(format!("{name}.log"))
    }

    /// Keeps the output of a child there.
    pub(crate) fn log(&self, name: &str) -> Result<fs::File> {
        Ok(fs::File::create(self.log_path(name))?)
    }
}

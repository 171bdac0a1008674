//! Finds the program `cluster-supervisor` that belongs to this library.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::missing::last_line;
use crate::supervisor::SOURCE;
use crate::tools;

const NAME: &str = "cluster-supervisor";

/// Finds the program beside the running one, or builds it: `cargo test -p other` builds this library but not its programs.
pub(crate) fn locate() -> Result<PathBuf> {
    let current = std::env::current_exe().context("could not find the running program")?;
    // A test program is in `target/debug/deps`; other programs are one folder up.
    let beside = current.ancestors().skip(1).take(2).map(|folder| folder.join(NAME)).find(|file| is_ours(file));
    match beside {
        Some(file) => Ok(file),
        None => build(&current),
    }
}

fn is_ours(file: &Path) -> bool {
    let output = file.is_file().then(|| Command::new(file).arg("--source").output());
    output.is_some_and(|output| output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == SOURCE))
}

fn build(current: &Path) -> Result<PathBuf> {
    let release = current.ancestors().any(|folder| folder.ends_with("release"));
    let mut command = images::cargo();
    command.args(["build", "--quiet", "--bin", NAME, "--message-format", "json-render-diagnostics"]);
    command.args(release.then_some("--release")).current_dir(env!("CARGO_MANIFEST_DIR"));
    if Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml.orig").is_file() {
        // This crate comes from a registry. Its folder belongs to cargo, so build elsewhere.
        command.arg("--locked").arg("--target-dir").arg(tools::cache().join("supervisor"));
    } else {
        // With the features that all packages together turn on, cargo has compiled the libraries already.
        command.arg("--workspace");
    }
    let output = command.output().with_context(|| format!("could not run cargo to build {NAME}"))?;
    if !output.status.success() {
        bail!("could not build {NAME}: {}", last_line(&output.stderr));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    let program = executables.next_back().with_context(|| format!("cargo did not print the path of {NAME}"))?;
    if !is_ours(&program) {
        bail!("the sources of the crate `cluster` have changed: build again, so that program and supervisor agree");
    }
    Ok(program)
}

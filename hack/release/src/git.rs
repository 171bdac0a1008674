//! Questions to git about a checkout.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Runs git in the checkout and returns its output.
pub(crate) fn git(checkout: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut git = Command::new("git");
    // In a hook of git, these variables name the repository of the hook.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        git.env_remove(variable);
    }
    git.current_dir(checkout).args(arguments).stdin(Stdio::null());
    let output = git.output().context("could not run git")?;
    let said = || String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), said());
    Ok(output.stdout)
}

/// The same for an output that is text.
pub(crate) fn text(checkout: &Path, arguments: &[&str]) -> Result<String> {
    Ok(String::from_utf8(git(checkout, arguments)?).context("the output of git is not UTF-8")?.trim_end().to_owned())
}

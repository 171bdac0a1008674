//! Errors for what a machine or a cluster lacks. They come before any long work starts.

use std::ffi::OsStr;
use std::path::PathBuf;

/// The machine lacks something that this cluster needs. The text names it, and how to get it.
///
/// Tests distinguish it from other failures: see [`or_skip`](crate::or_skip).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

/// An existing cluster does not support what a test needs. The text gives the reason. Such a test is skipped even under `CI`,
/// because the user chose that cluster.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// The path of the program with this name, from the PATH or from a system folder that the PATH of ordinary users often lacks.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Like [`program`]. The error names the package that contains the program.
pub(crate) fn require(name: &str, package: &str) -> Result<PathBuf, Missing> {
    program(name).ok_or_else(|| Missing(format!("`{name}` is missing: install the package {package}")))
}

/// The last line of a failed command's output that is not empty.
pub(crate) fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing").trim().to_owned()
}

/// A command that inherits only the PATH from this process's environment.
pub(crate) fn bare(program: impl AsRef<OsStr>) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

//! What a machine may lack, said in one sentence before any long work starts.

use std::ffi::OsStr;
use std::path::PathBuf;

/// The machine lacks something that this cluster needs; the text says what, and what to do about it.
///
/// Tests tell it from other failures: see [`or_skip`](crate::or_skip).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

/// The cluster is somebody else's and does not let tests do that; the text says what. Such a test is skipped, also under `CI`:
/// whoever chose the cluster knows.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// The program of that name on the PATH, or in a folder that a PATH without root often leaves out.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// As [`program`], or the sentence that says which package has it.
pub(crate) fn require(name: &str, package: &str) -> Result<PathBuf, Missing> {
    program(name).ok_or_else(|| Missing(format!("`{name}` is missing: install the package {package}")))
}

/// What is left of a failed command's output: its last line that says anything.
pub(crate) fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
}

/// A command that sees none of our environment but the PATH.
pub(crate) fn bare(program: impl AsRef<OsStr>) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

//! Runs cargo, and the compiler that it calls, from a program that cargo itself has started.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// A command that runs `cargo`, see [`hide_the_caller`].
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    hide_the_caller(&mut cargo);
    cargo
}

/// What the compiler of Rust answers to these arguments.
pub(crate) fn rustc(workspace: &Path, arguments: &[&str]) -> Result<String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    // In this folder, rustup takes the compiler that is pinned there.
    let output = rustc.args(arguments).current_dir(workspace).output().context("could not run rustc")?;
    ensure!(output.status.success(), "rustc: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    String::from_utf8(output.stdout).context("the output of rustc is not UTF-8")
}

/// Hides the variables in which the outer cargo describes the package of this program. Needed for each command that may run cargo,
/// such as `make`.
///
/// Build scripts depend on these variables, so each different caller would compile nearly everything again.
pub fn hide_the_caller(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if is_of_the_caller(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
}

fn is_of_the_caller(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_PRIMARY_"].iter().any(|start| variable.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_caller_package_variables_are_hidden() {
        assert!(is_of_the_caller("CARGO_PKG_NAME") && is_of_the_caller("CARGO_MANIFEST_DIR"));
        assert!(!is_of_the_caller("CARGO_HOME") && !is_of_the_caller("CARGO_TARGET_DIR"));
    }
}

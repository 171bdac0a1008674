//! Runs cargo from a program that cargo itself has started.

use std::process::Command;

/// A command that runs `cargo`, see [`hide_the_caller`].
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    hide_the_caller(&mut cargo);
    cargo
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

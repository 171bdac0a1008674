//! Runs cargo from a program that cargo itself has started.

use std::process::Command;

/// A command that runs `cargo` without the variables in which the outer cargo describes the calling package.
///
/// Build scripts depend on these variables, so they would cause a complete rebuild for each different caller.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if is_of_the_caller(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command
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

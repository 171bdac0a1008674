//! Which build runs. The version is that of the workspace. The commit comes from the variable `OPERATORS_COMMIT` at compile time;
//! only release builds set it, so that a commit that changes no code does not change the programs.

use std::sync::LazyLock;

/// The version, such as `1.2.3`.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built, as 40 hexadecimal digits, or `unknown`.
pub(crate) const COMMIT: &str = match option_env!("OPERATORS_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Both, and the version of the Kubernetes API, for `--version`.
pub(crate) static DESCRIBED: LazyLock<String> =
    LazyLock::new(|| format!("{VERSION} (commit {COMMIT}, Kubernetes API 1.36)"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_names_commit_and_kubernetes() {
        let (version, rest) = DESCRIBED.split_once(' ').expect("words");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        assert_eq!(rest, format!("(commit {COMMIT}, Kubernetes API 1.36)"));
    }
}

//! Keeps the settings of this machine out of compiled programs: variables and files by which cargo, a C compiler or the build script of
//! a crate makes another program of the same sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::folders::cargo_home;

/// Variables that change programs: of cargo and rustc, of the crate that compiles `SQLite`, and of gcc itself.
const VARIABLES: &[&str] = &[
    "RUSTC_BOOTSTRAP",
    "CROSS_COMPILE",
    "CRATE_CC_NO_DEFAULTS",
    "CPATH",
    "C_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
];
/// The beginnings of more variables that change programs. Those of cargo go on with a profile or a platform, and a setting.
const BEGINNINGS: &[&str] = &["CARGO_PROFILE_", "CARGO_TARGET_", "LIBSQLITE3_", "SQLITE"];
/// Variables that the crate `cc` reads in three forms: as they are, followed by `_` and a platform, and after `TARGET_` or `HOST_`.
const OF_COMPILERS: &[&str] = &["CC", "CXX", "CFLAGS", "CXXFLAGS", "AR", "ARFLAGS", "RANLIB"];
/// The tables of cargo's configuration that change programs. `build` is not one of them: its flags of rustc have no effect, because a
/// variable of the build takes precedence over them.
const TABLES: &[&str] = &["profile", "target", "env", "patch", "paths"];

/// Hides the variables that change programs.
pub(crate) fn hide(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if changes_programs(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
}

fn changes_programs(variable: &str) -> bool {
    let of_compiler = variable.strip_prefix("TARGET_").or_else(|| variable.strip_prefix("HOST_")).unwrap_or(variable);
    let is_of_compiler = |name: &str| {
        of_compiler.strip_prefix(name).is_some_and(|platform| platform.is_empty() || platform.starts_with('_'))
    };
    VARIABLES.contains(&variable)
        || BEGINNINGS.iter().any(|beginning| variable.starts_with(beginning))
        || OF_COMPILERS.iter().any(|name| is_of_compiler(name))
}

/// The tables that change programs, in the files from which cargo takes the settings of this user and of the folders around the
/// workspace: a line for each, with its cure. The file in the workspace itself is a part of the sources.
pub fn of_cargo(workspace: &Path) -> Result<Vec<String>> {
    let workspace = workspace.canonicalize().with_context(|| format!("there is no {}", workspace.display()))?;
    let around = workspace.ancestors().skip(1).map(|folder| folder.join(".cargo"));
    // The user's folder is often one of those around.
    let folders: BTreeSet<_> = around.chain([cargo_home(&workspace)?]).collect();
    Ok(in_files(folders.iter().flat_map(|folder| ["config.toml", "config"].map(|name| folder.join(name)))))
}

fn in_files(files: impl Iterator<Item = PathBuf>) -> Vec<String> {
    let mut lines = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let file = file.display();
        let line =
            |table: &str| format!("{file} sets `{table}`, which changes the programs: remove it for the release");
        lines.extend(tables(&text).into_iter().map(line));
    }
    lines
}

/// Those of [`TABLES`] that the configuration has, each once.
fn tables(configuration: &str) -> BTreeSet<&'static str> {
    let (mut found, mut in_table) = (BTreeSet::new(), false);
    for line in configuration.lines().map(str::trim) {
        let header = line.strip_prefix('[');
        // In a table, `target` is a key of that table.
        if header.is_some() || !in_table {
            let name = header.unwrap_or(line).trim_start_matches(['[', ' ']);
            let name = name.split(['.', ']', '=', ' ']).next().unwrap_or_default();
            found.extend(TABLES.iter().copied().find(|table| *table == name));
        }
        in_table |= header.is_some();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_change_programs_are_hidden() {
        for variable in [
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
            "CC",
            "CC_x86_64-unknown-linux-gnu",
            "TARGET_CFLAGS",
            "HOST_AR",
            "LIBSQLITE3_FLAGS",
            "SQLITE_MAX_COLUMN",
            "CPATH",
        ] {
            assert!(changes_programs(variable), "{variable}");
        }
        // Where the crates come from, how many of them compile at once, and with which compiler of Rust.
        for variable in ["PATH", "CARGO_HOME", "CARGO_BUILD_JOBS", "CARGO_NET_OFFLINE", "RUSTC", "CCACHE_DIR", "ARCH"] {
            assert!(!changes_programs(variable), "{variable}");
        }
    }

    #[test]
    fn tables_that_change_programs_are_found() {
        let of = |text| tables(text).into_iter().collect::<Vec<_>>();
        assert_eq!(of("[profile.release]\ndebug = 1\n[target.'cfg(unix)']\n[profile.dev]\n"), ["profile", "target"]);
        assert_eq!(of("paths = [\"a\"]\nprofile.release.lto = false\n[[ env ]]\n"), ["env", "paths", "profile"]);
        let harmless =
            "# [profile]\n[build]\njobs = 2\ntarget = \"x\"\n[source.crates-io]\nreplace-with = \"mirror\"\n[net]\n";
        assert_eq!(of(harmless), [""; 0]);
    }

    #[test]
    fn file_around_the_workspace_is_named_and_its_own_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for cargo in ["a/.cargo", "a/workspace/.cargo"] {
            fs::create_dir_all(root.join(cargo)).unwrap();
            fs::write(root.join(cargo).join("config.toml"), "[profile.release]\nlto = false\n").unwrap();
        }
        let lines = of_cargo(&root.join("a/workspace")).unwrap();
        let of_ours: Vec<_> = lines.iter().filter(|line| line.contains(root.to_str().unwrap())).collect();
        let expected = format!("{} sets `profile`", root.join("a/.cargo/config.toml").display());
        assert!(of_ours.len() == 1 && of_ours[0].starts_with(&expected), "{lines:?}");
    }
}

//! The Cargo subcommands and other Rust programs that the checks need. A program on the PATH is used if it has the pinned version;
//! otherwise the program is built once into the cache folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::workspace;

/// A program that `cargo install` can build.
#[derive(Debug)]
pub(crate) struct CargoTool {
    /// The name of both the package and the program.
    name: &'static str,
    version: &'static str,
    /// Arguments for `cargo install`.
    features: &'static [&'static str],
}

/// Runs tests.
pub(crate) const NEXTEST: CargoTool = CargoTool {
    name: "cargo-nextest",
    version: "0.9.151",
    features: &["--no-default-features", "--features", "default-no-update"], // without self-update
};

/// Checks licences and dependencies.
pub(crate) const DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2", features: &[] };

/// Makes small changes to the code and checks that a test fails for each.
pub(crate) const MUTANTS: CargoTool = CargoTool { name: "cargo-mutants", version: "27.1.0", features: &[] };

/// Makes the book. Without its server, and without the search for changed files.
pub(crate) const MDBOOK: CargoTool =
    CargoTool { name: "mdbook", version: "0.5.4", features: &["--no-default-features", "--features", "search"] };

/// Compares the public API of crates with that of a release.
pub(crate) const SEMVER: CargoTool = CargoTool { name: "cargo-semver-checks", version: "0.51.0", features: &[] };

/// Finds or builds these tools.
pub(crate) fn ensure(tools: &[CargoTool]) -> Result<()> {
    for tool in tools {
        let program = match tool.find() {
            Some(program) => program,
            None => tool.install()?,
        };
        eprintln!("{} {}: {}", tool.name, tool.version, program.display());
    }
    // The build folder is removed last: the tools share dependencies, and an interrupted build can continue.
    match std::fs::remove_dir_all(build_folder()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("could not remove the build"),
        _ => Ok(()),
    }
}

impl CargoTool {
    /// A command that runs the tool in the checkout.
    ///
    /// # Errors
    ///
    /// If the tool is not installed.
    pub(crate) fn command(&self) -> Result<Command> {
        let advice = || format!("{} {} is missing: `cargo xtask test --only tools`", self.name, self.version);
        self.find().map(workspace::command).with_context(advice)
    }

    fn find(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain([self.root().join("bin")]);
        folders.map(|folder| folder.join(self.name)).find(|program| self.fits(program))
    }

    fn fits(&self, program: &Path) -> bool {
        let mut version = Command::new(program);
        version.args(self.name.strip_prefix("cargo-")); // as Cargo calls its subcommands
        version.arg("--version").stdin(Stdio::null());
        let output = program.is_file().then(|| version.output());
        output.is_some_and(|it| it.is_ok_and(|it| self.is_version(&String::from_utf8_lossy(&it.stdout))))
    }

    /// Whether this output names the tool and the pinned version, such as "cargo-nextest 0.9.151 (…)".
    fn is_version(&self, said: &str) -> bool {
        let mut words = said.split_whitespace();
        words.next() == Some(self.name) && words.next().map(|word| word.trim_start_matches('v')) == Some(self.version)
    }

    fn install(&self) -> Result<PathBuf> {
        eprintln!("building {} {}, once: a few minutes", self.name, self.version);
        let mut cargo = workspace::cargo();
        // Without optimisation: it would take longer to build than the tools ever run here.
        cargo.args(["install", "--locked", "--debug", "--version", self.version]).args(self.features);
        cargo.arg("--root").arg(self.root()).arg("--target-dir").arg(build_folder()).arg(self.name);
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
        let advice =
            format!("could not build {} {}: install it yourself and put it on the PATH", self.name, self.version);
        workspace::run(&mut cargo, &advice)?;
        self.find().with_context(|| format!("cargo installed {}, but the program is missing", self.name))
    }

    fn root(&self) -> PathBuf {
        cluster::tools::cache().join(format!("{}-{}", self.name, self.version))
    }
}

fn build_folder() -> PathBuf {
    cluster::tools::cache().join("cargo-tools.partial")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pinned_version_is_accepted() {
        assert!(NEXTEST.is_version("cargo-nextest 0.9.151 (8d9f1f0 2026-01-02)\nrelease: 0.9.151"));
        assert!(NEXTEST.is_version(&format!("cargo-nextest {}\n", NEXTEST.version)));
        assert!(MDBOOK.is_version(&format!("mdbook v{}\n", MDBOOK.version)));
        for other in ["cargo-nextest 0.9.15", "cargo-deny 0.9.151", "nextest", ""] {
            assert!(!NEXTEST.is_version(other), "{other}");
        }
    }
}

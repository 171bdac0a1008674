//! The crates that others can depend on: cargo packages them as for a registry and builds each package alone. A project outside of
//! this workspace then depends on the packages by version, chooses its own version of Kubernetes, and runs.

mod semver;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::report::Outcome;
use crate::workspace;

pub(crate) use semver::check as semver;

/// The program of a user: it calls each crate, and runs an operator in the model of the API server.
const CONSUMER: &str = include_str!("crates/consumer.rs");
/// The version of Kubernetes that this user chooses. With 1.37, `workloads` does not compile: fields such as the `spec` of a
/// Deployment are no longer optional there.
const KUBERNETES_OF_USER: &str = "v1_36";
/// The version for which cargo builds a package alone, where no program chooses one.
const KUBERNETES: (&str, &str) = ("K8S_OPENAPI_ENABLED_VERSION", "1.36");
/// What the program prints when everything has worked.
const END: &str = "the packages work together";

/// A package of this workspace, as `cargo metadata` describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    version: String,
    /// `None` if the package may go to any registry.
    publish: Option<Vec<String>>,
    rust_version: Option<String>,
}

/// The packages that others can depend on.
pub(crate) fn published() -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let output = workspace::cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    let Metadata { mut packages } = serde_json::from_slice(&output.stdout)?;
    packages.retain(|package| package.publish.is_none());
    ensure!(!packages.is_empty(), "every package of the workspace has `publish = false`");
    Ok(packages)
}

/// Its target folder keeps what it has built for the next run, and nothing else uses it: without the other packages of the
/// workspace, the features of the dependencies differ.
fn target() -> PathBuf {
    workspace::root().join("target/crates")
}

fn cargo(folder: &Path) -> Command {
    let mut cargo = workspace::cargo();
    cargo.current_dir(folder).env("CARGO_TARGET_DIR", target()).env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo
}

fn selected(packages: &[Package]) -> impl Iterator<Item = &str> {
    packages.iter().flat_map(|package| ["--package", &package.name])
}

/// Packages the crates, builds each package alone, documents them, and builds and runs a project that depends on them.
pub(crate) fn check() -> Result<Outcome> {
    let packages = published()?;
    has_stated_compiler(&packages)?;
    package(&packages)?;
    document(&packages)?;
    consume(&packages)?;
    Ok(Outcome::Passed)
}

/// The pinned compiler, with which all checks run, must be the oldest one that the manifests promise.
fn has_stated_compiler(packages: &[Package]) -> Result<()> {
    let output = workspace::command("rustc").arg("--version").output().context("could not run rustc")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for Package { name, rust_version, .. } in packages {
        let stated = rust_version.as_deref().with_context(|| format!("{name} states no rust-version"))?;
        ensure!(
            is_of(&said, stated),
            "{name} promises to build with Rust {stated}, but {} checks it: run this with the toolchain of rust-toolchain.toml, and \
             keep that equal to `rust-version`",
            said.trim()
        );
    }
    eprintln!("every package builds with {}, the oldest compiler that it promises", said.trim());
    Ok(())
}

/// Whether this output of `rustc --version` is of the release that a manifest states, such as "1.95" or "1.95.0".
fn is_of(said: &str, stated: &str) -> bool {
    let version = said.strip_prefix("rustc ").and_then(|rest| rest.split([' ', '-']).next()).unwrap_or_default();
    version == stated || version.strip_prefix(stated).is_some_and(|rest| rest.starts_with('.'))
}

/// Packages the crates and builds each package alone, against the packages of the others.
fn package(packages: &[Package]) -> Result<()> {
    let mut cargo = cargo(workspace::root());
    cargo.args(["package", "--quiet", "--allow-dirty"]).args(selected(packages)).env(KUBERNETES.0, KUBERNETES.1);
    workspace::run(&mut cargo, "a package does not build without its workspace, see above")
}

fn document(packages: &[Package]) -> Result<()> {
    let mut cargo = cargo(workspace::root());
    cargo.args(["doc", "--quiet", "--no-deps", "--lib"]).args(selected(packages)).env(KUBERNETES.0, KUBERNETES.1);
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    workspace::run(&mut cargo, "the documentation has warnings, see above")
}

/// Builds and runs a project that depends on all packages by version, as it would get them from a registry.
fn consume(packages: &[Package]) -> Result<()> {
    let outside = tempfile::tempdir()?; // below the workspace, the project would inherit its settings
    let folder = outside.path();
    fs::create_dir(folder.join("src"))?;
    fs::write(folder.join("src/main.rs"), CONSUMER)?;
    let root = fs::read_to_string(workspace::root().join("Cargo.toml"))?;
    fs::write(folder.join("Cargo.toml"), manifest(packages, &root)?)?;
    // The versions that this workspace is tested with. Cargo removes what the project does not need.
    fs::copy(workspace::root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    fs::copy(workspace::root().join("rust-toolchain.toml"), folder.join("rust-toolchain.toml"))?;
    let mut build = cargo(folder);
    build.args(["build", "--quiet"]).env_remove(KUBERNETES.0);
    workspace::run(&mut build, "a project that depends on the packages does not build, see above")?;
    let mut consumer = Command::new(target().join("debug/consumer"));
    let output = consumer.current_dir(folder).output().context("could not run the project")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && said.trim() == END,
        "the project that depends on the packages failed: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The manifest of the project. The patch stands for a registry that has the packages: they come from the folders into which
/// cargo has unpacked them, and must fit the versions that the project and the packages themselves ask for.
fn manifest(packages: &[Package], root: &str) -> Result<String> {
    let mut text = String::from(
        "[package]\nname = \"consumer\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n[workspace]\n\n[dependencies]\n",
    );
    for Package { name, version, .. } in packages {
        writeln!(text, "{name} = {version:?}")?;
    }
    let versions = versions(root);
    for (name, features) in [
        ("k8s-openapi", format!("{KUBERNETES_OF_USER:?}, \"schemars\"")),
        ("kube", "\"derive\"".to_owned()),
        ("schemars", String::new()),
        ("serde", "\"derive\"".to_owned()),
        ("serde_json", String::new()),
        ("tokio", "\"macros\", \"rt\", \"test-util\"".to_owned()),
    ] {
        let version = versions.get(name).with_context(|| format!("Cargo.toml has no version of {name}"))?;
        writeln!(text, "{name} = {{ version = {version:?}, default-features = false, features = [{features}] }}")?;
    }
    text += "\n[patch.crates-io]\n";
    for Package { name, version, .. } in packages {
        let folder = target().join("package").join(format!("{name}-{version}"));
        ensure!(folder.join("Cargo.toml.orig").is_file(), "cargo has not unpacked {}", folder.display());
        writeln!(text, "{name} = {{ path = {:?} }}", folder.display().to_string())?;
    }
    Ok(text)
}

/// The versions of the dependencies in the root manifest.
fn versions(root: &str) -> BTreeMap<&str, &str> {
    let lines = root.lines().filter_map(|line| line.split_once(" = "));
    lines
        .filter_map(|(name, value)| {
            let value = value.split_once("version = ").map_or(value, |(_, rest)| rest);
            Some((name, value.strip_prefix('"')?.split('"').next()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_is_compared_with_the_stated_one() {
        assert!(is_of("rustc 1.95.0 (abc 2026-01-01)\n", "1.95") && is_of("rustc 1.95.0 (abc)", "1.95.0"));
        for other in ["rustc 1.96.0 (abc)", "rustc 1.950.0", "cargo 1.95.0", ""] {
            assert!(!is_of(other, "1.95"), "{other}");
        }
    }

    #[test]
    fn versions_of_both_forms_are_found() {
        let found = versions("a = \"1\"\nb = { features = [\"x\"], version = \"2.3\" }\nc = { path = \"c\" }\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2.3")]);
    }

    #[test]
    fn the_crates_of_the_runtime_are_published() {
        let names: Vec<_> = published().expect("packages").into_iter().map(|package| package.name).collect();
        for name in ["operators-manager", "operators-workqueue", "operators-schedule"] {
            assert!(names.iter().any(|it| it == name), "{names:?}");
        }
        assert!(!names.iter().any(|it| it == "xtask"));
    }
}

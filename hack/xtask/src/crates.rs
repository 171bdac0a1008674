//! The crates that others can depend on: cargo packages them as for a registry and builds each package alone. A project outside of
//! this workspace then gets the packages by version from a registry of ours, chooses its own version of Kubernetes, and runs.

mod project;
mod registry;
mod semver;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::report::Outcome;
use crate::workspace;

pub(crate) use semver::check as semver;

/// The version for which cargo builds a package alone, where no program chooses one.
const KUBERNETES: (&str, &str) = ("K8S_OPENAPI_ENABLED_VERSION", "1.36");

/// A package of this workspace, as `cargo metadata` describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    version: String,
    /// `None` if the package may go to any registry.
    publish: Option<Vec<String>>,
    rust_version: Option<String>,
    features: BTreeMap<String, Vec<String>>,
    /// What the manifest says to other programs than cargo, such as docs.rs.
    metadata: Value,
}

impl Package {
    /// The features with which docs.rs builds the documentation, divided by commas.
    fn features_of_pages(&self) -> String {
        let features = self.metadata["docs"]["rs"]["features"].as_array();
        features.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
    }
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
    for package in &packages {
        features(package)?;
    }
    document(&packages)?;
    project::check(&packages)?;
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

/// Compiles a library without its features, with each one alone, and with all of them.
fn features(package: &Package) -> Result<()> {
    for features in selections(&package.features) {
        eprintln!("{} with these features alone: [{features}]", package.name);
        let mut cargo = cargo(workspace::root());
        cargo.args(["check", "--quiet", "--lib", "--package", &package.name, "--no-default-features"]);
        cargo.args(["--features", &features]).env(KUBERNETES.0, KUBERNETES.1);
        let advice = format!("{} does not compile with the features [{features}] alone, see above", package.name);
        workspace::run(&mut cargo, &advice)?;
    }
    Ok(())
}

/// The values of `--features`: none, each one alone, and all; nothing for a package without features, which others compile.
fn selections(features: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let names: Vec<_> = features.keys().cloned().collect();
    let (none, all) = (String::new(), names.join(","));
    match names.len() {
        0 => Vec::new(),
        1 => vec![none, all],
        _ => [none].into_iter().chain(names).chain([all]).collect(),
    }
}

/// Documents each library as docs.rs does: alone, with the features that its manifest names, and without the variable that chooses a
/// version of Kubernetes.
fn document(packages: &[Package]) -> Result<()> {
    for package in packages {
        let mut cargo = cargo(workspace::root());
        cargo.args(["doc", "--quiet", "--no-deps", "--lib", "--package", &package.name]);
        cargo.args(["--features", &package.features_of_pages()]);
        cargo.env_remove(KUBERNETES.0).env("RUSTDOCFLAGS", "-D warnings");
        let advice =
            format!("docs.rs could not document {}, or its documentation has warnings, see above", package.name);
        workspace::run(&mut cargo, &advice)?;
    }
    Ok(())
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
    fn features_are_selected_alone_and_together() {
        let selected = |names: &[&str]| {
            let features = names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect();
            selections(&features).join(" | ")
        };
        assert_eq!([selected(&[]), selected(&["a"]), selected(&["a", "b"])], ["", " | a", " | a | b | a,b"]);
    }

    #[test]
    fn pages_have_the_features_that_the_manifest_names_to_docs_rs() {
        let packages = published().expect("packages");
        let of = |name: &str| packages.iter().find(|package| package.name == name).map(Package::features_of_pages);
        let kubernetes = format!("k8s-openapi/{}", KUBERNETES.1.replacen("1.", "v1_", 1));
        assert_eq!(of("operators-manager"), Some(kubernetes));
        assert_eq!(of("operators-workqueue").as_deref(), Some(""), "it knows no Kubernetes");
    }

    #[test]
    fn the_crates_of_the_runtime_are_published() {
        let names: Vec<_> = published().expect("packages").into_iter().map(|package| package.name).collect();
        for name in ["operators-manager", "operators-workqueue", "operators-schedule", "operators-simulation"] {
            assert!(names.iter().any(|it| it == name), "{names:?}");
        }
        assert!(!names.iter().any(|it| it == "xtask"));
    }
}

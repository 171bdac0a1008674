//! A project of a user, outside of this workspace: it gets the crates by version from a registry, and chooses its own version of
//! Kubernetes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::registry::Registry;
use super::{KUBERNETES, Package, target};
use crate::workspace;

/// The program of the project: it calls each crate, and runs an operator in the model of the API server.
const PROGRAM: &str = include_str!("consumer.rs");
/// What the program prints when everything has worked.
const END: &str = "the packages work together";

struct Project {
    /// The sources. They are not below the workspace, whose settings the project would inherit.
    sources: TempDir,
    /// The folder of cargo's downloads and that of its builds.
    place: PathBuf,
}

/// Builds and runs the project, and compiles it for each other version of Kubernetes that `k8s-openapi` offers.
pub(super) fn check(packages: &[Package]) -> Result<()> {
    // Cargo builds a package again if its folder is another one. So what others have published has the same folder each time.
    let place = target().join("project");
    let registry = place.join("registry");
    for old in [&registry, &place.join("home")] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("could not remove {}", old.display()))?;
        }
    }
    let registry = Registry::create(registry, &target().join("package"))?;
    let project = Project::new(place, &registry)?;
    let usual = KUBERNETES.1.replacen("1.", "v1_", 1);
    project.choose(packages, Some(usual.as_str()))?;
    project.forget(packages)?;
    project.run()?;
    let others = registry.kubernetes();
    ensure!(others.contains(&usual.as_str()), "k8s-openapi offers {}, but not {usual}", others.join(", "));
    for other in others.iter().copied().filter(|other| *other != usual) {
        eprintln!("the project with the version {other} of Kubernetes");
        project.choose(packages, Some(other))?;
        let advice = format!("the packages do not compile with the feature {other} of k8s-openapi, see above");
        workspace::run(project.cargo().args(["check", "--quiet"]), &advice)?;
    }
    eprintln!("the project compiles with each version of Kubernetes: {}", others.join(", "));
    Ok(())
}

impl Project {
    fn new(place: PathBuf, registry: &Registry) -> Result<Self> {
        let sources = tempfile::tempdir()?;
        for folder in ["src", ".cargo"] {
            fs::create_dir(sources.path().join(folder))?;
        }
        fs::write(sources.path().join("src/main.rs"), PROGRAM)?;
        fs::write(sources.path().join(".cargo/config.toml"), registry.settings())?;
        fs::copy(workspace::root().join("rust-toolchain.toml"), sources.path().join("rust-toolchain.toml"))?;
        Ok(Self { sources, place })
    }

    /// Writes the manifest with this version of Kubernetes.
    fn choose(&self, packages: &[Package], kubernetes: Option<&str>) -> Result<()> {
        let root = fs::read_to_string(workspace::root().join("Cargo.toml"))?;
        Ok(fs::write(self.sources.path().join("Cargo.toml"), manifest(packages, &root, kubernetes)?)?)
    }

    /// Cargo with an empty home, so that it unpacks the packages as on a new machine, and without the network.
    fn cargo(&self) -> Command {
        let mut cargo = workspace::cargo();
        cargo.current_dir(self.sources.path()).env_remove(KUBERNETES.0);
        cargo.env("CARGO_HOME", self.place.join("home")).env("CARGO_TARGET_DIR", self.place.join("target"));
        cargo.env("CARGO_NET_OFFLINE", "true").env("CARGO_PROFILE_DEV_DEBUG", "0");
        cargo
    }

    /// Removes what an earlier run has built of our packages. Cargo takes a package of a registry for unchanged if it has the same
    /// version.
    fn forget(&self, packages: &[Package]) -> Result<()> {
        let mut clean = self.cargo();
        clean.args(["clean", "--quiet"]).args(super::selected(packages));
        workspace::run(&mut clean, "the registry does not have all packages that a project needs, see above")
    }

    fn run(&self) -> Result<()> {
        let mut build = self.cargo();
        build.args(["build", "--quiet"]);
        workspace::run(&mut build, "a project that depends on the packages does not build, see above")?;
        let mut program = Command::new(self.place.join("target/debug/consumer"));
        let output = program.current_dir(self.sources.path()).output().context("could not run the project")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && said.trim() == END,
            "the project that depends on the packages failed: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

/// The manifest of the project, with the versions of the root manifest `root`.
fn manifest(packages: &[Package], root: &str, kubernetes: Option<&str>) -> Result<String> {
    let mut text = String::from(
        "[package]\nname = \"consumer\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n[workspace]\n\n[dependencies]\n",
    );
    for Package { name, version, .. } in packages {
        writeln!(text, "{name} = {version:?}")?;
    }
    let versions = versions(root);
    let kubernetes = kubernetes.map(|version| format!("{version:?}, ")).unwrap_or_default();
    for (name, features) in [
        ("k8s-openapi", format!("{kubernetes}\"schemars\"")),
        ("kube", "\"derive\"".to_owned()),
        ("schemars", String::new()),
        ("serde", "\"derive\"".to_owned()),
        ("serde_json", String::new()),
        ("tokio", "\"macros\", \"rt\", \"test-util\"".to_owned()),
    ] {
        let version = versions.get(name).with_context(|| format!("Cargo.toml has no version of {name}"))?;
        writeln!(text, "{name} = {{ version = {version:?}, default-features = false, features = [{features}] }}")?;
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
    use super::super::{published, selected};
    use super::*;

    #[test]
    fn versions_of_both_forms_are_found() {
        let found = versions("a = \"1\"\nb = { features = [\"x\"], version = \"2.3\" }\nc = { path = \"c\" }\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2.3")]);
    }

    /// The part of the nightly step `crates` that takes seconds: it compiles nothing.
    #[test]
    fn registry_gives_a_project_all_packages_and_they_choose_no_version_of_kubernetes() {
        let folder = tempfile::tempdir().unwrap();
        let packages = published().unwrap();
        let mut package = workspace::cargo();
        package.args(["package", "--quiet", "--allow-dirty", "--no-verify", "--offline"]).args(selected(&packages));
        workspace::run(package.env("CARGO_TARGET_DIR", folder.path()), "cargo cannot package the crates").unwrap();
        let registry = Registry::create(folder.path().join("registry"), &folder.path().join("package")).unwrap();
        let project = Project::new(folder.path().to_owned(), &registry).unwrap();
        project.choose(&packages, None).unwrap();
        let mut tree = project.cargo();
        tree.args(["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}, features {f}"]);
        let output = tree.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        for Package { name, version, .. } in &packages {
            // After the version of a package from a folder, cargo names the folder.
            let line = format!("{name} v{version}, features ");
            assert!(lines.lines().any(|it| it.starts_with(&line)), "{name} does not come from the registry:\n{lines}");
        }
        let kubernetes: Vec<_> = lines.lines().filter(|line| line.starts_with("k8s-openapi v")).collect();
        assert!(!kubernetes.is_empty() && !kubernetes.iter().any(|line| line.contains("v1_")), "{kubernetes:?}");
        let offered = registry.kubernetes();
        assert!(
            offered.len() > 1 && offered.is_sorted() && offered.iter().all(|it| it.starts_with("v1_")),
            "{offered:?}"
        );
    }
}
